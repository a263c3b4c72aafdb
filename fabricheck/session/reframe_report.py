"""What ReFrame's run report says of a session and its test cases."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.jsonfile import read_json
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import read_judgement
from fabricheck.session.launches import Launch, Launched, deciding_launch, read_launched
from fabricheck.session.problems import find_applicability, find_problems
from fabricheck.session.run_folders import REPORT, runs_of

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
class SessionInfo:
    """What ReFrame's report says of a session as a whole. `version` is ReFrame's, `cases` how many it counted.

    `extras` came from --session-extras; `outputs` and `stages` are where ReFrame left the files of tests. `level`: the
    tags of the checks that were requested; None where that is not known.
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
    level: str | None = None


@dataclass(frozen=True)
class FinishedSession:
    """What ReFrame left in `folder`: every test case, and what is found of the session beside them and their runs.

    `without_report`: what is known of a session as a whole of which ReFrame left no report. `interrupted`: a signal was
    to end it. `outvoted`: test cases, on one node of a fleet or "", of which nothing slow counts; `decided`: those that
    launches decided together.
    """

    folder: Path
    cases: tuple[Case, ...]
    problems: tuple[Finding, ...]
    findings: tuple[Finding, ...] = ()
    without_report: SessionInfo | None = None
    interrupted: bool = False
    outvoted: frozenset[tuple[str, str]] = frozenset()
    decided: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(
        cls, folder: Path, cases: Sequence[Case], listed: int, status: int = 0, last_error: str = ""
    ) -> FinishedSession:
        """The session of test cases; the other arguments are those of `find_problems`."""
        problems = find_problems(listed, status, cases, last_error)
        return cls(folder, tuple(cases), problems, tuple(find_applicability(cases)))

    def instead(self, case: Case, node: str = "") -> FinishedSession:
        """With another launch of a case in place of the one that it has; on a `node` of a fleet alone where given."""
        (before,) = (each for each in self.cases if str(each) == str(case))
        case = before.with_nodes_of(case, [node]) if node else case
        cases = tuple(case if each is before else each for each in self.cases)
        return replace(self, cases=cases, findings=tuple(find_applicability(cases)))

    def with_launches(self, launched: Iterable[Launched]) -> FinishedSession:
        """With the launches that count in place of the first. Raises `UserError` where their reports are damaged."""
        session, launched = self, tuple(launched)
        # Of a fleet many nodes have theirs in one report.
        reports = {name: _moved_cases(self.folder / name) for name in {each.folder for each in launched} - {""}}
        for test in launched:
            for case in reports.get(test.folder, ()):
                if str(case) == test.case:
                    session = session.instead(case, test.node)
        findings = (*session.findings, *(each.finding for each in launched))
        outvoted = frozenset((each.case, each.node) for each in launched if each.outvoted)
        cases = tuple(each.outvoted() if (str(each), "") in outvoted else each for each in session.cases)
        decided = frozenset((each.case, each.node) for each in launched if each.is_decided)
        session = replace(session, cases=cases, outvoted=outvoted, decided=decided)
        # What several tests show of one part is one.
        every = [one for each in launched for one in each.intermittent]
        problems = {one.components or one: one for one in reversed(every)}
        return replace(session, problems=(*session.problems, *list(problems.values())[::-1]), findings=findings)

    @property
    def info(self) -> SessionInfo:
        """Raises `UserError` as `read_info` does."""
        return self.without_report or read_info(self.folder / REPORT)

    @property
    def files(self) -> tuple[Path, ...]:
        """The result files, in the order of their test cases."""
        return tuple(file for case in self.cases for file in case.result_files())


def read_session(folder: Path) -> FinishedSession:
    """The session whose files lie in `folder`, as `Launcher.run` left them there or on the machine that it came from.

    Raises `UserError` where ReFrame's report is not in it or cannot be read.
    """
    session = FinishedSession.of(folder, _moved_cases(folder), read_info(folder / REPORT).cases)
    return session.with_launches(read_launched(folder))


def _moved_cases(folder: Path) -> tuple[Case, ...]:
    """Those in the report of a folder, with their files where the folder is now.

    Raises `UserError` where a test has its files in another folder: what was measured there is no result of this run.
    """
    info, whole = read_info(folder / REPORT), folder.resolve()
    cases = read_cases(folder / REPORT, lambda case: _move(case, info, folder))
    for case in cases:
        for file in (*([case.folder] if case.folder is not None else []), *case.result_files()):
            if not file.resolve().is_relative_to(whole):
                raise UserError(f"{folder / REPORT}: {case} has its files in {file}, outside the folder of this run")
    return cases


def read_info(report: Path) -> SessionInfo:
    """What ReFrame's run report says of the session. Raises `UserError` where there is none or it is another file."""
    try:
        info = read_json(report)["session_info"]
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
            level=level_of(shlex.split(str(info.get("cmdline", "")))),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        raise UserError(f"{report}: is not a report of a run that ReFrame 4.10 wrote to its end") from None


def past_seconds(runs: Path, system: str) -> dict[str, float]:
    """How long each case `name @system:partition+environment` ran in the newest of the runs that left a whole report,
    without the builds that it waited for."""
    for folder in reversed(runs_of(runs, system)):
        with contextlib.suppress(UserError, ValueError, KeyError, TypeError, AttributeError):
            cases = [case for run in read_json(folder / REPORT)["runs"] for case in run["testcases"]]
            where = "{name} @{system}:{partition}+{environ}"
            return {where.format(**case): float(case["time_run"]) for case in cases if case.get("time_run")}
    return {}


def level_of(words: Sequence[str]) -> str | None:
    """The tags in a command line of ReFrame; `in part` where it also chooses by name. None for no words."""
    if not words:
        return None
    tags = [re.sub(r"[()$]", "", word[6:]).replace("|", "+") for word in words if word.startswith("--tag=")]
    in_part = any(re.match(r"(-[ntTx]|--(name|exclude|skip-\w+)\b|--tag$)", word) for word in words)
    return f"{'+'.join(tags) or 'all checks'}{', in part' if in_part else ''}"


def read_cases(report: Path, moved: Callable[[Case], Case] = lambda case: case) -> tuple[Case, ...]:
    """The test cases in ReFrame's run report; none where it wrote no report. `moved` says where their files are now.

    A case that was launched several times (--max-retries, --reruns) is the launch that decides. Raises `UserError`
    where the report is not whole.
    """
    if not report.exists():
        return ()
    content = read_json(report)
    launches: dict[tuple[str, str, str], list[Case]] = {}
    try:
        for record in (case for run in content["runs"] for case in run["testcases"]):
            case = moved(_case(record))
            read = replace(case, judged=read_judgement(case.folder) if case.folder is not None else None)
            launches.setdefault((record["unique_name"], record["partition"], record["environ"]), []).append(read)
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{report}: is not a report of a run that ReFrame 4.10 wrote to its end") from None
    return tuple(map(_deciding_launch, launches.values()))


def _deciding_launch(launches: Sequence[Case]) -> Case:
    """One of the launches of a case in a session (`deciding_launch`), with the verdicts of all."""
    verdicts = tuple(case.verdict for case in launches)
    slow = frozenset([launches[0].test])
    made = [Launch(each, slow if each is Verdict.DEGRADED else frozenset()) for each in verdicts]
    return replace(launches[deciding_launch(made)], launches=verdicts if len(launches) > 1 else ())


def _move(case: Case, info: SessionInfo, folder: Path) -> Case:
    """The case with its folder below `folder`, where that was moved since."""
    for before, now in ((info.outputs, folder / "output"), (info.stages, folder / "stage")):
        if case.folder is not None and case.folder.is_relative_to(before):
            return replace(case, folder=now / case.folder.relative_to(before))
    return case


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
        foreign="left_out" not in record,  # a check of Fabricheck has that
        not_applicable=record.get("not_applicable") is True,
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(sorted(map(str, value))) if isinstance(value, list) else ()
