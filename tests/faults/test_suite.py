"""Faults of the suite and of what ReFrame keeps, in a suite of one check that leaves a recorded result."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck.records.verdict import Verdict
from fabricheck_lab.network_suite import line_of
from tests.faults.matrix import Outcome, settle
from tests.support.toy import ToySuite

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "fabricbench"


@dataclass(frozen=True)
class Finished:
    """A run of `fabricheck run`. `lines`: its problems, the worst first, or what it refused."""

    status: int
    verdict: str | None
    lines: tuple[str, ...]
    results: tuple[Path, ...]


def run(toy: ToySuite) -> Finished:
    known = set(toy.output.glob("runs/*"))
    command = [sys.executable, "-m", "fabricheck", "run", "--system=toy", "--no-store"]
    job = subprocess.run(command, cwd=toy.suite.root, capture_output=True, text=True, check=False, timeout=300)
    assert "Traceback" not in job.stdout + job.stderr, job.stdout + job.stderr
    made = set(toy.output.glob("runs/*")) - known
    written = [json.loads(file.read_text()) for folder in made for file in folder.glob("verdict.json")]
    results = tuple(file for folder in made for file in folder.rglob("result.jsonl"))
    if not written:
        return Finished(job.returncode, None, tuple(job.stderr.strip().splitlines()), results)
    (verdict,) = written
    lines = [line_of(one) for one in verdict["problems"]]
    for measured in verdict["runs"]:
        lines += map(line_of, measured["problems"])
    return Finished(job.returncode, verdict["verdict"], tuple(lines), results)


def expect(done: Finished, fault: str, how: str, verdict: Verdict | None, said: str) -> None:
    line = next((each for each in done.lines if said in each), "\n".join(done.lines))
    settle(Outcome(fault, how, done.verdict, done.status, line), verdict, said)


def test_a_check_file_is_missing(toy: ToySuite) -> None:
    """Its tests have references, so they were there once."""
    (toy.suite.root / "reference_values" / "toy.yaml").write_text(
        "$sources:\n  planted: {kind: vendor, source: made up for a test}\n$provenance:\n  Gone: planted\n"
        "Gone:\n  toy:default:\n    any_goodput: [100.0, -0.1, 0.1, Gb/s]\n"
        "$uncalibrated: {'*': nothing else is compared}\n"
    )
    expect(run(toy), "a check file is missing", "a test with references is in no file", Verdict.INCOMPLETE, "Gone")


def test_a_check_that_cannot_be_imported(toy: ToySuite) -> None:
    (toy.check.parent / "broken.py").write_text("import no_such_module\n" + toy.check.read_text())
    expect(run(toy), "a check file cannot be imported", "import of an unknown module", None, "no_such_module")


def test_a_job_runs_out_of_time(toy: ToySuite) -> None:
    toy.plant("; true", "; sleep 60")
    toy.plant("    sourcesdir = None\n", "    sourcesdir = None\n    time_limit = '2s'\n")
    done = run(toy)
    expect(done, "the job runs out of its time", "a check that sleeps", Verdict.INCOMPLETE, "time")
    # What was measured before is still there.
    assert [file.read_text() for file in done.results] == [toy.result.read_text()]


@pytest.mark.full
def test_two_ranks_on_one_device(toy: ToySuite) -> None:
    """A stand-in: the recorded result of a GPU node, in which a rank's device was changed to another's."""
    lines = (DATA / "synthetic_cuda_4ranks.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    header["ranks"][1]["device"] = header["ranks"][0]["device"]
    toy.result.write_text("\n".join([json.dumps(header), *lines[1:], ""]))
    topology = (ROOT / "site_configs" / "hgx-h200" / "topology.yaml").read_text()
    file = toy.suite.root / "site_configs" / "toy" / "topology.yaml"
    file.write_text(topology.replace("system: hgx-h200", "system: toy"))
    done = run(toy)
    expect(done, "two ranks drive one device", "the result file was edited", Verdict.INVALID, "device")


@pytest.mark.full
def test_the_clock_jumps(toy: ToySuite) -> None:
    """A stand-in: a clock cannot be set back without disturbing all else that runs."""
    lines = toy.result.read_text().splitlines()
    footer = json.loads(lines[-1])
    footer["wall_ns"] = footer["timed_ns"] // 2
    toy.result.write_text("\n".join([*lines[:-1], json.dumps(footer), ""]))
    done = run(toy)
    expect(done, "the clock jumps during the run", "the result file was edited", Verdict.INVALID, "are more than")
