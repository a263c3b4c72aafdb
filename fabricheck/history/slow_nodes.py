"""Parts of nodes that are slower than the same parts of other nodes, where sessions take turns on nodes.

What a node usually differs by is taken out of a metric's series, so that turns are not noise, and its chart cannot tell
of a slow node. The last sessions of the nodes are peers, and are judged as the peers of a run are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.history.incidents import Alert, Incident
from fabricheck.history.percent import percent
from fabricheck.history.series import Series, components_of_keys, number_names
from fabricheck.judge.constants import FEWEST, LEAST_LOSS, MOST, OF_DEVIATION, RARELY, RESOLUTION, SLOW_SESSIONS
from fabricheck.judge.outliers import CrossedParts, outliers
from fabricheck.records.component import Component, Kind, only_node
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.verdict import Verdict

Floats = npt.NDArray[np.float64]

# In this order: what is named explains its parts.
_KINDS = (Kind.NODE, Kind.GPU, Kind.NIC, Kind.DEVICE, Kind.LINK)


@dataclass(frozen=True)
class SlowNodePart:
    """A part of a node that is slower than `others` in a `kind` of measurement, by `excess` (a logarithm), with the
    chance `p` of healthy ones; they differ by `spread`."""

    component: Component
    kind: int
    others: int
    excess: float
    spread: float
    p: float


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
    slow: dict[Component, list[SlowNodePart]] = {}
    for part in slow_parts(visits):
        slow.setdefault(part.component, []).append(part)
    return [_incident(series, visits, each) for each in slow.values()]


def _incident(series: Series, visits: pl.DataFrame, slow: Sequence[SlowNodePart]) -> Incident:
    """What is told of a part that is slow in some kinds of measurements."""
    worst = max(slow, key=lambda each: each.excess)
    component = worst.component
    of_kinds = visits.filter(pl.col("kind").is_in([each.kind for each in slow]))
    crossing = of_kinds.filter(pl.col("components").list.contains(component.key))
    # The sessions since which it has been slow, one after the other.
    by_session = crossing.group_by("place").agg(pl.col("worse").median()).sort("place")
    fine = np.flatnonzero(by_session["worse"].to_numpy() < worst.excess / 2)
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
                spread=worst.spread,
                software=(),
                components=components_of_keys(tuple(own["components"][-1])),
            )
        )
    alerts.sort(key=lambda each: (-abs(each.change), each.key))
    affected = [each for each in alerts if abs(math.log(each.after / each.before)) >= worst.excess / 2] or alerts[:1]
    return Incident(
        finding=Finding(
            code_of_slow([component]),
            Verdict.DEGRADED,
            f"{len(affected)} of {len(alerts)} metrics that use it are slower in its last {SLOW_SESSIONS} sessions "
            f"than those of {worst.others} others; worst: {alerts[0].key} {percent(alerts[0].change)}, "
            f"{alerts[0].when}",
            (component,),
            alerts[0].after,
            alerts[0].before,
            alerts[0].unit,
            tuple(str(each.key) for each in affected),
            p=worst.p,
        ),
        raised=raised,
        open=True,
        new=raised == series.sessions[-1],
        affected=len(affected),
        watched=len(alerts),
        next_step="",
        alerts=tuple(affected),
    )


def slow_parts(visits: pl.DataFrame) -> list[SlowNodePart]:
    """What was slow in its last sessions, in two or in so many that chance does not explain it, without what that
    explains.

    `visits`: by `row` and `place` (metric and session, by number), where that was, the keys of the
    `components` of the path, the `kind` of measurement, and how much `worse` the value was than the level of its metric
    (a logarithm). Healthy ones have any RARELY.
    """
    visits = visits.with_columns(path=pl.col("components").list.join("\t"))
    crossed = [(path, each) for path in visits["path"].unique() for each in components_of_keys(tuple(path.split("\t")))]
    own = [(path, each.key, each.kind.value) for path, each in crossed if only_node([each])]
    parts = {each.key: each for _, each in crossed}
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
    error, slow = RARELY / max(len(groups), 1), list[SlowNodePart]()
    for wanted in _KINDS:
        named = {(each.component.node, each.component.name) for each in slow}
        for (kind, part), group in sorted(groups.items()):
            components = [parts[key] for key in group["key"]]
            asked = [number for number, each in enumerate(components) if named.isdisjoint(_within(each))]
            if part != wanted.value or len({components[number].node for number in asked}) < FEWEST:
                continue
            sessions_of = [np.array(group["worse"][number]) for number in asked]
            worse = np.array([each[:SLOW_SESSIONS] for each in sessions_of])
            # By the median distance of two normal values.
            apart = np.abs(worse[:, 0] - worse[:, 1]) * OF_DEVIATION / math.sqrt(2)
            equals = [CrossedParts[Component]((components[number],)) for number in asked]
            slow += [
                SlowNodePart(components[asked[member]], kind, each.equals, each.excess, each.spread, each.p)
                for each in outliers(worse.min(axis=1), apart, equals, RESOLUTION, error)
                for member in each.members
                if each.excess >= LEAST_LOSS and _by_chance(sessions_of, member, each.excess / 2) <= error
            ]
    return slow


def _by_chance(sessions: Sequence[Floats], member: int, least: float) -> float:
    """The probability that any of these parts has as many sessions in a row as slow as the last ones of this, by how
    often the others had one, but for those that are slow now (Bonferroni). `sessions`: of each part how much worse they
    were, the latest first; those that were worse by `least` are slow."""
    others = np.concatenate([each for each in sessions if each[:SLOW_SESSIONS].min() < least] or [np.zeros(1)])
    levels = np.minimum.accumulate(sessions[member])
    levels = levels[levels >= least]
    chances = [np.mean(others >= level) ** number for number, level in enumerate(levels.tolist(), start=1)]
    return float(min(1.0, len(sessions) * min(chances[SLOW_SESSIONS - 1 :], default=1.0)))


def _within(component: Component) -> Iterator[tuple[str, str]]:
    """What explains that a part is slow."""
    yield component.node, ""
    yield from ((each.node, each.name) for each in component.ends if each != component)
