"""How the iterations of each metric are distributed: their cumulative distribution as quantiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    MetricGroup,
    groups_of,
    judgements_of,
    label_of,
    merge_collectives,
    name_of,
    number,
    quantity_of,
    unit_shown,
)
from fabricheck.report.figures.plot import MOST_COLORED, Colors, PlotLine, legend_below, line_traces, plain, to_json
from fabricheck.report.figures.tables import Cell, Figure, Rows, omitted_rows_text

# In per cent. Close enough to each other to show a second mode of a fortieth of the iterations.
SHARES = (0.0, 1.0, *(float(each) for each in np.arange(2.5, 98.0, 2.5)), 99.0, 100.0)
_IN_TABLE = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)
_FEWEST = 2
# Of grey curves, more than these cannot be seen beside each other; rows of a table are counted beyond theirs.
_MOST_GREY, _MOST_ROWS, _GREY_STEP = 40, 32, 3
# Of the axis, in per cent of the median: what even the steadiest curves get on either side.
_LEAST_REACH = 1.0


@dataclass(frozen=True)
class Distribution:
    """The quantiles of the iterations of one metric at `SHARES`, in the metric's unit."""

    label: str
    verdict: Verdict
    count: int
    quantiles: npt.NDArray[np.float64]

    @property
    def median(self) -> float:
        """The 50th percentile."""
        return self.at(50.0)

    @property
    def relative(self) -> npt.NDArray[np.float64]:
        """The quantiles in per cent of the median."""
        return np.asarray(100 * self.quantiles / self.median)

    @property
    def width(self) -> float:
        """From the 5% to the 95% quantile, as a share of the median."""
        return (self.at(95.0) - self.at(5.0)) / self.median

    def at(self, share: float) -> float:
        """The value at a percentile that is in `SHARES`."""
        return float(self.quantiles[SHARES.index(share)])


def distributions_of(judged: RunJudgement, colors: Colors) -> Iterable[Figure]:
    """A figure for each group of pairs at a size, and one for the collectives of a schedule together.

    Tools that print no iterations leave a mean, which has no distribution.
    """
    for members in merge_collectives(groups_of(judged)):
        distributions = [_distribution(each, len(judged.run.ranks)) for each in judgements_of(members)]
        known = [each for each in distributions if each is not None]
        # What is not PASS first, as the judge has it; of the rest the shape is what can be wrong.
        good = sorted(
            (each for each in known if each.verdict is Verdict.PASS), key=lambda distribution: -distribution.width
        )
        if known:
            ranked = [*(each for each in known if each.verdict is not Verdict.PASS), *good]
            yield _figure(members, ranked, colors)


def _distribution(judged: Judgement, world: int) -> Distribution | None:
    samples = judged.samples
    if samples.statistic == "mean" or samples.count < _FEWEST:
        return None
    with np.errstate(all="ignore"):
        values = samples.goodput_gbps if quantity_of(judged) == "goodput" else samples.latency_us
        if not (np.isfinite(values) & (values > 0)).all():
            return None
        quantiles = np.asarray(np.percentile(values, SHARES), dtype=np.float64)
    return Distribution(label_of(judged, world), judged.verdict, values.size, quantiles)


def _figure(members: Sequence[MetricGroup], distributions: Sequence[Distribution], colors: Colors) -> Figure:
    """`found`: the worst first. Curves are in % of their own median: their levels are in the other figures already,
    and what tells of trouble is their shape."""
    first = members[0]
    told = distributions if len(distributions) <= MOST_COLORED else distributions[: MOST_COLORED - 1]
    grey = distributions[len(told) :][:_MOST_GREY]
    lines = [*map(_line, told), *(_line(each, every=_GREY_STEP) for each in grey)]
    traces = line_traces(lines, mode="lines", colors=colors)
    low, high = _range(told, grey)
    layout = {
        "height": 400,
        "margin": {"l": 60, "r": 15, "t": 10, "b": 45},
        "hovermode": "closest",
        "legend": legend_below(),
        "xaxis": {"title": {"text": f"{first.quantity} in % of its own median"}, "range": [low, high]},
        "yaxis": {
            "title": {"text": "% of iterations at or below"},
            "range": [-2, 102],
            "tickvals": [0, 25, 50, 75, 100],
        },
    }
    name = name_of(members)
    widest = max(distributions, key=lambda distribution: distribution.width)
    summary = (
        f"{len(distributions)} {'distributions' if len(distributions) > 1 else 'distribution'}; from the 5% to the 95% "
        f"quantile {'the widest is ' if len(distributions) > 1 else ''}{widest.label} with {_share(widest, 5.0)} to "
        f"{_share(widest, 95.0)} of its median"
    )
    if len(distributions) > len(told) + len(grey):
        summary += f"; {len(told) + len(grey)} of them are drawn"
    table = Rows(
        head=(
            "ranks" if first.is_pairs else "operation",
            "verdict",
            f"minimum, {unit_shown(first.unit)}",
            *(f"{share:g}%" if share != 50 else "median" for share in _IN_TABLE[1:-1]),
            "maximum",
            "iterations",
        ),
        rows=tuple(_row(each) for each in distributions[:_MOST_ROWS]),
        texts=(1,),
        note=omitted_rows_text(len(distributions[_MOST_ROWS:]), "metrics"),
    )
    return Figure("distributions", f"{name}: distribution of the iterations", summary, to_json(traces, layout), table)


def _line(distribution: Distribution, every: int = 1) -> PlotLine:
    """The curve, or of what is drawn grey every few of its points."""
    return PlotLine(
        label=distribution.label,
        x=tuple(round(float(value), 2) for value in distribution.relative[::every]),
        y=SHARES[::every],
        hover=f"{plain(distribution.label)}<br>median {number(distribution.median)}, {distribution.count} iterations",
    )


def _range(told: Sequence[Distribution], grey: Sequence[Distribution]) -> tuple[float, float]:
    """As much as shows what is told apart from the 1% to the 99% quantile, and the others from the 5% to the 95% one: a
    single wild iteration would leave no room for the rest."""
    quantiles = [(each, low, high) for some, low, high in ((told, 1.0, 99.0), (grey, 5.0, 95.0)) for each in some]
    first = min(100 * each.at(low) / each.median for each, low, _ in quantiles)
    last = max(100 * each.at(high) / each.median for each, _, high in quantiles)
    first, last = min(first, 100 - _LEAST_REACH), max(last, 100 + _LEAST_REACH)
    margin = 0.08 * (last - first)
    return round(first - margin, 2), round(last + margin, 2)


def _row(distribution: Distribution) -> tuple[Cell, ...]:
    return (
        Cell(distribution.label),
        Cell(distribution.verdict.value),
        *(Cell(number(distribution.at(share))) for share in _IN_TABLE),
        Cell(str(distribution.count)),
    )


def _share(distribution: Distribution, share: float) -> str:
    return f"{100 * distribution.at(share) / distribution.median:.1f}%"
