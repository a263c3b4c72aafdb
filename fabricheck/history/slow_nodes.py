"""Parts of nodes that are slower than the same parts of other nodes, where sessions take turns on nodes.

What a node usually differs by is taken out of a metric's series, so that turns are not noise, and its chart cannot tell
of a slow node. The last sessions of the nodes are peers, and are judged as the peers of a run are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.diagnosis.causes import named_of
from fabricheck.diagnosis.explain import Row, explain, known_noise
from fabricheck.history.incidents import Alert, Incident, incident_of
from fabricheck.history.series import Series, components_of_keys, number_names
from fabricheck.records.component import Component, only_node
from fabricheck.statistics.constants import FEWEST, LEAST_LOSS, MOST, OF_DEVIATION, RARELY, RESOLUTION
from fabricheck.statistics.outliers import CrossedParts, Outlier, outliers
from fabricheck.statistics.robust import centre_and_spread

#: The last sessions in which a node has to be slow: one can have a hiccup.
SLOW_SESSIONS = 2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlowNodePart:
    """Components of which one is slower in some `kinds` of measurements than its peers: the `worst` of these."""

    components: tuple[Component, ...]
    kinds: frozenset[int]
    worst: Outlier


def slow_nodes(series: Series, accepted: Sequence[tuple[int, int]] = ()) -> list[Incident]:
    """Slow metrics of one node after the last session. `accepted`: metrics, by number, and the sessions from which on
    what their nodes differ by is usual."""
    visits = series.visits
    if visits.is_empty():
        return []
    names = (
        (key.partition, key.environment, key.test, unit) for key, unit in zip(series.keys, series.units, strict=True)
    )
    visits = visits.with_columns(kind=pl.Series(number_names(names))[visits["row"]])
    if since := dict(accepted):
        visits = visits.filter(pl.col("place") >= pl.col("row").replace_strict(since, default=0))
        usual = pl.when(pl.col("row").is_in(list(since))).then(pl.col("worse").median().over("row", "where"))
        visits = visits.with_columns(worse=pl.col("worse") - usual.fill_null(0.0))
    return [_incident(series, visits, part) for part in slow_parts(visits)]


def _incident(series: Series, visits: pl.DataFrame, slow: SlowNodePart) -> Incident:
    """What is told of a part that is slow in some kinds of measurements."""
    component, *_ = slow.components
    of_kinds = visits.filter(pl.col("kind").is_in(list(slow.kinds)))
    crossing = of_kinds.filter(pl.col("components").list.contains(component.key))
    # The sessions since which it has been slow, one after the other.
    by_session = crossing.group_by("place").agg(pl.col("worse").median()).sort("place")
    least = slow.worst.excess / 2
    fine = np.flatnonzero(by_session["worse"].to_numpy() < least)
    first = min(int(fine[-1]) + 1 if fine.size else 0, by_session.height - SLOW_SESSIONS)
    places = by_session["place"].to_list()
    raised = series.sessions[places[first + SLOW_SESSIONS - 1]]
    alerts = []
    for (row,), own in crossing.sort("place").group_by("row", maintain_order=True):
        others = of_kinds.filter((pl.col("row") == row) & ~pl.col("components").list.contains(component.key))
        if others.is_empty():
            continue
        before, after = (float(np.median(each["value"].to_numpy())) for each in (others, own.tail(SLOW_SESSIONS)))
        alerts.append(
            Alert(
                key=series.keys[row],
                unit=series.units[row],
                raised=raised,
                last_good=series.sessions[places[first - 1]] if first else None,
                first_bad=series.sessions[places[first]],
                ended=None,
                accepted=False,
                worsened=False,
                before=before,
                after=after,
                change=after / before - 1,
                spread=slow.worst.spread,
                software=(),
                components=components_of_keys(tuple(own["components"][-1])),
            )
        )
    alerts.sort(key=lambda each: (-abs(each.change), each.key))
    affected = [each for each in alerts if abs(math.log(each.after / each.before)) >= least] or alerts[:1]
    return incident_of(affected, slow.components, raised=raised, last=series.sessions[-1], watched=len(alerts))


def slow_parts(visits: pl.DataFrame) -> list[SlowNodePart]:
    """What explains the parts that were slow in their last sessions, in two or in so many that chance does not.

    `visits`: by `row` and `place` (metric and session, by number), where that was, the keys of the
    `components` of the path, the `kind` of measurement, and how much `worse` the value was than the level of its metric
    (a logarithm). Healthy ones have any RARELY.
    """
    visits = visits.with_columns(path=pl.col("components").list.join("\t"))
    crossed = [(path, each) for path in visits["path"].unique() for each in components_of_keys(tuple(path.split("\t")))]
    own = [(path, each.key, each.kind.value) for path, each in crossed if only_node([each])]
    parts = {each.key: each for _, each in crossed}
    # By key what all paths over it have in common: whose fault its slowness can be.
    shared: dict[str, set[str]] = {}
    for path, component in crossed:
        keys = set(path.split("\t"))
        shared[component.key] = shared.get(component.key, keys) & keys
    last = (
        visits.join(pl.DataFrame(own, dict.fromkeys(("path", "key", "part"), pl.String), orient="row"), on="path")
        .group_by("kind", "part", "key", "place")
        .agg(pl.col("worse").quantile(1 - MOST, "lower"))
        .sort("place", descending=True)
        .group_by("kind", "part", "key", maintain_order=True)
        .agg(pl.col("worse"))
        .filter(pl.col("worse").list.len() >= SLOW_SESSIONS)
        .sort("kind", "key")
    )
    groups = last.partition_by("kind", "part", as_dict=True)
    error = RARELY / max(len(groups), 1)
    rows: list[Row] = []
    outliers_of_rows: dict[int, tuple[int, Outlier]] = {}
    for question, group in sorted(groups.items()):
        crossed_by = [CrossedParts(tuple(parts[each] for each in sorted(shared[key]))) for key in group["key"]]
        sessions_of = [np.array(each) for each in group["worse"]]
        nodes = {parts[key].node for key in group["key"]}
        slow = _slow_among(crossed_by, sessions_of, error) if len(nodes) >= FEWEST else {}
        outliers_of_rows |= {len(rows) + member: (question[0], outlier) for member, outlier in slow.items()}
        levels = [float(each[:SLOW_SESSIONS].min()) for each in sessions_of]
        noise = known_noise(float(centre_and_spread(np.array(levels)).spread))
        for member, (key, crosses, level) in enumerate(zip(group["key"], crossed_by, levels, strict=True)):
            known = dict.fromkeys(crosses.all, 1.0)
            rows.append(Row(question, str(question[0]), level, noise, member in slow, known, (parts[key],)))
    causes = []
    for explanation in explain(rows):
        told = [outliers_of_rows[number] for number in explanation.rows]
        worst = max((outlier for _, outlier in told), key=lambda outlier: outlier.excess)
        kinds = frozenset(kind for kind, _ in told)
        causes.append(SlowNodePart(named_of(explanation.components), kinds, worst))
    return causes


def _slow_among(
    crossed: Sequence[CrossedParts[Component]], sessions_of: Sequence[Floats], error: float
) -> dict[int, Outlier]:
    """By their numbers those of the same kind of part that are slower than the others. `crossed`: what the data of each
    cross; `sessions_of`: how much worse it was, the latest session first."""
    worse = np.array([each[:SLOW_SESSIONS] for each in sessions_of])
    # By the median distance of two normal values.
    apart = np.abs(worse[:, 0] - worse[:, 1]) * OF_DEVIATION / math.sqrt(2)
    return {
        member: outlier
        for outlier in outliers(worse.min(axis=1), apart, crossed, RESOLUTION, error)
        for member in outlier.members
        if outlier.excess >= LEAST_LOSS
    }
