"""What the test cases of a session say beside their measurements: what keeps it from being green, and what does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

# What ReFrame and a check say before what is wrong, where the check says its verdict itself.
_NAMED = re.compile(rf"^(?:\w+ )*error: (?:{'|'.join(each.value for each in Verdict)}): ")
# What a scheduler's command for a job says where it refuses one.
_REFUSED = re.compile(r"(?:sbatch|srun|salloc|qsub|bsub|flux)\b.*?\berror: .+", re.IGNORECASE)
# Where a build says why it ended, before all that failed for that reason.
_ERROR = re.compile(r"^fabricheck: |\berror\b[: ]", re.IGNORECASE)


def find_problems(listed: int, status: int, cases: Sequence[Case], last_error: str = "") -> tuple[Finding, ...]:
    """Everything that keeps a session from being green, whatever its measurements are worth.

    `listed`: how many test cases ReFrame said it would run. `status`: its exit status. `last_error`: what it said last,
    which counts where no test case explains the status.
    """
    problems = []
    if len(cases) != listed:
        problems.append(
            Finding("tests-missing", Verdict.INCOMPLETE, f"{listed} test cases were selected and {len(cases)} were run")
        )
    failed = [case for case in cases if case.result != "pass" and not case.does_not_apply]
    problems += [failure_of(case) for case in failed if case.result_files()]
    for members in _alike(case for case in failed if not case.result_files()):
        problems.append(Finding("test-failed", members[0].verdict, _say(members, _how(members[0]))))
    for case in cases:
        if case.result == "pass" and not case.is_build and not case.result_files():
            problems.append(Finding("no-result", Verdict.INCOMPLETE, f"{case}: passed without leaving a result file"))
    if not any(not case.is_build and not case.not_applicable for case in cases):
        problems.append(Finding("nothing-measured", Verdict.INCOMPLETE, "not one measurement was run"))
    # With --reruns ReFrame's status is 1 where any launch failed, also one that others outvoted.
    is_outvoted = status == 1 and not last_error and any(set(case.launches) - {Verdict.PASS} for case in cases)
    if status != 0 and not problems and not is_outvoted:
        why = last_error or "it does not say why"
        problems.append(
            Finding("reframe-failed", Verdict.INCOMPLETE, f"ReFrame ended with exit status {status}: {why}")
        )
    return tuple(problems)


def find_what_applies(cases: Sequence[Case]) -> Iterator[Finding]:
    """Which tests do not apply to the system, were launched again, or could be measured although the site denies it."""
    for members in _alike(case for case in cases if case.does_not_apply):
        yield Finding(
            "does-not-apply", Verdict.PASS, _say(members, "does not apply" if len(members) == 1 else "do not apply")
        )
    for case in cases:
        if case.launches:
            said = ", ".join(each.value for each in case.launches)
            yield Finding(
                "launched-again",
                Verdict.PASS,
                f"{case}: was launched {len(case.launches)} times: {said}; {case.verdict.value} counts",
            )
        if case.result == "pass" and case.declared_unsupported and case.result_files():
            text = (
                f"was measured, although the site says that this machine does not support {case.declared_unsupported}"
            )
            yield Finding("is-supported", Verdict.PASS, f"{case}: {text}: take that out of the partition's unsupported")


def failure_of(case: Case) -> Finding:
    """What keeps a case from being green that did not pass."""
    return Finding("test-failed", case.verdict, _say([case], _how(case)))


def _how(case: Case) -> str:
    """In which way a case did not pass."""
    return f"{case.result} in the {case.phase} phase" if case.phase else case.result


def _why(case: Case) -> str:
    """The first line of the reason, and what the scheduler said where it took no job.

    Without the verdict that a check named in it, which the line has, and ReFrame's words before that.
    """
    unsaid = "what it needs did not pass" if case.result == "fail_deps" else "no reason given"
    first, *more = (case.reason or unsaid).splitlines()
    said = next((line.strip() for line in more if _REFUSED.match(line.strip())), "") or _of_build(case)
    return _NAMED.sub("", f"{first}: {said}" if said and said not in first else first)


def _of_build(case: Case) -> str:
    """The error of a build that failed, and where the rest of it is."""
    if case.folder is None or not (case.phase or "").startswith("compile"):
        return ""
    file = case.folder / "rfm_build.err"
    if not file.is_file():
        return ""
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    found = [line for line in lines if _ERROR.search(line)] or lines[-1:]
    return f"{found[0]} ({file})" if found else ""


def _alike(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases of one partition and environment that say the same; in the order of the first of each."""
    found: dict[tuple[str, str, str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.partition, case.environment, _how(case), _why(case)), []).append(case)
    return list(found.values())


def _say(alike: Sequence[Case], what: str) -> str:
    """One line about cases that say the same."""
    first, names = alike[0], Counter(case.test for case in alike)
    what = "" if _NAMED.match(first.reason or "") else f"{what}: "
    if len(alike) == 1:
        return f"{first}: {what}{_why(first)}"
    named = ", ".join(name if times == 1 else f"{name} ({times})" for name, times in names.items())
    return f"{len(alike)} tests @{first.partition}+{first.environment}: {what}{_why(first)}: {named}"
