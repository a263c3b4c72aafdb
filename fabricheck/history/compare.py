"""Two sets of runs, metric by metric: what changed, how surely, and what could not have been seen."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import digamma, polygamma
from scipy.stats import norm, t

from fabricheck.errors import UserError
from fabricheck.history.hazard import KINDS
from fabricheck.history.noise import kinds_of_noise
from fabricheck.history.robust import FEWEST, centre_and_spread
from fabricheck.history.select import select_runs
from fabricheck.history.series import KEY, NO_MEASUREMENT, MetricKey, check_history
from fabricheck.history.shared import blamed, count_crossing, groups

Floats = npt.NDArray[np.float64]

# Runs further than this from their median, in spreads, count as if they were here: one bad run is no change.
_CUT = 2.0
# Metrics that vary less, relative, are taken to vary by this: the resolution of a clock is no certainty.
_LEAST_SPREAD = 0.001
# A prior of more than this many degrees of freedom is as good as a known spread.
_MOST_FREEDOM = 1e6
_FEWEST_FOR_PRIOR = 10
_FEWEST_FOR_CORRELATION = 20
# Earlier runs that are looked at, the latest: how much a metric varied long ago does not matter.
_EARLIER = 60


class Change(str, Enum):
    """What can be said of a metric between two sets of runs."""

    REGRESSED = "regressed"
    CANNOT_SAY = "cannot say"
    SAME = "same"
    IMPROVED = "improved"


@dataclass(frozen=True)
class Finding:
    """One metric in both sets.

    `base` and `candidate` are robust centres in `unit`. `change` is candidate / base - 1, with its confidence
    `interval`; `effect` is the change in between-run spreads, positive where it is better. `smallest_change` is the
    least relative loss that runs as many and as noisy would have shown as regressed with the power of the options.
    `p_worse` and `p_better` are one-sided and not corrected for the number of metrics.
    """

    key: MetricKey
    unit: str
    better: str
    base: float
    candidate: float
    base_runs: int
    candidate_runs: int
    change: float
    interval: tuple[float, float]
    effect: float
    spread: float  # between runs, relative
    p_worse: float
    p_better: float
    smallest_change: float
    verdict: Change
    unequal: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True)
class Suspect:
    """A component that several regressed metrics share: `affected` of the `measured` ones whose paths cross it.

    `others` are components that would explain it as well.
    """

    component: str
    others: tuple[str, ...]
    affected: int
    measured: int


@dataclass(frozen=True)
class Side:
    """One of the two sets: the selection as it was asked for, and what it came to."""

    selection: str
    sessions: tuple[str, ...]
    runs: int
    software: tuple[str, ...]
    not_measured: int  # rows left out because they are INVALID or INCOMPLETE


@dataclass(frozen=True)
class Comparison:
    """All findings, worst first, `suspects` for what regressed, and `vanished` and `new` metrics of one side only."""

    system: str
    base: Side
    candidate: Side
    options: CompareOptions
    findings: tuple[Finding, ...]
    suspects: tuple[Suspect, ...]
    vanished: tuple[MetricKey, ...]
    new: tuple[MetricKey, ...]
    software_changes: tuple[str, ...]
    unequal: tuple[str, ...]

    def count(self, verdict: Change) -> int:
        return sum(each.verdict is verdict for each in self.findings)

    @property
    def exit_status(self) -> int:
        """1 where something regressed; else 4 where a metric vanished or nothing can be said of one; else 0."""
        if self.count(Change.REGRESSED):
            return 1
        return 4 if self.vanished or self.count(Change.CANNOT_SAY) or not self.findings else 0


@dataclass(frozen=True)
class CompareOptions:
    """`false_discovery`: the share of metrics called regressed that are not, and likewise of those called improved.
    `margin`: a metric is the same where a loss of this share would have been seen and was not. `power`: how surely.
    `confidence` of the intervals of the changes, each by itself.
    """

    false_discovery: float = 0.01
    margin: float = 0.05
    power: float = 0.95
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name in ("false_discovery", "margin", "power", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name.replace('_', ' ')} is a share between 0 and 1, not {getattr(self, name)}")


def compare(
    history: pl.DataFrame,
    system: str,
    base: str,
    candidate: str,
    options: CompareOptions | None = None,
    *,
    now: datetime | None = None,
) -> Comparison:
    """Compare two selections (as `select_runs` takes them) of a system's history.

    Runs of the history that are in neither and earlier than the candidate tell how much a metric varies. Raises
    UserError for a history that is not right (`check_history`), for selections without runs and for such that share
    one.
    """
    options = options or CompareOptions()
    kept = check_history(history, system, now=now)
    sides = [select_runs(history, text) for text in (base, candidate)]
    chosen = [
        kept.join(side.select("run_id").unique(), on="run_id", how="semi", maintain_order="left") for side in sides
    ]
    for text, rows in zip((base, candidate), chosen, strict=True):
        if rows.is_empty():
            raise UserError(f"no run of {text} measured anything: all are INVALID or INCOMPLETE")
    shared = set(chosen[0]["run_id"]) & set(chosen[1]["run_id"])
    if shared:
        raise UserError(f"{base} and {candidate} share {len(shared)} runs, such as {min(shared)}: nothing to compare")
    keys = [rows.select(KEY).unique().sort(KEY) for rows in chosen]
    matched = keys[0].join(keys[1], on=KEY, how="semi").sort(KEY)
    runs = [rows.select("run_id").unique() for rows in chosen]
    earlier = kept.filter(pl.col("started") < chosen[1]["started"].min())
    for each in runs:
        earlier = earlier.join(each, on="run_id", how="anti", maintain_order="left")
    findings = _findings(matched, chosen[0], chosen[1], earlier, options)
    software = [_versions(rows) for rows in chosen]
    return Comparison(
        system=system,
        base=_side(base, sides[0], chosen[0]),
        candidate=_side(candidate, sides[1], chosen[1]),
        options=options,
        findings=findings,
        suspects=_suspects(findings),
        vanished=_only(keys[0], keys[1]),
        new=_only(keys[1], keys[0]),
        software_changes=tuple(
            f"{name}: {_say(software[0].get(name))} -> {_say(software[1].get(name))}"
            for name in sorted({*software[0], *software[1]})
            if software[0].get(name) != software[1].get(name)
        ),
        unequal=_unequal_runs(chosen[0], chosen[1], findings),
    )


def _suspects(findings: Sequence[Finding]) -> tuple[Suspect, ...]:
    crossing = count_crossing(each.components for each in findings)
    worse = {row: each.components for row, each in enumerate(findings) if each.verdict is Change.REGRESSED}
    found = []
    for group in groups(worse, crossing):
        component, others = blamed(group.components, crossing)
        if component is not None and len(group.members) > 1:
            found.append(Suspect(component, others, len(group.members), crossing[component]))
    return tuple(found)


def _side(selection: str, rows: pl.DataFrame, measured: pl.DataFrame) -> Side:
    return Side(
        selection=selection,
        sessions=tuple(measured["session"].unique(maintain_order=True)),
        runs=measured["run_id"].n_unique(),
        software=tuple(measured["software"].unique().sort()),
        not_measured=rows.filter(pl.col("verdict").is_in(NO_MEASUREMENT)).height,
    )


def _only(these: pl.DataFrame, those: pl.DataFrame) -> tuple[MetricKey, ...]:
    return tuple(MetricKey(*row) for row in these.join(those, on=KEY, how="anti").sort(KEY).iter_rows())


def _versions(rows: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for text in rows["software"].unique():
        for name, version in json.loads(text).items():
            found.setdefault(name, set()).add(str(version))
    return {name: tuple(sorted(versions)) for name, versions in found.items()}


def _say(versions: tuple[str, ...] | None) -> str:
    return ", ".join(versions) if versions else "none"


def _unequal_runs(base: pl.DataFrame, candidate: pl.DataFrame, findings: Iterable[Finding]) -> tuple[str, ...]:
    counted: dict[str, int] = {}
    for each in findings:
        for text in each.unequal:
            counted[text] = counted.get(text, 0) + 1
    found = [f"{text} ({number} metrics)" for text, number in sorted(counted.items())]
    for name, rows in (("base", base), ("candidate", candidate)):
        if rows["session"].n_unique() == 1 and rows.select(pl.struct(KEY).is_duplicated().any()).item():
            found.append(f"all runs of the {name} are of one session: sessions differ more than runs of one")
    return tuple(found)


def _findings(
    keys: pl.DataFrame, base: pl.DataFrame, candidate: pl.DataFrame, earlier: pl.DataFrame, options: CompareOptions
) -> tuple[Finding, ...]:
    if keys.is_empty():
        return ()
    facts = [_facts(keys, rows) for rows in (base, candidate)]
    sign = np.where(facts[0]["better"].to_numpy() == "higher", -1.0, 1.0)
    recent = earlier.group_by(KEY, maintain_order=True).tail(_EARLIER)
    values = [_matrix(keys, rows) * sign[:, None] for rows in (base, candidate, recent)]
    tested = moderated_test(values[0], values[1], values[2], options)
    centres = [np.exp(sign * _centre(each, tested.spread)) for each in values[:2]]
    counts = [_count(each) for each in values[:2]]
    quantile = t.isf((1 - options.confidence) / 2, np.maximum(tested.freedom, 1e-9))
    quantile = np.where(tested.freedom > 0, quantile, np.inf)
    found = []
    for row, key in enumerate(keys.iter_rows()):
        reach = quantile[row] * tested.error[row]
        ends = sorted(sign[row] * (tested.shift[row] + side * reach) for side in (-1, 1))
        found.append(
            Finding(
                key=MetricKey(*key),
                unit=facts[0]["unit"][row],
                better=facts[0]["better"][row],
                base=float(centres[0][row]),
                candidate=float(centres[1][row]),
                base_runs=int(counts[0][row]),
                candidate_runs=int(counts[1][row]),
                change=math.expm1(sign[row] * tested.shift[row]),
                interval=(_relative(ends[0]), _relative(ends[1])),
                effect=float(-tested.shift[row] / tested.spread[row]),
                spread=float(tested.spread[row]),
                p_worse=float(tested.p_worse[row]),
                p_better=float(tested.p_better[row]),
                smallest_change=_loss(sign[row], tested.smallest[row]),
                verdict=_verdict(row, tested, sign[row], options),
                unequal=_unequal(facts[0], facts[1], row),
                components=tuple(facts[1]["components"][row]),
            )
        )
    order = list(Change)
    return tuple(sorted(found, key=lambda each: (order.index(each.verdict), each.p_worse, each.key)))


def _relative(shift: float) -> float:
    """Relative change of a difference of logarithms; endless where it is beyond all numbers."""
    return math.expm1(shift) if shift < 700 else math.inf


def _loss(sign: float, shift: float) -> float:
    """The relative loss of a shift to the worse side; endless where no loss is large enough."""
    return abs(_relative(sign * shift)) if math.isfinite(shift) else math.inf


def _verdict(row: int, tested: Tested, sign: float, options: CompareOptions) -> Change:
    if tested.worse[row]:
        return Change.REGRESSED
    if tested.better[row]:
        return Change.IMPROVED
    return Change.SAME if _loss(sign, tested.smallest[row]) <= options.margin else Change.CANNOT_SAY


def _facts(keys: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """What is known of each metric besides its values, in the order of `keys`."""
    found = rows.group_by(KEY).agg(
        *(pl.col(name).first() for name in ("unit", "better", "components")),
        pl.col("nodes").list.sort().list.join("+").unique().sort(),
        pl.col("tuning").unique().sort(),
    )
    return keys.join(found, on=KEY, how="left", maintain_order="left")


def _unequal(base: pl.DataFrame, candidate: pl.DataFrame, row: int) -> tuple[str, ...]:
    found = []
    for name in ("nodes", "tuning"):
        before, after = base[name][row].to_list(), candidate[name][row].to_list()
        if before != after:
            found.append(f"other {name}: {', '.join(before) or 'none'} -> {', '.join(after) or 'none'}")
    return tuple(found)


def _matrix(keys: pl.DataFrame, rows: pl.DataFrame) -> Floats:
    """Logarithms of the values of each metric in the order of the runs, shape (metrics, runs); NaN fills up."""
    cells = (
        rows.join(keys.with_row_index("row"), on=KEY, maintain_order="left")
        .select("row", pl.col("value"), pl.int_range(pl.len()).over("row").alias("place"))
    )  # fmt: skip
    width = int(cells["place"].max()) + 1 if not cells.is_empty() else 0  # type: ignore[arg-type]
    found = np.full((keys.height, width), np.nan)
    found[cells["row"].to_numpy(), cells["place"].to_numpy()] = np.log(cells["value"].to_numpy())
    return found


@dataclass(frozen=True)
class Tested:
    """The statistics of matched metrics, shapes (metrics,); logarithms, with more being worse."""

    shift: Floats
    error: Floats
    freedom: Floats
    spread: Floats
    p_worse: Floats
    p_better: Floats
    worse: npt.NDArray[np.bool_]
    better: npt.NDArray[np.bool_]
    smallest: Floats


def moderated_test(base: Floats, candidate: Floats, earlier: Floats, options: CompareOptions) -> Tested:
    """Test every metric for a shift; `base` and `candidate` have shapes (metrics, runs), NaN where there is none.

    Values are logarithms with the sign that makes more worse. The spread between runs is taken to be the same on both
    sides. It is estimated from the runs of both, from `earlier` runs, shape (metrics, runs) in the order of time, by
    their successive differences, and from all the other metrics (moderated t: Smyth, Statistical Applications in
    Genetics and Molecular Biology 3, 2004): five runs a side alone know too little of it. Where there are enough
    earlier runs to tell that neighbouring runs are alike, the errors are the larger for it. Which shifts are real is
    decided over all metrics at once with the two-stage step-up procedure of Benjamini, Krieger and Yekutieli
    (Biometrika 93, 2006), each direction by itself.
    """
    n1, n2 = _count(base), _count(candidate)
    correlation = _correlation(earlier)
    squares = sum(_squares(each) / _within(_count(each), correlation) for each in (base, candidate))
    freedom = np.maximum(n1 - 1, 0) + np.maximum(n2 - 1, 0)
    more, known = _from_differences(earlier, correlation)
    squares, freedom = squares + more * known, freedom + known
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(squares / freedom, _LEAST_SPREAD**2)
    prior_variance, prior_freedom = _prior(variance, freedom)
    total = freedom + prior_freedom
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (np.where(freedom > 0, freedom * variance, 0.0) + prior_freedom * prior_variance) / total
    spread = np.sqrt(pooled)
    error = spread * np.sqrt(_of_mean(n1, correlation) + _of_mean(n2, correlation))
    shift = _centre(candidate, spread) - _centre(base, spread)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic = shift / error
    known_spread = np.isfinite(statistic) & (total > 0)
    p_worse = np.where(known_spread, t.sf(statistic, np.maximum(total, 1e-9)), 1.0)
    p_better = np.where(known_spread, t.sf(-statistic, np.maximum(total, 1e-9)), 1.0)
    worse, threshold = discoveries(p_worse, options.false_discovery)
    better, _ = discoveries(p_better, options.false_discovery)
    smallest = _smallest_shift(error, total, threshold, options.power)
    return Tested(shift, error, total, spread, p_worse, p_better, worse, better, smallest)


def discoveries(p: Floats, rate: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Which of the p-values, shape (n,), are discoveries at a false discovery rate, and the largest p that would be one
    if it were one more: Benjamini and Hochberg (1995) in two stages (Benjamini, Krieger,
    Yekutieli, 2006, definition 6).
    """
    number = p.size
    if number == 0:
        return np.zeros(0, dtype=np.bool_), rate
    level = rate / (1 + rate)
    first = _step_up(p, level)
    null = number - first
    if first in (0, number):
        found = first
        slope = level / number
    else:
        slope = level / null
        found = _step_up(p, level * number / null)
    order = np.argsort(p, kind="stable")
    chosen = np.zeros(number, dtype=np.bool_)
    chosen[order[:found]] = True
    return chosen, min(slope * min(found + 1, number), 0.5)


def _step_up(p: Floats, level: float) -> int:
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= level * np.arange(1, p.size + 1) / p.size)
    return int(below[-1]) + 1 if below.size else 0


def _count(values: Floats) -> npt.NDArray[np.int64]:
    return np.asarray(np.isfinite(values).sum(axis=1))


def _squares(values: Floats) -> Floats:
    number = np.maximum(_count(values), 1)
    mean = np.nansum(values, axis=1) / number
    return np.asarray(np.nansum((values - mean[:, None]) ** 2, axis=1))


def _correlation(earlier: Floats) -> Floats:
    """Correlation of successive runs of each metric; 0 for those with too few earlier runs to tell; (metrics,)."""
    found = np.zeros(len(earlier))
    rows = np.flatnonzero(_count(earlier) >= _FEWEST_FOR_CORRELATION)
    if rows.size:
        known = centre_and_spread(earlier[rows])
        spread = np.maximum(known.spread, _LEAST_SPREAD)[:, None]
        weights = kinds_of_noise((earlier[rows] - known.centre[:, None]) / spread)
        found[rows] = weights @ np.asarray([each.correlation for each in KINDS])
    return found


def _of_mean(number: npt.NDArray[np.int64], correlation: Floats) -> Floats:
    """Variance of the mean of successive runs over that of one run; (metrics,)."""
    found = np.ones(len(number))
    for lag in range(1, int(number.max(initial=1))):
        found += 2 * np.maximum(1 - lag / np.maximum(number, 1), 0) * correlation**lag
    return np.asarray(found / np.maximum(number, 1))


def _within(number: npt.NDArray[np.int64], correlation: Floats) -> Floats:
    """The share of the squares around their own mean that correlated runs have of those of independent ones."""
    several = np.maximum(number, 2)
    return np.asarray((1 - _of_mean(several, correlation)) / (1 - 1 / several))


def _from_differences(earlier: Floats, correlation: Floats) -> tuple[Floats, Floats]:
    """Variance of runs from the differences of successive ones, and the degrees of freedom it is worth.

    Differences leave out slow changes; that of an upgrade is one among many and is winsorised. n of them are worth two
    thirds of n values (von Neumann, Annals of Mathematical Statistics 12, 1941).
    """
    if earlier.shape[1] < 2:
        return np.zeros(len(earlier)), np.zeros(len(earlier))
    found = centre_and_spread(np.diff(earlier, axis=1))
    enough = found.count >= FEWEST
    variance = np.where(enough, found.spread**2 / (2 * (1 - correlation)), 0.0)
    return variance, np.where(enough, found.count * (1 - correlation) * 2 / 3, 0.0)


def _prior(variance: Floats, freedom: Floats) -> tuple[float, float]:
    """Typical variance of all metrics and the degrees of freedom it is worth to each of them (Smyth, section 6.2)."""
    use = (freedom > 0) & np.isfinite(variance)
    if use.sum() < _FEWEST_FOR_PRIOR:
        return 0.0, 0.0
    half = freedom[use] / 2
    e = np.log(variance[use]) - digamma(half) + np.log(half)
    mean = float(e.mean())
    extra = float(((e - mean) ** 2).sum() / (e.size - 1) - polygamma(1, half).mean())
    if extra <= 0:
        return math.exp(mean), _MOST_FREEDOM
    prior_half = _inverse_trigamma(extra)
    return math.exp(mean + float(digamma(prior_half)) - math.log(prior_half)), 2 * prior_half


def _inverse_trigamma(value: float) -> float:
    """Newton's method of Smyth, appendix."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


def _centre(values: Floats, spread: Floats) -> Floats:
    """Mean of the runs, each of them no further from their median than _CUT spreads; (metrics,)."""
    number = np.maximum(_count(values), 1)
    middle = np.asarray([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])
    # Without a spread nothing can be told to be wild.
    reach = np.where(np.isfinite(spread), _CUT * spread, np.inf)[:, None]
    kept = np.clip(values, middle[:, None] - reach, middle[:, None] + reach)
    return np.asarray(np.nansum(kept, axis=1) / number)


def _smallest_shift(error: Floats, freedom: Floats, threshold: float, power: float) -> Floats:
    """The shift whose test statistic, noncentral t, is beyond the threshold with probability `power`; (metrics,).

    By the normal approximation of Abramowitz and Stegun, 26.7.10.
    """
    known = np.maximum(freedom, 1.0)
    critical = t.isf(threshold, known)
    shift = critical * (1 - 1 / (4 * known)) + norm.ppf(power) * np.sqrt(1 + critical**2 / (2 * known))
    return np.where((freedom >= 1) & np.isfinite(error), shift * error, np.inf)
