"""Whether a machine that nobody measured before is judged right on its first day, by values that others published.

    python -m benchmarks.published_rows            # the counts
    python -m benchmarks.published_rows --rows     # a line for each row

Each row of benchmarks/published_values.csv is judged by the part's board or the system, without references: at its
value, with a loss of 15%, and, of an owner's bound, 3% above it. The exit status is 1 where a healthy value is red.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fabricheck.errors import UserError
from fabricheck.judge.compare_part import KnownParts, NodeDescription, PastedNumber, judge_number
from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, HOST_PATHS, ROUND_TRIPS, bus_factor
from fabricheck.records.run import Device, Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.units import parse_size

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path(__file__).with_name("published_values.csv")
RED = (Verdict.DEGRADED, Verdict.FAIL, Verdict.INVALID)
LARGE = parse_size("256MiB")
_DEVICES = {"@alps": ("NVIDIA GH200 120GB", 95), "@lumi": ("AMD Instinct MI250X", 64)}


@dataclass(frozen=True)
class Row:
    """A published value; `nics` of a node, with the link layer where it is known; `value` in GB/s (busbw) or us."""

    name: str
    alarm: bool
    site: str
    gpus: int
    nodes: int
    nics: str
    operation: str
    transport: str
    bytes: int
    value: float
    environment: dict[str, str]

    @property
    def is_latency(self) -> bool:
        return self.bytes < parse_size("64KiB")

    @property
    def is_large(self) -> bool:
        return self.bytes >= LARGE or (self.operation not in COLLECTIVES and not self.is_latency)

    @property
    def ranks(self) -> int:
        if self.operation in COLLECTIVES:
            return self.gpus * self.nodes
        return 1 if self.operation in HOST_PATHS else 2

    def samples(self, share: float) -> Samples:
        """Iterations at a share of the value: of a latency, at the value over the share."""
        if self.is_latency:
            time_us = self.value / share
        else:
            factor = bus_factor(self.operation, self.ranks) if self.operation in COLLECTIVES else 1.0
            time_us = self.bytes * factor / (1e3 * self.value * share)
        time_us *= 2 if self.operation in ROUND_TRIPS else 1
        times = np.full(20, round(1e3 * time_us), dtype=np.int64)
        ranks = tuple(range(self.ranks))
        return Samples(self.operation, "library", "uncontended", -1, ranks, self.bytes, 0, "fixed", 0, times)

    def judged(self, share: float) -> Judgement | None:
        """The judgement at a share of the value; None where the judge refuses or has no metric."""
        try:
            judge = self._on_system if self.site.startswith("@") else self._on_part
            judged = judge(self.samples(share))
        except UserError:
            return None
        return judged[-1] if judged else None

    def _on_part(self, samples: Samples) -> Sequence[Judgement]:
        known = KnownParts.of(ROOT)
        asked = NodeDescription(self.site, self.gpus, self.nodes, self.nics or None)
        ranks = self.ranks if self.operation in COLLECTIVES else None
        number = PastedNumber("made", self.transport, ranks, samples, self.environment, {})
        return judge_number(number, known.part(asked, ""), asked, known)[0].judgements

    def _on_system(self, samples: Samples) -> Sequence[Judgement]:
        name, gib = _DEVICES[self.site]
        node = [rank * self.nodes // self.ranks for rank in range(self.ranks)]
        members = tuple(
            Rank(rank, f"node{at}", 0, 1, "0", 0, Device(0, name, f"0000:{rank:02x}:00.0", f"GPU-{rank}", 0, gib << 30))
            for rank, at in enumerate(node)
        )
        if len(members) > 2:
            per_node = self.ranks // self.nodes
            members = tuple(
                replace(
                    each,
                    local_rank=each.rank % per_node,
                    device=replace(each.device, index=each.rank % per_node) if each.device else None,
                )
                for each in members
            )
        series = {"operation": self.operation, "schedule": "uncontended", "ranks": [*samples.ranks]}
        plan = {"series": [{**series, "bytes": [self.bytes], "round": -1}], "access": "write", "shared_devices": False}
        header = {
            "program": "fabricbench",
            "transport": self.transport,
            "backend": "hip" if "AMD" in name else "cuda",
            "environment": self.environment,
            "host_copy_gbps": None,
            "oversubscribed": False,
            "plan": {**plan, "injected": None, "host_memory": None},
            "ranks": [{"rank": rank} for rank in samples.ranks],
            "libraries": {},
        }
        run = Run("made", header, members, (samples,), {"records": 1})
        return replace(SystemJudge.of(self.site[1:]), references=None).judge_alone(run).judgements


def rows(path: Path = ROWS) -> Iterator[Row]:
    """The rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        for entry in csv.DictReader(line for line in file if not line.startswith("#")):
            name, _, setting = entry["environment"].partition("=")
            yield Row(
                *(entry["row"], entry["kind"] == "T", entry["site"], int(entry["gpus"]), int(entry["nodes"])),
                *(entry["nics"], entry["operation"], entry["transport"], parse_size(entry["size"])),
                *(float(entry["value"]), {name: setting} if name else {}),
            )


def verdict_of(judged: Judgement | None) -> str:
    """Of a metric that only a floor judged, PASS is no answer."""
    if judged is None:
        return "refused"
    floor = judged.verdict is Verdict.PASS and judged.judged_by == "floor"
    return "not judged" if floor or judged.unjudged else judged.verdict.value


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", action="store_true", help="a line for each row")
    given = parser.parse_args(arguments)
    measured: list[tuple[Row, str, str]] = []
    alarms: Counter[str] = Counter()
    for row in rows():
        if row.alarm:
            verdict = verdict_of(row.judged(1.03))
            alarms[verdict] += 1
            if given.rows:
                print(f"{row.name:5} T {row.site} {row.operation}: 3% above {row.value:g}: {verdict}")
            continue
        at_value = row.judged(1.0)
        healthy, lost = verdict_of(at_value), verdict_of(row.judged(0.85))
        measured.append((row, healthy, lost))
        if given.rows:
            by = at_value.judged_by if at_value is not None else ""
            print(f"{row.name:5} M {row.site} {row.operation} {row.nodes} {row.nics}: {healthy} by {by}; -15%: {lost}")
            if at_value is not None and healthy != "PASS":
                print(f"        {at_value.reason}")
    red = sum(healthy in ("DEGRADED", "FAIL", "INVALID") for _, healthy, _ in measured)
    print(
        f"healthy values: {len(measured)}; red {red}, not judged or refused "
        f"{sum(healthy in ('not judged', 'refused', 'INCOMPLETE') for _, healthy, _ in measured)}"
    )
    for title, chosen in (
        ("a loss of 15% of large messages", [lost for row, _, lost in measured if row.is_large]),
        ("a loss of 15%, all rows", [lost for _, _, lost in measured]),
    ):
        caught = sum(lost in ("DEGRADED", "FAIL") for lost in chosen)
        print(f"{title}: found in {caught} of {len(chosen)} ({caught / len(chosen):.0%})")
    print("3% above an owner's bound: " + ", ".join(f"{count} {verdict}" for verdict, count in alarms.most_common()))
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
