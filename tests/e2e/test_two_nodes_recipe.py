"""The recipe of docs/results/two-gpu-nodes on this machine: two network namespaces, host backend, real Open MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabricheck.suite import suite_root
from fabricheck_lab.cluster import require_machine
from tests.support.cluster import programs

__all__ = ["programs"]

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

RECIPE = suite_root() / "docs" / "results" / "two-gpu-nodes" / "recipe"


@pytest.fixture
def verdicts(programs: Path, tmp_path: Path) -> dict[str, Any]:
    """The verdict of a healthy run, of one whose data take the management network, and of a network that drops what one
    node sends to the other."""
    require_machine()
    steps = ("green", "management", "blocked")
    environment = {
        **os.environ,
        **{"UNBOUND": "1", "RATE": "500mbit", "TIMES": "1", "LIMIT": "400"},
        **{"BUILT": str(programs), "RES": str(tmp_path / "res"), "DUO_AT": str(tmp_path / "duo")},
    }
    try:
        subprocess.run(["bash", RECIPE / "run.sh", *steps], env=environment, cwd=suite_root(), check=True, timeout=500)
    finally:
        subprocess.run(["sh", RECIPE / "net.sh", "down"], check=False)
        shutil.rmtree(tmp_path / "duo", ignore_errors=True)
    return {step: json.loads((tmp_path / "res" / step / "verdict.json").read_text()) for step in steps}


def test_both_nodes_are_measured_and_a_wrong_network_is_found(verdicts: dict[str, Any]) -> None:
    codes = {step: {each["code"] for each in verdict["problems"]} for step, verdict in verdicts.items()}
    assert verdicts["green"]["coverage"]["nodes"] == 2
    # A busy machine may be slow; what was measured, and where, is no question.
    assert verdicts["green"]["verdict"] in ("PASS", "DEGRADED", "FAIL")
    assert "wrong-network" not in codes["green"]
    assert verdicts["management"]["verdict"] == "INVALID"
    assert "wrong-network" in codes["management"]
    assert verdicts["blocked"]["verdict"] == "INCOMPLETE"
    assert "no-connection" in codes["blocked"]
