"""What a session came to: the verdicts of its runs, and its own problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fabricheck.findings.case_runs import CaseRun
from fabricheck.findings.of_session import find_all
from fabricheck.interleaved.tuning_effect import find_tuning_effects
from fabricheck.judge.overall import overall
from fabricheck.judge.references import ALL_OTHERS
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.session.problems import failure_of
from fabricheck.session.reading import Session
from fabricheck.site.validation import test_classes
from fabricheck.suite import Suite
from fabricheck.suites.sources import load_tools
from fabricheck.tuning import load_profiles


@dataclass(frozen=True)
class Outcome:
    """What a run of the suite came to: `problems` are those of the run as a whole, not of one result file.

    `cases` are those that left the files of `judged`, in the same order.
    """

    verdict: Verdict
    problems: tuple[Problem, ...]
    judged: tuple[RunJudgement, ...]
    cases: tuple[Case, ...]


def require_files(suite: Suite, system: str) -> None:
    """Raises UserError for the first mistake in a file that a run on `system` needs, but ReFrame's own settings.

    ReFrame would find it only in the middle of the run, with the traceback of a check, or not at all.
    """

    SystemJudge.of(system, suite.root)
    load_profiles(suite.root / "config" / "tuning.yaml")
    load_tools(suite.root / "config" / "vendor.yaml")


def judge_session(session: Session, suite: Suite, system: str) -> Outcome:
    """Judges every result file of a session against the topology, the references and the policy of the suite.

    The verdict is the worst of all files and of the session's own problems.
    """

    judge = SystemJudge.of(system, suite.root)
    found = [(case, file) for case in session.cases for file in case.result_files()]
    judged = tuple(
        replace(judge.judge(read_run(file), case.test, case.attributes), test=str(case)) for case, file in found
    )
    runs = tuple(_case_run(each, case) for each, (case, _) in zip(judged, found, strict=True))
    problems = (
        *not_said_by_runs(session, judged),
        *_missing_checks(suite, judge),
        *find_all(runs, judge),
        *_found_by_turns(session.cases, judge),
    )
    verdict, _ = overall(judged, problems)
    return Outcome(verdict, problems, judged, tuple(case for case, _ in found))


def not_said_by_runs(session: Session, judged: Sequence[RunJudgement]) -> Iterable[Problem]:
    """The session's problems, without those of test cases whose runs say the same themselves, and no word less.

    A check that failed says its worst, and may add what only it knows, such as the launcher's last words.
    """

    said: dict[str, set[str]] = {}
    for each in judged:
        lines = said.setdefault(each.test, set())
        lines |= {f"{one.verdict.value}: {one.message}" for one in each.problems}
        lines |= {f"{one.verdict.value}: {one.name}: {one.reason}" for one in each.judgements}
    failed = (case for case in session.cases if case.result == "fail")
    repeated = {failure_of(case) for case in failed if _worst_of(case) in said.get(str(case), ())}
    return (each for each in session.problems if each not in repeated)


def _worst_of(case: Case) -> str:
    """What a check said that failed, without ReFrame's words before it and the number of others after it."""
    (first, *_) = (case.reason or "").splitlines() or [""]
    return re.sub(r" \(and \d+ more\)$", "", first.partition(" error: ")[2])


def _missing_checks(suite: Suite, judge: SystemJudge) -> Iterable[Problem]:
    """A check file that is gone leaves no trace in ReFrame, but the system's references still name its tests."""

    if judge.references is None:
        return
    known = test_classes(suite.root / "checks")
    for name in (*judge.references.tests, *judge.references.uncalibrated):
        if name not in (*known, ALL_OTHERS):
            message = (
                f"{judge.references.path} names {name}, which is not in {suite.root / 'checks'}: is a file missing?"
            )
            yield Problem(Verdict.INCOMPLETE, message)


def _case_run(judged: RunJudgement, case: Case) -> CaseRun:
    """A check that was given another verdict than one on speed or data measured something else, or not all."""

    trusted = case.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE)
    return CaseRun(judged.run, case.test, case.environment, case.partition, case.tags, trusted)


def _found_by_turns(cases: Iterable[Case], judge: SystemJudge) -> Iterable[Problem]:
    """What settings change, of the cases whose launches are comparable: their own sanity says the others' problems."""

    comparable = (case for case in cases if case.result == "pass" or case.phase == "performance")
    return find_tuning_effects((case.folder for case in comparable if case.folder), judge.policy)
