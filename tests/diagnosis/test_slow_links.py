"""A link or a GPU that several pairs cross: where it is slow it is named, and not the pairs; nor is all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fabricheck.diagnosis.causes import Diagnosis, diagnose
from fabricheck.records.component import Component, Kind
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Link, Switch
from tests.support.equal_runs import judge_of, pairs, run_of
from tests.support.made_runs import GIB, made_samples, noisy
from tests.support.nodes import node, system

LUMI = system("lumi")
GRAPH = node_graph(LUMI)
Edge = tuple[str, str]


def path(pair: tuple[int, ...]) -> list[Edge]:
    source, destination = (LUMI.gpu(rank) for rank in pair)
    return list(GRAPH.widest_path(source, destination).edges)


def diagnosed(share: Callable[[tuple[int, ...]], float]) -> Diagnosis:
    """Copies between all GPUs of a node of LUMI, each with `share` of what a healthy one has."""
    ways = pairs(8)
    run = run_of(["nid001"] * 8, ways)
    model = LUMI.gpus[0].model
    ranks = tuple(replace(each, device=replace(each.device, name=model)) for each in run.ranks if each.device)
    samples = []
    for number, way in enumerate(ways):
        rate = GRAPH.widest_path(LUMI.gpu(way[0]), LUMI.gpu(way[1])).rate_gbps
        goodput = noisy(0.8 * rate * share(way), 100, noise=0.001, seed=number)
        samples.append(made_samples("unidirectional", way, GIB, goodput))
    judge = judge_of("lumi")
    alone = judge.judge_alone(replace(run, ranks=ranks, samples=tuple(samples)))
    compared = judge.compare([replace(alone, test="Made")])
    return diagnose(compared.runs, compared.problems, compared.findings)


def over(*edges: Edge) -> Callable[[tuple[int, ...]], float]:
    return lambda pair: 0.6 if set(path(pair)) & set(edges) else 1.0


@pytest.mark.parametrize(
    ("edges", "direction"),
    [([("gcd1", "gcd5")], "out"), ([("gcd1", "gcd5"), ("gcd5", "gcd1")], "")],
    ids=["one way", "both ways"],
)
def test_the_link_is_named_and_not_the_pairs_that_cross_it(edges: list[Edge], direction: str) -> None:
    crossing = [pair for pair in pairs(8) if set(path(pair)) & set(edges)]
    assert len(crossing) > len(edges)
    found = diagnosed(over(*edges))
    link = Component(Kind.LINK, "gcd1", "nid001", "gcd5", "nid001", direction)
    (problem,) = found.problems
    assert (problem.code, problem.components) == ("slow-link", (link,))
    (cause,) = found.causes
    assert (cause.finding.components, len(cause.rows)) == ((link,), len(crossing))


def test_a_slow_gpu_is_named_and_not_those_whose_data_go_over_it() -> None:
    found = diagnosed(lambda pair: 0.6 if any("gcd1" in edge for edge in path(pair)) else 1.0)
    assert {each.components for each in found.problems} == {(Component(Kind.GPU, "gcd1", "nid001"),)}
    assert {each.finding.components for each in found.causes} == {(Component(Kind.GPU, "gcd1", "nid001"),)}


def test_a_link_that_explains_what_most_lost_leaves_the_others_healthy() -> None:
    """Three switches below another, two GPUs each: two of three pairs between switches cross the link of the first."""
    below = [Link((f"gpu{gpu}", f"switch{gpu // 2}"), "PCIe", 1, 400.0, "test") for gpu in range(6)]
    above = [Link((f"switch{number}", "root"), "PCIe", 1, 400.0, "test") for number in range(3)]
    switches = tuple(Switch(name, "test") for name in ("root", "switch0", "switch1", "switch2"))
    topology = replace(node(6, []), switches=switches, links=(*below, *above))
    crossing = {way: 0.3 for way in pairs(6) if sum(rank < 2 for rank in way) == 1}
    judge = replace(judge_of(), topology=topology)
    found = judge.compare([judge.judge_alone(run_of(["vm"] * 6, pairs(6), slower=crossing, level=330.0))])
    (problem,) = diagnose(found.runs, found.problems).problems
    assert problem.components == (Component(Kind.LINK, "root", "vm", "switch0", "vm"),)
