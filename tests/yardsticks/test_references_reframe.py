"""ReFrame itself reads the same file and finds the same values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabricheck.yardsticks.references import load_references

REFERENCES = """
$sources:
  run1: {kind: vendor, source: made up}
$provenance: {Indexed: run1, Scoped: run1}
Indexed:
  $index: ['$partition', transport, count]
  'here:gpu':
    ccl:
      2: {goodput: [100, -0.05, 0.05, Gb/s]}
      4: {goodput: [200, -0.05, 0.05, Gb/s]}
    mpi:
      2: {goodput: [$xfail, 'bug 123', [500, -0.05, 0.05, Gb/s]]}
    (x|y).*:
      2: {goodput: [300, -0.05, 0.05, Gb/s]}
    x.*:
      2: {goodput: [400, -0.05, 0.05, Gb/s]}
Scoped:
  '*': {goodput: [10, -0.05, 0.05, Gb/s], other: [11, -0.05, 0.05, Gb/s]}
  here: {goodput: [20, -0.05, 0.05, Gb/s]}
  'here:gpu': {goodput: [30, -0.05, 0.05, Gb/s]}
"""

CHECKS = """
import reframe as rfm
import reframe.utility.sanity as sn


class Base(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'true'
    sourcesdir = None
    reference = {'$ref': 'refs.yaml'}
    names = ['goodput']

    @sanity_function
    def fine(self):
        return True

    @run_before('performance')
    def measure(self):
        for name in self.names:
            self.perf_variables[name] = sn.make_performance_function(sn.defer(100.0), 'Gb/s')


@rfm.simple_test
class Indexed(Base):
    transport = parameter(['ccl', 'mpi', 'xpmem', 'yy', 'zz'])
    count = parameter([2, 4])


@rfm.simple_test
class Scoped(Base):
    names = ['goodput', 'other']


@rfm.simple_test
class Unknown(Base):
    pass
"""

SETTINGS = """
site_configuration = {
    'systems': [{'name': 'here', 'hostnames': ['.*'], 'partitions': [
        {'name': 'gpu', 'scheduler': 'local', 'launcher': 'local', 'environs': ['builtin']}]}],
    'environments': [{'name': 'builtin'}],
    'storage': [{'enable': False}],
}
"""


def run_reframe(folder: Path, references: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    (folder / "refs.yaml").write_text(references)
    (folder / "checks.py").write_text(CHECKS)
    (folder / "settings.py").write_text(SETTINGS)
    environment = {name: each for name, each in os.environ.items() if not name.startswith("RFM_")}
    environment |= {"RFM_REFERENCE_PREFIX": str(folder), "RFM_PREFIX": str(folder), "TMPDIR": str(folder)}
    report = folder / "report.json"
    command: list[str | Path] = [Path(sys.executable).parent / "reframe", "-C", folder / "settings.py"]
    command += ["-c", folder / "checks.py", "-r"]
    command += ["--report-file", report, "--nocolor"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    cases = json.loads(report.read_text())["runs"][-1]["testcases"] if report.exists() else []
    return done, cases


@pytest.mark.e2e
def test_reframe_finds_the_same_values(tmp_path: Path) -> None:
    _, cases = run_reframe(tmp_path, REFERENCES)
    assert len(cases) == 12
    references = load_references(tmp_path / "refs.yaml")
    seen = set()
    for case in cases:
        # value, reference, lower, upper, unit, result
        theirs = {name.rpartition(":")[2]: each[1:4] for name, each in case["perfvalues"].items()}
        assert theirs
        test = case["display_name"].split()[0]
        if test == "Unknown":
            assert theirs == {"goodput": [0, None, None]}  # the reason why a missing reference must be seen
            assert case["result"] == "pass"
            continue
        keys = {"$partition": "here:gpu"}
        parameters = dict(each.lstrip("%").split("=") for each in case["display_name"].split()[1:])
        found = references.of(test).lookup(
            {**keys, **{name: int(each) if each.isdigit() else each for name, each in parameters.items()}}
        )
        for name, (value, lower, upper) in theirs.items():
            ours = found.get(name)
            assert (value, lower, upper) == ((ours.value, ours.lower, ours.upper) if ours else (0, None, None))
            seen.add(value)
        if parameters == {"transport": "mpi", "count": "2"}:
            assert case["result"] == "xfail"
    assert seen == {0, 11, 30, 100, 200, 300, 500}


@pytest.mark.e2e
def test_reframe_refuses_provenance_in_the_value(tmp_path: Path) -> None:
    """Why provenance stands beside the references."""
    references = REFERENCES.replace("[100, -0.05, 0.05, Gb/s]", "[100, -0.05, 0.05, Gb/s, run1]")
    done, cases = run_reframe(tmp_path, references)
    assert not any(case["display_name"].startswith("Indexed") and case["result"] == "pass" for case in cases)
    assert "does not match type" in done.stdout + done.stderr
