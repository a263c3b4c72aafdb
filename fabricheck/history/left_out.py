"""Past incidents: sessions in a row in which a metric was far worse than in all others, which no baseline is of."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from fabricheck.history.series import KEY, by_start
from fabricheck.statistics.constants import FEWEST, RESOLUTION
from fabricheck.statistics.robust import MAD_OF_NORMAL
from fabricheck.units import plural

#: Sessions in a row beyond so many robust spreads are an incident: of the noises of benchmarks.noise healthy histories
#: lose 0.7% of their sessions at most, those of an incident of -26% are found in 99% (tests/history/test_left_out.py).
OF_INCIDENT = 6.0

# Nodes that take turns differ: a session counts among those on the same nodes.
_SERIES = (*KEY, "on")


def without_incidents(history: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The history without past incidents, and a line on each.

    A metric is left out of two sessions in a row or more that are worse than its median by more than OF_INCIDENT
    spreads, by its median absolute deviation, which fewer than half of the sessions hardly move; and a session is left
    out whole in which most metrics are so far out. One session of one metric does no harm: estimates are robust. Where
    fewer than FEWEST sessions would be left, none is left out.
    """
    on = pl.col("nodes").list.join("+").alias("on")
    series = history.select(*KEY, on).unique(maintain_order=True).with_row_index("series")
    log = pl.col("value").log()
    worse = pl.when(pl.col("better") == "higher").then(-log).otherwise(log).alias("away")
    rows = history.select(*KEY, on, "session", "started", worse)
    rows = rows.join(series, on=_SERIES, nulls_equal=True, maintain_order="left")
    rows = rows.select("series", "session", "started", "away")
    sessions = rows.group_by("series", "session", maintain_order=True).agg(
        pl.col("away").median(), pl.col("started").min()
    )
    sessions = sessions.with_columns(pl.col("away") - pl.col("away").median().over("series"))
    spread = pl.max_horizontal(pl.col("away").abs().median().over("series") / MAD_OF_NORMAL, RESOLUTION)
    sessions = sessions.with_columns(far=pl.col("away") > OF_INCIDENT * spread)
    is_judged = (~pl.col("far")).sum().over("series") >= FEWEST
    sessions = sessions.with_columns(far=pl.col("far") & is_judged)
    beside = [pl.col("far").shift(step, fill_value=False).over("series") for step in (-1, 1)]
    is_whole = pl.col("far").mean().over("session") > 0.5
    sessions = sessions.with_columns(out=is_whole | (pl.col("far") & pl.any_horizontal(beside)))
    if not sessions["out"].any():
        return history, ()
    left_out = sessions.filter(pl.col("out")).join(series, on="series")
    kept = history.with_columns(on).join(
        left_out, on=(*_SERIES, "session"), how="anti", nulls_equal=True, maintain_order="left"
    )
    return kept.drop("on"), tuple(_lines(sessions, left_out))


def _lines(sessions: pl.DataFrame, left_out: pl.DataFrame) -> Iterator[str]:
    dated = left_out.drop("started").join(by_start(sessions, "session"), on="session")
    places = dated["place"].unique().sort().to_numpy()
    for stretch in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        own = dated.filter(pl.col("place").is_in(stretch.tolist()))
        loss = -math.expm1(-float(own["away"].median()))  # type: ignore[arg-type]
        days = own["started"].sort().dt.strftime("%Y-%m-%d")
        metrics = plural(own.select(KEY).n_unique(), "metric")
        where = f"{plural(stretch.size, 'session')}, {days[0]} to {days[-1]}"
        yield f"{where}, left out of {metrics}: {loss:.0%} slower than usual"
