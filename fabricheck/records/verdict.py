"""The five verdicts, what keeps a run or a session from being green, and what is told beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(str, Enum):
    """The five verdicts, mildest first. Only PASS is green."""

    PASS = "PASS"
    DEGRADED = "DEGRADED"
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Problem:
    """Something that keeps a run or a session from being green, with the verdict that it forces, which is never PASS.

    `message` is one line that says what is wrong, where, and what to do. `place`: the part of the system that is most
    probably at fault, where that is what was found. `files`: the result files that show it, where a session says which.
    Raises ValueError for the verdict PASS: that would be a `Finding`.
    """

    verdict: Verdict
    message: str
    place: str = ""
    files: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.verdict is Verdict.PASS:
            raise ValueError(f"a problem cannot be PASS, which is for findings: {self.message}")


@dataclass(frozen=True)
class Finding:
    """Something that a session tells about the system, and that changes no verdict; `message` is one line."""

    message: str


#: The exit status of each verdict. 2 is the user's own mistake, and Click's too.
EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.DEGRADED: 1,
    Verdict.FAIL: 3,
    Verdict.INCOMPLETE: 4,
    Verdict.INVALID: 5,
}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of the whole: the last in the order of the enum.

    The order is how little the numbers can be believed, and so what the administrator does first. A FAIL is a finding
    about the machine that stands; an INCOMPLETE run may hide a worse one behind what is missing; an INVALID one is
    about something else than was asked, so its speeds say nothing at all, good or bad. All but PASS are red, and
    nothing is lost by the order: every problem and judgement stays in the `RunJudgement`. ValueError where there are
    no verdicts, which is no reason to pass.
    """
    order = list(Verdict)
    return max(verdicts, key=order.index)


def split(found: Iterable[Problem | Finding]) -> tuple[tuple[Problem, ...], tuple[Finding, ...]]:
    """The problems, and the findings, each in their order."""
    found = tuple(found)
    problems = tuple(each for each in found if isinstance(each, Problem))
    return problems, tuple(each for each in found if isinstance(each, Finding))
