"""Optima of random directed graphs with switches, against brute force over all cuts and a second linear program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.topology import flows
from fabricheck.topology.flows import (
    FlowNetwork,
    allreduce_cut,
    broadcast_cut,
    concurrent_rate,
    flow_between,
    flow_rates,
    gather_cut,
    least_cut,
)
from tests.support.effort import effort

RATES = st.sampled_from([0.1, 10.0, 51.2, 100.0, 400.0, 614.4])


@st.composite
def networks(draw: st.DrawFn, most: int = 10, switches: int = 2) -> FlowNetwork:
    """3 to `most` GPUs and some switches; every vertex is reached from every other one."""
    size = draw(st.integers(3, most))
    vertices = size + draw(st.integers(0, switches))
    capacity = np.zeros((vertices, vertices))
    order = draw(st.permutations(range(vertices)))
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        capacity[a, b] = draw(RATES)
    pairs = st.sampled_from(list(itertools.permutations(range(vertices), 2)))
    for a, b in draw(st.lists(pairs, max_size=2 * vertices)):
        capacity[a, b] += draw(RATES)
        if draw(st.booleans()):
            capacity[b, a] = capacity[a, b]
    return FlowNetwork(tuple(f"v{one}" for one in range(vertices)), tuple(range(size)), capacity)


def symmetric(network: FlowNetwork) -> FlowNetwork:
    return replace(network, capacity=np.maximum(network.capacity, network.capacity.T))


def cuts(network: FlowNetwork) -> Iterator[tuple[float, int]]:
    """Capacity out of each set of vertices with some but not all terminals, and the number of its terminals."""
    size = len(network.vertices)
    for members in itertools.product([False, True], repeat=size):
        inside = np.array(members)
        count = int(inside[list(network.terminals)].sum())
        if 0 < count < network.size:
            yield network.out_of(inside), count


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for parts in partitions(rest):
        yield [[first], *parts]
        for position, part in enumerate(parts):
            yield [*parts[:position], [first, *part], *parts[position + 1 :]]


def divided_rate(network: FlowNetwork, parts: list[list[int]]) -> float:
    """What an allreduce gets over what leaves the parts."""
    return sum(out_of_terminals(network, part) for part in parts) / (2 * (len(parts) - 1))


def out_of_terminals(network: FlowNetwork, members: list[int]) -> float:
    """The least over which switches belong to the members."""
    relays = range(network.size, len(network.vertices))
    best = float("inf")
    for count in range(len(relays) + 1):
        for chosen in itertools.combinations(relays, count):
            inside = np.zeros(len(network.vertices), dtype=bool)
            inside[[*members, *chosen]] = True
            best = min(best, network.out_of(inside))
    return best


def concurrent_by_pairs(network: FlowNetwork) -> float:
    """A commodity for each pair and nothing shared: the definition, as a linear program."""
    edges = list(zip(*np.nonzero(network.capacity), strict=True))
    pairs = list(itertools.permutations(network.terminals, 2))
    size = len(network.vertices)
    equal = np.zeros((len(pairs) * size, len(pairs) * len(edges) + 1))
    for number, (source, destination) in enumerate(pairs):
        for position, (a, b) in enumerate(edges):
            equal[number * size + a, number * len(edges) + position] -= 1
            equal[number * size + b, number * len(edges) + position] += 1
        equal[number * size + source, -1] = 1
        equal[number * size + destination, -1] = -1
    limited = np.hstack([np.tile(np.eye(len(edges)), len(pairs)), np.zeros((len(edges), 1))])
    objective = np.zeros(equal.shape[1])
    objective[-1] = -1
    rates = [network.capacity[edge] for edge in edges]
    solved: Any = scipy.optimize.linprog(objective, limited, rates, equal, np.zeros(len(equal)), method="highs-ipm")
    assert solved.success
    return float(-solved.fun)


@settings(deadline=None, max_examples=effort(20, share=2))
@given(network=networks(most=8))
def test_collectives_are_what_brute_force_over_all_cuts_finds(network: FlowNetwork) -> None:
    found = list(cuts(network))
    assert gather_cut(network) == pytest.approx(min(rate / count for rate, count in found), rel=1e-5)
    assert least_cut(network) == pytest.approx(min(rate for rate, _ in found), rel=1e-5)


@settings(deadline=None, max_examples=effort(20, share=2))
@given(network=networks())
def test_flows_are_those_of_networkx(network: FlowNetwork) -> None:
    for each in (network, symmetric(network)):
        graph: Any = nx.DiGraph()
        graph.add_edges_from((a, b, {"capacity": each.capacity[a, b]}) for a, b in np.argwhere(each.capacity))
        rates = flow_rates(each)
        for a, b in itertools.permutations(each.terminals, 2):
            flow = nx.maximum_flow_value(graph, a, b)
            assert rates[a, b] == pytest.approx(flow, rel=1e-5)
            assert flow_between(each, a, b) == pytest.approx(flow, rel=1e-5)
        root = each.terminals[0]
        assert broadcast_cut(each, root) == pytest.approx(rates[root].min(), rel=1e-5)


@settings(deadline=None, max_examples=effort(20, share=2))
@given(network=networks(most=6))
def test_allreduce_is_what_brute_force_over_all_partitions_finds(network: FlowNetwork) -> None:
    for each in (network, symmetric(network)):
        single = min(rate for rate, _ in cuts(each))
        several = [parts for parts in partitions(list(each.terminals)) if len(parts) > 1]
        divided = min(divided_rate(way, parts) for way in (each, each.backwards) for parts in several)
        assert allreduce_cut(each) == pytest.approx(min(single, divided), rel=1e-5)


@settings(deadline=None, max_examples=effort(20, share=2))
@given(network=networks(most=5))
def test_alltoall_is_that_of_an_independent_linear_program(network: FlowNetwork) -> None:
    for each in (network, symmetric(network)):
        assert concurrent_rate(each) == pytest.approx(concurrent_by_pairs(each), rel=1e-5)


@settings(deadline=None, max_examples=effort(20, share=2))
@given(network=networks())
def test_no_alltoall_exceeds_the_bound_of_large_networks(network: FlowNetwork) -> None:
    exact = concurrent_rate(network)
    with mock.patch.object(flows, "_LARGEST_PROGRAM", 0):
        assert concurrent_rate(network) >= exact * (1 - 1e-6)
