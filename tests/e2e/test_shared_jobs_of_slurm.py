"""A queue is waited for once: all tests between nodes, of however many, in one job of Slurm. Needs root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

NAMES = "NodePairs|NodeWindows|NetworkCollectives %transport=mpi"


def test_tests_between_nodes_share_one_job(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    site = Site(cluster, tmp_path, programs, size="1MiB")
    quick = [
        "--setvar=NodeWindows.warmup=1",
        "--setvar=NodeWindows.sizes=host:256KiB",
        "--setvar=NodeWindows.budget=0.02",
        "--setvar=NetworkCollectives.sizes=host:512KiB",
        *(f"--setvar={name}.node_state=no" for name in ("NodePairs", "NodeWindows", "NetworkCollectives")),
    ]
    planted = "--setvar=NodeWindows.more_options=--inject=crash:1"
    done = site.run("two-leaves", "--launches=1", "--", *quick, planted, name=f"^({NAMES})")
    (job,) = done.folder.glob("stage/*/*/*/shared-job-*")
    assert "#SBATCH --no-requeue" in (job / "job.sh").read_text()
    ended = {path.parent.name: int(path.read_text()) for path in done.folder.glob("*/*/*/*/N*/exit-status")}
    names = [name.partition("_")[0] for name in sorted(ended)]
    assert names == [*["NetworkCollectives"] * 3, "NodePairs", "NodeWindows"], done.output
    assert [name for name, status in ended.items() if status != 0] == ["NodeWindows"], done.output
    assert done.verdict == "INCOMPLETE"
    assert not any(name in problem for problem in done.problems for name in ("NodePairs", "NetworkCollectives"))
    # Each count of nodes is a run of its own, judged by what its links allow.
    runs = [read_run(file) for file in done.folder.glob("output/**/NetworkCollectives*/result.jsonl")]
    assert sorted(len({rank.host for rank in run.ranks}) for run in runs) == [2, 4, 8]
    assert all({sample.operation for sample in run.samples} == {"alltoall", "allreduce"} for run in runs)
    judged = json.loads((done.folder / "verdict.json").read_text())["runs"]
    assert [run["verdict"] for run in judged if "NetworkCollectives" in run["test"]] == ["PASS"] * 3, done.output
