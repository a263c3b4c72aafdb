"""Where the ranks of any run are in the network: several on a node, other numbers of GPUs than NICs, strangers."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from fabricheck.diagnosis.network.pair_findings import judge_pairs
from fabricheck.diagnosis.network.results import pairs_of, places_of
from fabricheck.diagnosis.of_session import find_all
from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import split
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology, load_topology
from fabricheck.yardsticks.policy import Policy
from tests.support.made_runs import GIB, made_case, made_run, made_samples
from tests.support.nodes import ROOT
from tests.support.result_files import changed

# LUMI in small: twice as many GPUs as NICs.
TOPOLOGY = (ROOT / "tests/data/topologies/packed.yaml").read_text(encoding="utf-8")
NODES = ["nid001", "nid002", "nid003", "nid004"]


@pytest.fixture
def packed(tmp_path: Path) -> Topology:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    return load_topology(file)


def run_of(hosts: list[str], each: int, *, slow: str = "", devices: bool = True, gpus: tuple[int, ...] = ()) -> Run:
    """Every rank with every other one at 190 Gb/s, with `slow` at half of it; the n-th of a node drives `gpus[n]`."""
    ranks = [host for host in hosts for _ in range(each)]
    samples = [
        made_samples("unidirectional", pair, GIB, 95 if slow in [ranks[one] for one in pair] else 190)
        for pair in permutations(range(len(ranks)), 2)
    ]
    run = made_run(ranks, samples, devices=devices)
    if not gpus:
        return run
    places = [
        replace(one, device=replace(one.device, index=gpus[one.local_rank])) if one.device else one for one in run.ranks
    ]
    return replace(run, ranks=tuple(places))


def test_a_rank_is_where_the_nic_of_its_gpu_is(packed: Topology) -> None:
    every = places_of(run_of(NODES[:2], 4), packed)
    assert every[:4] == ("nid001:hsn0", "nid001:hsn0", "nid001:hsn1", "nid001:hsn1")
    # One rank for each NIC: the GPUs that use them.
    assert places_of(run_of(NODES[:2], 2, gpus=(0, 2)), packed)[2:] == ("nid002:hsn0", "nid002:hsn1")
    assert places_of(run_of(NODES[:2], 2, gpus=(0, 1)), packed)[2:] == ("nid002:hsn0", "nid002:hsn0")


def test_ranks_without_a_gpu_are_on_ports_only_where_that_is_known(packed: Topology) -> None:
    assert places_of(run_of(NODES[:2], 2, devices=False), packed)[:2] == ("nid001:hsn0", "nid001:hsn1")
    assert places_of(run_of(NODES[:2], 3, devices=False), packed)[:3] == ("nid001",) * 3


def test_a_host_may_add_its_domain_and_a_stranger_is_named(packed: Topology) -> None:
    assert places_of(run_of(["nid001.site", "nid002.site"], 1, devices=False), packed) == ("nid001", "nid002")
    with pytest.raises(UserError, match="a rank ran on 'vm7', which is not a node of the network"):
        places_of(run_of(["nid001", "vm7"], 1), packed)


@pytest.mark.parametrize(("each", "gpus"), [(1, (0,)), (2, (0, 2)), (3, ()), (4, ())])
def test_pairs_inside_nodes_are_passed_over_and_the_slow_node_is_named(
    packed: Topology, each: int, gpus: tuple[int, ...]
) -> None:
    run = run_of(NODES, each, slow="nid003", gpus=gpus)
    pairs = [pair for one in pairs_of(run, packed, operation="unidirectional") for pair, _ in one]
    assert len(pairs) == (4 * each) * (3 * each)
    problems, _ = split(judge_pairs(run, packed, Policy()))
    assert {one.verdict for one in problems} == {Verdict.DEGRADED}
    assert {one.message[:6] for one in problems} == {"nid003"}


def test_a_suspect_that_is_healthy_again_is_a_finding(packed: Topology) -> None:
    screen, policy = run_of(NODES, 1, slow="nid003"), Policy(smallest_loss=0.03)

    def said(again: Run) -> tuple[list[str], list[str]]:
        problems, findings = split(judge_pairs(screen, packed, policy, again))
        return [one.place for one in problems], [one.message for one in findings]

    (healthy,) = said(run_of(NODES, 1))[1]
    assert healthy.startswith("nid003")
    assert "good partners" in healthy
    suspected = said(run_of(NODES, 1, slow="nid003"))
    assert suspected[1] == []
    assert suspected[0][0].startswith("nid003")
    # What was measured again and cannot be read, or did not get to its end, clears nobody.
    assert said(run_of(["nid001", "vm7"], 1)) == suspected
    assert said(replace(run_of(NODES, 1), footer=None)) == suspected


def test_few_pairs_tell_nothing_and_that_is_said(packed: Topology) -> None:
    (found,) = judge_pairs(run_of(NODES[:3], 1), packed, Policy())
    assert not found.is_problem
    assert "6 usable readings are too few to tell a fault from noise" in found.message


def test_what_cannot_be_looked_at_is_one_line_and_costs_nothing_else(packed: Topology) -> None:
    strange = made_case(run_of(["nid001", "nid002", "vm7"], 4), test="Strange")
    slow = made_case(run_of(NODES, 2, slow="nid003", gpus=(0, 2)), test="Slow")
    problems, _ = split(find_all([strange, slow], SystemJudge(packed, None, Policy())))
    lines = [one.message for one in problems if "'vm7'" in one.message]
    assert len(lines) == len(set(lines))
    assert all("\n" not in line for line in lines)
    assert any(one.message.startswith("nid003") for one in problems)


def test_a_run_that_cannot_be_judged_is_invalid_and_keeps_its_metrics(packed: Topology, tmp_path: Path) -> None:
    judge = SystemJudge(packed, None, Policy())
    here = changed(tmp_path, lambda lines: None)
    away = changed(tmp_path, lambda lines: lines[0]["ranks"][1].update(host="vm7"))
    assert judge.judge_or_invalid(here) == judge.judge(here)
    judged = judge.judge_or_invalid(away)
    assert judged.verdict is Verdict.INVALID
    assert "cannot be judged: a rank ran on 'vm7'" in judged.problems[0].message
    assert [each.name for each in judged.judgements] == [each.name for each in judge.judge(here).judgements]
