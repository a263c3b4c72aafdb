"""A clock that runs too slowly or too fast, on one rank or on all, is no clock to measure by."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from tests.support.bench import built
from tools.build import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

Timed = Callable[[str, str], tuple[list[str], list[int]]]


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Timed:
    """Runs by clocks of that rate, and gives the codes of what is wrong and the ranks of the clocks."""
    folder = tmp_path_factory.mktemp("clocks")
    command = [str(built("openmpi").installation.mpicxx), "-O2", "-shared", "-fPIC"]
    program = ROOT / "tests/data/programs/wrong_clock.cpp"
    subprocess.run([*command, program, "-o", "libclock.so"], cwd=folder, check=True)

    def run(rate: str, rank: str) -> tuple[list[str], list[int]]:
        wrapper = f"env RATE={rate} WRONG_RANK={rank} LD_PRELOAD={folder / 'libclock.so'}"
        (folder / "result.jsonl").unlink(missing_ok=True)
        replace(built("openmpi").brief, wrapper=wrapper).run(
            folder, "--pairs=0-1 --sizes=1MiB --iterations=800 --quiet --output=result.jsonl", ranks=2
        )
        run = read_run(Path(folder / "result.jsonl"))
        assert run.footer is not None
        return [problem.code for problem in run.problems], [each["rank"] for each in run.footer.get("clocks", [])]

    return run


@pytest.mark.parametrize(("rate", "rank", "named"), [("0.97", "1", [1]), ("1.03", "all", [0, 1])])
def test_a_clock_of_another_speed_is_invalid_with_its_rank(
    timed: Timed, rate: str, rank: str, named: list[int]
) -> None:
    assert timed(rate, rank) == (["wrong-clock"] * len(named), named)


def test_a_clock_that_is_steered_is_right(timed: Timed) -> None:
    assert timed("1.0005", "1") == ([], [])
