"""A core that copies host memory slowly, where all is slow that crosses it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.verdict import Verdict
from fabricheck.session.outcome import find_slow_copies
from tests.support.synthetic import judged, judgement, rank, samples

NOW = "made-20261126T000000Z"


def run(
    copy: float, operation: str = "host_to_device", verdict: Verdict = Verdict.DEGRADED, host: str = "nid001"
) -> RunJudgement:
    """One metric of a run on a node, a core of which copies so many GB/s."""
    made = judgement(samples((0,), 64 << 20, operation=operation), verdict=verdict)
    run = judged([made], ranks=[rank(0, host)], host_copy_gbps=8 * copy)
    return replace(run, run=replace(run.run, header={**run.run.header, "ranks": [{"host": host}]}))


def earlier(folder: Path, copies: list[float], host: str = "nid001") -> None:
    for number, copy in enumerate(copies):
        file = folder / f"made-2026112{number}T000000Z" / "output" / "a" / "result.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"ranks": [{"host": host}], "host_copy_gbps": 8 * copy}) + "\nthe rest\n")


@pytest.mark.parametrize(
    ("runs", "before", "named"),
    [
        # What was seen on a node with four H200, whose host paths had lost 15 to 23%.
        ([run(27)], [63, 62, 63], True),
        ([run(52)], [63, 62, 63], False),
        ([run(27, verdict=Verdict.PASS)], [63, 62, 63], False),
        # A link between GPUs is slow as well: the cause is another.
        ([run(27), run(27, "pingpong")], [63, 62, 63], False),
        ([run(27), run(27, "pingpong", Verdict.PASS)], [63, 62, 63], True),
        # Without earlier sessions: other nodes, else this very session.
        ([run(27), run(63, verdict=Verdict.PASS, host="nid002")], [], True),
        ([run(27), run(63, verdict=Verdict.PASS)], [], True),
        ([run(27)], [], False),
    ],
)
def test_a_core_that_copies_slowly_is_named_where_all_slow_crosses_host_memory(
    tmp_path: Path, runs: list[RunJudgement], before: list[float], named: bool
) -> None:
    earlier(tmp_path, before)
    (tmp_path / "made-20261120T120000Z").mkdir(exist_ok=True)
    (tmp_path / NOW).mkdir()
    found = list(find_slow_copies(tmp_path / NOW, "made", runs))
    assert [(each.code, each.components, each.measured) for each in found] == (
        [("host-memory-slow", (Component.of_node("nid001"),), 8 * 27)] if named else []
    )


def test_damaged_results_of_earlier_sessions_are_passed_over(tmp_path: Path) -> None:
    earlier(tmp_path, [63, 63, 63])
    for number, text in enumerate(("", "{", "[" * 100_000, '{"ranks": [], "host_copy_gbps": null}', "[]")):
        file = tmp_path / f"made-2026112{number % 3}T000000Z" / "stage" / str(number) / "result.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / NOW).mkdir()
    (found,) = find_slow_copies(tmp_path / NOW, "made", [run(27)])
    assert found.expected == 8 * 63
