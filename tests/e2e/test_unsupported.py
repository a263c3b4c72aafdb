"""What a machine does not support, by the real ReFrame and a benchmark that says so: missing, or as the site has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.problems import problems_of_cases
from fabricheck.session.reframe import Selection
from fabricheck.session.suite_run import Launcher
from tests.support.toy import ToySuite

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SETTINGS = """
site_configuration = {
    "systems": [{"name": "toy", "hostnames": [".*"], "partitions": [
        {"name": "default", "scheduler": "local", "launcher": "local", "environs": ["none"], "max_jobs": 1,
         "features": ["gpu"], "devices": [{"type": "gpu", "arch": "sm_90", "num_devices": 4}],
         "processor": {"num_cpus": 1}, "extras": {EXTRAS}}]}],
    "environments": [{"name": "none", "features": ["mpi", "nccl"], "target_systems": ["toy"],
                      "extras": {"backend": "cuda"}}],
}
"""
REASON = "nid001: all memory is on one NUMA node, so none is remote"
NOTHING: dict[str, Any] = {"operation": None, "bytes": None, "missing_ranks": []}
ERROR = {"record": "error", "run_id": "0" * 32, "kind": "unsupported", "message": REASON, **NOTHING}


def told(toy: ToySuite, extras: str) -> tuple[list[Finding], list[Finding]]:
    root = toy.suite.root
    (root / "site_configs/toy/settings.py").write_text(SETTINGS.replace("EXTRAS", extras), encoding="utf-8")
    shutil.copy(ROOT / "checks/memory_paths.py", toy.check)
    program = root / "built/none/fabricbench"
    program.parent.mkdir(parents=True, exist_ok=True)
    said = json.dumps(ERROR)
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho '{said}' > result.jsonl\nexit 6\n", encoding="utf-8"
    )
    program.chmod(0o755)
    built: Path = program.parent.parent
    selection = Selection(
        "toy",
        names=("HostNuma %host_numa=remote",),
        more=(f"--setvar=BuildFabricbench.prebuilt={built}",),
        jobs="one-by-one",
    )
    session = Launcher(toy.suite, toy.output).run(selection)
    told = (*session.problems, *problems_of_cases(session.cases))
    problems = [each for each in told if "HostNuma" in each.message]
    return problems, [each for each in session.findings if "HostNuma" in each.message]


def test_what_nobody_declared_leaves_the_run_incomplete(toy: ToySuite) -> None:
    (problem,), findings = told(toy, "'unsupported': {'host_memory=managed': 'another reason'}")
    assert (problem.verdict, findings) == (Verdict.INCOMPLETE, [])
    assert problem.code == "not-measured" and REASON in problem.message


def test_what_the_site_declares_does_not_apply(toy: ToySuite) -> None:
    problems, (finding,) = told(toy, "'unsupported': {'host_numa=remote': 'one NUMA node'}")
    assert problems == []
    assert "does not apply: this node cannot run it: " in finding.message
    assert f"{REASON}, as the site declares (host_numa=remote: one NUMA node)" in finding.message
