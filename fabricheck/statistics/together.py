"""How metrics of one part stray together in healthy sessions, for what the judge says of parts (`statistics.parts`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fabricheck.statistics.constants import FALSE_ALARM, FEWEST, MOST_OF_METRIC, MOST_STEPS, RESOLUTION
from fabricheck.statistics.parts import Ints, PartMetrics, Together, parts_of, scores_of, standardised
from fabricheck.statistics.tails import Floats, joined_tail


@dataclass(frozen=True, eq=False)
class Strays:
    """The rows of a metric, its unit, how far each row lies from the others, in spreads, and its session's number."""

    rows: pl.DataFrame
    unit: str
    values: Floats
    session: Ints


@dataclass(frozen=True, eq=False)
class Drawn:
    """A healthy session: `values`, shape (metrics,), are deviations in spreads, more is worse, from references that do
    not know it; `launch` and `unit` are numbers of the metrics' launches and units."""

    values: Floats
    launch: Ints
    unit: Ints
    parts: tuple[PartMetrics, ...]


def together_of_rows(metrics: Sequence[Strays], bounds: Mapping[str, float], rate: float) -> Together | None:
    """As `together_of`, of metrics whose rows say which components they crossed."""
    every = [
        each.rows.select("run_id", "components").with_columns(
            unit=pl.lit([*bounds].index(each.unit)), value=pl.Series(each.values), session=pl.Series(each.session)
        )
        for each in metrics
    ]
    if not every:
        return None
    runs = float(np.median([each.height for each in every]))
    sessions = []
    for rows in pl.concat(every).partition_by("session"):
        launch = rows["run_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
        parts = parts_of(rows["components"].fill_null([]).to_list(), launch)
        sessions.append(Drawn(rows["value"].to_numpy(), launch, rows["unit"].to_numpy(), parts))
    return together_of(sessions, bounds, rate, runs)


def together_of(sessions: Sequence[Drawn], bounds: Mapping[str, float], rate: float, runs: float) -> Together | None:
    """What healthy sessions tell of parts, for a rate of false alarms of a session; None where no part has two metrics.

    `bounds`: by unit, in their order, how many spreads lie between a reference and its bound; `runs`: how many a
    reference is of.
    """
    if not any(each.parts for each in sessions):
        return None
    width = np.array(list(bounds.values()))
    # As the judge does, at the bound at most.
    cut = [np.clip(each.values, -width[each.unit], width[each.unit]) for each in sessions]
    joined, units = np.concatenate(cut), np.concatenate([each.unit for each in sessions])
    scale = np.array([_scale(joined[units == number]) for number in range(width.size)])
    values = [
        np.clip(one / scale[each.unit], -MOST_OF_METRIC, MOST_OF_METRIC)
        for one, each in zip(cut, sessions, strict=True)
    ]
    launch = _shared_by_launches(values, sessions)
    sums = [scores_of(one, each.launch, each.parts, launch) for one, each in zip(values, sessions, strict=True)]
    kinds: set[str] = set()
    for session in sessions:
        kinds.update(kind for part in session.parts for kind in part.kinds)
    parts = {kind: _shared_by_parts(kind, sums, sessions) for kind in sorted(kinds)}
    scores = [standardised(*one, each.parts, parts) for one, each in zip(sums, sessions, strict=True)]
    most = max(len(each.parts) for each in sessions)
    tail = joined_tail(scores, [np.full(one.size, number) for number, one in enumerate(scores)])
    factor = tail.factor(rate / most, runs)
    if rate > FALSE_ALARM:
        factor = tail.factor_of_voted(rate / most, rate, runs)
    return Together(
        {unit: float(wide / one) for (unit, wide), one in zip(bounds.items(), scale, strict=True)},
        launch,
        parts,
        float(factor),
    )


def _scale(values: Floats) -> float:
    """Their standard deviation around zero, where none counts for more than MOST_OF_METRIC of it."""
    known = values[np.isfinite(values)]
    scale = math.inf
    for _ in range(MOST_STEPS if known.size else 0):
        reach = MOST_OF_METRIC * scale
        scale = float(np.sqrt(np.mean(np.clip(known, -reach, reach) ** 2)))
    return scale if 0 < scale < math.inf else 1.0


def _shared_by_launches(values: Sequence[Floats], sessions: Sequence[Drawn]) -> float:
    """The mean product of the deviations of two metrics of one launch."""
    products = pairs = 0.0
    for deviations, session in zip(values, sessions, strict=True):
        number = int(session.launch.max()) + 1
        known = np.isfinite(deviations)
        clean = np.where(known, deviations, 0.0)
        total, size = np.bincount(session.launch, clean, number), np.bincount(session.launch, known, number)
        products += float((total**2).sum() - (clean**2).sum())
        pairs += float((size * (size - 1)).sum())
    return float(np.clip(products / max(pairs, 1.0), 0.0, 1 - RESOLUTION))


def _shared_by_parts(kind: str, scores: Sequence[tuple[Floats, Floats]], sessions: Sequence[Drawn]) -> float:
    """What the scores of parts of a kind vary by beyond their variance, as a standard deviation in those of metrics."""
    chosen = [[kind in part.kinds for part in each.parts] for each in sessions]
    score, variance = (
        np.concatenate([one[place][mask] for one, mask in zip(scores, chosen, strict=True)]) for place in (0, 1)
    )
    kept = variance > 0
    score, variance = score[kept], variance[kept]
    if score.size < FEWEST:
        return 0.0
    beyond = float(np.mean(score**2 / variance) - 1) / float(np.mean(variance))
    return float(np.sqrt(max(beyond, 0.0)))
