"""A share of the generated inputs of tests/fuzz/fuzz.py, and that it finds what it looks for."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fabricheck import cli
from tests.fuzz import fuzz
from tests.fuzz.fuzz_targets import Target, targets
from tests.support.effort import is_full
from tests.support.result_files import HOST

#: The rest is read in a few places only: one kind of each where not everything is tried.
QUICK = (
    *("judge", "judge --system", "judge, a vendor's output", "judge --topology", "judge --references", "judge --html"),
    *("store import of a run", "validate", "drain.py", "explain"),
)


def test_damaged_files_give_no_traceback_no_hang_and_no_wrong_green(tmp_path: Path) -> None:
    with fuzz.the_same_read_once():
        for target in targets(tmp_path):
            if is_full() or target.name in QUICK:
                valid = target.inputs[:: max(1, len(target.inputs) // 3)]
                # What is damaged is taken while it is whole: else nothing behind the first look at it is tried.
                statuses = {fuzz.status_of(target.arguments(each, each), target.program) for each in valid}
                assert statuses & {0, 1, 4}, target.name
                found = fuzz.fuzz(target, 10, 1, tmp_path / "kept")
                assert found.wrong == [], target.name
                assert found.runs == 10 or found.seconds > fuzz.BATCH_S, target.name


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
    target = Target("judge", [HOST], lambda *_: ["judge"], lambda content, was: content != was)
    found = fuzz.fuzz(target, 3, 1, tmp_path / "kept")
    assert len(found.wrong) == 3 and all(said in each for each in found.wrong)
    assert (tmp_path / "kept" / f"judge_1_0_{HOST.name}").exists()
