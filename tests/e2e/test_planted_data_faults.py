"""Faults of an MPI library that a benchmark must see: what did not move, not in time, or not as it was sent."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
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


@cache
def _library(mpi: str, folder: Path) -> Path:
    library = folder / f"libfaulty-{mpi}.so"
    compiler = str(built(mpi).installation.mpicxx)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", FAULTY, "-o", library], check=True)
    return library


@pytest.fixture
def faulty(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Faulty:
    """Runs with a fault, and gives exit status, wrong bytes, messages that arrived, and those that were harmed."""

    def run(fault: str, *options: str, mpi: str = "openmpi") -> tuple[int, int, int, int]:
        report = tmp_path / "report"
        library = _library(mpi, tmp_path_factory.getbasetemp())
        bench: Bench = replace(
            built(mpi).brief, wrapper=f"env FAULT={fault} FAULT_REPORT={report} LD_PRELOAD={library}"
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
        counts = [[int(number) for number in each.read_text().split()] for each in tmp_path.glob("report*")]
        arrived, harmed = map(sum, zip(*counts, strict=True))
        return job.returncode, wrong, arrived, harmed

    return run


MUTATIONS = ["drop", "unchanged", "pages", "lines", "back", "two-back", "late"]
# These leave wrong data that were right before; what the others leave out is seen wherever it had to be new.
REPLACING = ["halves", "shift", "zeros", "bit", "round"]
BETWEEN_MESSAGES = ["exchange", "rotate", "double"]
# A rank gets all of a collective as one message.
IN_PLACE = ["allgather", "allreduce", "reduce"]
OTHERS = ["alltoall", "broadcast", "reduce_scatter"]


def _draw(seed: int) -> tuple[str, str]:
    """A fault, and the options of a run that it harms."""
    chance = random.Random(seed)
    mutation, which = chance.choice(MUTATIONS + REPLACING), chance.choice(["all", "once", "2", "7", "30"])
    operation, size = (
        chance.choice(["pingpong", "unidirectional", "bidirectional"]),
        chance.choice(["8B", "64B", "1000B", "4KiB", "64KiB", "1MiB"]),
    )
    begin, end = chance.choice([(0, 1000), (0, 1000), sorted(chance.sample(range(1001), 2))])
    more = ""
    if chance.random() < 0.4:
        operation, size = chance.choice([*IN_PLACE, *OTHERS]), chance.choice(["16KiB", "64KiB", "1MiB"])
        if operation in IN_PLACE and chance.random() < 0.5:
            more = " --in-place=yes"
    elif operation != "pingpong" and chance.random() < 0.7:
        mutation = chance.choice([mutation, *BETWEEN_MESSAGES])
        which = chance.choice([which, "first", "last", "rest"])
        # Of a longer train another message may overwrite a single one before it is looked at.
        more = f" --train={chance.choice([2, 3] if which == 'once' else [2, 5, 16, 64, 256])}"
    few = end - begin < 500 or mutation == "bit"
    if few and which != "all" and mutation not in MUTATIONS:
        more += " --verify=every"  # else they fall among what is not looked at
    fault = f"{mutation}:{which}:{chance.randrange(20, 60)}:{begin}:{end}"
    return fault, f"--operations={operation} --sizes={size} --iterations=80{more}"


@pytest.mark.parametrize("seed", range(effort(40)))
def test_what_a_library_harms_is_wrong_and_what_it_does_not_is_right(faulty: Faulty, seed: int) -> None:
    status, wrong, arrived, harmed = faulty(*_draw(seed), mpi=("openmpi", "mpich")[seed % 2])
    assert arrived > 50
    assert (status, wrong > 0) == ((5, True) if harmed > 0 else (0, False))


@pytest.mark.parametrize("which", ["20", "97"])
def test_of_small_messages_with_one_wrong_bit_many_are_seen_without_verifying_every_one(
    faulty: Faulty, which: str
) -> None:
    """A stamp is 8 bytes of 4 KiB; in some iterations every byte is looked at."""
    status, wrong, _, harmed = faulty(f"bit:{which}:20:0:1000", "--operations=pingpong --sizes=4KiB --iterations=2000")
    assert (status, wrong > harmed / 10) == (5, True)


@pytest.mark.full
@pytest.mark.parametrize("which", ["first", "rest", "last"])
def test_of_a_train_of_large_messages_each_has_a_slot_of_its_own_in_turn(faulty: Faulty, which: str) -> None:
    options = "--operations=unidirectional --sizes=16MiB --train=24 --iterations=12 --timeout=200"
    status, wrong, *_ = faulty(f"drop:{which}:20:0:1000", options)
    assert (status, wrong > 0) == (5, True)
