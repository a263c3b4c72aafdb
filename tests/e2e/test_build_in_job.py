"""Where login and compute nodes differ, fabricbench is built in a job of the partition. Needs root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

# Says where it runs, and leaves a program that was built before.
CMAKE = """#!/bin/sh
case $1 in
-S) hostname >>"{where}" ;;
--build) cp "{program}" fabricbench ;;
esac
"""


def test_a_partition_that_says_so_has_it_built_on_its_nodes(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    """With a stand-in for CMake alone: the job, the cache and what runs then are real."""
    (tmp_path / "suite").mkdir()
    site = Site(cluster, tmp_path / "suite", programs)
    settings = site.root / "site_configs" / "emulated" / "settings.py"
    extras = '"extras": {\n                        "tuning_profile"'
    assert extras in settings.read_text()
    settings.write_text(settings.read_text().replace(extras, extras.replace("{", '{"build_in_job": True,')))
    where, cmake = tmp_path / "where", tmp_path / "bin" / "cmake"
    cmake.parent.mkdir()
    cmake.write_text(CMAKE.format(where=where, program=programs / "openmpi" / "fabricbench"))
    cmake.chmod(0o755)
    command = [sys.executable, "-m", "fabricheck", "run", "--system=emulated:pair", "--environment=openmpi"]
    command += ["--name=NodePairs", "--no-store", f"--output={tmp_path / 'output'}"]
    command += [
        "--",
        "--setvar=NodePairs.warmup=1",
        "--setvar=NodePairs.sizes=host:512KiB",
        "--setvar=NodePairs.node_state=no",
    ]
    script = f'{site.enter} PATH="{cmake.parent}:$PATH" FABRICHECK_CACHE="{tmp_path / "cache"}"; exec "$@"'
    done = cluster.run(["sh", "-c", script, "sh", *command], timeout_s=240)
    (host,) = where.read_text().split() if where.exists() else [f"nowhere: {done.stdout}{done.stderr}"]
    assert host in cluster.layout.network.nodes, done.stdout + done.stderr
    assert len(list((tmp_path / "cache").glob("fabricbench-*/installed/fabricbench"))) == 1
    assert list((tmp_path / "output" / "runs").glob("*/output/**/NodePairs*/result.jsonl")), done.stdout + done.stderr
