"""What must hold for every node: the model's properties, on graphs that hypothesis makes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

import networkx as nx
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.limits import optimum
from fabricheck.limits.gpus import algorithm_of
from fabricheck.records.operations import COLLECTIVES
from fabricheck.topology import flows
from fabricheck.topology.flows import FlowNetwork
from fabricheck.topology.graph import NodeGraph, node_graph
from fabricheck.topology.model import Gpu, Link, Switch, Topology
from tests.support.effort import effort
from tests.support.nodes import PAPERS, graph, node, system

COUNTS = st.integers(1, 4)
RATES = st.sampled_from([50.0, 100.0, 200.0, 400.0])


@st.composite
def nodes(draw: st.DrawFn, least: int = 2, most: int = 5) -> Topology:
    """A connected node: a random tree with some more links."""
    size = draw(st.integers(least, most))
    links = {(draw(st.integers(0, one - 1)), one) for one in range(1, size)}
    links |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(range(size), 2))), max_size=6)))
    return node(size, [(a, b, draw(COUNTS), draw(RATES)) for a, b in sorted(links)])


@st.composite
def any_nodes(draw: st.DrawFn) -> Topology:
    """A node of 3 to 10 GPUs with two switches and a CPU, links that may be slower one way, in several islands."""
    size = draw(st.integers(3, 10))
    made = node(size, [])
    gpus = [gpu.name for gpu in made.gpus]
    switches = ["switch0", "switch1"]
    links = [Link((name, "cpu0"), "host", 1, draw(RATES), "test", draw(st.none() | RATES)) for name in gpus]
    pairs = st.sampled_from(list(itertools.combinations([*gpus, *switches], 2)))
    joined = draw(st.lists(pairs, max_size=3 * size, unique=True))
    links += [Link(pair, "test", draw(COUNTS), draw(RATES), "test", draw(st.none() | RATES)) for pair in joined]
    return replace(made, links=tuple(links), switches=tuple(Switch(name, "test") for name in switches))


def with_link(before: Topology, a: int, b: int, count: int, rate: float) -> Topology:
    return replace(before, links=before.links + node(max(a, b) + 1, [(a, b, count, rate)]).links)


def pairs(topology: Topology) -> list[tuple[Gpu, Gpu]]:
    return list(itertools.permutations(topology.gpus, 2))


def best(topology: Topology) -> dict[str, float]:
    return {operation: optimum.collective(topology, operation, topology.gpus) for operation in COLLECTIVES}


def flow(network: FlowNetwork, sources: dict[str, float], sink: str) -> float:
    """By networkx, of what these terminals supply."""
    links: Any = nx.DiGraph()
    names = [*network.terminals, *range(len(network.terminals), len(network.capacity))]
    links.add_nodes_from(names)
    for a, b in np.argwhere(network.capacity):
        links.add_edge(names[a], names[b], capacity=network.capacity[a, b])
    links.add_edges_from(("source", name, {"capacity": rate}) for name, rate in sources.items())
    return float(nx.maximum_flow_value(links, "source", sink))


def concurrent_rate(network: FlowNetwork) -> float:
    """What each terminal can send to each other one at once: a commodity for each pair, as a linear program."""
    edges = np.argwhere(network.capacity)
    vertices, pairs = len(network.capacity), list(itertools.permutations(range(len(network.terminals)), 2))
    equal = np.zeros((len(pairs) * vertices, len(pairs) * len(edges) + 1))
    for number, (source, destination) in enumerate(pairs):
        for position, (a, b) in enumerate(edges):
            equal[number * vertices + a, number * len(edges) + position] -= 1
            equal[number * vertices + b, number * len(edges) + position] += 1
        equal[number * vertices + source, -1] = 1
        equal[number * vertices + destination, -1] = -1
    limited = np.hstack([np.tile(np.eye(len(edges)), len(pairs)), np.zeros((len(edges), 1))])
    objective = np.zeros(equal.shape[1])
    objective[-1] = -1
    rates = network.capacity[tuple(edges.T)]
    solved: Any = scipy.optimize.linprog(objective, limited, rates, equal, np.zeros(len(equal)), method="highs")
    assert solved.success
    return float(-solved.fun)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=any_nodes())
def test_optima_are_what_flows_reach(topology: Topology) -> None:
    first, *others = names = [gpu.name for gpu in topology.gpus]
    network, most, n = node_graph(topology).network(topology.gpus), best(topology), len(names)
    least = min(flow(network, {first: np.inf}, name) for name in others)
    assert most["broadcast"] == pytest.approx(least)
    assert most["reduce"] == pytest.approx(min(flow(network, {name: np.inf}, first) for name in others))
    for name in others:
        pair = node_graph(topology).network((topology.gpus[0], topology.gpu(int(name.removeprefix("gpu")))))
        assert node_graph(topology).flow_gbps(topology.gpus[0], topology.gpu(int(name.removeprefix("gpu")))) == (
            pytest.approx(flow(pair, {first: np.inf}, name))
        )
    backwards = replace(network, capacity=network.capacity.T)
    for way, operation in ((network, "allgather"), (backwards, "reduce_scatter")):
        for more, is_reached in ((1 - 1e-6, True), (1 + 1e-3, False)):
            share = more * most[operation] / n
            own = dict.fromkeys(names, share)
            reached = all(flow(way, own, name) >= n * share * (1 - 1e-9) for name in names)
            assert reached == is_reached or not share, operation
    assert most["allreduce"] <= most["broadcast"] * (1 + 1e-9)
    with mock.patch.object(flows, "MOST_VERTICES", 0):
        loose = best(replace(topology))
    assert all(loose[operation] >= most[operation] * (1 - 1e-9) for operation in most)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=nodes())
def test_no_alltoall_is_above_its_bound(topology: Topology) -> None:
    rate = concurrent_rate(node_graph(topology).network(topology.gpus))
    assert best(topology)["alltoall"] >= len(topology.gpus) * rate * (1 - 1e-6)


@pytest.mark.parametrize("name", ["alps", "lumi", "summit"])
def test_the_bound_of_an_alltoall_is_reached_on_machines(name: str) -> None:
    network = graph(name).network(system(name).gpus)
    assert best(system(name))["alltoall"] == pytest.approx(len(network.terminals) * concurrent_rate(network))


@pytest.mark.parametrize("transport", ["ccl", "copy"])
@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=any_nodes(), data=st.data())
def test_no_algorithm_is_above_the_optimum(transport: str, topology: Topology, data: st.DataObject) -> None:
    size = len(topology.gpus)
    some = data.draw(st.lists(st.sampled_from(topology.gpus), min_size=2, max_size=size, unique=True))
    for gpus in (topology.gpus, tuple(some)):
        for operation in COLLECTIVES:
            found = algorithm_of(topology, operation, transport, tuple(gpus))
            assert found.gbps <= optimum.collective(topology, operation, gpus) * (1 + 1e-5), (operation, found)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=any_nodes())
def test_a_pair_is_never_above_all_its_paths(topology: Topology) -> None:
    made = NodeGraph(topology)
    for a, b in pairs(topology):
        assert made.widest_path(a, b).rate_gbps <= made.flow_gbps(a, b) * (1 + 1e-6)
        shares = made.widest_shares(a, b)
        leaving = sum(share for (start, _), share in shares.items() if start == a.name)
        arriving = sum(share for (_, end), share in shares.items() if end == b.name)
        assert leaving == pytest.approx(1) == pytest.approx(arriving)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=nodes(), data=st.data())
def test_a_link_never_lowers_an_optimum(topology: Topology, data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(list(itertools.combinations(range(len(topology.gpus)), 2))))
    more = with_link(topology, a, b, data.draw(COUNTS), data.draw(RATES))
    before, after = NodeGraph(topology), NodeGraph(more)
    for x, y in pairs(topology):
        assert after.widest_path(x, y).rate_gbps >= before.widest_path(x, y).rate_gbps
        assert after.flow_gbps(x, y) >= before.flow_gbps(x, y) * (1 - 1e-6)
        assert after.injection_gbps(x) >= before.injection_gbps(x)
    was, now = best(topology), best(more)
    assert all(now[operation] >= was[operation] * (1 - 1e-5) for operation in COLLECTIVES)
    bisections = (after.bisection_gbps, before.bisection_gbps)
    assert bisections[0] is not None and bisections[1] is not None
    assert bisections[0] >= bisections[1] * (1 - 1e-9)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=any_nodes(), data=st.data())
def test_renumbering_permutes_the_answer(topology: Topology, data: st.DataObject) -> None:
    size = len(topology.gpus)
    new = data.draw(st.permutations(range(size)))
    names = {gpu.name: f"gpu{new[gpu.index]}" for gpu in topology.gpus}
    swapped = {"switch0": "switch1", "switch1": "switch0"}
    names |= swapped if data.draw(st.booleans()) else {}

    def moved(link: Link) -> Link:
        return replace(link, ends=(names.get(link.ends[0], link.ends[0]), names.get(link.ends[1], link.ends[1])))

    renamed = replace(topology, links=tuple(moved(link) for link in topology.links))
    before, after = NodeGraph(topology), NodeGraph(renamed)
    for a, b in pairs(topology):
        x, y = renamed.gpu(new[a.index]), renamed.gpu(new[b.index])
        assert after.widest_path(x, y).rate_gbps == before.widest_path(a, b).rate_gbps
        assert after.injection_gbps(x) == before.injection_gbps(a)
    was, now = best(topology), best(replace(renamed, gpus=tuple(renamed.gpu(one) for one in new)))
    assert now == pytest.approx(was, rel=1e-5)
    assert after.edge_forwarding_index == pytest.approx(before.edge_forwarding_index)
    assert after.pair_share_gbps == pytest.approx(before.pair_share_gbps)
    if size <= 5:
        for transport, operation in itertools.product(("ccl", "copy"), COLLECTIVES):
            one = algorithm_of(topology, operation, transport, topology.gpus).gbps
            other = algorithm_of(renamed, operation, transport, tuple(renamed.gpu(each) for each in new)).gbps
            assert other == pytest.approx(one), (operation, transport)


@settings(deadline=None, max_examples=effort(15, share=2))
@given(topology=nodes())
def test_rings_share_no_link(topology: Topology) -> None:
    made = NodeGraph(topology)
    found = optimum.edge_disjoint_rings(made)
    used: dict[frozenset[str], float] = {}
    for ring in found.rings:
        assert sorted(ring) == sorted(made.gpu_names)
        if len(ring) > 2:
            for edge in zip(ring, ring[1:] + ring[:1], strict=True):
                used[frozenset(edge)] = used.get(frozenset(edge), 0.0) + found.rate_gbps
    for ends, rate in used.items():
        a, b = sorted(ends)
        assert rate <= made.rate((a, b)) * (1 + 1e-9)


@pytest.mark.parametrize("name", PAPERS)
def test_the_share_of_a_pair_is_that_of_the_most_loaded_edge(name: str) -> None:
    """On the papers' systems the share of a pair is that of the most loaded edge under shortest-path routing."""
    made = graph(name)
    shortest = min(made.path_rate(edge) / paths for edge, paths in made.edge_loads.items())
    assert made.pair_share_gbps == pytest.approx(shortest)
