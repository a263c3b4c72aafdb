"""What other software changes: tests with the old and the new software, interleaved and compared round by round.

As in `tuning_effect` the unit is the launch: a round gives, of each metric, one logarithm of a ratio. Metrics of one
class (who moves the data, between whom, whether small or large messages) gain or lose together when software changes,
while their noise is their own: the mean of a class shows a loss that no single metric does, and that of one operation
of the class what concerns this alone. The three share the probability of an error: all intervals hold together with
`CONFIDENCE`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from fabricheck.findings.tuning_effect import Effect, EffectKind, change_of, factor, log_gains, percent
from fabricheck.judge.statistics import robust_mean
from fabricheck.records.metrics import Quantity
from fabricheck.records.operations import OPERATIONS
from fabricheck.records.run import Run

#: That no interval is wrong: of comparisons of a stack with itself as many find nothing, or more.
CONFIDENCE = 0.99


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

    `gain`: how many times as fast it is, with its `interval`; `rounds`: the logarithm of that in each round.
    """

    of: str
    test: str
    name: str
    quantity: Quantity
    metrics: int
    gain: float
    interval: tuple[float, float]
    rounds: tuple[float, ...]
    answer: Answer

    @property
    def error(self) -> float:
        """The standard error of the logarithm of the gain."""
        return float(np.std(self.rounds, ddof=1)) / math.sqrt(len(self.rounds))

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
        """The changes of classes, operations and metrics, in this order."""
        return (*self.classes, *self.operations, *self.metrics)

    @property
    def answer(self) -> Answer:
        """Worse where anything surely is. Operations and metrics may be too noisy to tell; no class may."""
        proven = {each.answer for each in self.all}
        if Answer.WORSE in proven:
            return Answer.WORSE
        if not self.classes or any(each.answer is Answer.CANNOT_SAY for each in self.classes):
            return Answer.CANNOT_SAY
        return Answer.BETTER if Answer.BETTER in proven else Answer.SAME


def changes_of(tests: Mapping[str, Sequence[tuple[Run, Run]]], *, smallest_effect: float, margin: float) -> Changes:
    """What changed, by the runs (old, new) of each round of each test; each test has as many rounds, two or more.

    Worse: the interval lies below no change, and reaches `smallest_effect`; better likewise. Same: a loss of `margin`
    lies outside of it. Raises UserError where the runs of a test do not hold the same measurements.
    """
    gains: dict[tuple[str, str, str], npt.NDArray[np.float64]] = {}
    groups: dict[tuple[str, str, str], list[npt.NDArray[np.float64]]] = {}
    quantities: dict[str, Quantity] = {}
    for test, rounds in tests.items():
        of_rounds = [log_gains(old, new, (50.0,)) for old, new in rounds]
        for key in of_rounds[0]:
            effect = Effect(*key, gain=1, interval=(1, 1), kind=EffectKind.NOTHING)
            kind = f"{_class_of(rounds[0][0], effect.operation)}, {effect.quantity}"
            quantities[kind] = effect.quantity
            gains[kind, test, effect.name] = values = np.array([each[key] for each in of_rounds])
            for group in ((kind, "", ""), (kind, "", effect.operation)):
                groups.setdefault(group, []).append(values)

    def change(key: tuple[str, str, str], values: npt.NDArray[np.float64], number: int, among: int) -> UpgradeChange:
        mean = robust_mean(values, 1 - (1 - CONFIDENCE) / 3 / among)
        low, high = mean.interval
        answer = _answer(low, high, smallest_effect, -math.log1p(-margin))
        interval, rounds = (factor(low), factor(high)), tuple(values.tolist())
        return UpgradeChange(*key, quantities[key[0]], number, factor(mean.value), interval, rounds, answer)

    among = len(groups) - len(quantities)
    means = [
        change(key, np.mean(members, axis=0), len(members), among if key[2] else len(quantities))
        for key, members in groups.items()
    ]
    metrics = [change(key, values, 1, len(gains)) for key, values in gains.items()]
    of_classes, of_operations = ([each for each in means if bool(each.name) is named] for named in (False, True))
    return Changes(_worst_first(of_classes), _worst_first(of_operations), _worst_first(metrics))


def _class_of(run: Run, operation: str) -> str:
    nodes = len({each.host for each in run.ranks})
    where = f"between {nodes} nodes" if nodes > 1 else "in a node"
    return f"{run.header['transport']} {OPERATIONS[operation].family} {where}"


def _answer(low: float, high: float, smallest: float, margin: float) -> Answer:
    if high < 0 and low <= -smallest:
        return Answer.WORSE
    if low > 0 and high >= smallest:
        return Answer.BETTER
    return Answer.SAME if low > -margin else Answer.CANNOT_SAY


def _worst_first(changes: Sequence[UpgradeChange]) -> tuple[UpgradeChange, ...]:
    order = list(Answer)
    return tuple(sorted(changes, key=lambda each: (order.index(each.answer), each.gain)))
