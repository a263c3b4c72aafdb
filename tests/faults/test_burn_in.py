"""A load on the emulated cluster: a node that is slow under load alone is named. Needs root."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabricheck.suite import suite_root
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.matrix, pytest.mark.timeout(600)]


def test_a_node_that_is_slow_under_load_alone_is_named(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    site = Site(cluster, tmp_path, programs)
    shutil.copy(suite_root() / "checks" / "burn_in.py", tmp_path / "checks")
    more = ("load_minutes=0.2", "node_state=no", "more_options=--inject=slow-product:2")
    done = site.run("one-leaf", "--", *(f"--setvar=BurnIn.{setting}" for setting in more), name="^BurnIn")
    assert any("[slow-node nid003]" in problem for problem in done.problems), done.output
    assert {name.partition("_")[0] for name in done.metrics} == {"allreduce", "product", "traffic", "copies"}
