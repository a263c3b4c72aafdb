"""What the judge says of one metric, and of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricheck.results.records import Problem, Run, Samples, Verdict

if TYPE_CHECKING:
    from fabricheck.topology.model import Topology

#: The exit status of each verdict. 2 is the user's own mistake, and Click's too.
EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.DEGRADED: 1,
    Verdict.FAIL: 3,
    Verdict.INCOMPLETE: 4,
    Verdict.INVALID: 5,
}


@dataclass(frozen=True)
class Expectation:
    """What a metric should be, in the metric's own unit; `None` where nobody can say.

    `nominal`: what the hardware allows; `expected`: what an ideal algorithm gets; `ceiling`: above it a value is
    implausible (for a latency: below it); `floor_fraction`: share of `expected` under which a goodput fails.
    `source` says where the numbers come from.
    """

    nominal: float | None
    expected: float | None
    ceiling: float | None
    floor_fraction: float
    source: str


@dataclass(frozen=True)
class Reference:
    """A value measured when the system was known to be good, with ReFrame's relative bounds (`None`: unbounded)."""

    value: float
    lower: float | None
    upper: float | None
    unit: str
    provenance: str


@dataclass(frozen=True)
class Judgement:
    """The verdict on one metric and the numbers that it rests on. `reason` is one line for the administrator."""

    name: str
    unit: str
    better: str  # "higher" or "lower"
    value: float
    interval: tuple[float, float]  # nonparametric 95% confidence interval of the median
    verdict: Verdict
    reason: str
    calibrated: bool
    expectation: Expectation
    reference: Reference | None
    samples: Samples


@dataclass(frozen=True)
class RunJudgement:
    """The verdict on a run: the worst of its problems and judgements.

    `test`: the test case that it is the result of, such as `PingPong %transport=mpi @daint:gpu+gnu`; empty where that
    is not known. `topology`: that by which it was judged.
    """

    run: Run
    verdict: Verdict
    problems: tuple[Problem, ...]
    judgements: tuple[Judgement, ...]
    test: str = ""
    topology: Topology | None = None
