"""Which components explain slow measurements: y = X b + noise, with b >= 0 and sparse.

A row is a measurement with the logarithm of its loss, y; a column is a component that the data of some rows cross, X is
1 there, or the probability where the route is unknown. In rows of one question (an operation at one size) a component
costs the same. Of several components on its way a row has the loss of the worst. Noise is normal, but no single row
counts for more than MOST_OF_METRIC standard deviations. A component also pays for rows of other questions over it that
are as fast as usual, up to DOUBT each: a fault of a part is hardly ever seen by one question alone. A part may heal, or
get slow, once: it costs its rows before, or after, nothing, for the price of one time among all.

The search takes the component that gains most, then exchanges and drops components one at a time, for as long as one
gains more than its price: the logarithm of the number of columns (Bonferroni) and DOUBT. Components that explain the
same rows as well, but for DOUBT, are a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fabricheck.records.component import Component, Kind
from fabricheck.statistics.constants import DOUBT, MOST, MOST_OF_METRIC, MOST_STEPS, RESOLUTION, SETTLED

#: So many components may together be what looked like one. Chosen.
MOST_FOR_ONE = 3

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# By chosen column the misfit of its rows, NaN for others, and its price.
_Chosen = dict[int, tuple[Floats, float]]


@dataclass(frozen=True)
class Row:
    """A measurement. `question`: what was measured, whoever it was measured on. `quantity`: rows of another one do not
    speak against a component. `loss`: logarithm of how much worse it is than it should be, with the standard deviation
    `noise`; `slow`: a judge says so. `crosses`: the probability, by component, that its data cross it. `own`: what
    stands for this measurement alone. `apart`: its peers are faster, whatever all lose. `total`: the loss against what
    an ideal algorithm gets, which says more than peers do of what all of them cross; None where `loss` is by a
    yardstick from elsewhere. `when`: later rows have a higher number; rows of one number are of one time."""

    question: Hashable
    quantity: str
    loss: float
    noise: float
    slow: bool
    crosses: Mapping[Component, float]
    own: tuple[Component, ...]
    total: float | None = None
    apart: bool = False
    when: int = 0


@dataclass(frozen=True)
class Explanation:
    """A cause: the `components` of which one is at fault, those that explain it best first; the slow `rows` that it
    explains, by number; the median `loss` (logarithm) of these, and the log likelihood that it `gains`."""

    components: tuple[Component, ...]
    rows: tuple[int, ...]
    loss: float
    gain: float


def known_noise(error: float) -> float:
    """The noise of a row whose loss has this standard error; infinite where it is unknown."""
    return max(error, RESOLUTION) if math.isfinite(error) else math.inf


def explain(rows: Sequence[Row], prior: Mapping[Component, float] | None = None) -> tuple[Explanation, ...]:
    """Return the causes of the slow rows, those that gain most first.

    `prior`: log odds that other evidence (counters, probes, failures at start) gives to a component.
    """
    if not any(row.slow for row in rows):
        return ()
    table = _Table(rows, prior or {})
    if not table.columns:
        return tuple(_alone(rows, table.left({})))
    chosen = table.search()
    causes = [*(table.explanation(chosen, column) for column in chosen), *_alone(rows, table.left(chosen))]
    return tuple(sorted((cause for cause in causes if cause.rows), key=lambda cause: -cause.gain))


def _alone(rows: Sequence[Row], left: Ints) -> list[Explanation]:
    """What nothing explains that several share, each by what stands for it alone."""
    by_own: dict[tuple[Component, ...], list[int]] = {}
    for number in left.tolist():
        by_own.setdefault(rows[number].own, []).append(number)
    return [
        Explanation(own, tuple(numbers), float(np.median([rows[each].loss for each in numbers])), 0.0)
        for own, numbers in by_own.items()
    ]


def _losses(rows: Sequence[Row]) -> list[float]:
    """The loss of each row, of one question on one scale, that of the row which lost most of its total: of two that
    lose as much a judge may call one slow, where his bound lies between them, or each by something else."""
    ideal: dict[Hashable, float] = {}
    for row in rows:
        if row.slow and row.total is not None:
            ideal[row.question] = min(ideal.get(row.question, math.inf), row.total - row.loss)
    return [
        row.loss if row.total is None or row.question not in ideal else max(row.loss, row.total - ideal[row.question])
        for row in rows
    ]


@dataclass(frozen=True)
class _Fit:
    """What each column gains, its price, and by entry the misfit that it leaves; NaN where it costs nothing."""

    gains: Floats
    price: Floats
    misfit: Floats


class _Table:
    """The rows as arrays. An entry is a row in a column; a cell is a column in the rows of one question."""

    def __init__(self, rows: Sequence[Row], prior: Mapping[Component, float]) -> None:
        self.odds = prior
        self.loss = np.array(_losses(rows))
        self.noise = np.array([row.noise for row in rows])
        self.slow = np.array([row.slow for row in rows])
        self.apart = np.array([row.apart for row in rows])
        # A judge says that these are slow.
        self.noise[self.slow] = np.minimum(self.noise, self.loss / MOST_OF_METRIC)[self.slow]
        numbers: dict[Hashable, int] = {}
        self.question = np.array([numbers.setdefault(row.question, len(numbers)) for row in rows])
        # These lost as much as what a judge calls slow, whose bound lies between.
        least = np.full(len(numbers), np.inf)
        np.minimum.at(least, self.question[self.slow], self.loss[self.slow])
        self.lost = self.loss >= MOST * least[self.question]
        self.quantity = np.unique([row.quantity for row in rows], return_inverse=True)[1]
        self.columns = _columns(rows)
        self.price = math.log(max(len(self.columns), 1)) + DOUBT
        self.when = np.array([row.when for row in rows])
        # A slow row may have a cause of its own, which is as dear as any and says nothing of others.
        most = MOST_OF_METRIC**2 / 2
        self.most = np.where(self.slow, np.minimum(self.price + DOUBT, most), most)
        self.columns = [column for column in self.columns if self._may_gain(column)]
        self.prior = np.array([max(map(self._odds, column.components)) for column in self.columns])
        # Software, and what all have in common, may cost each measurement something else, and does not heal.
        self.uneven = np.array(
            [
                all(one.kind.is_software or one.kind is Kind.SYSTEM for one in column.components)
                for column in self.columns
            ]
        )
        self.common = np.array([any(one.kind is Kind.SYSTEM for one in column.components) for column in self.columns])
        if not self.columns:
            return
        row = np.concatenate([column.rows for column in self.columns])
        share = np.concatenate([column.shares for column in self.columns])
        column = np.repeat(np.arange(len(self.columns)), [column.rows.size for column in self.columns])
        cells = column * len(numbers) + self.question[row]
        order = np.lexsort((self.loss[row], cells))
        self.row, self.share, self.column, cells = row[order], share[order], column[order], cells[order]
        first, self.cell = np.unique(cells, return_index=True, return_inverse=True)[1:]
        self.cell_column = self.column[first]
        self.cell_quantity = self.quantity[self.row[first]]
        of_question = np.bincount(self.question)[self.question[self.row[first]]]
        self.whole = np.bincount(self.cell) == of_question
        self.against = self._against(rows)

    def _odds(self, component: Component) -> float:
        return self.odds.get(component, 0.0)

    def _may_gain(self, column: _Column) -> bool:
        """Whether a column would gain anything if its slow rows were all that there is, and several."""
        slow = column.rows[self.slow[column.rows]]
        return slow.size > 1 and float(self.most[slow].sum()) + max(map(self._odds, column.components)) > self.price

    def _against(self, rows: Sequence[Row]) -> Floats:
        """By cell, how far its fast rows speak against its column where the column costs nothing there."""
        total = np.array([row.loss if row.total is None else row.total for row in rows])
        usual = self._of_columns(self.loss)
        usual_total = self._of_columns(total)
        # Peers that all cross a component agree, whatever it costs them.
        among_others = ~self.whole[self.cell]
        from_elsewhere = np.array([row.total is None for row in rows])[self.row]
        far = total[self.row] < usual_total[self.column] / 2
        telling = ~self.slow[self.row] & (among_others | from_elsewhere | far)
        # That it lost nothing, over that it lost as much as the slow ones.
        lost, own = usual[self.column], np.maximum(self.loss[self.row], 0.0)
        known = lost * np.maximum(lost - 2 * own, 0.0) / self.noise[self.row] ** 2 / 2
        weight = np.where(telling, self.share * np.minimum(known, DOUBT), 0.0)
        return np.minimum(np.bincount(self.cell, weight), MOST_OF_METRIC**2 / 2)

    def _of_columns(self, values: Floats) -> Floats:
        """By column the mean of its slow rows."""
        slow = self.slow[self.row] * self.share
        return np.asarray(np.bincount(self.column, slow * values[self.row]) / np.bincount(self.column, slow))

    def _cost(self, chosen: Bools) -> Floats:
        """By cell the median loss of the chosen rows; 0 where there is none. Entries are in the order of losses."""
        entries = np.flatnonzero(chosen[self.row])
        count = np.bincount(self.cell[entries], minlength=self.cell_column.size)
        middle = (np.cumsum(count) - count + (count - 1) // 2)[count > 0]
        cost = np.zeros(self.cell_column.size)
        cost[count > 0] = self.loss[self.row[entries[middle]]]
        return cost

    def _misfit(self, loss: Floats, rows: Ints) -> Floats:
        """The log likelihood that these rows miss where a component costs them so much: what lost may differ by a
        quarter."""
        own, slow = np.maximum(self.loss[rows], 0.0), self.slow[rows]
        noise = np.where(
            self.lost[rows], np.hypot(self.noise[rows], (1 - MOST) * np.sqrt(loss * own)), self.noise[rows]
        )
        # What is fast speaks against a loss, and for none.
        away = np.where(slow, own - loss, np.maximum(loss - own, 0.0))
        return np.asarray(np.minimum((away / noise) ** 2 / 2, self.most[rows]))

    def _fit(self, before: Floats) -> _Fit:
        """Each column as one more than those which leave the rows the misfit `before`."""
        cost = self._cost(self.slow & (before >= DOUBT))
        own = self._misfit(cost[self.cell], self.row)
        slow = self.slow[self.row]
        costs = slow & (cost[self.cell] > 0)
        own = np.where(costs & self.uneven[self.column], np.minimum(own, DOUBT), own)
        # What all peers cross is not why some of them are slower.
        own = np.where(costs & self.apart[self.row] & self.whole[self.cell], np.maximum(own, DOUBT), own)
        after = np.where(slow, np.minimum(before[self.row], own), np.maximum(before[self.row], own))
        gain = np.log(1 - self.share + self.share * np.exp(before[self.row] - after))
        is_then, of_time = self._times(gain)
        of_cell = np.bincount(self.cell, gain * is_then, self.cell_column.size)
        is_in = of_cell > 0
        number = int(self.quantity.max()) + 1
        place = self.cell_column * number + self.cell_quantity
        is_asked = np.bincount(place, is_in, len(self.columns) * number)[place] > 0
        gained = np.bincount(self.cell_column, np.where(is_in, of_cell, 0.0), len(self.columns))
        was_then = np.bincount(self.cell, is_then, self.cell_column.size) > 0
        against = np.where(~is_in & was_then & is_asked, self.against, 0.0)
        speaks = np.bincount(self.cell_column, against, len(self.columns))
        # A part may fail in one kind of measurement alone; what all have in common may not.
        speaks = np.where(self.common, speaks, np.minimum(speaks, 2 * DOUBT))
        price = self.price - self.prior + speaks + of_time
        # Of rows that may not cross a component those that it explains do.
        taken = is_then & is_in[self.cell] & ((self.share == 1) | (slow & (own < before[self.row])))
        return _Fit(gained - price, price, np.where(taken, own, np.nan))

    def _times(self, gain: Floats) -> tuple[Bools, Floats]:
        """By entry, whether its column is at fault at that time: always, or where that gains more, until some time or
        from then on; and the price of that by column."""
        is_then, prices = np.full(gain.size, True), np.zeros_like(self.prior)
        always = np.bincount(self.cell_column, np.maximum(np.bincount(self.cell, gain), 0.0))
        # What healed a part is another cause, at one time of so many, before or after it.
        price = self.price + np.log(2 * np.bincount(self.column))
        least, most = always + price, np.bincount(self.column, np.maximum(gain, 0.0))
        for column in np.flatnonzero((most > least) & ~self.uneven):
            own = slice(*np.searchsorted(self.column, [column, column + 1]))
            when = self.when[self.row[own]]
            directions = [(by, *_gains_until(gain[own], self.cell[own], by)) for by in (when, -when)]
            by, times, gains = max(directions, key=lambda direction: direction[2].max())
            if gains.max() > least[column]:
                is_then[own], prices[column] = by <= times[gains.argmax()], price[column]
        return is_then, prices

    def _before(self, chosen: _Chosen, left_out: int = -1) -> Floats:
        """The misfit of each row that the chosen columns but one leave."""
        left = np.where(self.slow, self.most, 0.0)
        for column, (misfit, _) in chosen.items():
            if column != left_out:
                left = np.where(self.slow, np.fmin(left, misfit), np.fmax(left, misfit))
        return left

    def worth(self, chosen: _Chosen) -> float:
        """What columns gain together."""
        return float((self._before({}) - self._before(chosen)).sum()) - sum(price for _, price in chosen.values())

    def left(self, chosen: _Chosen) -> Ints:
        """The slow rows that these columns do not explain."""
        return np.flatnonzero(self.slow & (self._before(chosen) >= self.most))

    def search(self) -> _Chosen:
        """The columns that explain most, with the loss of each row by them."""
        return best_reached({}, self._moves, self.worth)

    def _moves(self, chosen: _Chosen) -> Iterator[_Chosen]:
        """With one column more, and others in place of one."""
        yield self._added(chosen, 1)
        for column in chosen:
            rest = self._refitted({each: loss for each, loss in chosen.items() if each != column})
            yield self._added(rest, MOST_FOR_ONE, without=column)

    def _refitted(self, chosen: _Chosen) -> _Chosen:
        """The same columns, each fitted to what the others leave: what was left when it was chosen may differ."""
        refitted = dict(chosen)
        for column in chosen:
            fit = self._fit(self._before(refitted, column))
            refitted[column] = self._one_of(fit, column)
        return refitted if self.worth(refitted) > self.worth(chosen) else chosen

    def _one_of(self, fit: _Fit, column: int) -> tuple[Floats, float]:
        misfit, own = np.full(self.loss.size, np.nan), self.column == column
        misfit[self.row[own]] = fit.misfit[own]
        return misfit, float(fit.price[column])

    def _added(self, chosen: _Chosen, most: int, without: int | None = None) -> _Chosen:
        """With up to so many of the best columns more, `without` that one."""
        columns = dict(chosen)
        for _ in range(most):
            fit = self._fit(self._before(columns))
            fit.gains[[*columns, *([without] if without is not None else [])]] = -np.inf
            best = int(fit.gains.argmax())
            if fit.gains[best] <= 0:
                break
            columns[best] = self._one_of(fit, best)
        return columns

    def explanation(self, chosen: _Chosen, best: int) -> Explanation:
        """A chosen column with those that explain its rows as well."""
        before = self._before(chosen, best)
        fit = self._fit(before)
        gains = fit.gains
        explains = self.slow[self.row] & (fit.misfit <= before[self.row]) & (fit.misfit < self.most[self.row])
        own = chosen[best][0]
        rows = np.flatnonzero(self.slow & (own <= before) & (own < self.most))
        shared = np.bincount(self.column[explains & np.isin(self.row, rows)], minlength=len(self.columns))
        count = np.bincount(self.column[explains], minlength=len(self.columns))
        gains[[each for each in chosen if each != best]] = -np.inf
        likely = [one for one in self.columns[best].components if self._odds(one) >= self.prior[best] - DOUBT]
        # A part is one with the port of its link, whatever it does without.
        links = [one for one in likely if one.kind is Kind.LINK and one.node == one.far_node]
        ports = {(end.node, end.name) for link in links for end in link.ends}
        # The chosen column is one of them, also where most of its rows are explained by others as well.
        alike = {best, *np.flatnonzero(2 * shared > np.maximum(count, rows.size)).tolist()}
        components = dict[Component, None]()
        for column in sorted(alike, key=lambda column: (-gains[column], column)):
            # Evidence tells apart what the same rows cross.
            without = gains[column] - self.prior[column]
            for component in self.columns[column].components:
                doubt = 3 * DOUBT if (component.node, component.name) in ports else DOUBT
                if without + self._odds(component) >= gains[best] - doubt:
                    components[component] = None
        loss = float(np.median(self.loss[rows])) if rows.size else 0.0
        return Explanation(tuple(components), tuple(rows.tolist()), loss, float(gains[best]))


State = TypeVar("State")


def best_reached(state: State, moves: Callable[[State], Iterator[State]], worth: Callable[[State], float]) -> State:
    """Return what is reached from a state by moves, such as forward selection with exchange: each to the first state
    that is worth more."""
    for _ in range(MOST_STEPS):
        least = worth(state) + SETTLED
        better = next((other for other in moves(state) if worth(other) > least), None)
        if better is None:
            break
        state = better
    return state


def _gains_until(gain: Floats, cell: Ints, when: Ints) -> tuple[Ints, Floats]:
    """The times of a column's entries, and by each what the entries until then gain, of all cells that gain anything.
    Entries are in the order of their cells."""
    order = np.lexsort((when, cell))
    first = np.diff(cell, prepend=-1) > 0
    total = np.cumsum(gain[order])
    of_cell = total - (total - gain[order])[first][np.cumsum(first) - 1]
    gained = np.maximum(of_cell, 0.0)
    more = gained - np.where(first, 0.0, np.roll(gained, 1))
    times, place = np.unique(when[order], return_inverse=True)
    return times, np.cumsum(np.bincount(place, more))


@dataclass(frozen=True)
class _Column:
    """Components that the same rows cross, with the same probability."""

    components: tuple[Component, ...]
    rows: Ints
    shares: Floats


def _columns(rows: Sequence[Row]) -> list[_Column]:
    entries: dict[Component, list[tuple[int, float]]] = {}
    for number, row in enumerate(rows):
        for component, share in row.crosses.items():
            entries.setdefault(component, []).append((number, share))
    alike: dict[tuple[tuple[int, float], ...], list[Component]] = {}
    for component, members in entries.items():
        alike.setdefault(tuple(members), []).append(component)
    columns = []
    for shared, components in alike.items():
        numbers, shares = np.array(shared).T
        columns.append(_Column(tuple(components), numbers.astype(np.int64), shares))
    return columns
