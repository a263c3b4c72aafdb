"""What ranks on emulated GPUs are told before they start. No cluster is built here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck.topology.model import find_topology
from fabricheck_lab.rehearsal import prolog

SITES = suite_root() / "site_configs"


def told(tmp_path: Path, system: str, rank: int, then: str = "true") -> str:
    """What a rank of a node with four is told, in a session of its own, and what a command says there afterwards."""
    file = tmp_path / "prolog.sh"
    file.write_text(prolog(find_topology(system, SITES), "test", tmp_path), encoding="utf-8")
    command = ["setsid", "--wait", "sh", "-c", f"sh {file}; {then}"]
    variables = {**os.environ, "SLURM_NTASKS_PER_NODE": "4", "SLURM_LOCALID": str(rank)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("system, nics", [("alps", "hsn0 hsn1 hsn2 hsn3"), ("sierra", "ib0 ib1 ib0 ib1")])
def test_each_rank_has_a_nic_also_where_nobody_says_which(tmp_path: Path, system: str, nics: str) -> None:
    for rank, nic in enumerate(nics.split()):
        assert f"export OMPI_MCA_btl_tcp_if_include={nic}\n" in told(tmp_path, system, rank)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be less nice")
def test_ranks_get_a_core_before_others(tmp_path: Path) -> None:
    said = told(tmp_path, "alps", 0, "nice; cat /proc/self/autogroup 2> /dev/null || true").splitlines()
    assert [line for line in said if line.lstrip("-").isdigit()] == ["-15"]
    assert all(line.endswith("nice -15") for line in said if line.startswith("/autogroup"))
