"""A store of 60 nights, of the recorded sessions of two H100: the samples of the guide are of it."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from fabricheck.suite import suite_root
from fabricheck.suites.sources import extract

_FIRST = datetime.fromisoformat("2026-01-01T02:00:00+00:00")
_TIMES = ("started", "ended", "stored")


def write_nights(store: Path, upgraded: int) -> None:
    """Repeat the recorded sessions night after night; the last ones have another NCCL, which is 6% slower."""
    recorded = store.parent / "recorded"
    extract(suite_root() / "docs" / "results" / "h100x2-2026-11-25" / "sessions.tar.xz", recorded)
    sessions = sorted(recorded.rglob("session.json"))
    (store / "hgx-h100").mkdir(parents=True)
    (store / "fabricheck-store.json").write_text('{"fabricheck-store": 2}')
    for night in range(60):
        source = sessions[night % len(sessions)]
        rows = pl.read_parquet(source.with_name("metrics.parquet"))
        text = source.read_text(encoding="utf-8")
        ids = {name: _other(name, night) for name in (json.loads(text)["session"], *rows["run_id"].unique())}
        for name, other in ids.items():
            text = text.replace(name, other)
        content = json.loads(text)
        times = [datetime.fromisoformat(content[name].replace("Z", "+00:00")) for name in _TIMES]
        shift = _FIRST + timedelta(days=night) - times[0]
        content |= {name: f"{time + shift:%Y-%m-%dT%H:%M:%SZ}" for name, time in zip(_TIMES, times, strict=True)}
        rows = rows.with_columns(pl.col("session", "run_id").replace(ids), pl.col("started") + shift)
        if night >= 60 - upgraded:
            is_of_nccl = pl.col("test").str.contains("ccl") & pl.col("metric").str.contains("goodput")
            value = pl.when(is_of_nccl).then(pl.col("value") * 0.94).otherwise(pl.col("value"))
            rows = rows.with_columns(value, pl.col("software").str.replace("2.28.3", "2.29.1", literal=True))
        folder = store / "hgx-h100" / f"{times[0] + shift:%Y%m%dT%H%M%SZ}-{content['session']}"
        folder.mkdir()
        (folder / "session.json").write_text(json.dumps(content), encoding="utf-8")
        rows.write_parquet(folder / "metrics.parquet")
        sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())]
        (folder / "SHA256SUMS").write_text("".join(sums))


def _other(name: str, night: int) -> str:
    """Return another id of the same form."""
    digest = hashlib.md5(f"{name} {night}".encode(), usedforsecurity=False).hexdigest()
    return str(uuid.UUID(digest)) if "-" in name else digest
