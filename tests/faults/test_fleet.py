"""Faults of a fleet: one job over the eight nodes of the emulated cluster, with something wrong at several of them."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.emulation import faults
from fabricheck.emulation.cluster import Cluster
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from tests.faults.matrix import Outcome, settle
from tests.support.cluster import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

# The first rank of one node stands still before it says anything; on another the program does not start.
PROGRAM = """\
#!/bin/sh
case $(hostname) in
{hangs}) case $SLURM_LOCALID in 0) exec sleep 1000;; esac;;
{ends}) echo "fabricbench: cannot open shared object file" >&2; exit 127;;
esac
exec {real} "$@"
"""
# As little as says something.
NODE = ("SmokeLibraries.ranks=2", "SmokeLibraries.sizes=host:64KiB", "SmokeLibraries.patience=8")
NETWORK = (
    *("FleetNetwork.budget=0.02", "FleetNetwork.least_iterations=8", "FleetNetwork.sizes=host:512KiB"),
    *("FleetNetwork.timeout=6", "FleetNetwork.patience=20"),
)
# What nodes of one machine measure of themselves is the machine's load.
_SPREAD = """
  - spread: 0.9
    source: eight nodes share the cores of one machine"""


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    verdict: dict[str, Any]

    @property
    def bad(self) -> dict[str, str]:
        return {each["node"]: each["evidence"][0]["message"] for each in self.verdict["fleet"]["bad"]}


@pytest.fixture
def fleet(cluster: Cluster, programs: Path, tmp_path: Path) -> Iterator[Site]:
    """A suite with the checks of a fleet; its nodes are taken to have memory of their own."""
    site = Site(cluster, tmp_path, programs)
    for name in ("smoke.py", "whole_fleet.py"):
        shutil.copy(suite_root() / "checks" / name, site.root / "checks")
    settings, policy = site.root / "site_configs/emulated/settings.py", site.root / "config/policy.yaml"
    settings.write_text(settings.read_text().replace('"features": ["remote", "emulated"]', '"features": ["remote"]'))
    policy.write_text(policy.read_text().replace("\nequals:", f"\nequals:{_SPREAD}"))
    yield site
    cluster.run(["scancel", "--user=root"], timeout_s=20)
    faults.clear(cluster)


def command(site: Site, nodes: str, programs: Path) -> list[str]:
    options = ["--system=emulated:two-leaves", "--tag=smoke", "--environment=openmpi", f"--nodes={nodes}"]
    where = [f"--built={programs}", f"--output={site.root / 'output'}", f"--store={site.root / 'store'}"]
    variables = [f"--setvar={variable}" for variable in (*NODE, *NETWORK)]
    program = [sys.executable, "-m", "fabricheck", "run", *options, *where, "--", *variables]
    return ["sh", "-c", f'cd "{site.root}" && exec "$@"', "sh", *program]


def test_each_bad_node_is_named_and_all_others_are_measured(fleet: Site, programs: Path) -> None:
    """A slow NIC, a hung rank, a node that does not start, and one that dies in the screen; all in one job."""
    planted = fleet.root / "programs" / "openmpi" / "fabricbench"
    planted.parent.mkdir(parents=True)
    real = programs / "openmpi" / "fabricbench"
    planted.write_text(PROGRAM.format(hangs="nid003", ends="nid006", real=real))
    planted.chmod(0o755)
    faults.slow(fleet.cluster, "nid002:hsn0", 50)
    done = run_and_lose(fleet, "nid007", planted.parents[1])
    assert set(done.bad) == {"nid002", "nid003", "nid006", "nid007"}, done.output
    said = done.verdict["fleet"]["message"]
    assert said == "4 of 8 nodes good, 4 bad, 0 not checked"
    rows = {
        "a NIC of one node of a fleet is 50% slower": ("nid002", "fault slow nid002:hsn0", "loses"),
        "a rank of one node of a fleet hangs": ("nid003", "a program that sleeps there", "nothing came of it in"),
        "the program does not start on one node of a fleet": ("nid006", "exit 127 there", "ended with status 127"),
        "a node dies while a fleet is screened": ("nid007", "fault node-down nid007", "MPI does not start with it"),
    }
    for fault, (node, how, words) in rows.items():
        line = f"{node}: {done.bad[node]}; {said}"
        settle(Outcome(fault, how, done.verdict["verdict"], done.status, line), Verdict(done.verdict["verdict"]), words)


def run_and_lose(site: Site, node: str, programs: Path) -> Done:
    """Runs over all nodes; `node` loses its power once pairs are measured."""

    def lose() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if any('"samples"' in file.read_text() for file in site.root.glob("output/runs/*/stage/**/screen.jsonl")):
                faults.node_down(site.cluster, node)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    answer = site.cluster.run(command(site, "all", programs), timeout_s=500)
    assert answer.returncode != 2, answer.stdout + answer.stderr
    (file,) = site.root.glob("output/runs/*/verdict.json")
    return Done(answer.returncode, answer.stdout + answer.stderr, json.loads(file.read_text()))


def test_a_mistake_in_the_nodes_ends_before_anything_runs(fleet: Site, programs: Path) -> None:
    for nodes, said in (("nid0o1", "did you mean nid001?"), ("9", "has 8 nodes that can run a job")):
        answer = fleet.cluster.run(command(fleet, nodes, programs), timeout_s=60)
        assert answer.returncode == 2
        (line,) = answer.stderr.splitlines()
        assert said in line
    assert not (fleet.root / "output").exists()
    assert fleet.cluster.run(["squeue", "--noheader"], timeout_s=20).stdout == ""
