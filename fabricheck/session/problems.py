"""What the test cases of a session say beside their measurements: what keeps it from being green, and what does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding, with_files
from fabricheck.records.verdict import Verdict
from fabricheck.results.start_failures import start_failures

# What a scheduler's command for a job says where it refuses one.
_REFUSED = re.compile(r"(?:sbatch|srun|salloc|qsub|bsub|flux)\b.*?\berror: .+", re.IGNORECASE)
# ReFrame on a build that reached its limit; and where a build says why it ended, before all that failed for that.
_TIMED_OUT = re.compile(r"job timed out \([\d.]+s > ([\d.]+)s\)")
_ERROR = re.compile(r"^fabricheck: |\berror\b[: ]", re.IGNORECASE)


class Known:
    """Findings, to tell which others are the same: of one code, about the same components, metrics and files.

    A check sees its own files only: where the session finds the same in several, that is the same finding; and so it is
    where they disagree about some of its metrics. It is not where the check's verdict is worse.
    """

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._found: dict[tuple[str, tuple[Component, ...]], list[Finding]] = {}
        for finding in findings:
            self._found.setdefault((finding.code, finding.components), []).append(finding)

    @classmethod
    def of_session(cls, judged: Iterable[RunJudgement], told: Iterable[Finding]) -> Known:
        """What is found in the runs of a session, and in all of them together."""
        findings = list(told)
        for run in judged:
            bad = (each.finding for each in run.judgements if each.verdict is not Verdict.PASS)
            findings += (each if each.files else replace(each, files=(run.run.path,)) for each in run.all_problems)
            findings += with_files(bad, run.run.path)
        return cls(findings)

    def __contains__(self, finding: Finding) -> bool:
        metrics, files = set(finding.metrics), set(finding.files)
        return any(
            files <= set(one.files)
            and ((not metrics and not one.metrics) or bool(metrics & set(one.metrics)))
            and SEVERITY[finding.verdict] <= SEVERITY[one.verdict]
            for one in self._found.get((finding.code, finding.components), ())
        )


def find_problems(listed: int, status: int, cases: Sequence[Case], last_error: str = "") -> tuple[Finding, ...]:
    """What keeps a session from being green beside its test cases (`problems_of_cases`) and its measurements.

    `listed`: how many test cases ReFrame said it would run. `status`: its exit status. `last_error`: what it said last,
    which counts where no test case explains the status.
    """
    problems = []
    if len(cases) != listed:
        problems.append(
            Finding("tests-missing", Verdict.INCOMPLETE, f"{listed} test cases were selected, but {len(cases)} ran")
        )
    if not any(not case.is_build and not case.not_applicable for case in cases):
        problems.append(Finding("nothing-measured", Verdict.INCOMPLETE, "no measurement ran"))
    # With --reruns ReFrame's status is 1 where any launch failed, also one that others outvoted.
    is_outvoted = status == 1 and not last_error and any(set(case.launches) - {Verdict.PASS} for case in cases)
    is_explained = bool(problems) or any(True for _ in problems_of_cases(cases))
    if status != 0 and not is_explained and not is_outvoted:
        why = last_error or "no reason given"
        problems.append(
            Finding("reframe-failed", Verdict.INCOMPLETE, f"ReFrame ended with exit status {status}: {why}")
        )
    return tuple(problems)


def problems_of_cases(cases: Iterable[Case], known: Known | None = None) -> Iterator[Finding]:
    """What keeps test cases from being green, by what their checks found; without what is `known` of their runs.

    Cases without a result of which the same is found are one line.
    """
    known = known or Known()
    lost: dict[tuple[str, str, Finding], list[Case]] = {}
    for case in cases:
        if case.does_not_apply:
            continue
        measured = bool(case.result_files())
        for problem in _found_in(case):
            if problem in known:
                continue
            if measured:
                yield replace(problem, message=_say([case], problem.reason))
            else:
                lost.setdefault((case.partition, case.environment, problem), []).append(case)
        if case.result == "pass" and not case.is_build and not measured:
            yield Finding("no-result", Verdict.INCOMPLETE, f"{case}: passed without leaving a result file")
    for (_, _, problem), members in lost.items():
        yield replace(problem, message=_say(members, problem.reason))


def _found_in(case: Case) -> list[Finding]:
    """What keeps a case from being green: all that its check found, else why it ended."""
    if case.verdict is Verdict.PASS:
        return []
    problems = [each for each in case.judged.findings if each.is_problem] if case.judged is not None else []
    who = () if case.is_build else start_failures(case.reason or "")
    return problems or list(who) or [Finding("test-failed", case.verdict, f"{_how(case)}: {_why(case)}")]


def find_applicability(cases: Sequence[Case]) -> Iterator[Finding]:
    """Which tests do not apply to the system, or were launched again."""
    without: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        if case.does_not_apply:
            without.setdefault((case.partition, case.environment, _why(case)), []).append(case)
    for (_, _, why), members in without.items():
        yield Finding("does-not-apply", Verdict.PASS, _say(members, f"does not apply: {why}"))
    for case in cases:
        if case.launches:
            said = ", ".join(each.value for each in case.launches)
            yield Finding(
                "launched-again",
                Verdict.PASS,
                f"{case}: was launched {len(case.launches)} times: {said}; the result is {case.verdict.value}",
            )


def _how(case: Case) -> str:
    """In which way a case did not pass."""
    if case.is_build and (case.phase or "").startswith("compile"):
        return "build failed"
    return f"{case.result} in the {case.phase} phase" if case.phase else case.result


def _why(case: Case) -> str:
    """The first line of the reason, and what the scheduler said where it took no job."""
    if error := _of_build(case):
        return error
    unsaid = "a required test did not pass" if case.result == "fail_deps" else "no reason given"
    first, *more = (case.reason or unsaid).splitlines()
    said = next((line.strip() for line in more if _REFUSED.match(line.strip())), "")
    return f"{first}: {said}" if said and said not in first else first


def _of_build(case: Case) -> str:
    """The error of a build that failed, and where the rest of it is."""
    if case.folder is None or not (case.phase or "").startswith("compile"):
        return ""
    if (limit := _TIMED_OUT.search(case.reason or "")) is not None:
        minutes = float(limit[1]) / 60
        return f"it reached its limit of {minutes:.0f} minutes: run with -- --setvar={case.test}.build_time_limit=1h"
    file = case.folder / "rfm_build.err"
    if not file.is_file():
        return ""
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or lines[-1:]
    return f"{errors[0]} ({file})" if errors else ""


def _say(alike: Sequence[Case], what: str) -> str:
    """What is to be said of cases of one partition and environment, and then which they are."""
    first, names = alike[0], Counter(case.test for case in alike)
    if len(alike) == 1:
        return (
            f"{what} ({first.test} @{first.partition}+{first.environment})" if first.is_build else f"{what} ({first})"
        )
    named = ", ".join(name if times == 1 else f"{name} ({times})" for name, times in names.items())
    return f"{what} ({len(alike)} tests @{first.partition}+{first.environment}: {named})"
