"""Runs the checks of a system through ReFrame, and makes sure that what should have run did run.

ReFrame's exit status alone is not enough: a check file that cannot be loaded, an environment that is missing or a job
without an accounting record leave fewer tests, or none, and still exit status 0. So the test cases are counted before
and after, and everything that is not a pass becomes a problem (fabricheck.session.problems).
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.fleet.record import FOLDER as FLEET
from fabricheck.fleet.record import Fleet
from fabricheck.fleet.resume import RESUMES, carry_on
from fabricheck.fleet.settings import write_settings
from fabricheck.patterns import mistake_of
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.abandoned import Started, leave_started, unwritable
from fabricheck.session.check_files import check_files
from fabricheck.session.process import start
from fabricheck.session.progress import Progress, past_seconds
from fabricheck.session.reading import REPORT, Session, read_cases, read_info
from fabricheck.session.scrub import scrub, scrub_database
from fabricheck.state.programs import NOT_HERE
from fabricheck.suite import Suite, require_plain

DATABASE = "results.db"  #: ReFrame's, beside the runs (config/common.py).


#: What ReFrame printed, in the folder of a session.
OUTPUT = "reframe.out"


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
    def patterns(self) -> list[str]:
        """The names without their blanks: so ReFrame looks for them in those of the checks."""
        return [_harmless(name.replace(" ", "")) for name in self.names]

    @property
    def choice(self) -> list[str]:
        """The pattern of a test that has any of the tags, and not one that only begins so."""
        return [f"({'|'.join(self.tags)})$"] if len(self.tags) > 1 else [f"{tag}$" for tag in self.tags]

    def arguments(self) -> list[str]:
        pairs = [("--tag", self.choice), ("--name", self.patterns), ("--prgenv", self.environments)]
        return ["--system", self.system, *(f"{option}={one}" for option, all_ in pairs for one in all_), *self.more]


def run_suite(
    suite: Suite,
    selection: Selection,
    output: Path,
    progress: Progress | None = None,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    fleet: Fleet | None = None,
    earlier: Path | None = None,
    has_locks: bool = True,
) -> Session:
    """Runs the selected checks and gives what came of them. What ReFrame prints goes to a file and to `progress`.

    `meanwhile` is called while ReFrame reads the checks, before any of them runs; what it raises ends all that. With a
    `fleet` the checks run on its nodes, inside its job; its folder is that of the run from then on. Without, what an
    `earlier` run measured to its end is taken over.

    If it does not get to its end, the next run judges what is there. Where files cannot be locked (not `has_locks`),
    ReFrame keeps no database of results, which nothing but `reframe --list-stored-sessions` reads.

    Everything is left below `output`: what this run alone made in runs/<system>-<time>/, ReFrame's database and logs
    beside it. Raises `UserError` when the system is unknown, when nothing is selected, or when ReFrame refuses.
    """
    command, settings = _command(suite, selection), suite.settings(selection.whole_system)
    environment = _environment(suite, selection, output, has_locks=has_locks)
    folder = _new_folder(output.resolve() / "runs", selection.whole_system)
    if fleet is not None:
        environment["RFM_CONFIG_FILES"] = _files_inside(fleet, folder / FLEET, suite)
    elif earlier is not None:
        environment[RESUMES] = str(earlier)
    (mark := (progress and progress.mark) or (lambda _: None))("reading the checks …")
    try:
        with start([*command, *_places(folder)], environment, folder / OUTPUT) as reframe:
            meanwhile()
            count, said = reframe.listed(), (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
            listed = _require_listed(command, said, count, settings, folder)
            if progress is not None:
                progress.past = past_seconds(folder.parent, selection.whole_system, REPORT)
            leave_started(folder, Started.now(selection.whole_system, listed))
            ended = reframe.run(progress)
    except UserError:
        mark("")
        if not (folder / "listing.txt").exists():  # nothing was measured, and ReFrame said nothing
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
        raise
    scrub(folder, environment)
    with contextlib.suppress(UserError):
        scrub_database(output / DATABASE, read_info(folder / REPORT).uuid, environment)
    return _session(folder, listed, *ended, output)


def launch(
    suite: Suite,
    selection: Selection,
    cases: Sequence[Case],
    folder: Path,
    *,
    output: Path,
    progress: Progress | None,
    has_locks: bool,
    fleet: Fleet | None = None,
) -> tuple[tuple[Case, ...], str]:
    """Launches test cases of one partition and environment once more, after a run of `selection`, below `folder`.

    With a `fleet` on its nodes, inside its job. What came of those that got to run, and by which signal ReFrame was to
    end; empty where by none.
    """
    environment = _environment(suite, selection, output, has_locks=has_locks)
    files = check_files(suite.root / "checks", selection.choice, selection.patterns)
    hashes = tuple(f"/{case.attributes['hashcode']}" for case in cases)
    own = Selection(cases[0].partition, (), hashes, (f"^{re.escape(cases[0].environment)}$",), selection.more)
    folder.mkdir()
    if fleet is not None:
        environment["RFM_CONFIG_FILES"] = _files_inside(fleet, folder / FLEET, suite)
    report = folder / REPORT
    command = [*_reframe(files), *own.arguments(), *_places(folder)]
    if progress is not None:
        names = {case.name for case in cases}
        past = past_seconds(folder.parent.parent, selection.whole_system, REPORT)
        progress.past = {name: seconds for name, seconds in past.items() if name in names}
    with start(command, environment, folder / OUTPUT) as reframe:
        _, ended_by = reframe.run(progress)
    scrub(folder, environment)
    with contextlib.suppress(UserError):
        scrub_database(output / DATABASE, read_info(report).uuid, environment)
        asked = set(map(str, cases))
        return tuple(case for case in read_cases(report) if str(case) in asked), ended_by
    return (), ended_by


def _files_inside(fleet: Fleet, folder: Path, suite: Suite) -> str:
    """ReFrame's settings inside the job of a fleet, whose folder is made."""
    folder.mkdir()
    placed = replace(fleet, folder=folder)
    placed.write()
    carry_on(placed)
    *others, settings = suite.config_files(fleet.system)
    return ":".join(map(str, (*others, write_settings(placed, settings))))


def _session(folder: Path, listed: int, status: int, ended_by: str, output: Path) -> Session:
    """What ReFrame left, which ended with this status, and by which signal where we were to end."""
    try:
        cases, error = read_cases(folder / REPORT), _last_error(output / "reframe.log")
    except UserError as damage:
        cases, error = (), str(damage)
    session = Session.of(folder, cases, listed, status, error)
    if not ended_by:
        return session
    text = f"{ended_by} ended the run before all tests were"
    if (fleet := Fleet.of_run(folder)) is not None:
        fleet.end(text)
    problem = Finding("run-interrupted", Verdict.INCOMPLETE, text)
    return replace(session, problems=(problem, *session.problems), interrupted=True)


def _harmless(pattern: str) -> str:
    """`pattern`, which ReFrame matches with all names, if that ends. `UserError` where it might take for ever."""
    if (mistake := mistake_of(pattern)) is not None:
        raise UserError(f"--name {pattern!r} {mistake}")
    return pattern


_CHOOSE = ("--tag=", "--name=", "--prgenv=")


@dataclass(frozen=True)
class Listing:
    """What ReFrame would run: `cases` are `name @partition+environment`, without builds.

    `notes`: what the system's settings say on stderr, such as of libraries that are not there.
    """

    cases: tuple[str, ...]
    notes: str


def list_suite(suite: Suite, selection: Selection, output: Path) -> Listing:
    """What `run_suite` would run. Raises `UserError` as it does."""
    command, environment = _command(suite, selection), _environment(suite, selection, output)
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
    _require_listed(command, f"{out}\n{err}", known, suite.settings(selection.whole_system), output)
    cases = re.findall(r"^- (.+) /[0-9a-f]+ (@\S+)$", out, re.MULTILINE)
    return Listing(tuple(" ".join(case) for case in cases), err)


def _command(suite: Suite, selection: Selection) -> list[str]:
    """ReFrame's, without what to do and where to leave files."""
    suite.require(selection.whole_system)
    files = check_files(suite.root / "checks", selection.choice, selection.patterns)
    return [*_reframe(files), *selection.arguments()]


def _reframe(files: Iterable[Path]) -> list[str]:
    # Nothing runs beside anything else. Not as a mode in the configuration: with that ReFrame 4.10.4 forgets --prgenv.
    return [*reframe_command(), "--exec-policy=serial", *(f"--checkpath={each}" for each in files)]


def _places(folder: Path) -> list[str]:
    """Where ReFrame leaves what it makes."""
    return [f"--stage={folder / 'stage'}", f"--output={folder / 'output'}", f"--report-file={folder / REPORT}"]


def _new_folder(runs: Path, system: str) -> Path:
    """A folder that no other run has, even one that starts in the same second."""
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    for number in itertools.count(1):
        folder = runs / (f"{system}-{started}" if number == 1 else f"{system}-{started}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable(runs, error) from None
        return folder
    raise AssertionError("unreachable")


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


def _last_error(log: Path) -> str:
    """The last error in ReFrame's log; empty where there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    errors = re.findall(r"^\[[^]]*\] (?:error|critical): [^:]*: (?:ERROR: )?(.*)$", "\n".join(lines), re.MULTILINE)
    return errors[-1] if errors else ""


def _environment(suite: Suite, selection: Selection, output: Path, *, has_locks: bool = True) -> dict[str, str]:
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
        "FABRICHECK_JOBS": selection.jobs,
        # CMake may come from a wheel, beside this Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    # Those that another user of a shared suite made first may not be everybody's.
    files = [file for name in (DATABASE, ".db.lock") if (file := output / name).exists()]
    if not has_locks or not all(os.access(file, os.W_OK) for file in files):
        ours["RFM_ENABLE_RESULTS_STORAGE"] = "no"
    try:
        getpass.getuser()
    except (KeyError, OSError):  # in a container; ReFrame needs a name
        ours["LOGNAME"] = f"user{os.getuid()}"
    return {**os.environ, **ours}


def _require_listed(command: Sequence[str], said: str, listed: int | None, settings: Path, folder: Path) -> int:
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
