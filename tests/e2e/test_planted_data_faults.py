"""Faults of an MPI library that a benchmark must see: what did not move, not in time, or not as it was sent."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from tests.support.bench import Bench, built
from tests.support.effort import effort
from tools.build import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.timeout(600)]

# Between the program and its MPI library, of messages that hold data; FAULT says what comes of which.
FAULTY = ROOT / "tests/data/programs/faulty_mpi.cpp"

Faulty = Callable[..., tuple[int, int, int, int]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    compiler = str(built("openmpi").installation.mpicxx)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", FAULTY, "-o", "libfaulty.so"], cwd=folder, check=True)
    return folder / "libfaulty.so"


@pytest.fixture
def faulty(library: Path, tmp_path: Path) -> Faulty:
    """Runs with a fault, and gives exit status, wrong bytes, messages that arrived, and those that were harmed."""

    def run(fault: str, *options: str) -> tuple[int, int, int, int]:
        report = tmp_path / "report"
        bench: Bench = replace(
            built("openmpi").brief, wrapper=f"env FAULT={fault} FAULT_REPORT={report} LD_PRELOAD={library}"
        )
        (tmp_path / "result.jsonl").unlink(missing_ok=True)
        job = bench.run(
            tmp_path,
            "--pairs=0-1 --schedules=uncontended --warmup=2 --quiet",
            "--output=result.jsonl",
            *options,
            ranks=2,
        )
        wrong = sum(each.wrong_bytes for each in read_run(tmp_path / "result.jsonl").samples)
        arrived, harmed = map(int, report.read_text().split())
        return job.returncode, wrong, arrived, harmed

    return run


MUTATIONS = ["drop", "unchanged", "pages", "lines", "back", "two-back", "exchange", "double", "part", "shift", "bit"]
WHICH = ["all", "first", "last", "rest", "2", "7", "100"]
SHAPES = ["pingpong", "unidirectional", "bidirectional"]
SIZES = ["8B", "64B", "1000B", "4KiB", "64KiB", "1MiB"]


def _draw(seed: int) -> tuple[str, str]:
    """A fault, and the options of a run that it harms."""
    chance = random.Random(seed)
    mutation, which = chance.choice(MUTATIONS), chance.choice(WHICH)
    operation, size = chance.choice(SHAPES), chance.choice(SIZES)
    if mutation == "bit":
        which = "all"  # elsewhere a bit falls among those that are not looked at, but with --verify=every
    train = (
        f" --train={chance.choice([2, 5, 16, 64, 256])}" if operation != "pingpong" and chance.random() < 0.7 else ""
    )
    return f"{mutation}:{which}", f"--operations={operation} --sizes={size} --iterations=80{train}"


@pytest.mark.parametrize("seed", range(effort(40)))
def test_what_a_library_harms_is_wrong_and_what_it_does_not_is_right(faulty: Faulty, seed: int) -> None:
    status, wrong, arrived, harmed = faulty(*_draw(seed))
    assert arrived > 50
    assert (status, wrong > 0) == ((5, True) if harmed > 0 else (0, False))


@pytest.mark.parametrize("which", ["first", "rest", "last"])
def test_of_a_train_of_large_messages_each_has_a_slot_of_its_own_in_turn(faulty: Faulty, which: str) -> None:
    options = "--operations=unidirectional --sizes=16MiB --train=24 --iterations=12 --timeout=200"
    status, wrong, *_ = faulty(f"drop:{which}", options)
    assert (status, wrong > 0) == (5, True)


def test_sums_that_lost_their_last_bits_are_wrong(faulty: Faulty) -> None:
    status, wrong, *_ = faulty("round:100", "--operations=allreduce --sizes=64KiB --iterations=500")
    assert (status, wrong > 0) == (5, True)


def test_a_wrong_bit_in_some_messages_is_found_where_all_are_verified(faulty: Faulty) -> None:
    status, wrong, _, harmed = faulty(
        "bit:50", "--operations=unidirectional --sizes=1MiB --iterations=110 --verify=every"
    )
    assert harmed > 1
    assert (status, wrong) == (5, harmed)
