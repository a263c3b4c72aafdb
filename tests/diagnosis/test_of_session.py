"""What a session says beside its metrics, and the command that says it of files and of stored sessions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fabricheck.diagnosis.network.results import RETEST, SCREEN
from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen
from fabricheck.diagnosis.network.routes import Ways
from fabricheck.diagnosis.of_session import find_all, with_session_findings, without_cleared
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import split
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.yardsticks.policy import Policy, load_policy
from tests.support.effort import effort
from tests.support.made_runs import MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import ROOT, system

EMULATED = SystemJudge(system("emulated"), None, Policy())
POLICY = load_policy(ROOT / "config" / "policy.yaml")
NODES = [f"nid{number:03d}" for number in range(1, 9)]


def test_a_run_by_itself_is_told_what_its_session_tells() -> None:
    """One node of eight loses 8%: its pairs are slow, and the node is named, by hand as in a session."""
    pairs = [
        made_samples("unidirectional", pair, 2 * MIB, noisy(0.088 if 2 in pair else 0.0957, 20, seed=seed))
        for seed, pair in enumerate(itertools.permutations(range(8), 2))
    ]
    run = made_run(NODES, pairs, ranks=[{"rank": rank} for rank in range(8)], plan={"series": []})
    judge = SystemJudge(EMULATED.topology, None, POLICY)
    problems, _ = split(find_all([made_case(run)], judge))
    by_hand = with_session_findings(judge.judge_alone(run), judge)
    assert [each.place for each in problems] == ["nid003"]
    assert set(problems) <= set(by_hand.problems)
    assert by_hand.verdict is not Verdict.PASS


def pairs_run(file: str, plan: RoundsPlan, loss: Mapping[str, float], seed: int) -> Run:
    """Rounds of pairs of nodes over ports of 0.1 Gb/s, of which some lose a share."""
    samples: list[Samples] = []
    series = []
    for number, pairs in enumerate(plan.rounds):
        for pair in pairs.tolist():
            planned = {"operation": "unidirectional", "schedule": "contended", "ranks": pair, "round": number}
            series.append({**planned, "bytes": [2 * MIB]})
            rate = 0.0957 * (1 - max(loss.get(plan.places[rank], 0.0) for rank in pair))
            values = noisy(rate, 20, seed=seed + len(samples))
            samples.append(made_samples("unidirectional", pair, 2 * MIB, values, schedule="contended", round_=number))
    ranks = [{"rank": rank} for rank in range(len(plan.places))]
    return replace(made_run(plan.places, samples, ranks=ranks, plan={"series": series}), path=f"run/{file}")


@pytest.mark.parametrize("seed", range(effort(6)))
def test_nothing_is_slow_for_a_node_that_is_healthy_when_measured_again(seed: int) -> None:
    """Nor is the loss of another excused, which stays; also where pairs are below the minimum."""
    rng = np.random.default_rng(seed)
    healed, other = map(str, rng.choice(NODES, 2, replace=False))
    stays = {other: 0.3} if rng.integers(2) else {}
    assert EMULATED.topology is not None and EMULATED.topology.network is not None
    ways, judge = Ways(EMULATED.topology.network), SystemJudge(EMULATED.topology, None, POLICY)
    first = pairs_run(SCREEN, screen(ways, NODES, 8), {healed: float(rng.uniform(0.1, 0.7)), **stays}, seed)
    second = pairs_run(RETEST, retest(ways, NODES, [healed, *stays], 4, seed=1), stays, seed + 1000)
    findings = [*find_all([made_case(first), made_case(second)], judge)]
    (judged,) = judge.compare([judge.judge_alone(first)]).runs
    left = without_cleared(judged, findings).judgements
    slow = [{NODES[rank] for rank in metric.samples.ranks} for metric in left if metric.verdict is not Verdict.PASS]
    assert bool(slow) is bool(stays)
    assert all(other in pair and healed not in pair for pair in slow)
