"""Nights of two H100 as docs/results/h100x2-2026-11-25 recorded them, as many as a test needs."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from fabricheck.store.reading import history
from tests.support.histories import START

SYSTEM = "hgx-h100"
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "h100x2-2026-11-25" / "sessions.tar.xz"
_METRIC = ("test", "metric")

#: Whether a metric, by its test, name and components, has what is planted.
Hit = Callable[[str, str, list[str]], bool]


@cache
def recorded() -> pl.DataFrame:
    """The eight recorded sessions as the store gives them."""
    with TemporaryDirectory() as folder:
        with tarfile.open(RESULTS) as archive:
            archive.extractall(folder, filter="data")
        return history(Path(folder) / "store", system=SYSTEM)


def nights(
    count: int,
    *,
    seed: int = 1,
    lost: float = 0.0,
    since: int | None = None,
    until: int | None = None,
    hit: Hit = lambda test, metric, components: True,
    software: Mapping[str, str] | None = None,
    copies: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Sessions drawn as a whole from the recorded ones, each value moved by a tenth of its spread.

    From the night `since` on (to before `until`) the metrics that `hit` chooses lose a share `lost`, and the `software`
    that a run has, has these versions. `copies`: another such history instead of the recorded sessions.
    """
    rng = np.random.default_rng(seed)
    frame = recorded() if copies is None else copies
    sessions = frame["session"].unique(maintain_order=True).to_list()
    spread = pl.col("value").log().std().over(*_METRIC).fill_null(0.0)
    frame = frame.with_columns(
        spread=spread,
        hit=pl.Series([hit(*row) for row in frame.select(*_METRIC, "components").iter_rows()], dtype=pl.Boolean),
    )
    found = []
    for night in range(count):
        drawn = frame.filter(pl.col("session") == sessions[int(rng.integers(len(sessions)))])
        moved = pl.Series(0.1 * rng.standard_normal(drawn.height)) * drawn["spread"]
        later = since is not None and night >= since
        if later and (until is None or night < until):
            worse = pl.when(pl.col("better") == "higher").then(1 - lost).otherwise(1 / (1 - lost))
            drawn = drawn.with_columns(value=pl.when("hit").then(pl.col("value") * worse).otherwise("value"))
        if later and software:
            drawn = drawn.with_columns(
                software=pl.col("software").map_elements(lambda text: _with(text, software), return_dtype=pl.String)
            )
        found.append(
            drawn.with_columns(
                value=pl.col("value") * moved.exp(),
                session=pl.lit(f"s{night:03}"),
                started=pl.lit(START + timedelta(days=night)).cast(pl.Datetime("us", "UTC")),
                run_id=pl.format("{}-{}", pl.lit(night), "run_id"),
            )
        )
    return pl.concat(found).drop("spread", "hit")


def _with(text: str, versions: Mapping[str, str]) -> str:
    known = json.loads(text)
    own = {name: version for name, version in versions.items() if name in known or name.startswith("module ")}
    return json.dumps({**known, **own}, sort_keys=True)


def over_ccl(test: str, metric: str, components: list[str]) -> bool:
    return "transport=ccl" in test and metric.endswith("goodput")
