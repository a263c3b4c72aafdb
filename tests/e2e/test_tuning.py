"""Settings of Open MPI on and off, interleaved, on this machine: one that truly hurts, and one that nobody reads."""

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
from fabricheck.diagnosis.rounds import RoundLaunch, launches
from fabricheck.history.reading import history
from fabricheck.records.case import Case
from fabricheck.session.reframe_report import read_cases
from fabricheck.suite import suite_root
from tests.support.files import replace
from tools import build

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full]

ROUNDS = 6
# Messages through the loopback interface and not through shared memory; and a variable of another MPI library.
HURTS, UNREAD = ("OMPI_MCA_btl", "tcp,self"), ("MPICH_GPU_IPC_THRESHOLD", "1")
SAFETY = ("FI_CXI_RX_MATCH_MODE", "hardware")
PROFILE = """
  by-turns:
    description: made up for a test
    settings:
"""
SETTING = """
      - {{variable: {0}, value: "{1}", library: mpi, systems: [local], effect: for a test, source: made up{2}}}
"""
# As between nodes, on this one: nothing here has service levels.
LEVEL = """
import reframe as rfm

from fabricheck.rfm import InterleavedCheck, ServiceLevelComparison


@rfm.simple_test
class LevelHere(rfm.RunOnlyRegressionTest, ServiceLevelComparison, InterleavedCheck):
    transport = "mpi"
    operations = ["pingpong"]
    schedules = ["uncontended"]
    sizes = {"host": "8B"}
    ranks = 2
    rounds = 2
    tags = {"tuning"}
"""


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    folder: Path
    told: dict[str, str]  # each problem with its verdict, and each finding

    def said(self, of: str) -> str:
        (line,) = [message for message in self.told if of in message]
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
    (root / "checks" / "level.py").write_text(LEVEL)
    for folder in ("config", "site_configs/local"):
        shutil.copytree(suite_root() / folder, root / folder)
    replace(root / "config" / "policy.yaml", "confidence: 0.95", "confidence: 0.999")
    with (root / "config" / "tuning.yaml").open("a") as file:
        file.write(PROFILE + "".join(SETTING.format(*one, "") for one in (HURTS, UNREAD)))
        file.write(SETTING.format(*SAFETY, ", without: harms"))
    replace(
        root / "site_configs" / "local" / "settings.py",
        '"tuning_profile": "default"',
        '"tuning_profile": "by-turns", "service_level": 3',
    )
    (root / "src").symlink_to(suite_root() / "src")
    (root / "built" / "openmpi").symlink_to(build.build("host-openmpi", tests=False))
    return root


def run(suite: Path, name: str, *options: str, built: str = "built", rounds: int = ROUNDS) -> Finished:
    output = suite / name
    command = [sys.executable, "-m", "fabricheck", "run", "--system=local", "--tag=tuning", "--environment=openmpi"]
    command += [f"--built={suite / built}", f"--output={output}", f"--store={suite / 'store'}", *options, "--"]
    for variable in (f"rounds={rounds}", "ranks=2", "budget=0.03", "operations=pingpong", "sizes=host:8B"):
        command.append(f"--setvar=TuningOfNode.{variable}")
    job = subprocess.run(
        command,
        cwd=suite,
        env={**os.environ, "FABRICHECK_SUITE": str(suite)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert job.returncode != 2, job.stdout + job.stderr
    (folder,) = output.glob("runs/local-*")
    written = json.loads((folder / "verdict.json").read_text())
    told = {each["message"]: each["verdict"] for each in written["problems"]}
    told |= {each["message"]: "finding" for each in written["findings"]}
    return Finished(job.returncode, job.stdout + job.stderr, folder, told)


def chosen(setting: str) -> str:
    return f"--name=TuningOfNode %transport=mpi %setting={setting}"


@pytest.fixture(scope="module")
def compared(suite: Path) -> Finished:
    return run(suite, "all", *(chosen(name) for name, _ in (HURTS, UNREAD, SAFETY)), "--name=LevelHere")


def test_what_hurts_is_said_to_and_makes_the_run_degraded(compared: Finished) -> None:
    assert compared.status == 1, compared.output
    line = compared.said("OMPI_MCA_btl=tcp,self (mpi, 2 ranks on 1 node, openmpi): ")
    assert " hurts: " in line
    assert "helps" not in line
    assert "pingpong 8B latency " in line
    assert compared.told[line] == "DEGRADED"


def test_what_nobody_reads_neither_helps_nor_hurts(compared: Finished) -> None:
    line = compared.said("MPICH_GPU_IPC_THRESHOLD=1 (")
    assert "helps" not in line
    assert "hurts" not in line
    assert compared.told[line] == "finding"


def test_the_whole_profile_is_on_or_off_but_for_what_keeps_the_machine_safe(suite: Path) -> None:
    done = run(suite, "whole", chosen("whole-profile"), rounds=2)
    assert done.said("the whole profile by-turns (OMPI_MCA_btl=tcp,self, MPICH_GPU_IPC_THRESHOLD=1) (")
    (case,) = done.cases
    for each, header in environments(case, 2).items():
        assert header[SAFETY[0]] == SAFETY[1]
        assert [header.get(name) for name, _ in (HURTS, UNREAD)] == (
            [HURTS[1], UNREAD[1]] if each.side == "b" else [None, None]
        )


def environments(case: Case, rounds: int) -> dict[RoundLaunch, dict[str, str]]:
    """What each launch had in effect, by its own header."""
    assert case.folder is not None
    return {
        each: json.loads(each.result(case.folder).read_text().splitlines()[0])["environment"]
        for each in launches(rounds)
    }


def test_what_keeps_the_machine_safe_is_never_taken_away(compared: Finished) -> None:
    line = compared.said(f"TuningOfNode %transport=mpi %setting={SAFETY[0]} ")
    assert "does not apply: the tuning profile by-turns needs" in line
    assert compared.told[line] == "finding"


def test_every_launch_is_kept_and_only_the_first_of_a_test_is_stored(compared: Finished, suite: Path) -> None:
    measured = [case for case in compared.cases if case.test == "TuningOfNode" and case.result != "skip"]
    assert len(measured) == 2
    for case in measured:
        assert case.folder is not None
        assert [file.name for file in case.result_files()] == ["result.jsonl"]
        for each, header in environments(case, ROUNDS).items():
            assert header[SAFETY[0]] == SAFETY[1]
            if case.attributes["setting"] == UNREAD[0]:
                assert header.get(UNREAD[0]) == (UNREAD[1] if each.side == "b" else None)
                # The rest of the profile is in effect on both sides.
                assert header[HURTS[0]] == HURTS[1]
    session = json.loads((compared.folder / "reframe.json").read_text())["session_info"]["uuid"]
    stored = history(suite / "store", system="local").filter(session=session)
    assert stored["run_id"].n_unique() == 3
    assert {json.loads(text)[HURTS[0]] for text in stored["tuning"]} == {HURTS[1]}


ONLY = chosen(UNREAD[0])


def test_a_side_that_was_not_in_effect_is_invalid(suite: Path) -> None:
    settings = suite / "site_configs" / "local" / "settings.py"
    before = settings.read_text()
    # The launcher sets it on both sides.
    replace(settings, '"backend": "host",', f'"backend": "host", "launcher_options": ["-x", "{"=".join(UNREAD)}"],')
    try:
        done = run(suite, "always-set", ONLY, rounds=2)
    finally:
        settings.write_text(before)
    assert done.status == 5, done.output
    lines = [line for line, kind in done.told.items() if kind != "finding"]
    assert any("MPICH_GPU_IPC_THRESHOLD was '1' instead of unset on all ranks" in line for line in lines), lines


def test_another_service_level_is_information_whatever_it_does(compared: Finished) -> None:
    line = compared.said("UCX_IB_SL=3 against the default (mpi, 2 ranks on 1 node, openmpi): ")
    assert "pingpong 8B latency at percentile 99 " in line
    assert compared.told[line] == "finding"


def wrapped(suite: Path, name: str, lines: str) -> None:
    """A program beside the built one that does `lines` first, in the launches to compare."""
    program = suite / name / "openmpi" / "fabricbench"
    program.parent.mkdir(parents=True)
    real = suite / "built" / "openmpi" / "fabricbench"
    program.write_text(f'#!/bin/sh\ncase "$*" in *rounds/*) {lines};; esac\nexec "{real}" "$@"\n')
    program.chmod(0o755)


def test_what_does_not_run_without_the_variable_needs_it(suite: Path) -> None:
    wrapped(suite, "needy", f'[ -n "${UNREAD[0]}" ] || exit 3')
    done = run(suite, "needed", ONLY, built="needy", rounds=2)
    assert done.status == 0, done.output
    line = done.said("MPICH_GPU_IPC_THRESHOLD=1 (")
    assert "): needed: fabricbench fails without it (exit status 3 and 3)" in line
