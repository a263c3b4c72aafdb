"""What the judge says of one metric, and the numbers that it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict


@dataclass(frozen=True)
class Expectation:
    """What a metric should be, in the metric's own unit; `None` where it is unknown.

    `nominal`: what the hardware allows; `expected`: what an ideal algorithm gets; `ceiling`: above it a value is
    implausible (for a latency: below it); `floor_fraction`: share of `expected` under which a goodput fails.
    `achievable`: what of `expected` is data, and no headers and no start-up; its source says by which packets or
    measurements, and `achievable_margin` how far below healthy parts are, where that is known of these. `source` says
    where the other numbers come from.
    """

    nominal: float | None
    expected: float | None
    ceiling: float | None
    floor_fraction: float
    source: str
    achievable: float | None = None
    achievable_source: str = ""
    achievable_margin: float | None = None


@dataclass(frozen=True)
class Reference:
    """A value measured when the system was known to be good, with ReFrame's relative bounds (`None`: unbounded).

    `nodes`: the same by node, of nodes that have a level of their own; by `a+b` of pairs that have one. `once`: the
    bounds let healthy sessions be slow in one launch, and count with a second one; so many times as far from the value,
    in logarithms, lie those that one launch is judged by.
    """

    value: float
    """in `unit`"""
    lower: float | None
    """share of the value, such as -0.03; null: no bound"""
    upper: float | None
    """share of the value, such as 0.05; null: no bound"""
    unit: str
    provenance: str
    """where the value comes from"""
    nodes: Mapping[str, Reference] = field(default_factory=dict)
    once: float = 1.0


#: The kinds of yardsticks, the strongest first (DESIGN.md; docs/methodology.md says what each is worth).
LADDER = ("reference", "part", "published", "siblings", "achievable", "floor")


@dataclass(frozen=True)
class Yardstick:
    """What a metric was held against, in the metric's unit.

    `kind`: one of LADDER. `value`: what the metric should be; of a floor, the bound itself. `bound`: the worst value
    that passes. `gain`: better than this is a surprise; None where nothing states. `source`: where it comes from, and
    how wide its bound is and why. `alarm`: it is not a measured value, but the bound that the owner of a machine
    runs it against; `source` says whose, and of what.
    """

    kind: str
    value: float
    bound: float
    source: str
    gain: float | None = None
    alarm: bool = False


@dataclass(frozen=True)
class Judgement:
    """The verdict on one metric and the numbers that it rests on. `reason` is one line for the administrator.

    `p`: the probability that healthy peers are as slow, where these decided.
    `yardstick`: the one that decided. None where there was none (`unjudged`), and where no speed was judged: of a
    value that is not a measurement, and of wrong data. `alarms`: the bounds of owners of such machines that matched.
    """

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
    yardstick: Yardstick | None = None
    alarms: tuple[Yardstick, ...] = ()
    p: float | None = None

    @property
    def is_judged(self) -> bool:
        """Whether a yardstick decided: a floor separates broken from working, and is none."""
        return self.verdict is not Verdict.PASS or self.judged_by not in ("", "floor")

    @property
    def unjudged(self) -> bool:
        """Whether a sound value met nothing to be judged by."""
        return self.verdict is Verdict.INCOMPLETE and self.yardstick is None

    @property
    def is_shown_by_one_launch(self) -> bool | None:
        """Whether it is so slow that one launch shows it, by its reference; None of what has none, or is not slow."""
        level, reference = self.yardstick, self.reference
        if self.verdict is not Verdict.DEGRADED or level is None or level.kind != "reference" or reference is None:
            return None
        bound = level.value * math.pow(level.bound / level.value, reference.once)
        return self.value < bound if self.better == "higher" else self.value > bound

    @property
    def share_of_expected(self) -> float | None:
        """The value over what an ideal algorithm gets; `None` where it is unknown. More than 1 is worse for a
        latency."""
        expected = self.expectation.expected
        if expected is None or not (math.isfinite(expected) and expected > 0):
            return None
        return self.value / expected

    @property
    def code(self) -> str:
        """The code of its finding; empty where it passed."""
        if self.verdict is Verdict.FAIL:
            return "wrong-bytes" if self.samples.wrong_bytes > 0 else "below-floor"
        by = self.yardstick.kind if self.yardstick is not None else "reference"
        alarm = self.yardstick is not None and self.yardstick.alarm
        return {
            Verdict.PASS: "",
            Verdict.DEGRADED: "under-alarm" if alarm else "below-floor" if by == "floor" else f"slower-than-{by}",
            Verdict.INCOMPLETE: "no-baseline" if self.unjudged else "slow-while-busy",
            Verdict.INVALID: "implausible-value",
        }[self.verdict]

    @property
    def finding(self) -> Finding:
        """What is wrong with it. Raises ValueError where it passed."""
        expected = self.yardstick.value if self.yardstick is not None else None
        text = f"{self.name}: {self.reason}"
        return Finding(self.code, self.verdict, text, (), self.value, expected, self.unit, (self.name,))

    @property
    def judged_by(self) -> str:
        """The kind of yardstick that decided, `unjudged`, or nothing where no speed was judged."""
        return self.yardstick.kind if self.yardstick is not None else "unjudged" if self.unjudged else ""
