"""What of a plan is measured in the time that it has, and how long its job may take."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.of_session import find_shortened
from fabricheck.fleet.record import Fleet
from fabricheck.fleet.settings import KEY
from fabricheck.records.run import Run
from fabricheck.rfm.command_line import MeasurementPlan
from fabricheck.rfm.duration import fit, fitted_plan, records_of, seconds_of
from fabricheck.suites.sources import extract

ROOT = Path(__file__).resolve().parents[2]
TEN_MINUTES = 600.0


def pingpong(ranks: int, nodes: int = 1) -> MeasurementPlan:
    """The check of all pairs (checks/point_to_point.py)."""
    both = ["uncontended", "contended"]
    return MeasurementPlan("copy", ["pingpong"], both, "1B:1GiB:4", 10, 60, ranks, nodes, budget=0.1)


@pytest.mark.parametrize("ranks", [28, 72, 4096])
def test_larger_plans_lose_sizes_first_and_never_the_ends(ranks: int) -> None:
    fitted = fit(pingpong(ranks, ranks // 4), TEN_MINUTES)
    assert "contended" in fitted.plan.schedules
    sizes = fitted.plan.sizes
    assert sizes.replace(":", ",").split(",")[0] == "1B"
    assert "1GiB" in sizes
    assert fitted.seconds <= TEN_MINUTES
    assert records_of(fitted.plan) <= 100_000
    assert fitted.left_out
    assert fitted.job_seconds(600) >= 2 * fitted.seconds


def test_ports_of_512_nodes_are_screened() -> None:
    # NodePairs of checks/network.py with eight ports a node.
    plan = MeasurementPlan(
        "ccl", ["unidirectional"], ["contended"], "8B,1GiB", 2, 60, 4096, 512, pairs="rails", budget=0.1
    )
    fitted = fit(plan, TEN_MINUTES)
    assert fitted.plan == replace(plan, turns=12)
    assert records_of(fitted.plan) == 12 * 2 * 2 * 2048
    assert "each rank meets 12 others" in fitted.left_out
    assert "--turns=12" in fitted.plan.options("r.jsonl")


def test_host_memory_takes_time_beside_its_budgets() -> None:
    of_host, of_device = (replace(pingpong(2), operations=[name]) for name in ("host_to_device", "local_copy"))
    assert seconds_of(of_host) > seconds_of(of_device) + 1


def test_a_test_without_a_budget_keeps_its_plan() -> None:
    plan = replace(pingpong(512, 128), budget=0.0)
    assert fit(plan, TEN_MINUTES).plan == plan


def test_what_was_left_out_is_a_finding_of_the_session() -> None:
    run = Run("r.jsonl", {"transport": "copy"}, (), (), None)
    short = CaseRun(run, "PingPong", "cuda", shortened="2 of 16 sizes are measured")
    assert [each.message for each in find_shortened((short, CaseRun(run, "Other")))] == [
        "PingPong (copy, cuda): 2 of 16 sizes are measured"
    ]


@pytest.mark.full
def test_recorded_runs_took_no_longer_than_their_plans(tmp_path: Path) -> None:
    extract(ROOT / "docs/results/h200x4-2026-11-21/raw.tar.xz", tmp_path)
    seen: Counter[str] = Counter()
    for transport in ("ccl", "copy", "mpi", "staging"):
        # A ping-pong was measured from either end then.
        for test, operation in (("PingPong", "unidirectional"), ("BothDirections", "bidirectional")):
            file = tmp_path / "raw" / "acceptance" / f"{test}-{transport}.jsonl"
            if not file.exists():
                continue
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            planned = lines[0]["plan"]
            sizes = ",".join(f"{each}B" for each in planned["sizes"])
            budget = planned["iterations"]["budget_s"]
            plan = MeasurementPlan(transport, [operation], planned["schedules"], sizes, 10, 60, 4, 1, budget=budget)
            assert lines[-1]["wall_ns"] / 1e9 < seconds_of(plan)
            seen[test] += 1
    assert seen == {"PingPong": 4, "BothDirections": 3}


@pytest.mark.parametrize(("minutes", "is_whole"), [(60, True), (2.5, False), (-1, False)])
def test_over_a_fleet_a_plan_fits_into_half_of_what_is_left(tmp_path: Path, minutes: float, is_whole: bool) -> None:
    until = datetime.now(timezone.utc) + timedelta(minutes=minutes)
    Fleet(tmp_path, "site", "site:gpu", "idle", "17", ("nid001",), until=until.isoformat()).write()
    partition = SimpleNamespace(extras={KEY: str(tmp_path)})
    test = SimpleNamespace(
        current_partition=partition, minutes=10.0, time_limit=600, is_limit_given=True, display_name=""
    )
    plan = pingpong(8)
    fitted = fitted_plan(test, plan)
    assert (fitted == plan) == is_whole == (test.shortened == "")
    assert seconds_of(fitted) <= max(30 * minutes, seconds_of(fit(plan, 0).plan))
    # Without a fleet nothing is known that would end the job.
    partition.extras.clear()
    assert fitted_plan(test, plan) == plan
