"""Prints tables as the vendor tools do, for tests that need more of them than were recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


def osu(
    title: str,
    header: str,
    rows: Sequence[tuple[int, Sequence[str]]],
    version: str = "7.5",
    extra: str = "",
) -> str:
    """`rows` are sizes and cells; columns of 20 as OMB 7 prints them, `Iterations` of 12."""
    lines = ["", f"# {title} v{version}", *([extra] if extra else []), "# Datatype: MPI_CHAR.", header]
    lines += [f"{size:<10d}" + "".join(f"{cell:>20}" for cell in cells) for size, cells in rows]
    return "\n".join(lines) + "\n"


def fitted(value: float, width: int) -> str:
    """nccl-tests since 2.17 (getFloatStr): as many decimals as the width allows, two at most."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"


def classic(value: float) -> str:
    """A time of nccl-tests before 2.17 and of rccl-tests."""
    return f"{value:7.{0 if value >= 10000 else 1 if value >= 100 else 2}f}"


BUSBW: dict[str, Callable[[int], float]] = {
    "all_reduce_perf": lambda n: 2 * (n - 1) / n,
    "all_gather_perf": lambda n: (n - 1) / n,
    "reduce_scatter_perf": lambda n: (n - 1) / n,
    "alltoall_perf": lambda n: (n - 1) / n,
    "broadcast_perf": lambda n: 1.0,
    "reduce_perf": lambda n: 1.0,
    "sendrecv_perf": lambda n: 1.0,
}
SHARED = ("all_gather_perf", "reduce_scatter_perf", "alltoall_perf")


@dataclass(frozen=True)
class NcclTable:
    """A table of nccl-tests with floats: times in us, out of place and in place, for each size."""

    tool: str
    ranks: int
    minimum: int
    factor: int
    times: Sequence[tuple[float, float]]

    def rows(self) -> list[tuple[int, int, int, tuple[float, float]]]:
        """Asked size, printed size, printed count, times."""
        rows = []
        for index, times in enumerate(self.times):
            asked = self.minimum * self.factor**index
            count = asked // 4
            if self.tool in SHARED:
                count = count // self.ranks // 4 * 4
                rows.append((asked, count * 4 * self.ranks, count, times))
            else:
                rows.append((asked, count * 4, count, times))
        return rows

    def bandwidths(self, size: int, time: float) -> tuple[float, float]:
        algbw = size / 1e3 / time
        return algbw, algbw * BUSBW[self.tool](self.ranks)

    @property
    def maximum(self) -> int:
        return self.minimum * int(self.factor ** (len(self.times) - 1))

    def wrong(self, placement: int) -> str:
        return "N/A" if placement and self.tool in ("sendrecv_perf", "alltoall_perf") else "0"

    def redop(self, style: str) -> str:
        """Of sendrecv it is the first of the options; others that reduce nothing had a blank once."""
        if self.tool in ("all_reduce_perf", "reduce_scatter_perf", "reduce_perf", "sendrecv_perf"):
            return "sum"
        return "" if style == "rccl-tests" else "none"

    def text(self, style: str = "nccl-tests", timestamps: bool = False) -> str:
        """`style`: `nccl-tests` (2.19), `classic` (2.13: no version or name), `rccl-tests`, `2.9` (errors, no root)."""
        new, old = style == "nccl-tests", style == "2.9"
        lines = []
        if new:
            lines += ["# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803"]
            lines += [f"# Collective test starting: {self.tool}"]
        lines += [
            f"# nThread 1 nGpus 1 minBytes {self.minimum} maxBytes {self.maximum} step: {self.factor}(factor) "
            f"warmup iters: 5 iters: 20 {'' if old else 'agg iters: 1 '}validation: 1 {'' if old else 'graph: 0'}",
            "#",
        ]
        if style == "rccl-tests":
            lines += ["rccl-tests: Version develop:ae3e635"]
        lines += ["# Using devices"]
        group = "Group  0 " if new else ""
        lines += [
            f"#  Rank {rank:2d} {group}Pid {100 + rank:6d} on {'nid001':>10} device {rank:2d} [0000:c1:00] NVIDIA H100"
            for rank in range(self.ranks)
        ]
        leading = [("size", "(B)", 12), ("count", "(elements)", 12), ("type", "", 6 if old else 8)]
        leading += [] if old else [("redop", "", 6), ("root", "", 6)]
        width = 5 if old else 6
        half = [
            ("time", "(us)", 7),
            ("algbw", "(GB/s)", 6),
            ("busbw", "(GB/s)", 6),
            ("error" if old else "#wrong", "", width),
        ]
        columns = [*leading, *half, *half]
        stamp = ["timestamp", "%Y-%m-%d %H:%M:%S"] if timestamps else ["", ""]
        lines += [
            "#",
            "# " + " " * 40 + "out-of-place                       in-place",
            "#" + "  ".join(f"{name:>{size}}" for name, _, size in columns)[1:] + f" {stamp[0]:>19}",
            "#" + "  ".join(f"{unit:>{size}}" for _, unit, size in columns)[1:] + f" {stamp[1]:>19}",
        ]
        bus = []
        for _, size, count, times in self.rows():
            row = f"{size:12d}  {count:12d}  {'float':>{6 if old else 8}}"
            row += "" if old else f"  {self.redop(style):>6}  {-1:6d}"
            for placement, time in enumerate(times):
                algbw, busbw = self.bandwidths(size, time)
                bus.append(busbw)
                wrong = "0e+00" if old else self.wrong(placement)
                if new:
                    row += f"  {fitted(time, 7)}  {fitted(algbw, 6)}  {fitted(busbw, 6)}  {wrong:>6}"
                else:
                    row += f"  {classic(time)}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>{width}}"
            lines.append(row + ("  2026-11-21 05:26:06" if timestamps else ""))
        lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {sum(bus) / len(bus):g} ", "#"]
        if new:
            lines += [f"# Collective test concluded: {self.tool}", "#"]
        return "\n".join(lines) + "\n"

    def json(self, iterations: int = 0) -> str:
        """The file of `-J`, with `-I 1` where `iterations` are asked for; the k-th takes k/1000 longer."""
        results, bus = [], []
        for _, size, count, times in self.rows():
            row: dict[str, object] = {"size": size, "count": count, "type": "float", "redop": "sum", "root": "    -1"}
            for placement, (name, time) in enumerate(zip(("out_of_place", "in_place"), times, strict=True)):
                algbw, busbw = self.bandwidths(size, time)
                bus.append(busbw)
                wrong = None if self.wrong(placement) == "N/A" else 0.0
                row[name] = {
                    "time": round(time, 6),
                    "alg_bw": round(algbw, 6),
                    "bus_bw": round(busbw, 6),
                    "nwrong": wrong,
                }
                if iterations:
                    row[f"{name}_per_iter"] = per_iteration([time * (1 + k / 1000) for k in range(iterations)])
            results.append(row | {"actual_iterations": iterations or 20, "experiment_name": ""})
        config = {"nthreads": 1, "ngpus": 1, "minimum_bytes": self.minimum, "maximum_bytes": self.maximum}
        config |= {"step_factor": self.factor, "warmup_iters": 5, "iterations": iterations or 20}
        flags = {
            "blocking_collectives": "false",
            "per_iter_timing": str(bool(iterations)).lower(),
            "parallel_init": "false",
        }
        devices = [
            {"rank": rank, "group": 0, "pid": 100 + rank, "hostname": "nid001", "device": rank}
            | {"device_hex": "0000:c1:00", "device_info": "NVIDIA H100"}
            for rank in range(self.ranks)
        ]
        return json.dumps(
            {"version": 3, "start_time": "2026-11-21 03:55:45", "args": [f"build/{self.tool}", "-J", "x.json"]}
            | {"env": ["NCCL_DEBUG=WARN", "HOME=/home/someone"], "nccl_version": 22803}
            | {
                "config": config
                | {"aggregated_iterations": 1, "validation": 1, "graph": 0}
                | flags
                | {"devices": devices}
            }
            | {"results": results, "out_of_bounds": {"count": 0, "okay": "true"}}
            | {"average_bus_bandwidth": {"bandwidth": round(sum(bus) / len(bus), 6), "okay": "unchecked"}}
            | {"errors": [""], "end_time": "2026-11-21 03:55:50"}
        )


def per_iteration(times: Sequence[float], skipped: int = 0) -> dict[str, object]:
    kept = sorted(times[skipped:])
    n = len(kept)
    mean = sum(kept) / n
    deviation = math.sqrt(sum((time - mean) ** 2 for time in kept) / n)
    summary = {"min_us": kept[0], "max_us": kept[-1], "avg_us": mean, "p50_us": kept[n // 2]}
    summary |= {f"p{each}_us": kept[min(n - 1, (n * each + 99) // 100 - 1)] for each in (95, 99)}
    summary |= {"stdev_us": deviation, "cv_pct": 100 * deviation / mean}
    return {
        "skipped_iterations": skipped,
        **{name: round(value, 6) for name, value in summary.items()},
        "times_us": [round(time, 6) for time in times],
    }


def imb(
    benchmark: str, columns: Sequence[str], rows: Sequence[Sequence[str]], log: tuple[int, int], processes: int = 2
) -> str:
    lines = [
        "#" + "-" * 64,
        "#    Intel(R) MPI Benchmarks 2021.11, MPI-1 part",
        "#" + "-" * 64,
        "# MPI Version           : 4.1",
        "",
        "# Calling sequence was: ",
        "",
        f"# IMB-MPI1 {benchmark} -msglog {log[0]}:{log[1]} -iter 100 ",
        "",
        "# Minimum message length in bytes:   0",
        f"# Maximum message length in bytes:   {1 << log[1]}",
        "#",
        "# MPI_Datatype                   :   MPI_BYTE ",
        "# MPI_Datatype for reductions    :   MPI_FLOAT ",
        "# MPI_Op                         :   MPI_SUM  ",
        "",
        "# List of Benchmarks to run:",
        "",
        f"# {benchmark}",
        "",
        "#" + "-" * 51,
        f"# Benchmarking {benchmark} ",
        f"# #processes = {processes} ",
        "#" + "-" * 51,
        "".join(f"{name:>13}" for name in columns),
        *("".join(f"{cell:>13}" for cell in row) for row in rows),
        "",
        "",
        "# All processes entering MPI_Finalize",
        "",
    ]
    return "\n".join(lines) + "\n"
