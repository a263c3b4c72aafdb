"""What other software or a setting changes: tests with old and new, interleaved and compared round by round.

The unit is the launch, not the iteration: two launches of one and the same program differ by more than the iterations
of either of them, because connections, channels and memory are laid out again (Kalibera and Jones, ISMM 2013: repeat at
the highest level that varies). A round has one launch of either side and gives, of each metric, one logarithm of a
ratio; what drifts from round to round cancels in it. Metrics of one class (who moves the data, between whom, whether
small or large messages) gain or lose together when software changes, while much of their noise is their own: the mean
of a class shows a loss that no single metric does, and that of one operation of the class what concerns this alone. A
few rounds do not tell how much a metric varies; the others do, since those that take as long vary as much
(`statistics.spread`).

Each answer has its own error. Worse is what is so in one of many comparisons: the three kinds share the probability of
an error, and the comparisons of a kind share theirs (Bonferroni). That nothing lost the margin has to hold for all
classes at once, and nothing is shared (Berger, Technometrics 24, 1982).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from fabricheck.errors import UserError
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, Quantity
from fabricheck.records.operations import OPERATIONS
from fabricheck.records.run import Groups, Run, Samples
from fabricheck.statistics.constants import CUT_OF_SIDE, FALSE_ALARM, FEWEST, MOST_ROUNDS, ONE_IN_10
from fabricheck.statistics.spread import Moderated, moderate
from fabricheck.units import format_size

# A factor of a million is as good as no bound; two noisy rounds give numbers that no float can hold.
_FAR = math.log(1e6)
#: How often an answer is looked for: where the first rounds cannot say, once more after so many as it needs. Chosen.
LOOKS = 2


class Answer(str, Enum):
    """What can be said of the new software, the worst first."""

    WORSE = "worse"
    CANNOT_SAY = "cannot say"
    BETTER = "better"
    SAME = "same"


@dataclass(frozen=True)
class UpgradeChange:
    """What the new software changes of the class of metrics `of`, of the operation `name` in it, or of the metric
    `name` of a `test`.

    `gain`: how many times as fast it is, with its `interval`; `error`: the standard error of its logarithm, with its
    degrees of `freedom`; `rounds`: that logarithm in each round.
    """

    of: str
    test: str
    name: str
    quantity: Quantity
    metrics: int
    gain: float
    interval: tuple[float, float]
    error: float
    freedom: float
    rounds: tuple[float, ...]
    answer: Answer

    def __str__(self) -> str:
        low, high = sorted(change_of(each, self.quantity) for each in self.interval)
        return f"{percent(change_of(self.gain, self.quantity))} ({percent(low)} to {percent(high)})"


@dataclass(frozen=True)
class Changes:
    """All that was compared; the worst first."""

    classes: tuple[UpgradeChange, ...]
    operations: tuple[UpgradeChange, ...]
    metrics: tuple[UpgradeChange, ...]

    @property
    def all(self) -> tuple[UpgradeChange, ...]:
        """Classes, operations and metrics, in this order."""
        return (*self.classes, *self.operations, *self.metrics)

    @property
    def unsure(self) -> tuple[UpgradeChange, ...]:
        """The classes of which nothing can be said."""
        return tuple(change for change in self.classes if change.answer is Answer.CANNOT_SAY)

    @property
    def answer(self) -> Answer:
        """Worse where anything surely is. Operations and metrics may be too noisy to tell; no class may."""
        proven = {each.answer for each in self.all}
        if Answer.WORSE in proven:
            return Answer.WORSE
        if not self.classes or self.unsure:
            return Answer.CANNOT_SAY
        return Answer.BETTER if Answer.BETTER in proven else Answer.SAME


@dataclass(frozen=True)
class LaunchMetric:
    """What a launch measured of all pairs or groups of an operation together, of one size."""

    operation: str
    schedule: str
    groups: Groups | None
    bytes: int

    @property
    def quantity(self) -> Quantity:
        """Goodput of large messages, latency of small ones."""
        return quantity_of(self.bytes)

    @property
    def name(self) -> str:
        """Its name in a line: operation, groups, schedule, size and quantity."""
        words = [self.operation]
        if self.groups:
            words.append(str(self.groups))
        if self.schedule == "contended":
            words.append(self.schedule)
        return " ".join([*words, format_size(self.bytes), self.quantity])


def quantity_of(size: int) -> Quantity:
    """Whether a message of `size` bytes is judged by its goodput or by its latency."""
    return "goodput" if size >= SMALLEST_GOODPUT_BYTES else "latency"


def change_of(gain: float, quantity: Quantity) -> float:
    """The change of a metric that is `gain` times as fast: above 0 is better for a goodput and worse for a latency."""
    return gain - 1 if quantity == "goodput" else 1 / gain - 1


def percent(change: float) -> str:
    """A change as a percentage, or as a factor where that says more."""
    return f"{change:+.1%}" if change < 9 else f"x{1 + change:.3g}"


def factor(logarithm: float) -> float:
    """The gain of which `logarithm` (natural) is the logarithm, kept within what a float can hold."""
    return math.exp(min(max(logarithm, -_FAR), _FAR))


def log_times(run: Run, percentile: float) -> dict[LaunchMetric, float]:
    """Logarithm of the time in nanoseconds at that percentile of the iterations, averaged over pairs and groups: what
    concerns one pair in twelve counts a twelfth (their median would not see it).

    Raises UserError for a time of zero.
    """
    logarithms: dict[LaunchMetric, list[float]] = defaultdict(list)
    for samples in run.samples:
        if (time := float(np.percentile(samples.times_ns, percentile))) <= 0:
            raise UserError(f"{samples.operation} of {samples.bytes} B has a time of zero")
        metric = LaunchMetric(samples.operation, samples.schedule, samples.groups, samples.bytes)
        logarithms[metric].append(math.log(time))
    return {metric: float(np.mean(values)) for metric, values in logarithms.items()}


def log_gains(old: Run, new: Run, percentile: float) -> dict[LaunchMetric, float]:
    """Logarithm of the old time over the new one, by metric. UserError where the sides measured different things."""
    if {_series(samples) for samples in old.samples} != {_series(samples) for samples in new.samples}:
        raise UserError("the two sides of a round hold different measurements")
    before, after = log_times(old, percentile), log_times(new, percentile)
    return {metric: before[metric] - after[metric] for metric in before}


def _series(samples: Samples) -> tuple[object, ...]:
    where = (samples.schedule, samples.round, samples.ranks, samples.groups)
    return (samples.operation, *where, samples.bytes, samples.messages)


#: Class of metrics, test and name, as those of a UpgradeChange.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class MetricGains:
    """Of a metric of an operation: the logarithms of the gain in each round, (rounds,), and of the old software's
    time."""

    operation: str
    quantity: Quantity
    gains: npt.NDArray[np.float64]
    time: float


def changes_of(
    tests: Mapping[str, Sequence[tuple[Run, Run]]],
    *,
    smallest_effect: float,
    margin: float,
    looks: int = 1,
    percentile: float = 50.0,
) -> Changes:
    """What changed, by the runs (old, new) of each round of each test; each test has as many rounds, two or more.

    Worse: surely slower, and perhaps by `smallest_effect`; better likewise. Same: a loss of `margin` is ruled out.
    `looks`: how often the answer is looked for while rounds are added; each has its share of the errors (Bonferroni).
    `percentile` of the iterations' times. Raises UserError where the runs of a test do not hold the same measurements.
    """
    metrics: dict[Key, MetricGains] = {}
    for test, rounds in tests.items():
        first = rounds[0][0]
        of_rounds = [log_gains(old, new, percentile) for old, new in rounds]
        for metric, time in log_times(first, percentile).items():
            kind = f"{_class_of(first, metric.operation)}, {metric.quantity}"
            gains = np.array([of_round[metric] for of_round in of_rounds])
            metrics[kind, test, metric.name] = MetricGains(metric.operation, metric.quantity, gains, time)
    return changes_of_gains(metrics, smallest_effect=smallest_effect, margin=margin, looks=looks)


def changes_of_gains(
    metrics: Mapping[Key, MetricGains], *, smallest_effect: float, margin: float, looks: int = 1
) -> Changes:
    """As `changes_of`, by the gains of the metrics."""
    if not metrics:
        return Changes((), (), ())
    # The launches of a test share what they have in common.
    tests, bound = len({test for _, test, _ in metrics}), -math.log1p(-margin)
    # One wild metric of a launch is not the mean of it.
    gains = _Gains.of([[metric] for metric in metrics.values()], tests)
    cut = [replace(metric, gains=row) for metric, row in zip(metrics.values(), gains.cut, strict=True)]
    classes: dict[Key, list[MetricGains]] = {}
    operations: dict[Key, list[MetricGains]] = {}
    for (kind, _, _), metric in zip(metrics, cut, strict=True):
        classes.setdefault((kind, "", ""), []).append(metric)
        operations.setdefault((kind, "", metric.operation), []).append(metric)
    levels = [(groups, _Gains.of(list(groups.values()), tests)) for groups in (classes, operations)]
    levels.append(({key: [metric] for key, metric in metrics.items()}, gains))
    return Changes(*(_changes(groups, of_groups, smallest_effect, bound, looks) for groups, of_groups in levels))


@dataclass(frozen=True)
class _Gains:
    """Logarithms of gains, (groups, rounds), without those that are `cut` at some spreads; and their spreads."""

    rounds: npt.NDArray[np.float64]
    cut: npt.NDArray[np.float64]
    spread: Moderated

    @classmethod
    def of(cls, groups: Sequence[Sequence[MetricGains]], tests: int) -> _Gains:
        gains = np.array([np.mean([metric.gains for metric in members], axis=0) for members in groups])
        time = np.array([np.mean([metric.time for metric in members]) for members in groups])
        number, rounds = gains.shape
        freedom, alike = np.full(number, rounds - 1.0), np.zeros(number, dtype=np.int64)

        def moderated(values: npt.NDArray[np.float64]) -> Moderated:
            squares = rounds * values.var(axis=1)
            return moderate(squares, freedom, alike, trend=time, independent=tests * (rounds - 1.0))

        middle = np.median(gains, axis=1, keepdims=True)
        reach, away = CUT_OF_SIDE * np.sqrt(moderated(gains).variance)[:, None], gains - middle
        # Divided by the share that is not cut, mean and error are those of Huber's estimate in a step from the median;
        # else the error would be too small (Bickel, Journal of the American Statistical Association 70, 1975).
        cut = middle + np.clip(away, -reach, reach) / np.mean(np.abs(away) <= reach)
        return cls(gains, cut, moderated(cut))


def _changes(
    groups: Mapping[Key, Sequence[MetricGains]], gains: _Gains, smallest: float, margin: float, looks: int
) -> tuple[UpgradeChange, ...]:
    mean, (number, rounds) = gains.cut.mean(axis=1), gains.cut.shape
    error = np.sqrt(gains.spread.variance / rounds)
    alone, among = (
        error * stdtrit(gains.spread.freedom, 1 - FALSE_ALARM / (looks * share)) for share in (1, 3 * number)
    )
    changes = [
        UpgradeChange(
            *key,
            members[0].quantity,
            len(members),
            factor(mean[row]),
            (factor(mean[row] - alone[row]), factor(mean[row] + alone[row])),
            float(error[row]),
            float(gains.spread.freedom[row]),
            tuple(gains.rounds[row].tolist()),
            _answer(mean[row], alone[row], among[row], smallest, margin),
        )
        for row, (key, members) in enumerate(groups.items())
    ]
    order = list(Answer)
    return tuple(sorted(changes, key=lambda change: (order.index(change.answer), change.gain)))


def _class_of(run: Run, operation: str) -> str:
    nodes = len({each.host for each in run.ranks})
    where = f"between {nodes} nodes" if nodes > 1 else "in a node"
    return f"{run.header['transport']} {OPERATIONS[operation].family} {where}"


def rounds_needed(changes: Changes, margin: float) -> int:
    """How many rounds in all would give an answer; 0 where no class of metrics waits for one."""
    if not changes.unsure:
        return 0
    rounds = len(changes.unsure[0].rounds)
    if rounds < FEWEST:
        return FEWEST
    return max(rounds + 2, *(_rounds_for(change, margin) for change in changes.unsure))


def further_rounds(changes: Changes, margin: float, fitting: float) -> int:
    """How many rounds to add, of those `fitting` into the time, where an answer can be had; else 0."""
    needed = rounds_needed(changes, margin)
    if not 0 < needed <= MOST_ROUNDS:
        return 0
    return int(max(min(needed, fitting) - len(changes.unsure[0].rounds), 0)) // 2 * 2


def _rounds_for(change: UpgradeChange, margin: float) -> int:
    """How many rounds show nine times in ten that nothing is lost where nothing is; errors shrink with their root."""
    reach = math.log(change.gain / change.interval[0]) + ONE_IN_10 * change.error
    return 2 * math.ceil(len(change.rounds) / 2 * (reach / -math.log1p(-margin)) ** 2)


def answer_among(change: UpgradeChange | None, comparisons: int, smallest: float, part: float) -> Answer:
    """The answer for a change that was looked for, one of so many of which none may be called worse by error.

    Same: it is surely no loss of `part`, a logarithm, whatever else it is.
    """
    if change is None:
        return Answer.CANNOT_SAY
    reach = change.error * float(stdtrit(change.freedom, 1 - FALSE_ALARM / comparisons))
    gain = math.log(change.gain)
    return Answer.SAME if gain - reach > -part else _answer(gain, reach, reach, smallest, part)


def _answer(gain: float, alone: float, among: float, smallest: float, margin: float) -> Answer:
    """By how far the bounds are from the gain: of a comparison by itself, and among all."""
    if gain + among < 0 and gain - among <= -smallest:
        return Answer.WORSE
    if gain - among > 0 and gain + among >= smallest:
        return Answer.BETTER
    return Answer.SAME if gain - alone > -margin else Answer.CANNOT_SAY
