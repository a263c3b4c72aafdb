"""How long it takes to write, read and verify a sample store of a million metric-sessions, and how large it is.

    python -m benchmarks.store --sessions 1000 --metrics 1000

Sessions are made up, but for their form: runs of 50 pairs each. They are written as `fabricheck run` writes them,
checksums and flushes included. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case
from fabricheck.results.fabricbench import read_run
from fabricheck.store import folders
from fabricheck.store.metric_rows import JudgedCase, metrics_table, to_parquet
from fabricheck.store.reading import history, verify
from fabricheck.store.session import SessionRecord
from fabricheck.suite import suite_root

FIRST = datetime(2024, 1, 1, 2, tzinfo=timezone.utc)
A_RUN = 50  # metrics
RESULT = "tests/data/fabricbench/synthetic_cuda_4ranks.jsonl"

_Result = TypeVar("_Result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=1000, help="of each session")
    parser.add_argument("--folder", type=Path, help="where to make the store; it is removed again")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="store-benchmark-", dir=arguments.folder))
    try:
        measure(work / "store", arguments.sessions, arguments.metrics)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def measure(store: Path, sessions: int, metrics: int) -> None:
    template = MadeSession.like_a_real_one(metrics)
    folders.create(store)
    start = time.monotonic()
    for number in range(sessions):
        template.write(store, number)
    wrote = time.monotonic() - start
    sizes = {name: sum(file.stat().st_size for file in store.glob(f"*/*/{name}")) for name in folders.FILES}
    table, cold = seconds(lambda: history(store, system="benchmark"))
    again = seconds(lambda: history(store, system="benchmark"))[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    verification, verified = seconds(lambda: verify(store))
    if verification.damage:
        sys.exit(verification.damage[0])
    print(f"{sessions} sessions x {metrics} metrics, {os.cpu_count()} cores\n")
    print("| what | |\n|---|---|")
    print(f"| writing a session | {wrote / sessions * 1e3:.0f} ms |")
    print(f"| `history` of {table.height} metric-sessions | {cold:.1f} s, again {again:.1f} s |")
    print(f"| peak memory of reading | {peak:.2f} GiB |")
    print(f"| `verify` | {verified:.1f} s |")
    for name, size in sizes.items():
        print(f"| {name} | {size / 1e6:.1f} MB, {size / sessions / metrics:.0f} B a metric-session |")


def seconds(work: Callable[[], _Result]) -> tuple[_Result, float]:
    start = time.monotonic()
    result = work()
    return result, time.monotonic() - start


class MadeSession:
    """The metrics of one session; `write` gives each session its own ids, times and values."""

    def __init__(self, metrics: pl.DataFrame) -> None:
        self.metrics = metrics
        self.rng = np.random.default_rng(1)

    @classmethod
    def like_a_real_one(cls, metrics: int) -> MadeSession:
        """A session whose rows are those of a result file with GPUs, as often as it takes."""
        judged = SystemJudge.of("hgx-h200").judge(read_run(suite_root() / RESULT))
        case = Case("PingPong %transport=ccl", "openmpi", "benchmark:gpu", {}, "pass", None, None, None, False)
        rows = metrics_table([JudgedCase(case, judged, '{"NCCL":"2.28.3"}', "{}")], "s", FIRST)
        number = np.arange(metrics)
        names = [f"pingpong_uncontended_{each // 100}_{each % 100}_1gib_goodput" for each in number]
        return cls(
            rows[(number % rows.height).tolist()].with_columns(
                pl.Series("run_id", [f"{each // A_RUN:032x}" for each in number]),
                pl.Series("metric", names),
                pl.lit("Gb/s").alias("unit"),
                pl.lit("higher").alias("better"),
            )
        )

    def write(self, store: Path, number: int) -> None:
        """Append the session as `fabricheck.store.writing.append` does, with its own ids and values."""
        session, started = f"{number:08d}-benchmark", FIRST + timedelta(days=number)
        place = [
            pl.concat_str(pl.lit(f"{number:08x}"), pl.col("run_id").str.slice(8)).alias("run_id"),
            pl.lit(session).alias("session"),
            pl.lit(started).cast(pl.Datetime("us", "UTC")).alias("started"),
        ]
        noise = pl.Series("value", 1000 * self.rng.normal(1, 0.01, self.metrics.height))
        metrics = self.metrics.with_columns(*place, noise, noise.alias("low") * 0.999, noise.alias("high") * 1.001)
        moment = started.strftime("%Y-%m-%dT%H:%M:%SZ")
        record = SessionRecord(
            session=session,
            system="benchmark",
            started=moment,
            ended=moment,
            stored=moment,
            host="login1",
            software={},
            judged_by={},
            verdict="PASS",
            problems=[],
            findings=[],
            runs=metrics["run_id"].unique(maintain_order=True).to_list(),
            metrics=metrics.height,
        )
        files = {
            folders.SESSION: record.model_dump_json().encode(),
            folders.METRICS: to_parquet(metrics),
        }
        folders.commit(store / "benchmark", started.strftime("%Y%m%dT%H%M%SZ"), session, files)


if __name__ == "__main__":
    main()
