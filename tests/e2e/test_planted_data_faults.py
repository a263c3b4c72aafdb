"""Faults of an MPI library that a benchmark must see: what did not move, not in time, or not as it was sent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from tests.support.bench import Bench, built
from tools.build import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.timeout(600)]

# Between the program and its MPI library, of messages that hold data; FAULT says what comes of those that arrive.
FAULTY = ROOT / "tests/data/programs/faulty_mpi.cpp"

Faulty = Callable[..., tuple[int, int, int, int]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    compiler = str(built("openmpi").installation.mpicxx)
    subprocess.run([compiler, "-shared", "-fPIC", FAULTY, "-o", "libfaulty.so"], cwd=folder, check=True)
    return folder / "libfaulty.so"


@pytest.fixture
def faulty(library: Path, tmp_path: Path) -> Faulty:
    """Runs with a fault, and gives exit status, wrong bytes, messages that arrived, and those that were harmed."""

    def run(fault: str, *options: str) -> tuple[int, int, int, int]:
        report = tmp_path / "report"
        bench: Bench = replace(
            built("openmpi").brief, wrapper=f"env FAULT={fault} FAULT_REPORT={report} LD_PRELOAD={library}"
        )
        job = bench.run(
            tmp_path,
            "--operations=unidirectional --pairs=0-1 --schedules=uncontended --warmup=2 --quiet",
            "--output=result.jsonl",
            *options,
            ranks=2,
        )
        wrong = sum(each.wrong_bytes for each in read_run(tmp_path / "result.jsonl").samples)
        arrived, harmed = map(int, report.read_text().split())
        return job.returncode, wrong, arrived, harmed

    return run


def test_no_iteration_brings_what_the_one_before_it_brought(faulty: Faulty) -> None:
    """A library that saves itself what the receiver has already saves nothing."""
    status, wrong, arrived, dropped = faulty("unchanged", "--sizes=1MiB --iterations=50")
    assert (status, wrong) == (0, 0)
    assert arrived > 50
    assert dropped == 0


@pytest.mark.parametrize("size", ["64B", "1MiB"])
@pytest.mark.parametrize("fault", ["second", "late"])
def test_what_does_not_arrive_in_its_iteration_is_wrong(faulty: Faulty, fault: str, size: str) -> None:
    status, wrong, *_ = faulty(fault, f"--sizes={size} --iterations=50")
    assert status != 0
    assert wrong > 0


def test_a_block_that_never_arrives_again_is_wrong(faulty: Faulty) -> None:
    status, wrong, *_ = faulty("part", "--sizes=1MiB --iterations=50")
    assert status != 0
    assert wrong > 0


def test_a_wrong_byte_in_some_messages_is_found_where_all_are_verified(faulty: Faulty) -> None:
    status, wrong, _, harmed = faulty("byte", "--sizes=1MiB --iterations=110 --verify=every")
    assert harmed > 1
    assert (status, wrong) == (5, harmed)
