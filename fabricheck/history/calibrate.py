"""References from runs on a healthy system: a centre, and bounds that a healthy run crosses at a stated rate."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl

from fabricheck.errors import UserError
from fabricheck.history.by_node import NodeLevels, Nodes, measured_at_once, nodes_of
from fabricheck.history.left_out import without_incidents
from fabricheck.history.select import select_runs
from fabricheck.history.series import KEY, MetricKey, by_start, check_history, differences, matrix_of, number_names
from fabricheck.records.case import LAUNCHED_ONCE
from fabricheck.records.rehearsal import REHEARSAL
from fabricheck.statistics.constants import FALSE_ALARM, FALSE_ALARMS, FEWEST, OF_MEDIAN, RESOLUTION
from fabricheck.statistics.levels import Persistence, persistence_of
from fabricheck.statistics.parts import Together
from fabricheck.statistics.robust import LOST_FREEDOM, Floats, Spread, centre_and_spread
from fabricheck.statistics.spread import moderate
from fabricheck.statistics.tails import deviations_of, joined_tail
from fabricheck.statistics.together import Strays, together_of_rows
from fabricheck.topology.network import fold
from fabricheck.waiting import steps

#: The share of FALSE_ALARMS that is for metrics alone; the rest is for those of a part together. Chosen.
ALONE = 0.75
#: For how many metrics at least the false alarms of a session are counted, as everywhere in docs/how-we-know.md.
MANY_METRICS = 1000
#: More make a file that is not read again (`yamlfile`), and that ReFrame takes minutes for.
MOST_METRICS = 15_000

# A bound that lets half the goodput or twice the latency pass, as a logarithm.
_WIDEST_REACH = math.log(2)

Kind = tuple[str, str, str, str]


@dataclass(frozen=True)
class Calibrated:
    """A reference of one metric: `value` in `unit`, `lower` and `upper` as shares of it.

    `between` and `within`: relative spread of the medians of runs, and of the iterations of a run. `beyond`: how many
    of the runs lie beyond the bounds; `degraded`: how many were DEGRADED by whatever judged them then. `nodes`: where
    nodes differ, the levels of those that had enough runs. The bounds are those of any other node then, and `between`
    and `beyond` are without the differences.
    """

    key: MetricKey
    unit: str
    better: str
    value: float
    lower: float
    upper: float
    runs: int
    between: float
    within: float
    beyond: int
    degraded: int
    nodes: NodeLevels | None = None


@dataclass(frozen=True)
class Refused:
    """A metric that gets no reference, or nodes of it that get no level, and why."""

    key: MetricKey
    reason: str
    is_healthy: bool = False  # it varies too much for a limit that is of use, or has too few runs: nothing is wrong


@dataclass(frozen=True)
class Calibration:
    """The references of a system, those refused, and the runs that they are of.

    `runs_needed`: how many of each metric would show what healthy sessions do as rarely as parts may be beyond their
    bounds. `together`: how the metrics of a part stray together; None where it is unknown which metrics cross one part.
    `once`: by unit, how many times as far lie the bounds of one launch (`Reference.once`). `left_out`: past incidents,
    a line each.
    """

    system: str
    false_alarms: float
    sessions: tuple[str, ...]
    runs: int
    first: datetime
    last: datetime
    software: str
    nodes: tuple[str, ...]
    runs_needed: int
    references: tuple[Calibrated, ...]
    refused: tuple[Refused, ...]
    together: Together | None = None
    once: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def calibrate(
    history: pl.DataFrame,
    system: str,
    *,
    false_alarms: float = FALSE_ALARMS,
    selection: str | None = None,
    now: datetime | None = None,
) -> Calibration:
    """The references that the runs of `selection` (as `select_runs` takes it; default: all) give.

    The first launch of one more session of the healthy system has more metrics beyond their worse bounds than votes of
    relaunches bear (VOTED), or any part whose metrics are worse together, with probability `false_alarms`; ALONE of it
    is for metrics. Of what is launched once, as all is for `false_alarms` of FALSE_ALARM, any metric of 1,000, or of as
    many as are calibrated or one session measured, counts. How far runs stray is taken from all metrics of the same
    unit (`tails`), and how much a metric varies from those of its kind, too, such as the twelve pairs of a node
    (`spread`). What nodes differ by is not such noise (`by_node`). `Calibrated.beyond` shows how many runs are beyond
    their bounds.

    A metric is refused where it has fewer than FEWEST runs, failed in one (it was under the floor), varies so much that
    a bound would let everything pass, or has a level that wanders (`persistence`). Values above the plausible are
    INVALID and do not count.

    Raises UserError as `check_history` and `select_runs` do, for a rehearsal, and where the runs are of several
    software versions or tunings, which have no one value.
    """
    if not 0 < false_alarms < 0.5:
        raise UserError(f"a rate of false alarms lies between 0 and 0.5, not at {false_alarms}")
    if selection is not None:  # first: what is wrong with other runs, these need not answer for
        history = select_runs(history, selection)
    kept, left_out = without_incidents(check_history(history, now=now))
    if history["rehearsal"].any():
        raise UserError(f"the history of {system} is of a {REHEARSAL}: references need measurements")
    if kept.is_empty():
        raise UserError(f"no run of {system} measured anything: all are INVALID or INCOMPLETE")
    _one(kept.with_columns(pl.col("software").map_elements(_measuring, return_dtype=pl.String)), "software")
    _one(kept, "tuning")
    metrics = kept.select(KEY).n_unique()
    if metrics > MOST_METRICS:
        raise UserError(
            f"{metrics:,} metrics of {system} are more than a file of references holds ({MOST_METRICS:,}): "
            "select fewer checks with --runs, such as 'tag:NAME'"
        )
    groups = kept.sort("started", maintain_order=True).partition_by(KEY, maintain_order=True)
    measured = [_Metric.of(rows) for rows in steps(groups, metrics, "metrics read")]
    common = _common(measured, false_alarms, max(MANY_METRICS, metrics, measured_at_once(kept)))
    references: list[Calibrated] = []
    refused: list[Refused] = []
    for metric in steps(measured, metrics, "metrics calibrated"):
        for outcome in _with_levels(_calibrated(metric, common), metric.nodes, common):
            if isinstance(outcome, Calibrated):
                references.append(outcome)
            else:
                refused.append(outcome)
    return Calibration(
        system=system,
        false_alarms=false_alarms,
        sessions=tuple(kept["session"].unique(maintain_order=True)),
        runs=kept["run_id"].n_unique(),
        first=kept["started"].min(),  # type: ignore[arg-type]
        last=kept["started"].max(),  # type: ignore[arg-type]
        software=kept["software"][0],
        nodes=tuple(sorted(set[str]().union(*kept["nodes"].drop_nulls().to_list()))),
        runs_needed=common.runs_needed,
        references=tuple(sorted(references, key=lambda each: each.key)),
        refused=tuple(sorted(refused, key=lambda each: each.key)),
        together=common.together if references else None,
        once=common.once,
        left_out=left_out,
    )


def _measuring(software: str) -> str:
    """Without the revision of the suite, whose every change of a document is one."""
    return json.dumps({name: version for name, version in json.loads(software).items() if name != "suite"})


def _one(rows: pl.DataFrame, name: str) -> None:
    """Environments of a partition may differ in software; the runs of one may not."""
    several = (
        rows.group_by("partition", "environment", "test")
        .agg(pl.col(name).unique().sort())
        .filter(pl.col(name).list.len() > 1)
        .sort("partition", "environment", "test")
    )
    if several.is_empty():
        return
    where = " ".join(several[each][0] for each in ("partition", "environment", "test"))
    difference = ", ".join(differences(*map(json.loads, several[name][0].to_list()[:2])))
    raise UserError(
        f"{where}: the runs are of more than one {name}, {difference}: choose with --runs, "
        "as in 'FROM..TO', 'software:NAME=VERSION' or 'tag:NAME'"
    )


@dataclass(frozen=True, eq=False)
class _Metric:
    """The runs of a metric; where its `nodes` differ, each as if on nodes like the middle one.

    `worse`, shape (runs,): logarithms of their values, where more is worse, and their `level`. `within`: relative
    spread of the iterations of a run. `spread`: between the runs, and at least what the iterations make of a median.
    """

    key: MetricKey
    rows: pl.DataFrame
    nodes: Nodes | None
    worse: Floats
    level: Spread
    within: float
    spread: float

    @classmethod
    def of(cls, rows: pl.DataFrame) -> _Metric:
        """Of the runs as they were measured."""
        nodes = nodes_of(rows)
        rows = rows if nodes is None else nodes.rows
        logs = np.log(rows["value"].to_numpy())
        worse = -logs if rows["better"][0] == "higher" else logs
        level = centre_and_spread(worse)
        within = float((rows["deviation"] / rows["value"]).fill_nan(0).median() or 0.0)  # type: ignore[arg-type]
        iterations = float(rows["count"].median() or 1.0)  # type: ignore[arg-type]
        spread = max(float(level.spread), RESOLUTION, within * math.sqrt(OF_MEDIAN / max(iterations, 1.0)))
        return cls(MetricKey(*rows.select(KEY).row(0)), rows, nodes, worse, level, within, spread)

    @property
    def runs(self) -> int:
        return self.worse.size

    @property
    def unit(self) -> str:
        return str(self.rows["unit"][0])


@dataclass(frozen=True)
class _Common:
    """What metrics tell of each other: by metric how far the bound of votes, and that of one launch, is from its
    value, and the rate of either; persistence by kind, how many runs of each are needed, how those of a part stray
    together, and by unit how many times as far as the bound of votes that of one launch lies, at most.
    """

    rates: Sequence[float]
    reaches: Mapping[MetricKey, tuple[float, float]]
    persistence: Mapping[Kind, Persistence]
    runs_needed: int
    together: Together | None
    once: Mapping[str, float]

    def is_launched_once(self, key: MetricKey) -> bool:
        """Whether no other launch of the session says anything new of it."""
        return self.persistence[key.kind].lasts or key.test.split()[0] in LAUNCHED_ONCE


def _common(measured: Sequence[_Metric], false_alarms: float, metrics: int) -> _Common:
    kinds: dict[Kind, list[_Metric]] = {}
    for metric in measured:
        if metric.runs >= FEWEST:
            kinds.setdefault(metric.key.kind, []).append(metric)
    persistence = {kind: persistence_of(_by_session(members)) for kind, members in kinds.items()}
    sessions = pl.concat([metric.rows["session"] for metric in measured]).unique(maintain_order=True)
    numbers = {session: number for number, session in enumerate(sessions)}
    judged = [metric for kind, members in kinds.items() if not persistence[kind].wanders for metric in members]
    runs = np.array([metric.runs for metric in judged], dtype=np.float64)
    freedom = runs - LOST_FREEDOM
    squares = freedom * np.square([metric.spread for metric in judged])
    # Metrics of one launch share its noise: together they count for no more than one.
    spreads = moderate(
        squares, freedom, number_names(metric.key.kind for metric in judged), independent=runs.max(initial=1.0) - 1.0
    )
    strays = []
    for place, metric in enumerate(judged):
        run = np.array([numbers[session] for session in metric.rows["session"]])
        strays.append(Strays(metric.rows, metric.unit, deviations_of(metric.worse, spreads.prior, place), run))
    rates = [ALONE * most / metrics for most in (false_alarms, min(false_alarms, FALSE_ALARM))]
    is_voted = false_alarms > FALSE_ALARM  # who allows one launch no more than all of them launches only once
    reaches: dict[MetricKey, tuple[float, float]] = {}
    bounds: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for unit in dict.fromkeys(each.unit for each in strays):
        own = [place for place, each in enumerate(strays) if each.unit == unit]
        tail = joined_tail([strays[place].values for place in own], [strays[place].session for place in own])
        once = voted = tail.factor(rates[True], runs[own], spreads.freedom[own])
        if is_voted:
            voted = tail.factor_of_voted(rates[False], ALONE * false_alarms, runs[own], spreads.freedom[own])
            ratios[unit] = float((once / voted).max(initial=1.0))
        bounds[unit] = float(np.median(voted))
        for place, of_votes, of_one in zip(own, voted.tolist(), once.tolist(), strict=True):
            spread = math.sqrt(spreads.variance[place])
            reaches[judged[place].key] = spread * of_votes, spread * of_one
    # Fewer sessions do not show what so few of them have: the bounds are those of the worst.
    needed = max(FEWEST, math.ceil(1 / ((1 - ALONE) * false_alarms)) - 1) if is_voted else FEWEST
    together = together_of_rows(strays, bounds, (1 - ALONE) * false_alarms)
    return _Common(rates, reaches, persistence, needed, together, ratios)


def _by_session(members: Sequence[_Metric]) -> Floats:
    """Logarithms of the medians of sessions, shape (metrics, sessions); NaN where a metric was not measured."""
    rows = [
        metric.rows.select("session", "started", "value", row=pl.lit(number)) for number, metric in enumerate(members)
    ]
    cells = pl.concat(rows)
    sessions = by_start(cells, "session")
    cells = cells.join(sessions.drop("started"), on="session")
    return np.asarray(np.log(matrix_of(cells, (len(members), sessions.height))))


def _calibrated(metric: _Metric, common: _Common) -> Calibrated | Refused:
    key, rows = metric.key, metric.rows
    if metric.runs < FEWEST:
        return Refused(key, f"not enough runs for a useful limit: {FEWEST - metric.runs:,} more", True)
    verdicts = rows["verdict"].to_list()
    failed = verdicts.count("FAIL")
    if failed:
        return Refused(key, f"failed in {failed} of {metric.runs} runs: the system was not healthy")
    persistence = common.persistence[key.kind]
    if persistence.wanders:
        return Refused(key, _wanders(persistence))
    between = float(metric.level.spread)
    # The whole rate on either side: the judge calls only the worse one DEGRADED.
    reach = common.reaches[key][common.is_launched_once(key)] * persistence.widening
    if reach > _WIDEST_REACH:
        return Refused(key, f"no useful limit: varies by {between:.1%} from run to run, with outliers", True)
    better = rows["better"][0]
    centre = float(metric.level.centre) * (-1 if better == "higher" else 1)
    value = float(f"{math.exp(centre):.5g}")
    lower, upper = _outwards(-math.expm1(-reach)), _outwards(math.expm1(reach))
    return Calibrated(
        key=key,
        unit=metric.unit,
        better=better,
        value=value,
        lower=-lower,
        upper=upper,
        runs=metric.runs,
        between=between,
        within=metric.within,
        beyond=rows.filter(~pl.col("value").is_between(value * (1 - lower), value * (1 + upper))).height,
        degraded=verdicts.count("DEGRADED"),
    )


def _with_levels(outcome: Calibrated | Refused, nodes: Nodes | None, common: _Common) -> Iterator[Calibrated | Refused]:
    """A reference whose bounds are of the noise on one node, with the levels of `nodes` and bounds for any other."""
    if nodes is None or isinstance(outcome, Refused):
        yield outcome
        return
    reaches = -math.log1p(outcome.lower), math.log1p(outcome.upper)
    rate = common.rates[common.is_launched_once(outcome.key)]
    if nodes.reach_of_any(max(reaches), rate) > _WIDEST_REACH:
        yield Refused(outcome.key, f"varies by {nodes.spread:.0%} from node to node: a bound for all nodes is useless")
        return
    any_node, known = (
        (-_outwards(-math.expm1(-of(reaches[0]))), _outwards(math.expm1(of(reaches[1]))))
        for of in (lambda reach: nodes.reach_of_any(reach, rate), nodes.reach_of_known)
    )
    values = {node: outcome.value * math.exp(difference) for node, difference in nodes.differences.items()}
    alone = [nodes.reach_of_any(reach, rate, 1) for reach in reaches]
    unlike = [node for node, far in nodes.differences.items() if not -alone[0] <= far <= alone[1]]
    if unlike:
        share = values[unlike[0]] / outcome.value - 1
        others = f"{math.expm1(-alone[0]):.1%} to {math.expm1(alone[1]):+.1%} around the others"
        reason = f"{share:+.1%}, beyond {others}: its level cannot be a reference; is it healthy?"
        yield Refused(outcome.key, f"{fold(sorted(unlike))} is at {reason}")
    kept = tuple((node, float(f"{values[node]:.5g}")) for node in sorted(values) if node not in unlike)
    levels = NodeLevels(kept, *known) if kept else None
    yield replace(outcome, lower=any_node[0], upper=any_node[1], nodes=levels)


def _wanders(level: Persistence) -> str:
    return (
        f"its level wanders: {level.sessions} sessions vary by {level.spread:.1%}, those to come by "
        f"{level.spread * level.widening:.1%} or more: watch it, or calibrate from sessions since its last change"
    )


def _outwards(share: float) -> float:
    """Rounded up to four decimals; the last place of the value is not lost to it."""
    return math.ceil(share * 1e4) / 1e4
