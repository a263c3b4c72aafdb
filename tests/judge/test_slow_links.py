"""A link that several pairs cross: where it is slow it is named, and not the pairs; a GPU is no link, nor is all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fabricheck.judge.siblings import Compared
from fabricheck.records.verdict import Verdict
from fabricheck.topology.graph import node_graph
from tests.support.equal_runs import judge_of, pairs, run_of
from tests.support.made_runs import GIB, made_samples, noisy
from tests.support.nodes import system

LUMI = system("lumi")
GRAPH = node_graph(LUMI)
Edge = tuple[str, str]


def path(pair: tuple[int, ...]) -> list[Edge]:
    source, destination = (LUMI.gpu(rank) for rank in pair)
    return list(GRAPH.widest_path(source, destination).edges)


def compared(share: Callable[[tuple[int, ...]], float]) -> Compared:
    """Copies between all GPUs of a node of LUMI, each with `share` of what a healthy one has."""
    ways = pairs(8)
    run = run_of(["nid001"] * 8, ways)
    samples = []
    for number, way in enumerate(ways):
        rate = GRAPH.widest_path(LUMI.gpu(way[0]), LUMI.gpu(way[1])).rate_gbps
        goodput = noisy(0.8 * rate * share(way), 100, noise=0.001, seed=number)
        samples.append(made_samples("unidirectional", way, GIB, goodput))
    judge = judge_of("lumi")
    return judge.compare([replace(judge.judge_alone(replace(run, samples=tuple(samples))), test="Made")])


def over(*edges: Edge) -> Callable[[tuple[int, ...]], float]:
    return lambda pair: 0.6 if set(path(pair)) & set(edges) else 1.0


@pytest.mark.parametrize(
    ("edges", "place"),
    [
        ([("gcd1", "gcd5")], "nid001:gcd1 → nid001:gcd5"),
        ([("gcd1", "gcd5"), ("gcd5", "gcd1")], "nid001:gcd1 ↔ nid001:gcd5"),
    ],
    ids=["one way", "both ways"],
)
def test_the_link_is_named_and_not_the_pairs_that_cross_it(edges: list[Edge], place: str) -> None:
    crossing = [pair for pair in pairs(8) if set(path(pair)) & set(edges)]
    assert len(crossing) > len(edges)
    (problem,) = compared(over(*edges)).problems
    assert (problem.verdict, problem.place) == (Verdict.DEGRADED, place)
    assert f"all {len(crossing)} pairs whose data cross it are, and no others" in problem.message
    assert problem.message.endswith("(GPU 1 at 0000:01:00.0, GPU 5 at 0000:05:00.0)")


def test_a_slow_gpu_is_no_slow_link() -> None:
    found = compared(lambda pair: 0.6 if any("gcd1" in edge for edge in path(pair)) else 1.0)
    assert found.problems
    assert not any("the link" in each.message for each in found.problems)


def test_nothing_is_named_where_all_is_slow_or_nothing() -> None:
    for alike in (lambda _: 0.4, lambda _: 1.0):
        assert not any("the link" in each.message for each in compared(alike).problems)
