"""Rehearsals and measurements never meet in a store, a comparison or a reference."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.records.rehearsal import REHEARSAL, as_rehearsal
from fabricheck.store.folders import SessionFolder
from fabricheck.store.reading import history
from fabricheck.store.session import read_record
from fabricheck.store.writing import NewSession, append
from tests.support.result_files import CUDA, Line
from tests.support.sessions import NOW, add, result_file, session_of


def rehearsed(new: NewSession) -> NewSession:
    return replace(new, judged=[replace(one, run=as_rehearsal(one.run)) for one in new.judged])


def rehearse(root: Path, store: Path, night: int) -> SessionFolder:
    return append(store, rehearsed(session_of(root, night, [result_file(root / "results", night)])), NOW).entry


def refused(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert (ended.value.code, said.out, len(said.err.splitlines())) == (2, "", 1), said.err
    return said.err


def test_the_session_and_its_history_know_that_it_was_a_rehearsal(root: Path, store: Path) -> None:
    for night, (where, rehearsal) in enumerate(((store, True), (store.parent / "real", False))):
        entry = rehearse(root, where, night) if rehearsal else add(root, where, night)[0]
        assert read_record(entry).rehearsal is rehearsal
        assert set(history(where, system="local")["rehearsal"]) == {rehearsal}


def test_a_store_of_measurements_takes_no_rehearsal_and_the_other_way_round(root: Path, store: Path) -> None:
    add(root, store, 0)
    with pytest.raises(UserError, match=f"is a {REHEARSAL} and .* is a measurement: nothing was stored"):
        rehearse(root, store, 1)
    other = store.parent / "rehearsals"
    rehearse(root, other, 2)
    with pytest.raises(UserError, match=f"is a measurement and .* is a {REHEARSAL}: nothing was stored"):
        add(root, other, 3)
    assert history(store, system="local")["session"].n_unique() == 1


def emulated(lines: list[Line]) -> None:
    lines[0]["case"] = "Collectives,@hgx-h200:gpu+openmpi"
    for each in lines[0]["ranks"]:
        each["device"]["name"] = "emulated NVIDIA H200"


def test_a_session_is_all_rehearsal_or_none(root: Path, store: Path) -> None:
    files = [
        result_file(root / "results", 0, 0, source=CUDA),
        result_file(root / "results", 0, 1, source=CUDA, change=emulated),
    ]
    with pytest.raises(UserError, match=r"has a REHEARSAL on emulated GPUs and a measurement, .*: nothing was stored"):
        append(store, session_of(root, 0, files, system="hgx-h200"), NOW)


@pytest.mark.parametrize(
    "command",
    [
        ("calibrate", "--system", "local", "--write"),
        ("compare", "00000000", "00000001", "--system=local"),
        ("watch", "--system", "local"),
    ],
    ids=lambda words: words[0],
)
def test_a_mixed_history_is_refused(root: Path, command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    store = root / "output" / "store"
    add(root, store, 0)
    entry = rehearse(root, root / "elsewhere", 1)
    shutil.copytree(entry.path, store / "local" / entry.path.name)
    said = refused(capsys, command)
    assert f"mixes measurements (session 00000000-0000-4000-8000-000000000000) with a {REHEARSAL}" in said


def test_no_reference_is_made_of_a_rehearsal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for night in range(12):
        rehearse(root, root / "output" / "store", night)
    said = refused(capsys, ["calibrate", "--system", "local", "--write"])
    assert f"of a {REHEARSAL}: references need measurements" in said
    assert not (root / "reference_values" / "local.yaml").exists()


def test_rehearsals_are_compared_with_each_other_and_the_answer_says_so(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for night in range(2):
        rehearse(root, root / "output" / "store", night)
    for words in (["compare", "00000000", "00000001", "--system=local"], ["watch", "--system", "local"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        assert ended.value.code in (0, 4)
        assert REHEARSAL in said.err
    with pytest.raises(SystemExit):
        main(["store", "ls"])
    assert capsys.readouterr().out.count("(rehearsal)") == 2


def test_import_keeps_what_a_rehearsal_was(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = result_file(root / "results", 0, source=CUDA, change=emulated)
    with pytest.raises(SystemExit) as ended:
        main(["store", "import", str(file)])
    assert ended.value.code == 0, capsys.readouterr().err
    assert set(history(root / "output" / "store", system="hgx-h200")["rehearsal"]) == {True}
