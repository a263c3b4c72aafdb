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
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from tests.faults.matrix import Outcome, settle
from tests.support.result_files import settle as settle_totals
from tests.support.result_files import write

DATA = Path(__file__).resolve().parents[1] / "data" / "emulated"


def judge(file: Path) -> tuple[int, str, list[Finding], list[str]]:
    """Exit status, verdict, its problems, and the names of metrics that are not PASS."""
    done = CliRunner().invoke(command, [str(file), "--system", "emulated", "--json"])
    (judged,) = json.loads(done.stdout)
    bad = [one["name"] for one in judged["metrics"] if one["verdict"] != "PASS"]
    return done.exit_code, judged["verdict"], [Finding.from_json(each) for each in judged["problems"]], bad


@pytest.mark.parametrize(
    ("name", "fault", "how", "code", "component"),
    [
        (
            "one-way-port",
            "a port is 30% slower in one direction, without references",
            "fault slow nid002:hsn0 30 --one-side",
            "slow-part",
            "nid002 sending",
        ),
        (
            "one-way-trunk",
            "a trunk is 40% slower in one direction, without references",
            "fault slow leaf0--spine0 40 --one-side",
            "slow-link",
            "leaf0 → spine0",
        ),
        (
            "two-of-four",
            "two of four nodes are 20% slower, without references",
            "fault slow nid001:hsn0 20, nid002:hsn0 20",
            "slow-part",
            "nid001:hsn0",
        ),
        (
            "all",
            "all nodes are 30% slower, without references",
            "fault slow nid001:hsn0 30, and the others",
            "all-slow",
            "",
        ),
        (
            "three-of-four",
            "three of four nodes are 30% slower, without references",
            "fault slow nid001:hsn0 30, nid002:hsn0 30, nid003:hsn0 30",
            "all-slow",
            "",
        ),
        (
            "three-of-eight-10",
            "three of eight nodes are 10% slower, without references",
            "fault slow nid001:hsn0 10, nid003:hsn0 10, nid006:hsn0 10",
            "slow-part",
            "nid006:hsn0",
        ),
        (
            "three-of-eight-30",
            "three of eight nodes are 30% slower, three of one leaf, without references",
            "fault slow nid001:hsn0 30, nid002:hsn0 30, nid003:hsn0 30",
            "slow-part",
            "nid003:hsn0",
        ),
        (
            "now-and-then",
            "a port has a fifth of its rate for a tenth of the time, without references",
            "fault slow nid002:hsn0 80 for 0.3 s of each 3 s",
            "slow-now-and-then",
            "nid002",
        ),
        (
            "twentieth-of-the-time",
            "a port has a fifth of its rate for a twentieth of the time, without references",
            "fault slow nid002:hsn0 80 for 0.15 s of each 3 s, NodePairs.budget=5",
            "slow-now-and-then",
            "nid002",
        ),
        (
            "slow-at-first",
            "a port has 30% of its rate for the first two seconds, without references",
            "fault slow nid002:hsn0 70, cleared after 2 s",
            "slow-at-first",
            "nid002:hsn0 → nid003:hsn0",
        ),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_medians_of_pairs_alone_do_not_show(name: str, fault: str, how: str, code: str, component: str) -> None:
    status, verdict, problems, _ = judge(DATA / f"{name}.jsonl")
    found = next((each for each in problems if each.code == code and named(each, component)), None)
    assert found is not None, problems
    settle(Outcome(fault, how, verdict, status, f"{verdict}: {found.message}"), Verdict.DEGRADED, "")


def named(finding: Finding, component: str) -> bool:
    """Whether a finding names a component, or none where that is empty."""
    names = [each.text for each in finding.components]
    return any(each.startswith(component) for each in names) if component else not names


def test_the_healthy_cluster_10_percent_slower_is_not(tmp_path: Path) -> None:
    """The recorded times, stretched: nothing but what links carry of data can show it."""
    lines = [json.loads(each) for each in (DATA / "healthy.jsonl").read_text(encoding="utf-8").splitlines()]
    for each in lines:
        if "times_ns" in each:
            each["times_ns"] = [round(time / 0.9) for time in each["times_ns"]]
    settle_totals(lines)
    status, verdict, problems, _ = judge(write(tmp_path / "slower.jsonl", lines))
    assert (status, verdict) == (1, "DEGRADED"), problems
    assert {each.code for each in problems} == {"all-slow"}


def test_a_cable_with_more_delay_is_named(tmp_path: Path) -> None:
    """The recorded latencies, and 0.4 ms more in each pair of nid002."""
    lines = [json.loads(each) for each in (DATA / "healthy-latencies.jsonl").read_text(encoding="utf-8").splitlines()]
    late = [each for each in lines if each.get("bytes") == 8 and 1 in each["ranks"]]
    for each in late:
        each["times_ns"] = [time + 400_000 for time in each["times_ns"]]
    settle_totals(lines)
    status, verdict, problems, bad = judge(write(tmp_path / "late.jsonl", lines))
    assert (status, verdict) == (1, "DEGRADED"), problems
    (found,) = problems
    assert {each.text for each in found.components} == {"nid002:hsn0", "nid002"}
    assert set(bad) == {f"unidirectional_contended_{a}_{b}_8b_latency" for a, b in (each["ranks"] for each in late)}


@pytest.mark.parametrize("name", ["healthy", "healthy-latencies"])
def test_the_healthy_cluster_is_green(name: str) -> None:
    assert judge(DATA / f"{name}.jsonl") == (0, "PASS", [], [])
