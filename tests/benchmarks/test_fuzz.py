"""A share of the generated inputs of benchmarks/fuzz.py, and that it finds what it looks for."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from benchmarks import fuzz
from fabricheck import cli
from tests.support.effort import is_full
from tests.support.result_files import HOST

#: The rest is read in a few places only: one kind of each where not everything is tried.
QUICK = ("judge", "judge --system", "judge, a vendor's output", "judge --topology", "judge --references", "report")


def test_damaged_files_give_no_traceback_no_hang_and_no_wrong_green(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with fuzz.own_files_read_once():
        for target in fuzz.targets(tmp_path):
            if is_full() or target.name in QUICK:
                # What is damaged is taken while it is whole: else nothing behind the first look at it is tried.
                statuses = {fuzz.status_of(target.arguments(each, each)) for each in target.inputs[:3]}
                assert statuses & {0, 1, 4}, target.name
                found = fuzz.fuzz(target, 10, 1, tmp_path / "kept")
                assert found.wrong == [], target.name
                assert found.runs >= 5


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise KeyError('x')", "a mistake in Fabricheck itself: KeyError"),
        ("while True: pass", "more than"),
        ("", "green"),
    ],
)
def test_what_it_looks_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    @click.command()
    def broken() -> None:
        exec(code)

    monkeypatch.setattr(cli.cli, "get_command", lambda *_: broken)
    monkeypatch.setattr(fuzz, "LIMIT_S", 0.2)
    target = fuzz.Target("judge", [HOST], lambda *_: ["judge"], lambda content: content != HOST.read_bytes())
    found = fuzz.fuzz(target, 3, 1, tmp_path / "kept")
    assert found.wrong and all(said in each for each in found.wrong)
    assert (tmp_path / "kept" / f"judge_1_0_{HOST.name}").exists()


def test_what_a_command_sets_for_its_children_is_gone_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def made() -> None:
        os.environ["FABRICHECK_SITES"] = "/made" + os.environ.get("FABRICHECK_SITES", "")

    monkeypatch.setattr(cli.cli, "get_command", lambda *_: made)
    before = dict(os.environ)
    assert [fuzz.status_of(["init"]) for _ in range(2)] == [0, 0]
    assert dict(os.environ) == before
