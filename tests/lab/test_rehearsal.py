"""What ranks on emulated GPUs are told before they start. No cluster is built here."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck.topology.model import Topology, find_topology
from fabricheck.topology.network import Network, NetworkLink, NetworkSwitch
from fabricheck_lab.rehearsal import prolog

SITES = suite_root() / "site_configs"


def told(tmp_path: Path, system: str, rank: int, then: str = "true") -> str:
    """What a rank of a node with four is told, in a session of its own, and what a command says there afterwards."""
    return told_by(tmp_path, find_topology(system, SITES), rank, then)


def told_by(tmp_path: Path, topology: Topology, rank: int, then: str = "true") -> str:
    file = tmp_path / "prolog.sh"
    file.write_text(prolog(topology, "test", tmp_path), encoding="utf-8")
    command = ["setsid", "--wait", "sh", "-c", f"sh {file}; {then}"]
    variables = {**os.environ, "SLURM_NTASKS_PER_NODE": "4", "SLURM_LOCALID": str(rank)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("system, nics", [("alps", "hsn0 hsn1 hsn2 hsn3"), ("sierra", "ib0 ib1 ib0 ib1")])
def test_each_rank_has_a_nic_also_where_nobody_says_which(tmp_path: Path, system: str, nics: str) -> None:
    for rank, nic in enumerate(nics.split()):
        assert f"export OMPI_MCA_btl_tcp_if_include={nic}\n" in told(tmp_path, system, rank)


def test_on_rails_that_nothing_joins_each_rank_has_all_nics(tmp_path: Path) -> None:
    alps = find_topology("alps", SITES)
    nics = [nic.name for nic in alps.nics]
    ports = [(f"{node}:{nic}", f"rail{nic}") for node in ("n1", "n2") for nic in nics]
    links = tuple(NetworkLink(ends, "Slingshot", 1, 200.0, "made") for ends in ports)
    switches = tuple(NetworkSwitch(f"rail{nic}") for nic in nics)
    rails = Network(("n1", "n2"), tuple(port for port, _ in ports), switches, links)
    for rank, nic in enumerate(nics):
        said = told_by(tmp_path, replace(alps, network=rails), rank)
        assert f"tcp_if_include={','.join(nics)}\n" in said and f"tcp_latency_{nic}=1\n" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be less nice")
def test_ranks_get_a_core_before_others(tmp_path: Path) -> None:
    said = told(tmp_path, "alps", 0, "nice; cat /proc/self/autogroup 2> /dev/null || true").splitlines()
    assert [line for line in said if line.lstrip("-").isdigit()] == ["-15"]
    assert all(line.endswith("nice -15") for line in said if line.startswith("/autogroup"))
