"""Faults of a cluster as they were once planted and recorded: what is judged is the judge, without references.

tests/data/emulated: NodePairs of the emulated cluster without its state, while other work kept its two cores busy.
healthy-latencies has messages of 8 B too, of one leaf (benchmarks.healthy --latencies, 2026-11-23).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.commands.judge import judge as command
from fabricheck.records.verdict import Verdict
from tests.faults.matrix import Outcome, settle
from tests.support.result_files import settle as settle_totals
from tests.support.result_files import write

DATA = Path(__file__).resolve().parents[1] / "data" / "emulated"


def judge(name: str) -> tuple[int, str, list[str]]:
    """Exit status, verdict, and all that is not PASS, problems first."""
    return judge_file(DATA / f"{name}.jsonl")


def judge_file(file: Path) -> tuple[int, str, list[str]]:
    done = CliRunner().invoke(command, [str(file), "--system", "emulated", "--json"])
    (judged,) = json.loads(done.stdout)
    problems = [f"{one['verdict']}: {one['message']}" for one in judged["problems"]]
    bad = [one for one in judged["metrics"] if one["verdict"] != "PASS"]
    return (
        done.exit_code,
        judged["verdict"],
        problems + [f"{one['verdict']}: {one['name']}: {one['reason']}" for one in bad],
    )


@pytest.mark.parametrize(
    ("name", "fault", "how", "said"),
    [
        (
            "one-way-port",
            "a port is 30% slower in one direction, without references",
            "fault slow nid002:hsn0 30 --one-side",
            "nid002 sending is slow",
        ),
        (
            "one-way-trunk",
            "a trunk is 40% slower in one direction, without references",
            "fault slow leaf0--spine0 40 --one-side",
            "leaf0--spine0 from leaf0",
        ),
        (
            "two-of-four",
            "two of four nodes are 20% slower, without references",
            "fault slow nid001:hsn0 20, nid002:hsn0 20",
            "10 of 12 equals are slow, so no healthy majority is left",
        ),
        (
            "all",
            "all nodes are 30% slower, without references",
            "fault slow nid001:hsn0 30, and the others",
            "no healthy one is left to compare with",
        ),
        (
            "three-of-four",
            "three of four nodes are 30% slower, without references",
            "fault slow nid001:hsn0 30, nid002:hsn0 30, nid003:hsn0 30",
            "no healthy one is left to compare with",
        ),
        (
            "three-of-eight-10",
            "three of eight nodes are 10% slower, without references",
            "fault slow nid001:hsn0 10, nid003:hsn0 10, nid006:hsn0 10",
            "nid006, nid006:hsn0 or nid006:hsn0--leaf1 loses",
        ),
        (
            "three-of-eight-30",
            "three of eight nodes are 30% slower, three of one leaf, without references",
            "fault slow nid001:hsn0 30, nid002:hsn0 30, nid003:hsn0 30",
            "nid001, nid001:hsn0 or nid001:hsn0--leaf0 loses",
        ),
        (
            "now-and-then",
            "a port has a fifth of its rate for a tenth of the time, without references",
            "fault slow nid002:hsn0 80 for 0.3 s of each 3 s",
            "nid002 is slow now and then",
        ),
        (
            "twentieth-of-the-time",
            "a port has a fifth of its rate for a twentieth of the time, without references",
            "fault slow nid002:hsn0 80 for 0.15 s of each 3 s, NodePairs.budget=5",
            "nid002 is slow now and then",
        ),
        (
            "slow-at-first",
            "a port has 30% of its rate for the first two seconds, without references",
            "fault slow nid002:hsn0 70, cleared after 2 s",
            "nid002:hsn0 → nid003:hsn0 was slow at first",
        ),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_medians_of_pairs_alone_do_not_show(name: str, fault: str, how: str, said: str) -> None:
    status, verdict, problems = judge(name)
    line = next((each for each in problems if said in each), "\n".join(problems))
    settle(Outcome(fault, how, verdict, status, line), Verdict.DEGRADED, said)


def test_the_healthy_cluster_10_percent_slower_is_not(tmp_path: Path) -> None:
    """The recorded times, stretched: nothing but what links carry of data can show it."""
    lines = [json.loads(each) for each in (DATA / "healthy.jsonl").read_text(encoding="utf-8").splitlines()]
    for each in lines:
        if "times_ns" in each:
            each["times_ns"] = [round(time / 0.9) for time in each["times_ns"]]
    settle_totals(lines)
    status, verdict, problems = judge_file(write(tmp_path / "slower.jsonl", lines))
    assert (status, verdict) == (1, "DEGRADED"), problems
    assert "24 equals have 90% of the 0.0957 Gb/s that links carry of data: no healthy one is left" in problems[0]


def test_a_cable_with_more_delay_is_named(tmp_path: Path) -> None:
    """The recorded latencies, and 0.4 ms more in each pair of nid002."""
    lines = [json.loads(each) for each in (DATA / "healthy-latencies.jsonl").read_text(encoding="utf-8").splitlines()]
    late = [each for each in lines if each.get("bytes") == 8 and 1 in each["ranks"]]
    for each in late:
        each["times_ns"] = [time + 400_000 for time in each["times_ns"]]
    settle_totals(lines)
    status, verdict, problems = judge_file(write(tmp_path / "late.jsonl", lines))
    assert (status, verdict) == (1, "DEGRADED"), problems
    assert problems[0].startswith("DEGRADED: nid002:hsn0 or nid002 is slow: 6 metrics are slower than their equals")
    of_pairs = {f"DEGRADED: unidirectional_contended_{a}_{b}_8b_latency" for a, b in (each["ranks"] for each in late)}
    assert {each[: each.index("_latency") + 8] for each in problems[1:]} == of_pairs


@pytest.mark.parametrize("name", ["healthy", "healthy-latencies"])
def test_the_healthy_cluster_is_green(name: str) -> None:
    assert judge(name) == (0, "PASS", [])
