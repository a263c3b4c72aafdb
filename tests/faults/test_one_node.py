"""The checks through ReFrame with real MPI: green where all is well, red where a defect was planted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.records.verdict import EXIT_CODES, Verdict
from fabricheck.session.outcome import judge_session
from fabricheck.session.reframe_report import FinishedSession, read_cases
from fabricheck.suite import Suite, suite_root
from tests.e2e.test_vendor import Finished
from tests.faults.matrix import NO_COUNTERPART, NOTICES, PASSES, Outcome, settle
from tools import build

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]

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


def run(root: Path, tag: str, *options: str) -> Finished:
    command = [sys.executable, "-m", "fabricheck", "run", "--system", "local", f"--tag={tag}", f"--output={tag}"]
    command.append(f"--built={root / 'built'}")
    job = subprocess.run(
        [*command, *options],
        cwd=root,
        env={**os.environ, "FABRICHECK_SUITE": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
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
    (root / "built").mkdir()
    for name in mpi.NAMES:
        (root / "built" / name).symlink_to(build.build(f"host-{name}", tests=False))
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
    # Of two operations 6 pairs alone and 6 in rounds, 6 collectives; each with goodput and latency, but for
    # reduce_scatter, of which four ranks have no 8 B.
    assert len(metrics["HealthyFour"]) == 2 * (24 + 6) - 1
    units = {name.rsplit("_", 1)[1]: value[4] for name, value in metrics["HealthyFour"].items()}
    assert units == {"goodput": "Gb/s", "latency": "us"}


def test_a_run_with_defects_is_red(planted: Finished) -> None:
    assert planted.status == 5, planted.output
    assert planted.output.splitlines()[-2].startswith("INVALID: ")
    assert (planted.folder / "report.html").exists()


def test_reframe_itself_reports_the_bound_that_judged(planted: Finished) -> None:
    """So that `--performance-report` and what reads the performance logs see what we see, and nothing else."""
    report = json.loads((planted.folder / "reframe.json").read_text())
    cases = {each.get("defect"): each["perfvalues"] for each in report["runs"][0]["testcases"]}
    found = cases["reference_missed"]["local:default:pingpong_uncontended_0_1_64kib_goodput"]
    assert found[1:] == [900000.0, -0.1, 0.1, "Gb/s", "fail"]
    others = [values for name, values in cases["reference_missed"].items() if values is not found]
    assert others and all(values[-1] == "pass" for values in others)
    (log,) = (planted.folder.parent.parent / "perflogs").rglob("Planted.log")
    (line,) = [each for each in log.read_text().splitlines() if "reference_missed" in each]
    assert f"|{found[0]}|Gb/s|900000.0|-0.1|0.1|" in line


@dataclass(frozen=True)
class Planted:
    """A defect of planted.py: what is broken for the user, how it was planted, and what has to come of it."""

    fault: str
    how: str
    verdict: Verdict
    said: str


INJECTED = "the benchmark's own --inject"
EDITED = "the result file was edited"

PLANTED = {
    "wrong_byte": Planted("a byte arrives wrong", INJECTED, Verdict.FAIL, "wrong"),
    "hung_rank": Planted("a rank hangs", INJECTED, Verdict.INCOMPLETE, "rank 1 did not arrive"),
    "killed_rank": Planted("a rank is killed", INJECTED, Verdict.INCOMPLETE, ""),
    "crashed_rank": Planted("a rank crashes", INJECTED, Verdict.INCOMPLETE, "rank 1 was ended by signal 11"),
    "no_footer": Planted("the end of the results is missing", INJECTED, Verdict.INCOMPLETE, "footer"),
    "truncated_file": Planted("the result file is cut off", EDITED, Verdict.INCOMPLETE, ""),
    "empty_file": Planted("the result file is empty", EDITED, Verdict.INCOMPLETE, "left no results"),
    "missing_file": Planted("the result file is missing", "it was removed", Verdict.INCOMPLETE, "left no results"),
    "not_a_number": Planted("a time is NaN", EDITED, Verdict.INVALID, "NaN"),
    "infinite": Planted("a time is infinite", EDITED, Verdict.INVALID, "Infinity"),
    "impossible_value": Planted("a value is above what is possible", EDITED, Verdict.INVALID, ""),
    "zero_time": Planted("a time is zero", EDITED, Verdict.INVALID, ""),
    "renamed_operation": Planted("an operation has an unknown name", EDITED, Verdict.INVALID, "operation"),
    "duplicated_line": Planted("a result is there twice", EDITED, Verdict.INVALID, "repeated"),
    "reordered_lines": Planted("results are out of order", EDITED, Verdict.INVALID, "moved"),
    "interleaved_lines": Planted("two runs wrote into one file", EDITED, Verdict.INVALID, ""),
    "stale_file": Planted("the results are those of an earlier run", EDITED, Verdict.INVALID, "2020-01-01"),
    "clock_behind": Planted(
        "the clock of rank 0's node is an hour behind", EDITED, Verdict.DEGRADED, "behind that of the check"
    ),
    "another_mpi": Planted("the header names another version of MPI", EDITED, Verdict.INVALID, "9.9.9"),
    "another_transport": Planted("another transport was measured", EDITED, Verdict.INVALID, "copy"),
    "bad_exit_status": Planted("the benchmark fails after measuring", EDITED, Verdict.INCOMPLETE, "exit status 1"),
    "no_exit_status": Planted(
        "the job ends before the benchmark", "its exit status was removed", Verdict.INCOMPLETE, "no exit status"
    ),
    "ended_afterwards": Planted(
        "the job is ended after all was measured",
        "its exit status was removed",
        Verdict.INCOMPLETE,
        "after all was measured",
    ),
    "launcher_killed": Planted(
        "the launcher is killed after all was measured",
        "its exit status was edited",
        Verdict.INCOMPLETE,
        "the launcher was ended by SIGKILL",
    ),
    "fewer_ranks": Planted(
        "the launcher starts fewer ranks", "one rank was started", Verdict.INCOMPLETE, "--expect-ranks asks for 2"
    ),
    "wrong_module": Planted(
        "the wrong module is loaded",
        "one rank, and PMI_SIZE=2 of another launcher",
        Verdict.INCOMPLETE,
        "the launcher started 2 ranks and MPI sees 1",
    ),
    "tuning_not_in_effect": Planted(
        "a tuning variable is misspelt",
        "a variable that is not set was asked for",
        Verdict.INVALID,
        "NCCL_IGNORE_CPU_AFFINITY",
    ),
    "reference_missed": Planted(
        "the goodput is below the reference", "the reference was raised", Verdict.DEGRADED, "below the reference"
    ),
    "reference_in_another_unit": Planted(
        "the reference is in another unit", "it was given in GB/s", Verdict.INVALID, "GB/s"
    ),
}

# Of the same defect in a test of plain ReFrame.
COUNTERPARTS = {
    name: name for name in ("wrong_byte", "hung_rank", "killed_rank", "crashed_rank", "no_footer", "fewer_ranks")
}
COUNTERPARTS |= {"bad_exit_status": "program_fails"}


@pytest.fixture(scope="module")
def plain(suite: Path) -> Finished:
    return run(suite, "plain")


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_named(suite: Path, planted: Finished, request: pytest.FixtureRequest, defect: str) -> None:
    expected = PLANTED[defect]
    case = planted.cases[f"{defect}@openmpi"]
    assert case.result == "fail"
    # As if this case had been the only one.
    alone = FinishedSession.of(planted.folder, [case], listed=1, status=1)
    verdict = judge_session(alone, Suite(suite), "local").verdict
    line = (case.reason or "").splitlines()[0].partition("error: ")[2]
    assert line.startswith(f"{verdict.value}: ")
    # What plain ReFrame makes of it is for the document alone.
    plain = request.getfixturevalue("plain").cases if "FABRICHECK_FAULT_RECORDS" in os.environ else {}
    counterpart = plain.get(f"{COUNTERPARTS.get(defect)}@openmpi")
    reframe = NO_COUNTERPART if counterpart is None else (PASSES if counterpart.result == "pass" else NOTICES)
    settle(
        Outcome(expected.fault, expected.how, verdict.value, EXIT_CODES[verdict], line, reframe),
        expected.verdict,
        expected.said,
    )


def test_every_defect_is_looked_at(planted: Finished) -> None:
    assert {name.partition("@")[0] for name, case in planted.cases.items() if not case.is_build} == set(PLANTED)


def test_a_program_that_was_built_before(suite: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fabricheck", "run", "--system=local", "--tag=healthy", "--environment=mpich"]
    job = subprocess.run(
        [*command, f"--built={tmp_path}", f"--output={tmp_path}"],
        cwd=suite,
        env={**os.environ, "FABRICHECK_SUITE": str(suite)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 4, job.stdout + job.stderr
    (verdict,) = tmp_path.glob("runs/*/verdict.json")  # on the terminal a long path is cut
    assert str(tmp_path / "mpich" / "fabricbench") in verdict.read_text()
