"""The simulation of a fleet makes files that are read and judged as those of fabricbench."""

from __future__ import annotations

from pathlib import Path

from benchmarks.scale import ITERATIONS, exported, healthy_series, judged, of_history, screen, write_file
from fabricheck.history.watch import watch_of
from fabricheck.records.verdict import Verdict


def test_a_simulated_screen_is_a_valid_file(tmp_path: Path) -> None:
    rule = screen(8, 2)
    assert write_file(tmp_path / "screen.jsonl", rule) < 1000 * len(rule)
    judgement, *_ = judged(tmp_path / "screen.jsonl")
    assert judgement.verdict is Verdict.PASS
    assert len(judgement.judgements) == len(rule) == 2 * 2 * 4 * 8
    assert {each.samples.count for each in judgement.judgements} == {ITERATIONS}
    assert 0 < exported(tmp_path, judgement) < 20e6


def test_a_simulated_history_is_watched_and_healthy() -> None:
    result = watch_of(healthy_series(30, 40), "simulated").result
    assert result.count("watched") == 30
    assert result.exit_status == 0


def test_a_made_history_is_one_that_commands_take() -> None:
    for command in ("calibrate", "compare", "watch"):
        assert " kB a value" in of_history(command, 20, 12)
