"""What the judge says of one metric, and the numbers that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict


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
