"""How often the checks of the network are green on an emulated cluster that nothing is wrong with.

    python -m benchmarks.healthy [--runs 20] [--partition one-leaf] [--built FOLDER] [--name NAME]

Brings up the cluster of `fabricheck emulate`, runs NodePairs as often without references, and prints what was not
green. Needs root, Slurm and a fabricbench with the machine's Open MPI (`--built`: its folder, as of `fabricheck run`).
The exit status is 1 where a run was not PASS.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fabricheck.emulation.cluster import emulated_cluster, require_machine
from fabricheck.suite import output_folder
from tests.support.cluster import TOPOLOGY, Site


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How often a healthy emulated cluster is green.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--partition", default="one-leaf", help="one-leaf or two-leaves")
    parser.add_argument("--built", type=Path, default=output_folder() / "programs")
    parser.add_argument("--name", default="healthy", help="of the cluster")
    chosen = parser.parse_args(words)
    require_machine()
    green = 0
    with tempfile.TemporaryDirectory() as folder, emulated_cluster(TOPOLOGY, chosen.name) as cluster:
        site = Site(cluster, Path(folder), chosen.built.resolve())
        for number in range(1, chosen.runs + 1):
            done = site.run(chosen.partition)
            green += done.status == 0
            said = "; ".join(done.problems[:3])
            print(f"run {number}: {done.verdict}{': ' if said else ''}{said}", flush=True)
    print(f"{chosen.partition}: {green} of {chosen.runs} runs were PASS")
    return int(green < chosen.runs)


if __name__ == "__main__":
    sys.exit(main())
