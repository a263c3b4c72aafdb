"""A small suite of its own for tests of the driver: one check that needs neither MPI nor a compiler."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck.suite import Suite, suite_root
from tests.support.files import replace

SETTINGS = """
site_configuration = {
    "systems": [{"name": "toy", "hostnames": [".*"], "partitions": [
        {"name": "default", "scheduler": "local", "launcher": "local", "environs": ["none"], "max_jobs": 1,
         "processor": {"num_cpus": 1}}]}],
    "environments": [{"name": "none", "target_systems": ["toy"]}],
}
"""
TOPOLOGY = "system: toy\ndescription: this machine\ncpus: [{name: cpu0}]\nhost_memory: measured\n"
CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Measures(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    tags = {"toy"}
    executable = "cat RESULT > result.jsonl; true"
    keep_files = ["result.jsonl"]

    @sanity_function
    def is_fine(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""


@dataclass(frozen=True)
class ToySuite:
    """`result` is the file that the check leaves as its measurement."""

    suite: Suite
    check: Path
    result: Path

    @property
    def output(self) -> Path:
        return self.suite.root / "output"

    def plant(self, old: str, new: str) -> None:
        """Changes the check; what is replaced has to be there."""
        replace(self.check, old, new)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToySuite:
    """The suite, which commands use; it has measured what two ranks of the host backend could have."""
    made = make_toy(tmp_path)
    monkeypatch.setenv("FABRICHECK_SUITE", str(made.suite.root))
    return made


def make_toy(folder: Path) -> ToySuite:
    root = folder / "suite"
    for name in ("checks", "config", "site_configs/toy", "reference_values"):
        (root / name).mkdir(parents=True)
    for file in ("config/common.py", "config/policy.yaml", "config/tuning.yaml", "config/vendor.yaml"):
        shutil.copy(suite_root() / file, root / file)
    (root / "site_configs" / "toy" / "settings.py").write_text(SETTINGS)
    (root / "site_configs" / "toy" / "topology.yaml").write_text(TOPOLOGY)
    result = folder / "measured.jsonl"
    shutil.copy(suite_root() / "tests" / "data" / "fabricbench" / "synthetic_host_2ranks.jsonl", result)
    check = root / "checks" / "check.py"
    check.write_text(CHECK.replace("RESULT", str(result)))
    return ToySuite(Suite(root), check, result)
