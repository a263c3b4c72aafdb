"""How ReFrame is called to run or list a selection of the checks, and what it says where it cannot."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError, suggest, unwritable
from fabricheck.patterns import mistake_of
from fabricheck.state.programs import NOT_HERE
from fabricheck.suite import Suite, require_plain


@dataclass(frozen=True)
class Selection:
    """What to run. `system` may name a partition (`local:default`); the others select as ReFrame's options do. `jobs`:
    which tests share one (`fabricheck.rfm.shared_job`)."""

    system: str
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    jobs: str = "together"

    @property
    def whole_system(self) -> str:
        """The system without the partition."""
        return self.system.partition(":")[0]

    @property
    def chosen(self) -> dict[str, tuple[str, ...]]:
        """What it was chosen by, for a run that resumes it."""
        return {"tags": self.tags, "names": self.names, "environments": self.environments}

    @property
    def text(self) -> str:
        """What it was chosen by, for a person."""
        return ", ".join((*self.tags, *self.names)) or "all tests but the burn-in"

    @property
    def patterns(self) -> list[str]:
        """The names without their blanks: so ReFrame looks for them in those of the checks."""
        return [_harmless(name.replace(" ", "")) for name in self.names]

    @property
    def choice(self) -> list[str]:
        """The pattern of a test that has any of the tags, and not one that only begins so."""
        return [f"({'|'.join(self.tags)})$"] if len(self.tags) > 1 else [f"{tag}$" for tag in self.tags]

    def arguments(self) -> list[str]:
        """The options of ReFrame that select the checks."""
        pairs = [("--tag", self.choice), ("--name", self.patterns), ("--prgenv", self.environments)]
        # A burn-in takes as long as its --minutes say: it is a choice of its own.
        unasked = [] if self.tags or self.names else ["--exclude-tag=burn-in$"]
        chosen = [f"{option}={one}" for option, all_ in pairs for one in all_]
        return ["--system", self.system, *chosen, *unasked, *self.more]


def _harmless(pattern: str) -> str:
    """`pattern`, which ReFrame matches with all names, if that ends. `UserError` where it might take for ever."""
    if (mistake := mistake_of(pattern)) is not None:
        raise UserError(f"--name {pattern!r} {mistake}")
    return pattern


def use_built(programs: Path | None) -> tuple[str, ...]:
    """ReFrame's option that has ENVIRONMENT/fabricbench below `programs` taken, where there is such a folder."""
    if programs is None:
        return ()
    require_plain("the program of --built", programs)
    return (f"--setvar=BuildFabricbench.prebuilt={programs}",)


_CHOOSE = ("--tag=", "--name=", "--prgenv=")


@dataclass(frozen=True)
class Listing:
    """What ReFrame would run: `cases` are `name @partition+environment`, without builds.

    `notes`: what the system's settings say on stderr, such as of libraries that are not there.
    """

    cases: tuple[str, ...]
    notes: str


def list_suite(suite: Suite, selection: Selection, output: Path) -> Listing:
    """What `Launcher.run` would run. Raises `UserError` as it does."""
    command, environment = command_of(suite, selection), environment_of(suite, selection, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(output, error) from None
    listing = subprocess.run([*command, "--list=C"], env=environment, capture_output=True, text=True, check=False)
    out, err = listing.stdout, listing.stderr
    # Python's logging says so, with a traceback for each line that it cannot write, and the program goes on.
    if (lost := re.search(r"^OSError: \[Errno (\d+)\] (.+)$", err, re.MULTILINE)) and "--- Logging error ---" in err:
        raise unwritable(output, OSError(int(lost[1]), lost[2]))
    count = re.search(r"^Concretized (\d+) test case", out, re.MULTILINE)
    known = int(count[1]) if count is not None and listing.returncode == 0 else None
    require_listed(command, f"{out}\n{err}", known, suite.settings(selection.whole_system), output)
    cases = re.findall(r"^- (.+) /[0-9a-f]+ (@\S+)$", out, re.MULTILINE)
    return Listing(tuple(" ".join(case) for case in cases), err)


def planned_seconds(suite: Suite, selection: Selection, output: Path) -> dict[str, float]:
    """How long each test takes at most by its plan, by its name, as a dry run says; without those that have no plan."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**environment_of(suite, selection, output), "RFM_PREFIX": folder}
        command = [*command_of(suite, selection), "--dry-run"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return {
        name: float(took) for name, took in re.findall(r"^(.+): takes (\d+) s at most by", done.stdout, re.MULTILINE)
    }


def command_of(suite: Suite, selection: Selection) -> list[str]:
    """ReFrame's command, without what to do and where to leave files."""
    suite.require(selection.whole_system)
    # Nothing runs beside anything else. Not as a mode in the configuration: with that ReFrame 4.10.4 forgets --prgenv.
    checks = ["--exec-policy=serial", f"--checkpath={suite.root / 'checks'}", "--recursive"]
    return [*reframe_command(), *checks, *selection.arguments()]


# A line of a class body that has the tags of a test.
_TAGS = re.compile(r"^    tags = \{(.*)\}(?:  #.*)?$", re.MULTILINE)


def require_tags(checks: Path, tags: Iterable[str]) -> None:
    """Raises UserError for a tag that none of the checks has, unless some say in other ways which they have."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(checks.rglob("*.py"))]
    lines = [line for text in texts for line in _TAGS.findall(text)]
    if len(lines) < sum(len(re.findall(r"\btags\b", text)) for text in texts) or any("*" in line for line in lines):
        return
    known = sorted({tag for line in lines for tag in re.findall(r"[\w-]+", line)})
    for tag in tags:
        with contextlib.suppress(re.error):  # ReFrame says what is wrong with it
            if not any(re.fullmatch(tag, own) for own in known):
                raise UserError(f"no check has the tag {tag!r}: choose from {', '.join(known)}{suggest(tag, known)}")


def reframe_command() -> list[str]:
    """ReFrame in this very Python, which is the one that has the package that the checks import, else any on the PATH.

    Where ReFrame is installed for this Python elsewhere, as below a virtual environment with the system's packages, it
    has no script beside this Python. Raises `UserError` where there is none.
    """
    beside = Path(sys.executable).with_name("reframe")
    if not beside.exists() and importlib.util.find_spec("reframe") is not None:
        return [sys.executable, "-c", f"{NOT_HERE}; from reframe.frontend.cli import main; sys.exit(main())"]
    return [reframe_program()]


def reframe_program() -> str:
    """ReFrame beside this Python, else on the PATH. Raises `UserError` where there is none."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("reframe", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise UserError(f"no reframe in {beside} or on the PATH: install reframe-hpc for this Python")
    return program


def environment_of(suite: Suite, selection: Selection, output: Path) -> dict[str, str]:
    """The variables of ReFrame's process for a run that writes below `output`. Raises UserError for a path that ReFrame
    cannot take."""
    site = suite.site(selection.whole_system)
    for what, path in (("the suite", suite.root), ("the output", output.resolve()), (selection.whole_system, site)):
        require_plain(what, path)
    ours = {
        "RFM_CONFIG_FILES": ":".join(map(str, suite.config_files(selection.whole_system))),
        "RFM_PREFIX": str(output.resolve()),
        "RFM_REFERENCE_PREFIX": str(site.parent.parent / "reference_values"),
        # Whatever ReFrame would only warn of ends the run. ReFrame 4.9 does not know this and would refuse the option:
        # there `_require_listed` finds the warnings.
        "RFM_WARN_AS_ERROR": "yes",
        "RFM_COLORIZE": "no",
        "RFM_ENABLE_RESULTS_STORAGE": "no",  # the sample store has more, and no lock of another user ends a run
        "FABRICHECK_JOBS": selection.jobs,
        # CMake may come from a wheel, beside this Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    try:
        getpass.getuser()
    except (KeyError, OSError):  # in a container; ReFrame needs a name
        ours["LOGNAME"] = f"user{os.getuid()}"
    return {**os.environ, **ours}


def require_listed(command: Sequence[str], said: str, listed: int | None, settings: Path, folder: Path) -> int:
    """How many tests ReFrame listed. Raises `UserError` where it listed none, or warned: then what it `said` is left in
    `folder`."""
    if listed is None or re.search(r"^(?:\x1b\[[0-9;]*m)?WARNING: ", said, re.MULTILINE):
        log = folder / "listing.txt"
        try:
            log.write_text(said, encoding="utf-8")
            where = f"its output is in {log}"
        except OSError as error:
            log.unlink(missing_ok=True)
            where = f"its output could not be stored in {log}: {error.strerror}"
        raise UserError(f"ReFrame cannot list the checks: {_essence(said, settings)}; {where}")
    if not listed:
        by = [word.replace("--prgenv=", "--environment=") for word in command if word.startswith(_CHOOSE)]
        raise UserError(
            f"no check is selected by {shlex.join(by) or 'this system and its environments'}: `fabricheck run --help` "
            "lists the tags, and --list without these options all checks of the system"
        )
    return listed


def _essence(said: str, settings: Path) -> str:
    """What ReFrame's output says why it ended; where it has no word for it, the system's settings are to blame."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    begin = r"ERROR: (?!Traceback)|reframe: error: |WARNING: "
    errors = [line.partition(": ")[2] for line in lines if re.match(begin, line)]
    if errors:
        return re.sub(r"^(run session stopped: |user error: )+", "", errors[0])
    trace = said.rpartition("Traceback (most recent call last):\n")[2]
    places = re.findall(rf'^ +File "({re.escape(str(settings))})", (line \d+)', trace, re.MULTILINE)
    ended = re.findall(r"^\S.*", trace, re.MULTILINE) or lines[-1:] or ["no reason given"]
    return ": ".join([", ".join(places[-1]) if places else str(settings), ended[0]])
