"""The checks through ReFrame with real MPI: green where all is well, red where a defect was planted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.session import Case, read_cases
from fabricheck.suite import suite_root

pytestmark = pytest.mark.e2e

REFERENCES = """
$sources:
  planted: {kind: vendor, source: made up for a test}
$provenance:
  Planted: planted
Planted:
  $index: [defect]
  reference_missed:
    pingpong_uncontended_0_1_64kib_goodput: [900000.0, -0.1, 0.1, Gb/s]
  reference_in_another_unit:
    pingpong_uncontended_0_1_64kib_goodput: [90.0, -0.1, 0.1, GB/s]
"""


@dataclass(frozen=True)
class Finished:
    """A run of `fabricheck run`: its exit status, what it said, and the cases by a name for each."""

    status: int
    output: str
    folder: Path
    cases: dict[str, Case]


def run(root: Path, tag: str, *options: str) -> Finished:
    command = [sys.executable, "-m", "fabricheck", "run", "--system", "local", f"--tag={tag}", f"--output={tag}"]
    job = subprocess.run([*command, *options], cwd=root, capture_output=True, text=True, check=False, timeout=300)
    folders = list((root / tag / "runs").glob("local-*"))
    assert len(folders) == 1, job.stdout + job.stderr
    cases = {}
    for case in read_cases(folders[0] / "reframe.json"):
        cases[f"{case.attributes.get('defect', case.test)}@{case.environment}"] = case
    return Finished(job.returncode, job.stdout + job.stderr, folders[0], cases)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite whose checks are those of planted.py; everything else is this repository's."""
    root = tmp_path_factory.mktemp("suite")
    (root / "checks").mkdir()
    shutil.copy(Path(__file__).with_name("planted.py"), root / "checks")
    shutil.copytree(suite_root() / "config", root / "config")
    shutil.copytree(suite_root() / "site_configs" / "local", root / "site_configs" / "local")
    (root / "src").symlink_to(suite_root() / "src")
    (root / "reference_values").mkdir()
    (root / "reference_values" / "local.yaml").write_text(REFERENCES)
    if len(mpi.find_all()) < len(mpi.NAMES):
        pytest.skip("needs Open MPI and MPICH: `make test` brings both")
    return root


@pytest.fixture(scope="module")
def planted(suite: Path) -> Finished:
    return run(suite, "planted")


def test_what_is_healthy_is_green(suite: Path) -> None:
    done = run(suite, "healthy", "--", "-S", f"Healthy.ranks={max(2, min(mpi.physical_cores(), 4))}")
    assert done.status == 0, done.output
    assert {name for name in done.cases if name.startswith("Healthy")} == {
        "Healthy@openmpi",
        "Healthy@mpich",
        "HealthyFour@openmpi",
    }
    assert all(case.result == "pass" for case in done.cases.values())
    assert "PASS" in (done.folder / "report.html").read_text()
    report = json.loads((done.folder / "reframe.json").read_text())
    metrics = {
        each["name"].split()[0]: each["perfvalues"] for each in report["runs"][0]["testcases"] if not each["fixture"]
    }
    # 12 ordered pairs alone and 12 in rounds, 6 and 6 unordered ones, 6 collectives; each with goodput and latency, but
    # for reduce_scatter, of which four ranks have no 8 B.
    assert len(metrics["HealthyFour"]) == 2 * (24 + 12 + 6) - 1
    units = {name.rsplit("_", 1)[1]: value[4] for name, value in metrics["HealthyFour"].items()}
    assert units == {"goodput": "Gb/s", "latency": "us"}


def test_a_run_with_defects_is_red(planted: Finished) -> None:
    assert planted.status == 5, planted.output
    assert "INVALID" in planted.output.splitlines()[-1]
    assert (planted.folder / "report.html").exists()


@pytest.mark.parametrize(
    ("defect", "verdict", "said"),
    [
        ("wrong_byte", "FAIL", "wrong"),
        ("hung_rank", "INCOMPLETE", "rank 1 did not arrive"),
        ("killed_rank", "INCOMPLETE", ""),
        ("crashed_rank", "INCOMPLETE", "rank 1 was ended by signal 11"),
        ("no_footer", "INCOMPLETE", "footer"),
        ("truncated_file", "INCOMPLETE", ""),
        ("empty_file", "INVALID", ""),
        ("missing_file", "INCOMPLETE", "left no results"),
        ("not_a_number", "INVALID", "NaN"),
        ("infinite", "INVALID", "Infinity"),
        ("impossible_value", "INVALID", ""),
        ("zero_time", "INVALID", ""),
        ("renamed_operation", "INVALID", "operation"),
        ("duplicated_line", "INVALID", "doubled"),
        ("reordered_lines", "INVALID", "moved"),
        ("stale_file", "INVALID", "2020-01-01"),
        ("another_transport", "INVALID", "copy"),
        ("bad_exit_status", "INCOMPLETE", "exit status 1"),
        ("no_exit_status", "INCOMPLETE", "no exit status"),
        ("fewer_ranks", "INCOMPLETE", "--expect-ranks asks for 2"),
        ("tuning_not_in_effect", "INVALID", "NCCL_IGNORE_CPU_AFFINITY"),
        ("reference_missed", "DEGRADED", "of the reference"),
        ("reference_in_another_unit", "INVALID", "GB/s"),
    ],
)
def test_a_planted_defect_is_named(planted: Finished, defect: str, verdict: str, said: str) -> None:
    case = planted.cases[f"{defect}@openmpi"]
    assert case.result == "fail"
    reason = (case.reason or "").splitlines()[0]
    assert f"error: {verdict}: " in reason
    assert said in reason


def test_every_defect_is_looked_at(planted: Finished) -> None:
    (marks,) = (each for each in test_a_planted_defect_is_named.pytestmark if each.name == "parametrize")  # type: ignore[attr-defined]
    looked_at = {case[0] for case in marks.args[1]}
    assert {name.partition("@")[0] for name, case in planted.cases.items() if not case.is_build} == looked_at


def test_a_program_that_was_built_before(suite: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fabricheck", "run", "--system=local", "--tag=healthy", "--environment=mpich"]
    job = subprocess.run(
        [*command, f"--built={tmp_path}", f"--output={tmp_path}"],
        cwd=suite,
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 4, job.stdout + job.stderr
    assert f"there is no program {tmp_path / 'mpich' / 'fabricbench'}" in " ".join(job.stdout.split())


def test_plain_reframe_passes_what_this_suite_does_not(suite: Path) -> None:
    done = run(suite, "plain")
    # The program failed and its metric cannot be read: ReFrame says nothing of the one, and warns of the other.
    assert done.cases["PlainReframe@openmpi"].result == "pass"
    assert done.status == 4, done.output
    assert "passed without leaving a result file" in " ".join(done.output.split())
