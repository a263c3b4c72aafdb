"""One job over the eight nodes of the emulated cluster."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricheck.emulation import faults
from fabricheck.emulation.cluster import Cluster
from fabricheck.suite import suite_root
from tests.support.cluster import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

# As little as says something.
NODE = ("SmokeLibraries.ranks=2", "SmokeLibraries.sizes=host:64KiB", "SmokeLibraries.patience=8")
NETWORK = (
    *("FleetNetwork.budget=0.02", "FleetNetwork.least_iterations=4", "FleetNetwork.sizes=host:512KiB"),
    *("FleetNetwork.timeout=6", "FleetNetwork.patience=20"),
)
# What nodes of one machine measure of themselves is the machine's load.
_SPREAD = """
  - spread: 1.0
    source: eight nodes share the cores of one machine"""


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


def test_a_mistake_in_the_nodes_ends_before_anything_runs(fleet: Site, programs: Path) -> None:
    for nodes, said in (("nid0o1", "did you mean nid001?"), ("9", "has 8 nodes that can run a job")):
        answer = fleet.cluster.run(command(fleet, nodes, programs), timeout_s=60)
        assert answer.returncode == 2
        (line,) = answer.stderr.splitlines()
        assert said in line
    assert not (fleet.root / "output").exists()
    assert fleet.cluster.run(["squeue", "--noheader"], timeout_s=20).stdout == ""
