"""How often the checks of the network are green on an emulated cluster that nothing is wrong with.

    python -m benchmarks.healthy [--runs 20] [--partition one-leaf] [--built FOLDER] [--name NAME]
                                 [--keep FOLDER] [--latencies] [--sleep] [--delay MICROSECONDS] [--pause SECONDS]

Brings up the cluster of `fabricheck emulate`, runs NodePairs as often without references, and prints what was not
green. Needs root, Slurm and a fabricbench with the machine's Open MPI (`--built`: its folder, as of `fabricheck run`).
With `--keep` the result file of each run stays, as NUMBER-pairs.jsonl, which benchmarks.launch_noise and
benchmarks.noise read; with `--latencies` they have the one of 8 bytes too. On fewer idle cores than ranks it is the
network's only with `--sleep`. With `--delay` the cable of nid002 takes that much longer, and is no longer
healthy but for 0: what holds the packets then holds them for no time.
The exit status is 1 where a run was not PASS.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fabricheck.suite import output_folder
from fabricheck_lab import faults
from fabricheck_lab.cluster import emulated_cluster, require_machine
from fabricheck_lab.network_suite import TOPOLOGY, Site


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How often a healthy emulated cluster is green.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--partition", default="one-leaf", help="one-leaf or two-leaves")
    parser.add_argument("--built", type=Path, default=output_folder() / "programs")
    parser.add_argument("--name", default="healthy", help="of the cluster")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the result files of all runs go")
    parser.add_argument("--latencies", action="store_true", help="measure messages of 8 bytes too")
    parser.add_argument("--sleep", action="store_true", help="ranks that wait sleep, and do not spin")
    parser.add_argument("--delay", type=float, metavar="MICROSECONDS", help="that the cable of nid002:hsn0 takes more")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="between two runs")
    chosen = parser.parse_args(words)
    require_machine()
    green = 0
    with tempfile.TemporaryDirectory() as folder, emulated_cluster(TOPOLOGY, chosen.name) as cluster:
        size = None if chosen.latencies else "2MiB"
        site = Site(cluster, Path(folder), chosen.built.resolve(), size=size)
        if chosen.sleep:
            site.let_waiting_ranks_sleep()
        if chosen.delay is not None:
            faults.delay(cluster, "nid002:hsn0", chosen.delay)
        for number in range(1, chosen.runs + 1):
            if number > 1:
                time.sleep(chosen.pause)
            done = site.run(chosen.partition)
            if chosen.keep:
                _keep(done.folder.parents[1], chosen.keep, number)
            shutil.rmtree(done.folder.parents[1])  # hundreds of runs do not have to fit
            green += done.status == 0
            said = "; ".join(done.problems[:3])
            print(f"run {number}: {done.verdict}{': ' if said else ''}{said}", flush=True)
    print(f"{chosen.partition}: {green} of {chosen.runs} runs were PASS")
    return int(green < chosen.runs)


def _keep(output: Path, folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in output.rglob("result.jsonl"):
        shutil.copy(file, folder / f"{number:03}-pairs.jsonl")


if __name__ == "__main__":
    sys.exit(main())
