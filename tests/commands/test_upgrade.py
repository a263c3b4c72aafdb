"""`fabricheck upgrade`: mistakes in what is asked for, before anything runs."""

from __future__ import annotations

import math

import pytest

from fabricheck.cli import main
from fabricheck.commands import upgrade as module
from fabricheck.diagnosis.upgrade import Answer, UpgradeChange


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("openmpi", "nosuch"), "has no environment 'nosuch': it has "),
        (("openmpi", "OpenMPI"), "the same environment"),
        (("openmpi", "mpich", "--rounds", "3"), "--rounds 3"),
        (("openmpi", "mpich", "--margin", "5"), "--margin 5"),
        (("openmpi", "mpich", "--system", "nosuch"), "nosuch"),
        (("openmpi", "mpich", "--system", "emulated:nosuch"), "has no partition 'nosuch'"),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", *words])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(("error", "rounds"), [(0.01, 6), (0.02, 18), (0.05, 110)])
def test_the_rounds_that_are_asked_for_are_those_that_a_stack_as_fast_as_ever_needs(error: float, rounds: int) -> None:
    """Also where it happens to look slower by nearly the margin: (2.5 + 1.28) errors have to be 5.1%."""
    gain = 0.96
    change = UpgradeChange(
        "class", "", "", "latency", 9, gain, (gain * math.exp(-2.5 * error), 1), error, (), Answer.CANNOT_SAY
    )
    assert module._rounds_for(change, 8, 0.05) == rounds
