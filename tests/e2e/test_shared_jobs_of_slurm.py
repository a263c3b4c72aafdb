"""A queue is waited for once: all tests between nodes, of however many, in one job of Slurm. Needs root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import HEADER, Site
from tests.support.cluster import run_and

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

NAMES = "^(NodePairs|NodeWindows|NetworkCollectives %transport=mpi)"
QUICK = (
    "--setvar=NodeWindows.warmup=2",
    "--setvar=NodeWindows.sizes=host:256KiB",
    "--setvar=NodeWindows.budget=0.02",
    "--setvar=NetworkCollectives.sizes=host:512KiB",
    *(f"--setvar={name}.node_state=no" for name in ("NodePairs", "NodeWindows", "NetworkCollectives")),
)


def test_tests_between_nodes_share_one_job(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    site = Site(cluster, tmp_path, programs, size="512KiB")
    planted = "--setvar=NodeWindows.more_options=--inject=crash:1"
    done = site.run("two-leaves", "--launches=1", "--", *QUICK, planted, name=NAMES)
    (job,) = done.folder.glob("stage/*/*/*/shared-job-*")
    assert "#SBATCH --no-requeue" in (job / "job.sh").read_text()
    ended = {path.parent.name: int(path.read_text()) for path in done.folder.glob("*/*/*/*/N*/exit-status")}
    names = [name.partition("_")[0] for name in sorted(ended)]
    assert names == [*["NetworkCollectives"] * 3, "NodePairs", "NodeWindows"], done.output
    assert [name for name, status in ended.items() if status != 0] == ["NodeWindows"], done.output
    assert done.verdict == "INCOMPLETE"
    assert not any(name in problem for problem in done.problems for name in ("NodePairs", "NetworkCollectives"))
    # Each count of nodes is a run of its own, judged by what its links allow. A slow one stays where it ran.
    runs = [read_run(file) for file in done.folder.glob("*/*/*/*/NetworkCollectives*/result.jsonl")]
    assert sorted(len({rank.host for rank in run.ranks}) for run in runs) == [2, 4, 8], done.output
    assert all({sample.operation for sample in run.samples} == {"alltoall", "allreduce"} for run in runs)
    judged = json.loads((done.folder / "verdict.json").read_text())["runs"]
    expected = [
        metric["expectation"]["expected"]
        for run in judged
        if "NetworkCollectives" in run["test"]
        for metric in run["metrics"]
        if "alltoall" in metric["name"]
    ]
    # Of n nodes, a node's link of 0.1 Gb/s carries (n - 1) / n of the buffer.
    assert sorted(expected) == pytest.approx([0.1 * n / (n - 1) for n in (8, 4, 2)]), done.output


@pytest.mark.matrix
def test_what_a_job_at_its_limit_did_not_measure_is_resumed(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    """Slurm ends the job in a plan that takes hours; the plans after it have another job."""
    site = Site(cluster, tmp_path, programs, size="512KiB")
    names = "^(NodePairs|NodeWindows|NetworkCollectives %transport=mpi %nodes=2)"
    planted = "--setvar=NodeWindows.more_options=--iterations=10000000"
    # As if its time were over: it need not be waited for.
    limit = ["sh", "-c", "scontrol update JobId=$(squeue --noheader --states=RUNNING --format=%i) EndTime=now"]
    ended = run_and(
        lambda: site.run("one-leaf", "--launches=1", "--", *QUICK, planted, name=names),
        lambda: cluster.run(limit, timeout_s=20),
        '"header"',
        tmp_path,
        "output1/runs/*/stage/**/NodeWindows*/result.jsonl",
    )
    first, *_ = sorted(ended.folder.glob("stage/*/*/*/shared-job-*"))
    assert "DUE TO TIME LIMIT" in (first / "job.err").read_text(), ended.output
    assert ended.verdict == "INCOMPLETE"
    assert any("NodeWindows" in problem for problem in ended.problems)
    assert not any(name in problem for problem in ended.problems for name in ("NodePairs", "NetworkCollectives"))
    resumed = site.run("one-leaf", "--launches=2", f"--resume={ended.folder}", "--", *QUICK, name=names)
    taken = sorted(file.parent.name.partition("_")[0] for file in resumed.folder.rglob("taken-over"))
    assert taken == ["NetworkCollectives", "NodePairs"], resumed.output
    assert resumed.verdict != "INCOMPLETE" and not any("INCOMPLETE" in problem for problem in resumed.problems)


def test_what_is_slow_is_launched_again_in_the_same_job(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    """Its references are far above what this cluster does: it is slow twice, on nodes that were waited for once."""
    site = Site(cluster, tmp_path, programs, size="512KiB")
    healthy = site.run("one-leaf", "--launches=1", "--", *QUICK)
    goodputs = {name: value for name, value in healthy.metrics.items() if name.endswith("_goodput")}
    lines = [f"    {name}: [{3 * value}, -0.1, 0.1, Gb/s]\n" for name, value in goodputs.items()]
    (tmp_path / "reference_values" / "emulated.yaml").write_text(f"{HEADER}  emulated:one-leaf:\n{''.join(lines)}")
    done = site.run("one-leaf", "--launches=3", "--", *QUICK)
    assert done.verdict in ("DEGRADED", "FAIL"), done.output
    assert any("launched 2 times" in each for each in done.findings), done.findings
    assert len(list(done.folder.rglob("result.jsonl"))) == 2, done.output
    assert len(list(done.folder.rglob("job.sh"))) == 1
    queue = cluster.run(["sh", "-c", "sleep 5; squeue --noheader"], timeout_s=60)
    assert queue.stdout.strip() == ""
