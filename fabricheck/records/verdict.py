"""The five verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum


class Verdict(str, Enum):
    """The five verdicts, mildest first. Only PASS is green."""

    PASS = "PASS"
    DEGRADED = "DEGRADED"
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"
    INVALID = "INVALID"

    @property
    def is_slow(self) -> bool:
        """Whether it was measured and too slow: INVALID and INCOMPLETE are not verdicts on a speed."""
        return self in (Verdict.DEGRADED, Verdict.FAIL)


#: What says most first, for the one answer about a node or a pasted result: numbers of something else spoil it, and
#: what could not be judged says less than what is bad. `worst` has the order of a session, of which nothing may be
#: missing.
TELLING = (Verdict.INVALID, Verdict.FAIL, Verdict.DEGRADED, Verdict.INCOMPLETE, Verdict.PASS)

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
    no verdicts, which is not a PASS.
    """
    order = list(Verdict)
    return max(verdicts, key=order.index)
