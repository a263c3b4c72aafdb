"""`fabricheck run` as a user calls it: its exit status and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.store.reading import history
from tests.support.toy import ToySuite

pytestmark = pytest.mark.e2e


def fabricheck_run(toy: ToySuite, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fabricheck", "run", "--system", "toy", *options]
    return subprocess.run(command, cwd=toy.suite.root / "checks", capture_output=True, text=True, check=False)


def test_a_good_run_passes_and_is_stored(toy: ToySuite) -> None:
    job = fabricheck_run(toy)
    assert job.returncode == 0, job.stdout + job.stderr
    (folder,) = toy.output.glob("runs/toy-*")
    assert job.stdout.splitlines()[-1] == f"PASS: the report is {folder / 'report.html'}"
    assert "PASS" in (folder / "report.html").read_text()
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "PASS"
    assert 'failures="0"' in (folder / "junit.xml").read_text()
    assert 'fabricheck_exit_status{system="toy"} 0.0' in (folder / "metrics.prom").read_text()
    found = history(toy.output / "store", system="toy")
    assert found.height == 2
    assert found["test"].unique().to_list() == ["Measures"]
    assert found["tags"].to_list() == [["toy"], ["toy"]]
    assert json.loads(found["software"][0])["suite"]
    report = json.loads((folder / "reframe.json").read_text())
    assert found["session"].unique().to_list() == [report["session_info"]["uuid"]]


def test_a_folder_that_is_no_store_is_refused_before_anything_runs(toy: ToySuite) -> None:
    store = toy.suite.root / "precious"
    store.mkdir()
    (store / "thesis.tex").touch()
    job = fabricheck_run(toy, "--store", str(store))
    assert job.returncode == 2
    assert "is not a store" in job.stderr
    assert not list(toy.output.glob("runs/*"))


def test_a_mistake_in_a_file_is_one_line_before_anything_runs(toy: ToySuite) -> None:
    path = toy.suite.root / "config/policy.yaml"
    path.write_text(path.read_text() + "colour: red\n")
    job = fabricheck_run(toy)
    assert job.returncode == 2
    (line,) = job.stderr.splitlines()
    assert line.startswith(f"fabricheck: {path}:")
    assert "colour: is an unknown field" in line
    assert not list(toy.output.glob("runs/*"))


def test_the_checks_that_would_run_are_listed(toy: ToySuite) -> None:
    job = fabricheck_run(toy, "--list")
    assert job.returncode == 0, job.stderr
    assert job.stdout == "Measures @toy:default+none\n"
    assert "1 test: 1 have neither an earlier run nor a plan" in job.stderr
    assert not list(toy.output.glob("runs/*"))
    assert not (toy.output / "store").exists()


def test_a_list_without_room_for_it_is_one_line_and_no_verdict(toy: ToySuite) -> None:
    """ReFrame logs into the output, goes on where it cannot, and prints a traceback for each line that it lost."""
    command = [sys.executable, "-m", "fabricheck", "run", "--system", "toy", "--list"]
    # No file may have more than 512 B, which needs no full file system: EFBIG comes where ENOSPC would.
    # Nor do Python's own files, which older versions leave cut off there (CPython issue 126606).
    full = ["sh", "-c", 'ulimit -f 1 && PYTHONDONTWRITEBYTECODE=1 exec "$@"', "sh", *command]
    for more, said in (
        ([], f"cannot write below {toy.output}: File too large: choose another folder with --output"),
        (["--", "--nosuch"], "unrecognized arguments: --nosuch; its output could not be stored in "),
    ):
        job = subprocess.run([*full, *more], cwd=toy.suite.root, capture_output=True, text=True, check=False)
        assert (job.returncode, job.stdout) == (2, "")
        (line,) = job.stderr.splitlines()
        assert line.startswith("fabricheck: ")
        assert said in line, line
    with Path("/dev/full").open("w") as out:
        job = subprocess.run(command, cwd=toy.suite.root, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert job.returncode == 2
    assert job.stderr == "fabricheck: cannot write the output: No space left on device\n"


@pytest.mark.full
def test_a_system_that_the_store_cannot_name_is_refused_before_anything_runs(toy: ToySuite) -> None:
    """Its results would be lost to the store, and somebody would see that when all was measured."""
    long = 120 * "s"
    folder = toy.suite.root / "site_configs" / "toy"
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("toy", long))
    folder.rename(folder.with_name(long))
    job = fabricheck_run(toy, "--system", long)
    assert job.returncode == 2
    (line,) = job.stderr.splitlines()
    assert "cannot be the name of a system in the store: use letters, digits, . _ and -, 100 at most" in line
    assert not list(toy.output.glob("runs/*"))
    assert fabricheck_run(toy, "--system", long, "--no-store").returncode == 0


@pytest.mark.parametrize("options", [["--tag", "none such"], ["--system", "nowhere"]])
def test_a_mistake_is_one_line_without_a_traceback(toy: ToySuite, options: list[str]) -> None:
    job = fabricheck_run(toy, *options)
    assert job.returncode == 2
    assert job.stdout == ""
    (line,) = job.stderr.splitlines()
    assert line.startswith("fabricheck: ")
