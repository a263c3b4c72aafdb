"""`fabricheck upgrade`: mistakes in what is asked for, before anything runs."""

from __future__ import annotations

import pytest

from fabricheck.cli import main


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
