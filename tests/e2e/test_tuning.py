"""Settings of Open MPI on and off by turns on this machine: one that truly hurts, and one that nobody reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci import build
from fabricheck import mpi
from fabricheck.results.rounds import FOLDER, launches
from fabricheck.session import Case, read_cases
from fabricheck.store import history
from fabricheck.suite import suite_root

pytestmark = pytest.mark.e2e

ROUNDS = 4
# Messages through the loopback interface and not through shared memory; and a variable of another MPI library.
HURTS, UNREAD = ("OMPI_MCA_btl", "tcp,self"), ("MPICH_GPU_IPC_THRESHOLD", "1")
PROFILE = """
  by-turns:
    description: made up for a test
    settings:
"""
SETTING = """
      - {{variable: {0}, value: "{1}", library: mpi, systems: [local], effect: for a test, source: made up}}
"""


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    folder: Path
    problems: dict[str, str]

    def said(self, of: str) -> str:
        (line,) = [message for message in self.problems if message.startswith(of)]
        return line

    @property
    def cases(self) -> list[Case]:
        return [case for case in read_cases(self.folder / "reframe.json") if not case.is_build]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's tuning checks on `local` with a profile; 99.9% intervals, as a test is no place for chance."""
    if mpi.find("openmpi") is None:
        pytest.skip("needs Open MPI: `make test` brings it")
    root = tmp_path_factory.mktemp("suite")
    for folder in ("checks", "reference_values", "built"):
        (root / folder).mkdir()
    shutil.copy(suite_root() / "checks" / "tuning.py", root / "checks")
    for folder in ("config", "site_configs/local"):
        shutil.copytree(suite_root() / folder, root / folder)
    edit(root / "config" / "policy.yaml", "confidence: 0.95", "confidence: 0.999")
    with (root / "config" / "tuning.yaml").open("a") as file:
        file.write(PROFILE + "".join(SETTING.format(*one) for one in (HURTS, UNREAD)))
    edit(root / "site_configs" / "local" / "settings.py", '"default", "topology"', '"by-turns", "topology"')
    (root / "src").symlink_to(suite_root() / "src")
    (root / "built" / "openmpi").symlink_to(build.build("host-openmpi"))
    return root


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def run(suite: Path, name: str, *options: str) -> Finished:
    output = suite / name
    command = [sys.executable, "-m", "fabricheck", "run", "--system=local", "--tag=tuning", "--environment=openmpi"]
    command += [f"--built={suite / 'built'}", f"--output={output}", f"--store={suite / 'store'}", *options, "--"]
    for variable in (f"rounds={ROUNDS}", "ranks=2", "budget=0.03"):
        command.append(f"--setvar=TuningOfNode.{variable}")
    job = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False, timeout=300)
    assert job.returncode in (0, 1), job.stdout + job.stderr
    (folder,) = output.glob("runs/local-*")
    written = json.loads((folder / "verdict.json").read_text())
    problems = {each["message"]: each["verdict"] for each in written["problems"]}
    return Finished(job.returncode, job.stdout + job.stderr, folder, problems)


@pytest.fixture(scope="module")
def compared(suite: Path) -> Finished:
    return run(suite, "all")


def test_what_hurts_is_said_to_and_makes_the_run_degraded(compared: Finished) -> None:
    assert compared.status == 1, compared.output
    line = compared.said("OMPI_MCA_btl=tcp,self (mpi, 2 ranks on 1 node, openmpi): ")
    assert " hurts: " in line
    assert "helps" not in line
    assert "pingpong 8B latency +" in line.partition(";")[0]
    assert compared.problems[line] == "DEGRADED"


def test_what_nobody_reads_neither_helps_nor_hurts(compared: Finished) -> None:
    line = compared.said("MPICH_GPU_IPC_THRESHOLD=1 (")
    assert "helps" not in line
    assert "hurts" not in line
    assert compared.problems[line] == "PASS"


def test_the_whole_profile_does_what_its_variables_do(compared: Finished) -> None:
    assert " hurts: " in compared.said("the whole profile by-turns (OMPI_MCA_btl=tcp,self, MPICH_GPU_IPC_THRESHOLD=1) (")


def test_every_launch_is_kept_and_only_the_first_of_a_test_is_stored(compared: Finished, suite: Path) -> None:
    assert len(compared.cases) == 3
    for case in compared.cases:
        assert case.folder is not None
        assert [file.name for file in case.result_files()] == ["result.jsonl"]
        headers = {
            each.name: json.loads(each.result(case.folder).read_text().splitlines()[0])["environment"]
            for each in launches(ROUNDS)
        }
        assert len(headers) == 2 * ROUNDS
        if case.attributes["setting"] == UNREAD[0]:
            assert {UNREAD[0] in header for name, header in headers.items() if name.endswith("a")} == {False}
            assert {header.get(UNREAD[0]) for name, header in headers.items() if name.endswith("b")} == {UNREAD[1]}
            # The rest of the profile is in effect on both sides.
            assert {header.get(HURTS[0]) for header in headers.values()} == {HURTS[1]}
    stored = history(suite / "store", system="local")
    assert stored["run_id"].n_unique() == 3
    assert {json.loads(text)[HURTS[0]] for text in stored["tuning"]} == {HURTS[1]}
