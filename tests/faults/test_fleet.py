"""Faults of a fleet: one job over all nodes of an emulated cluster, with something wrong at several of them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.store.reading import entries_of
from fabricheck.store.session import read_record
from fabricheck.suite import suite_root
from fabricheck.topology.network import unfold
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site
from tests.faults.matrix import Outcome, settle
from tests.support.cluster import run_and

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
NODES = unfold("nid[001-008]")
# When the screen is in the middle.
MEASURES_PAIRS = ("screen.jsonl", '"samples"')
# As little as says something.
NODE = (
    *("SmokeLibraries.ranks=2", "SmokeLibraries.sizes=host:64KiB", "SmokeLibraries.patience=5"),
    "SmokeLibraries.node_state=no",
)
NETWORK = (
    *("FleetNetwork.budget=0.02", "FleetNetwork.least_iterations=8", "FleetNetwork.sizes=host:512KiB"),
    *("FleetNetwork.timeout=6", "FleetNetwork.patience=10"),
)
# What nodes of one machine measure of themselves is the machine's load.
_SPREAD = """
  - spread: 0.9
    source: eight nodes share the cores of one machine"""
_FLOOR = """
  - devices: false
    scope: node
    fraction: 0.00001
    source: eight nodes share the cores of one machine, and both ranks of a node spin"""


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    verdict: dict[str, Any]
    folder: Path

    @property
    def bad(self) -> dict[str, Finding]:
        """The worst of each bad node."""
        return {each["node"]: Finding.from_json(each["evidence"][0]) for each in self.verdict["fleet"]["bad"]}


@pytest.fixture
def fleet(cluster: Cluster, programs: Path, tmp_path: Path) -> Iterator[Site]:
    yield suite_of(cluster, programs, tmp_path)
    cluster.run(["scancel", "--user=root"], timeout_s=20)
    faults.clear(cluster)


def suite_of(cluster: Cluster, programs: Path, root: Path) -> Site:
    """A suite with the checks of a fleet; its nodes are taken to have memory of their own."""
    site = Site(cluster, root, programs)
    for name in ("smoke.py", "whole_fleet.py"):
        shutil.copy(suite_root() / "checks" / name, site.root / "checks")
    settings, policy = site.root / "site_configs/emulated/settings.py", site.root / "config/policy.yaml"
    settings.write_text(settings.read_text().replace('"features": ["remote", "emulated"]', '"features": ["remote"]'))
    text = policy.read_text().replace("\nequals:", f"\nequals:{_SPREAD}").replace("\nfloors:", f"\nfloors:{_FLOOR}")
    policy.write_text(text)
    return site


def command(site: Site, which: str, programs: Path) -> list[str]:
    options = ["--system=emulated:two-leaves", "--tag=smoke", "--environment=openmpi", which]
    where = [f"--built={programs}", f"--output={site.root / 'output'}", f"--store={site.root / 'store'}"]
    variables = [f"--setvar={variable}" for variable in (*NODE, *NETWORK)]
    program = [sys.executable, "-m", "fabricheck", "run", *options, *where, "--", *variables]
    return ["sh", "-c", f'{site.enter}; exec "$@"', "sh", *program]


def test_each_bad_node_is_named_and_all_others_are_measured(fleet: Site, programs: Path) -> None:
    """A slow NIC, a hung rank, a node that does not start, and one that dies in the screen; all in one job."""
    planted = plant(fleet, programs, hangs="nid003", ends="nid006")
    faults.slow(fleet.cluster, "nid002:hsn0", 50)
    done = run_nodes(fleet, "--nodes=all", planted, MEASURES_PAIRS, lambda: faults.node_down(fleet.cluster, "nid007"))
    assert set(done.bad) == {"nid002", "nid003", "nid006", "nid007"}, done.output
    assert "nid002:hsn0" in [each.text for each in done.bad["nid002"].components]
    said = done.verdict["fleet"]["message"]
    assert said == "4 of 8 nodes good, 4 bad, 0 not checked"
    rows = {
        "a NIC of one node of a fleet is 50% slower": ("nid002", "fault slow nid002:hsn0", "slow-part"),
        "a rank of one node of a fleet hangs": ("nid003", "a program that sleeps there", "node-did-not-start"),
        "the program does not start on one node of a fleet": ("nid006", "exit 127 there", "node-did-not-start"),
        "a node dies while a fleet is screened": ("nid007", "fault node-down nid007", "node-did-not-start"),
    }
    for fault, (node, how, code) in rows.items():
        assert (done.bad[node].code, done.bad[node].node) == (code, node)
        line = f"{node}: {done.bad[node].message}; {said}"
        settle(Outcome(fault, how, done.verdict["verdict"], done.status, line), Verdict(done.verdict["verdict"]), "")


def plant(fleet: Site, programs: Path, hangs: str, ends: str) -> Path:
    """The folder of programs that hang on one node and do not start on another."""
    planted = fleet.root / "programs" / "openmpi" / "fabricbench"
    planted.parent.mkdir(parents=True)
    planted.write_text(PROGRAM.format(hangs=hangs, ends=ends, real=programs / "openmpi" / "fabricbench"))
    planted.chmod(0o755)
    return planted.parents[1]


def run_nodes(site: Site, which: str, programs: Path, when: tuple[str, str], act: Callable[[], object]) -> Done:
    """A run over nodes; `act` is called once a new file of a name has a word: `when`."""
    name, word = when
    known = {*site.root.glob("output/runs/*")}
    measures = word, site.root, f"output/runs/*/stage/**/{name}"
    answer = run_and(lambda: site.cluster.run(command(site, which, programs), timeout_s=500), act, *measures)
    assert answer.returncode != 2, answer.stdout + answer.stderr
    (folder,) = {*site.root.glob("output/runs/*")} - known
    verdict = json.loads((folder / "verdict.json").read_text())
    return Done(answer.returncode, answer.stdout + answer.stderr, verdict, folder)


def node_runs(done: Done) -> dict[str, str]:
    """The ids of what single nodes measured, by test and node."""
    files = (*done.folder.glob("stage/**/nodes/*/result.jsonl"), *done.folder.glob("output/**/nodes/*/result.jsonl"))
    headers = {file: json.loads(file.read_text().partition("\n")[0]) for file in files}
    return {f"{file.parents[2].name} {file.parent.name}": header["run_id"] for file, header in headers.items()}


@pytest.mark.matrix
def test_a_job_that_is_cancelled_is_resumed_and_what_recovers_is_cleared(fleet: Site, programs: Path) -> None:
    """A NIC is slow in the screen and not in the retest; between them the first job is lost."""
    faults.slow(fleet.cluster, "nid002:hsn0", 50)
    cancel = ["scancel", "--name=fabricheck-fleet"]
    first = run_nodes(fleet, "--nodes=all", programs, MEASURES_PAIRS, lambda: fleet.cluster.run(cancel, timeout_s=20))
    assert first.verdict["fleet"]["message"] == "0 of 8 nodes good, 0 bad, 8 not checked", first.output
    assert first.verdict["verdict"] == "INCOMPLETE"
    second = run_nodes(fleet, "--resume", programs, ("retest.jsonl.rounds", ""), lambda: faults.clear(fleet.cluster))
    assert second.verdict["fleet"]["message"] == "8 of 8 nodes good, 0 bad, 0 not checked", second.output
    findings = [each["message"] for each in second.verdict["findings"]]
    assert any("nid002" in each and "pairs with good partners" in each for each in findings), findings
    assert any("result files were taken over" in each for each in findings), findings
    # Nothing was measured twice, and each run is stored once.
    assert len(node_runs(first)) == 8
    assert node_runs(second) == node_runs(first)
    stored = [read_record(entry) for entry in entries_of(fleet.root / "store", "emulated")]
    runs = [each for record in stored for each in record.runs]
    assert set(node_runs(first).values()) <= set(runs)
    assert len(runs) == len(set(runs))
    assert stored[-1].nodes is not None
    assert {name: each.verdict for name, each in stored[-1].nodes.items()} == dict.fromkeys(NODES, "PASS")
