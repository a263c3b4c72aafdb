"""What a setting changes: launches with and without it, interleaved and compared round by round.

The unit is the launch, not the iteration: two launches of one and the same program differ by more than the iterations
of either of them, because connections, channels and memory are laid out again (Kalibera and Jones, ISMM 2013: repeat at
the highest level that varies; Georges et al., OOPSLA 2007, for few repetitions). Each round has one launch of either
side and gives, of each metric, one logarithm of a ratio; what drifts from round to round cancels in it. Over the rounds
these have a trimmed mean and an interval of Student's kind: a median of hundreds of iterations is nearly normal, so is
the difference of two, where both sides are the same it is symmetric whatever they are, and a launch that something else
disturbed is left out. Order statistics would need more rounds: of 8 values no nonparametric interval has a confidence
above 99.2%, which seven metrics at once already ask for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fabricheck.diagnosis.rounds import Sides, launches, read_sides, require_alike
from fabricheck.errors import UserError
from fabricheck.judge.constants import FEWEST_ROUNDS
from fabricheck.judge.policy import Policy
from fabricheck.judge.statistics import robust_mean
from fabricheck.records.finding import Finding
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, Quantity
from fabricheck.records.run import Groups, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.units import format_size

# A factor of a million is as good as no bound; two noisy rounds give numbers that no float can hold.
_FAR = math.log(1e6)


class EffectKind(str, Enum):
    """What can be said of side B, against side A."""

    HELPS = "helps"
    HURTS = "hurts"
    NOTHING = "does nothing"
    CANNOT_SAY = "cannot say"


@dataclass(frozen=True)
class Effect:
    """What side B changes of one metric of all pairs or groups together.

    `gain`: how many times faster B is than A. `interval`: of the gain; the intervals of all metrics of a comparison
    hold together with its confidence. `percentile`: of the iterations' times.
    """

    operation: str
    schedule: str
    groups: Groups | None
    bytes: int
    percentile: float
    gain: float
    interval: tuple[float, float]
    kind: EffectKind

    @property
    def quantity(self) -> Quantity:
        """Goodput of large messages, latency of small ones."""
        return quantity_of(self.bytes)

    @property
    def change(self) -> float:
        """The metric on side B over that on side A, less 1: above 0 is better for a goodput and worse for a latency."""
        return change_of(self.gain, self.quantity)

    @property
    def change_interval(self) -> tuple[float, float]:
        """The confidence interval of `change`."""
        low, high = sorted(change_of(each, self.quantity) for each in self.interval)
        return low, high

    @property
    def name(self) -> str:
        """What was measured, as a row of the table names it."""
        words = [self.operation, *([str(self.groups)] if self.groups else [])]
        words += [self.schedule] if self.schedule == "contended" else []
        words += [format_size(self.bytes), self.quantity]
        words += [f"at percentile {self.percentile:g}"] if self.percentile != 50 else []
        return " ".join(words)

    def __str__(self) -> str:
        low, high = self.change_interval
        return f"{self.name} {percent(self.change)} ({percent(low)} to {percent(high)})"


@dataclass(frozen=True)
class TuningResult:
    """All that was found of one comparison, in the order of the plan.

    `needed`: why there is nothing to compare, where side A does not run at all and B does. `where` is the transport,
    the ranks and the environment. `ways`: by which paths the data went, where those of the sides differ.
    """

    sides: Sides
    where: str
    effects: tuple[Effect, ...]
    confidence: float
    smallest_effect: float
    needed: str = ""
    ways: str = ""

    def of(self, kind: EffectKind) -> tuple[Effect, ...]:
        """The effects of one kind."""
        return tuple(each for each in self.effects if each.kind is kind)

    @property
    def verdict(self) -> Verdict:
        """DEGRADED where the site's own tuning costs performance somewhere; all else is information."""
        costs = self.sides.site == "b" and self.of(EffectKind.HURTS)
        return Verdict.DEGRADED if costs else Verdict.PASS

    @property
    def message(self) -> str:
        """One line for the administrator: what hurts first."""
        head = f"{self.sides.title} ({self.where}): "
        if self.needed:
            return f"{head}needed: {self.needed}"
        parts = [_say(kind, self.of(kind)) for kind in (EffectKind.HURTS, EffectKind.HELPS)]
        parts.append(_say(EffectKind.CANNOT_SAY, self.of(EffectKind.CANNOT_SAY)))
        nothing = self.of(EffectKind.NOTHING)
        all_ = len(nothing) == len(self.effects)
        within = f"each within ±{self.smallest_effect:.0%}"
        parts.append(
            f"{EffectKind.NOTHING.value}{'' if all_ else ' for'} ({within}): {_names(nothing)}" if nothing else ""
        )
        together = f"simultaneous {100 * self.confidence:g}% intervals in brackets"
        parts.append(self.ways)
        return f"{head}{'; '.join(filter(None, parts))}; {self.sides.rounds} rounds, {together}"


def quantity_of(size: int) -> Quantity:
    """Whether a message of `size` bytes is judged by its goodput or by its latency."""
    return "goodput" if size >= SMALLEST_GOODPUT_BYTES else "latency"


def change_of(gain: float, quantity: Quantity) -> float:
    """The change of a metric that is `gain` times as fast: above 0 is better for a goodput and worse for a latency."""
    return gain - 1 if quantity == "goodput" else 1 / gain - 1


def percent(change: float) -> str:
    """A change as a percentage, or as a factor where that says more."""
    return f"{change:+.1%}" if change < 9 else f"x{1 + change:.3g}"


def _names(effects: Iterable[Effect]) -> str:
    return ", ".join(map(str, effects))


def _say(kind: EffectKind, effects: Sequence[Effect]) -> str:
    return f"{kind.value}: {_names(effects)}" if effects else ""


def effects_of(
    rounds: Sequence[tuple[Run, Run]],
    *,
    confidence: float = 0.95,
    smallest_effect: float = 0.02,
    percentiles: Sequence[float] = (50.0,),
) -> tuple[Effect, ...]:
    """What B changes against A, of each operation, schedule and size of the runs (A, B) of each round.

    Pairs and groups of one operation count equally: the logarithms of their ratios are averaged, so that a setting that
    concerns one pair in twelve counts a twelfth (their median would not see it). With m metrics each interval has the
    confidence 1 - (1 - `confidence`) / m, so that all m hold together with `confidence` or more (Bonferroni). A metric

    - does nothing where its interval lies within ± `smallest_effect` (of the logarithm);
    - else helps or hurts where the interval does not hold "no change";
    - else cannot be told.

    Raises UserError for fewer than two rounds, and where runs do not hold the same.
    """
    if len(rounds) < FEWEST_ROUNDS:
        raise UserError(f"a comparison needs {FEWEST_ROUNDS} rounds or more, not {len(rounds)}")
    each_round = [log_gains(a, b, percentiles) for a, b in rounds]
    keys = list(each_round[0])
    if not keys or any(list(one) != keys for one in each_round):
        raise UserError("the rounds of a comparison hold different measurements, or none")
    single = 1 - (1 - confidence) / len(keys)
    return tuple(_effect(key, np.array([one[key] for one in each_round]), single, smallest_effect) for key in keys)


#: Operation, schedule, groups, bytes and percentile of a metric.
Key = tuple[str, str, Groups | None, int, float]


def _effect(key: Key, gains: npt.NDArray[np.float64], confidence: float, smallest: float) -> Effect:
    mean = robust_mean(gains, confidence)
    low, high = mean.interval
    if -smallest < low and high < smallest:
        kind = EffectKind.NOTHING
    elif low > 0:
        kind = EffectKind.HELPS
    elif high < 0:
        kind = EffectKind.HURTS
    else:
        kind = EffectKind.CANNOT_SAY
    return Effect(*key, gain=factor(mean.value), interval=(factor(low), factor(high)), kind=kind)


def factor(logarithm: float) -> float:
    """The gain of which `logarithm` (natural) is the logarithm, kept within what a float can hold."""
    return math.exp(min(max(logarithm, -_FAR), _FAR))


def log_gains(a: Run, b: Run, percentiles: Sequence[float]) -> dict[Key, float]:
    """Logarithm of A's time over B's, averaged over pairs and groups, by metric.

    Raises UserError where the sides measured different things, or a time is zero.
    """
    if {_series(samples) for samples in a.samples} != {_series(samples) for samples in b.samples}:
        raise UserError("the two sides of a round hold different measurements")
    of_a, of_b = log_times(a, percentiles), log_times(b, percentiles)
    return {key: of_a[key] - of_b[key] for key in of_a}


def log_times(run: Run, percentiles: Sequence[float]) -> dict[Key, float]:
    """Logarithm of the time in nanoseconds, averaged over pairs and groups, by metric.

    Raises UserError for a time of zero.
    """
    logarithms: dict[Key, list[float]] = defaultdict(list)
    for samples in run.samples:
        for percentile in percentiles:
            if (time := float(np.percentile(samples.times_ns, percentile))) <= 0:
                raise UserError(f"{samples.operation} of {samples.bytes} B has a time of zero")
            key = (samples.operation, samples.schedule, samples.groups, samples.bytes, percentile)
            logarithms[key].append(math.log(time))
    return {key: float(np.mean(values)) for key, values in logarithms.items()}


def _series(samples: Samples) -> tuple[object, ...]:
    return (
        samples.operation,
        samples.schedule,
        samples.round,
        samples.ranks,
        samples.groups,
        samples.bytes,
        samples.messages,
    )


def compare_rounds(case: Path, sides: Sides, runs: Mapping[str, Run], policy: Policy) -> TuningResult:
    """The comparison of the launches of a test case; `runs` by name of the launch, those that left a result.

    Raises UserError where a launch is missing, unless side A is what does not run.
    """
    needed = _needed(case, sides, runs)
    if needed:
        return TuningResult(sides, _where(runs, sides), (), policy.confidence, policy.smallest_effect, needed)
    for launch in launches(sides.rounds):
        if launch.name not in runs or launch.exit_status(case) != 0:
            status = launch.exit_status(case)
            how = "did not run" if status is None else f"ended with exit status {status}"
            raise UserError(f"{sides.title}: nothing is compared, because launch {launch.name} {how}")
    pairs = [(runs[f"{number}-a"], runs[f"{number}-b"]) for number in range(1, sides.rounds + 1)]
    effects = effects_of(
        pairs,
        confidence=policy.confidence,
        smallest_effect=policy.smallest_effect,
        percentiles=sides.percentiles,
    )
    where, ways = _where(runs, sides), _ways(pairs)
    return TuningResult(sides, where, effects, policy.confidence, policy.smallest_effect, ways=ways)


def _ways(rounds: Sequence[tuple[Run, Run]]) -> str:
    """By which paths the data went on either side, as the libraries reported them; empty where they are the same."""
    paths = [
        sorted({path for one in rounds for path in (one[side].footer or {"proof": {"paths": {}}})["proof"]["paths"]})
        for side in (0, 1)
    ]
    without, with_it = (", ".join(each) or "an unknown path" for each in paths)
    return "" if without == with_it else f"the data took {without} on side A and {with_it} on side B"


def _needed(case: Path, sides: Sides, runs: Mapping[str, Run]) -> str:
    """Why nothing works without the setting: side A failed twice, and between that B did not; else empty."""
    if sides.site != "b" or sides.rounds < FEWEST_ROUNDS:
        return ""
    by_side = {
        side: [each.exit_status(case) for each in launches(FEWEST_ROUNDS) if each.side == side] for side in ("a", "b")
    }
    good = all(f"{number}-b" in runs for number in range(1, FEWEST_ROUNDS + 1))
    if not good or by_side["b"] != [0] * FEWEST_ROUNDS or any(each in (None, 0) for each in by_side["a"]):
        return ""
    ends = " and ".join(map(str, by_side["a"]))
    return f"fabricbench fails without it (exit status {ends}), and runs with it in the same job"


def _where(runs: Mapping[str, Run], sides: Sides) -> str:
    run = next((each for each in runs.values() if each.header), None)
    if run is None:
        return sides.environment
    nodes = len({each.host for each in run.ranks})
    ranks = f"{len(run.ranks)} ranks on {nodes} node{'s' if nodes > 1 else ''}"
    return f"{run.header['transport']}, {ranks}, {sides.environment}"


def read_comparison(case: Path, policy: Policy) -> TuningResult | None:
    """What the rounds in the folder of a test case say; `None` where it has none.

    Raises UserError where a result file has problems, where the launches differ in more than what is compared, and as
    `compare_rounds` does.
    """
    sides = read_sides(case)
    if sides is None:
        return None
    files = {each.name: each.result(case) for each in launches(sides.rounds) if each.exit_status(case) == 0}
    runs = {name: read_run(file) for name, file in files.items() if file.exists()}
    problems = [each for run in runs.values() for each in run.problems]
    problems += require_alike(runs.values(), {*sides.a, *sides.b})
    if problems:
        raise UserError(f"{sides.title}: nothing is compared: {problems[0].message}")
    return compare_rounds(case, sides, runs, policy)


def find_tuning_effects(cases: Iterable[Path], policy: Policy) -> Iterator[Finding]:
    """A line for each comparison in the folders of test cases that ended as they should.

    A problem where the site's own tuning costs performance (DEGRADED), or where there is nothing to compare
    (INCOMPLETE).
    """
    for case in cases:
        try:
            comparison = read_comparison(case, policy)
        except UserError as error:
            yield Finding("not-measured", Verdict.INCOMPLETE, str(error))
            continue
        if comparison is not None and comparison.verdict is Verdict.PASS:
            yield Finding("setting-effect", Verdict.PASS, comparison.message)
        elif comparison is not None:
            yield Finding("setting-hurts", comparison.verdict, comparison.message)
