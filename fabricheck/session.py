"""Runs the checks of a system through ReFrame, and makes sure that what should have run did run.

ReFrame's exit status alone is not enough: a check file that cannot be loaded, an environment that is missing or a job
without an accounting record leave fewer tests, or none, and still exit status 0. So the test cases are counted before
and after, and everything that is not a pass becomes a `Problem`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.results.records import Problem, Verdict

REPORT = "reframe.json"

# What ReFrame 4.10 itself says of a session in its report; what else is there came from --session-extras.
_OF_REFRAME = frozenset(
    [
        "cmdline",
        "config_files",
        "data_version",
        "hostname",
        "log_files",
        "num_aborted",
        "num_cases",
        "num_failures",
        "num_skipped",
        "prefix_output",
        "prefix_stage",
        "time_elapsed",
        "time_end",
        "time_end_unix",
        "time_start",
        "time_start_unix",
        "user",
        "uuid",
        "version",
        "workdir",
    ]
)


@dataclass(frozen=True)
class Suite:
    """The folders of a Fabricheck repository: `checks/`, `config/`, `site_configs/` and `reference_values/`."""

    root: Path

    def systems(self) -> tuple[str, ...]:
        return tuple(sorted(file.parent.name for file in self.root.glob("site_configs/*/settings.py")))

    def settings(self, system: str) -> Path:
        return self.root / "site_configs" / system / "settings.py"

    def config_files(self, system: str) -> tuple[Path, ...]:
        return (self.root / "config" / "common.py", self.settings(system))


@dataclass(frozen=True)
class Selection:
    """What to run. `system` may name a partition (`local:default`); the others select as ReFrame's options do."""

    system: str
    tags: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @property
    def whole_system(self) -> str:
        """The system without the partition."""
        return self.system.partition(":")[0]

    def arguments(self) -> list[str]:
        # ReFrame looks for names in those of the checks without their blanks.
        names = [name.replace(" ", "") for name in self.names]
        pairs = [("--tag", self.tags), ("--name", names), ("--prgenv", self.environments)]
        return ["--system", self.system, *(f"{option}={one}" for option, all_ in pairs for one in all_), *self.more]


@dataclass(frozen=True)
class Case:
    """One test case of a run as ReFrame reports it. `result` is "pass" or one of ReFrame's words for anything else.

    `name` starts with that of the test class, which its parameters follow; `partition` is `system:partition`.
    `attributes` are those of the test that are text or whole numbers, by which references may be indexed. `folder` is
    where ReFrame left its files, `None` where it did not get that far. `not_applicable`: it was skipped because the
    site's own description leaves nothing to measure. `declared_lack`: what the site says that the machine lacks for it.
    """

    name: str
    environment: str
    partition: str
    attributes: Mapping[str, str | int]
    result: str
    phase: str | None
    reason: str | None
    folder: Path | None
    is_build: bool
    tags: tuple[str, ...] = ()
    not_applicable: bool = False
    declared_lack: str = ""

    def __str__(self) -> str:
        return f"{self.name} @{self.partition}+{self.environment}"

    @property
    def test(self) -> str:
        """Name of the test class."""
        return self.name.split()[0]

    @property
    def verdict(self) -> Verdict:
        """What ReFrame's result comes to: what the test says itself, else INCOMPLETE where nothing was judged."""
        if self.result == "pass":
            return Verdict.PASS
        named = named_verdict(self.reason or "")
        if named is not None:
            return named
        judged = self.phase in ("sanity", "performance") and self.result_files()
        return Verdict.FAIL if judged else Verdict.INCOMPLETE

    @property
    def does_not_apply(self) -> bool:
        """Whether it was skipped, and rightly: the site's own description says so."""
        return self.result == "skip" and self.not_applicable

    @property
    def name_without_repeat(self) -> str:
        """The name that all repetitions of `--repeat` share."""
        return re.sub(r" %\.?repeat_no=\d+", "", self.name)

    def result_files(self) -> list[Path]:
        """What was measured; nothing where the test was skipped, whatever it wrote down about the reason."""
        if self.folder is None or self.result == "skip":
            return []
        # A program that ends before it knows what it measures leaves an empty file.
        return sorted(file for file in self.folder.glob("*.jsonl") if file.stat().st_size > 0)


def named_verdict(reason: str) -> Verdict | None:
    """The verdict that a check gave as the reason for which it failed; None where it named none."""
    named = re.search(rf"\b({'|'.join(one.value for one in Verdict if one is not Verdict.PASS)})\b", reason)
    return Verdict(named[1]) if named else None


@dataclass(frozen=True)
class Session:
    """What came of a run: every test case, the result files and all that keeps the run from being green."""

    folder: Path
    cases: tuple[Case, ...]
    files: tuple[Path, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class SessionInfo:
    """What ReFrame's report says of a session as a whole. `version` is ReFrame's, `cases` how many it counted.

    `extras` came from --session-extras; `outputs` and `stages` are where ReFrame left the files of tests.
    """

    uuid: str
    started: datetime
    ended: datetime
    host: str
    version: str
    cases: int
    extras: Mapping[str, str]
    outputs: Path
    stages: Path


def run_suite(suite: Suite, selection: Selection, output: Path) -> Session:
    """Runs the selected checks and returns what came of them; progress goes to the terminal.

    Everything is left below `output`: what this run alone made in runs/<system>-<time>/, ReFrame's database and logs
    beside it. Raises `UserError` when the system is unknown, when nothing is selected, or when ReFrame refuses.
    """
    command, environment = _command(suite, selection), _environment(suite, selection, output)
    folder = _new_folder(output.resolve() / "runs", selection.whole_system)
    report = folder / REPORT
    command += [f"--stage={folder / 'stage'}", f"--output={folder / 'output'}", f"--report-file={report}"]
    listed = _listing(command, environment, suite.settings(selection.whole_system), folder).count
    status = _run(["--run"], command, environment)
    cases = read_cases(report)
    files = tuple(file for case in cases for file in case.result_files())
    problems = find_problems(listed, status, cases, _last_error(output / "reframe.log"))
    return Session(folder, cases, files, tuple(problems))


@dataclass(frozen=True)
class Listing:
    """What ReFrame would run. `count` has the builds too, `cases` are `name @partition+environment` without them.

    `notes`: what the system's settings say on stderr, such as of libraries that are not there.
    """

    count: int
    cases: tuple[str, ...]
    notes: str


def list_suite(suite: Suite, selection: Selection, output: Path) -> Listing:
    """What `run_suite` would run. Raises `UserError` as it does."""
    command, environment = _command(suite, selection), _environment(suite, selection, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(output, error) from None
    return _listing(command, environment, suite.settings(selection.whole_system), output)


def _command(suite: Suite, selection: Selection) -> list[str]:
    """ReFrame's, without what to do and where to leave files."""
    if selection.whole_system not in suite.systems():
        known = ", ".join(suite.systems()) or "none"
        raise UserError(f"unknown system '{selection.whole_system}': {suite.root / 'site_configs'} has {known}")
    return [
        # Nothing runs beside anything else, and whatever ReFrame would only warn of ends the run. Not as a mode in the
        # configuration: with --mode, ReFrame 4.10.4 forgets --prgenv.
        *(reframe_program(), "--exec-policy=serial", "--warn-as-error"),
        *("--checkpath", str(suite.root / "checks"), "--recursive"),
        *selection.arguments(),
    ]


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
            raise _unwritable(runs, error) from None
        return folder
    raise AssertionError("unreachable")


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"cannot write below {folder}: {error.strerror}: choose another folder with --output")


def reframe_program() -> str:
    """ReFrame beside this Python, else on the PATH. Raises `UserError` where there is none."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("reframe", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise UserError(f"there is no reframe in {beside} or on the PATH: install reframe-hpc for this Python")
    return found


def find_problems(listed: int, status: int, cases: Sequence[Case], last_error: str = "") -> list[Problem]:
    """Everything that keeps a run from being green; as PASS, which tests do not apply to the system, and
    which of them could be measured although the site says otherwise.

    `listed`: how many test cases ReFrame said it would run. `status`: its exit status. `last_error`: what it said last,
    which counts where no test case explains the status.
    """
    problems = []
    if len(cases) != listed:
        problems.append(Problem(Verdict.INCOMPLETE, f"{listed} test cases were selected and {len(cases)} were run"))
    for members in _alike(case for case in cases if case.does_not_apply):
        what = "does not apply" if len(members) == 1 else "do not apply"
        problems.append(Problem(Verdict.PASS, _say(members, what)))
    failed = [case for case in cases if case.result != "pass" and not case.does_not_apply]
    problems += [failure_of(case) for case in failed if case.result_files()]
    for members in _alike(case for case in failed if not case.result_files()):
        problems.append(Problem(members[0].verdict, _say(members, _how(members[0]))))
    for case in (each for each in cases if each.result == "pass"):
        if not case.is_build and not case.result_files():
            problems.append(Problem(Verdict.INCOMPLETE, f"{case}: passed without leaving a result file"))
        elif case.declared_lack:
            text = f"was measured, although the site says that this machine lacks {case.declared_lack}"
            problems.append(Problem(Verdict.PASS, f"{case}: {text}: take that out of the partition's lacks"))
    if not any(not case.is_build and not case.not_applicable for case in cases):
        problems.append(Problem(Verdict.INCOMPLETE, "not one measurement was run"))
    if status != 0 and all(each.verdict is Verdict.PASS for each in problems):
        why = last_error or "it does not say why"
        problems.append(Problem(Verdict.INCOMPLETE, f"ReFrame ended with exit status {status}: {why}"))
    return problems


def failure_of(case: Case) -> Problem:
    """What keeps a case from being green that did not pass."""
    return Problem(case.verdict, _say([case], _how(case)))


def _how(case: Case) -> str:
    """In which way a case did not pass."""
    return f"{case.result} in the {case.phase} phase" if case.phase else case.result


def _why(case: Case) -> str:
    return (case.reason or "no reason given").splitlines()[0]


def _alike(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases of one partition and environment that say the same; in the order of the first of each."""
    found: dict[tuple[str, str, str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.partition, case.environment, _how(case), _why(case)), []).append(case)
    return list(found.values())


def _say(alike: Sequence[Case], what: str) -> str:
    """One line about cases that say the same."""
    first, names = alike[0], Counter(case.test for case in alike)
    if len(alike) == 1:
        return f"{first}: {what}: {_why(first)}"
    named = ", ".join(name if times == 1 else f"{name} ({times})" for name, times in names.items())
    return f"{len(alike)} tests @{first.partition}+{first.environment}: {what}: {_why(first)}: {named}"


def _last_error(log: Path) -> str:
    """The last error in ReFrame's log; empty where there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    errors = re.findall(r"^\[[^]]*\] (?:error|critical): [^:]*: (?:ERROR: )?(.*)$", "\n".join(lines), re.MULTILINE)
    return errors[-1] if errors else ""


def read_cases(report: Path) -> tuple[Case, ...]:
    """The test cases in ReFrame's run report; none where it wrote no report. The last try of a case counts."""
    if not report.exists():
        return ()
    runs = json.loads(report.read_text())["runs"]
    cases = {}
    for one in (case for run in runs for case in run["testcases"]):
        cases[one["unique_name"], one["partition"], one["environ"]] = _case(one)
    return tuple(cases.values())


def read_info(report: Path) -> SessionInfo:
    """What ReFrame's run report says of the session. Raises `UserError` where there is none or it is another file."""
    try:
        info = json.loads(report.read_text())["session_info"]
        return SessionInfo(
            uuid=str(info["uuid"]),
            started=datetime.fromtimestamp(info["time_start_unix"], timezone.utc),
            ended=datetime.fromtimestamp(info["time_end_unix"], timezone.utc),
            host=str(info["hostname"]),
            version=str(info["version"]),
            cases=int(info["num_cases"]),
            extras={name: str(value) for name, value in sorted(info.items()) if name not in _OF_REFRAME},
            outputs=Path(info["prefix_output"]),
            stages=Path(info["prefix_stage"]),
        )
    except OSError as error:
        raise UserError(f"{report}: cannot be read: {error.strerror}; ReFrame writes it when a run ends") from None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise UserError(f"{report}: is no report of a run that ReFrame 4.10 wrote to its end") from None


def read_session(folder: Path) -> Session:
    """The session whose files lie in `folder`, as `run_suite` left them there or on the machine that it came from.

    Raises `UserError` where ReFrame's report is not in it or cannot be read.
    """
    report = folder / REPORT
    info = read_info(report)
    try:
        cases = tuple(_move(case, info, folder) for case in read_cases(report))
    except (KeyError, TypeError):
        raise UserError(f"{report}: is no report of a run that ReFrame 4.10 wrote to its end") from None
    files = tuple(file for case in cases for file in case.result_files())
    return Session(folder, cases, files, tuple(find_problems(info.cases, 0, cases)))


def _move(case: Case, info: SessionInfo, folder: Path) -> Case:
    """The case with its folder below `folder`, where that was moved since."""
    for before, now in ((info.outputs, folder / "output"), (info.stages, folder / "stage")):
        if case.folder is not None and case.folder.is_relative_to(before):
            return replace(case, folder=now / case.folder.relative_to(before))
    return case


def _texts(value: object) -> tuple[str, ...]:
    return tuple(sorted(map(str, value))) if isinstance(value, list) else ()


def _case(record: Mapping[str, object]) -> Case:
    def text(name: str) -> str | None:
        value = record.get(name)
        return None if value is None else str(value)

    # ReFrame moves the files of a test that passed from the stage to the output folder, and leaves the others' there.
    folder = text("outputdir" if record["result"] == "pass" else "stagedir")
    return Case(
        name=str(record["name"]),
        environment=str(record["environ"]),
        partition=f"{record['system']}:{record['partition']}",
        attributes={
            **{name: value for name, value in record.items() if isinstance(value, (str, int))},
            "$system": str(record["system"]),
            "$partition": f"{record['system']}:{record['partition']}",
            "$environ": str(record["environ"]),
        },
        result=str(record["result"]),
        phase=text("fail_phase"),
        reason=text("fail_reason") or text("left_out") or None,
        folder=Path(folder) if folder else None,
        is_build=bool(record["fixture"]),
        tags=_texts(record.get("tags")),
        not_applicable=record.get("not_applicable") is True,
        declared_lack=text("declared_lack") or "",
    )


def _environment(suite: Suite, selection: Selection, output: Path) -> dict[str, str]:
    ours = {
        "RFM_CONFIG_FILES": ":".join(map(str, suite.config_files(selection.whole_system))),
        "RFM_PREFIX": str(output.resolve()),
        "RFM_REFERENCE_PREFIX": str(suite.root / "reference_values"),
        # CMake may come from a wheel, beside this Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        ours["RFM_COLORIZE"] = "no"
    return {**os.environ, **ours}


def _listing(command: Sequence[str], environment: Mapping[str, str], settings: Path, folder: Path) -> Listing:
    """Raises `UserError` where nothing is selected or ReFrame fails; what it said then is left in `folder`."""
    listing = subprocess.run([*command, "--list=C"], env=environment, capture_output=True, text=True, check=False)
    count = re.search(r"^Concretized (\d+) test case", listing.stdout, re.MULTILINE)
    if listing.returncode != 0 or count is None:
        said, log = f"{listing.stdout}\n{listing.stderr}", folder / "listing.txt"
        log.write_text(said, encoding="utf-8")
        raise UserError(f"ReFrame cannot list the checks: {_essence(said, settings)}; all that it said is in {log}")
    if int(count[1]) == 0:
        raise UserError(
            "no check is selected: there is none for this system and its environments with these tags and names"
        )
    cases = re.findall(r"^- (.+) /[0-9a-f]+ (@\S+)$", listing.stdout, re.MULTILINE)
    return Listing(int(count[1]), tuple(" ".join(case) for case in cases), listing.stderr)


def _essence(said: str, settings: Path) -> str:
    """What ReFrame's output says why it ended; where it has no word for it, the system's settings are to blame."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.partition(": ")[2] for line in lines if re.match(r"ERROR: (?!Traceback)|reframe: error: ", line)]
    if errors:
        return re.sub(r"^(run session stopped: |user error: )+", "", errors[0])
    trace = said.rpartition("Traceback (most recent call last):\n")[2]
    places = re.findall(rf'^ +File "({re.escape(str(settings))})", (line \d+)', trace, re.MULTILINE)
    ended = re.findall(r"^\S.*", trace, re.MULTILINE) or lines[-1:] or ["it does not say why"]
    return ": ".join([", ".join(places[-1]) if places else str(settings), ended[0]])


def _run(action: Sequence[str], command: Sequence[str], environment: Mapping[str, str]) -> int:
    process = subprocess.Popen([*command, *action], env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal sent it to ReFrame too, which ends its jobs and writes its report: wait for that.
            continue
