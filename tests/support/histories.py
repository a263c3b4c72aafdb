"""Histories as the store gives them, made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import polars as pl

SYSTEM = "sim"
START = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)
NOW = datetime(2028, 1, 1, tzinfo=timezone.utc)

_SCHEMA = {
    "started": pl.Datetime("us", "UTC"),
    "nodes": pl.List(pl.String),
    "components": pl.List(pl.String),
    "tags": pl.List(pl.String),
}


@dataclass(frozen=True)
class Made:
    """One metric: a value for each session, None where it was not measured."""

    metric: str
    values: Sequence[float | None]
    better: str = "higher"
    unit: str = "Gb/s"
    test: str = "PingPong %transport=ccl"
    components: Sequence[str] = ()
    verdict: str = "PASS"
    nodes: Sequence[str] = ("n0",)


def history(
    metrics: Sequence[Made],
    *,
    software: Mapping[int, Mapping[str, str]] | None = None,
    tuning: Mapping[int, Mapping[str, str]] | None = None,
    tags: Mapping[int, Sequence[str]] | None = None,
    **changed: Any,
) -> pl.DataFrame:
    """One run a session and a session a day. `software` and `tuning` hold from the session on that they name."""
    rows = []
    sessions = max(len(each.values) for each in metrics)
    for session in range(sessions):
        for each in metrics:
            value = each.values[session] if session < len(each.values) else None
            if value is None:
                continue
            rows.append(
                {
                    "session": f"s{session:03}",
                    "run_id": f"r{session:03}-{each.test}",
                    "started": START + timedelta(days=session),
                    "system": SYSTEM,
                    "partition": "gpu",
                    "environment": "openmpi",
                    "test": each.test,
                    "metric": each.metric,
                    "unit": each.unit,
                    "better": each.better,
                    "value": float(value),
                    "low": value * 0.999,
                    "high": value * 1.001,
                    "count": 100,
                    "deviation": value * 0.005,
                    "verdict": each.verdict,
                    "nodes": list(each.nodes),
                    "software": _since(software, session, {"nccl": "2.28.3"}),
                    "tuning": _since(tuning, session, {"profile": "default"}),
                    "components": list(each.components),
                    "tags": list((tags or {}).get(session, ())),
                    "rehearsal": False,
                    **changed,
                }
            )
    return pl.DataFrame(rows, schema_overrides=_SCHEMA)


def _since(changes: Mapping[int, Mapping[str, str]] | None, session: int, default: Mapping[str, str]) -> str:
    known = [each for each in changes or {} if each <= session]
    return json.dumps(dict((changes or {})[max(known)] if known else default), sort_keys=True)


def normal(
    seed: int, count: int, *, centre: float = 400.0, spread: float = 0.02, drop: float = 0.0, onset: int | None = None
) -> list[float]:
    """Values that vary by `spread`, relative, and lose a share `drop` of themselves from `onset` on."""
    values = centre * np.exp(spread * np.random.default_rng(seed).standard_normal(count))
    if onset is not None:
        values[onset:] *= 1 - drop
    return [float(each) for each in values]
