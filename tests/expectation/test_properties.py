"""What must hold for every node: the model's properties, on graphs that hypothesis makes."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.expectation import goodput
from fabricheck.topology import nic
from fabricheck.topology.graph import NodeGraph
from fabricheck.topology.model import Gpu, Topology
from tests.effort import effort
from tests.expectation.nodes import PAPERS, graph, node, system

COUNTS = st.integers(1, 4)
RATES = st.sampled_from([50.0, 100.0, 200.0, 400.0])

# What a node as a whole gets. A new link can shorten paths and crowd them, so alltoall is left to its own test.
WHOLE = {
    "allreduce": goodput.allreduce,
    "allgather": goodput.allgather,
    "reduce_scatter": goodput.reduce_scatter,
    "copy_allgather": goodput.copy_allgather,
}
SENT = {"alltoall": goodput.alltoall, "allreduce": goodput.allreduce, "spread": goodput.spread}


@st.composite
def nodes(draw: st.DrawFn, least: int = 2, most: int = 5) -> Topology:
    """A connected node: a random tree with some more links."""
    size = draw(st.integers(least, most))
    links = {(draw(st.integers(0, one - 1)), one) for one in range(1, size)}
    links |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(range(size), 2))), max_size=6)))
    return node(size, [(a, b, draw(COUNTS), draw(RATES)) for a, b in sorted(links)])


@st.composite
def near_nodes(draw: st.DrawFn) -> Topology:
    """A node in which at most one GPU lies between any two."""
    size = draw(st.integers(3, 5))
    links = {(0, one) for one in range(1, size)}
    links |= set(draw(st.lists(st.sampled_from(list(itertools.combinations(range(size), 2))), max_size=6)))
    return node(size, [(a, b, draw(COUNTS), draw(RATES)) for a, b in sorted(links)])


def with_link(before: Topology, a: int, b: int, count: int, rate: float) -> Topology:
    return replace(before, links=before.links + node(max(a, b) + 1, [(a, b, count, rate)]).links)


def pairs(topology: Topology) -> list[tuple[Gpu, Gpu]]:
    return list(itertools.permutations(topology.gpus, 2))


@pytest.mark.parametrize("operation", SENT)
@settings(deadline=None, max_examples=effort(60))
@given(topology=nodes())
def test_goodput_is_never_above_injection(operation: str, topology: Topology) -> None:
    made = NodeGraph(topology)
    assert SENT[operation](made) <= made.least_injection_gbps * (1 + 1e-9)


@pytest.mark.parametrize("operation", SENT)
@pytest.mark.parametrize("name", PAPERS)
def test_goodput_is_never_above_injection_on_the_papers_systems(operation: str, name: str) -> None:
    assert SENT[operation](graph(name)) <= graph(name).least_injection_gbps * (1 + 1e-9)


@settings(deadline=None, max_examples=effort(60))
@given(topology=nodes())
def test_a_pair_is_never_above_either_ends_injection(topology: Topology) -> None:
    made = NodeGraph(topology)
    for a, b in pairs(topology):
        limit = min(made.injection_gbps(a), made.injection_gbps(b))
        assert goodput.point_to_point(made, a, b) <= made.flow_gbps(a, b) * (1 + 1e-9) <= limit * (1 + 2e-9)
        assert goodput.broadcast(made, a) <= made.injection_gbps(a) * (1 + 1e-9)


@settings(deadline=None, max_examples=effort(60))
@given(topology=nodes(), data=st.data())
def test_a_link_never_lowers_an_expectation(topology: Topology, data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(list(itertools.combinations(range(len(topology.gpus)), 2))))
    before = NodeGraph(topology)
    after = NodeGraph(with_link(topology, a, b, data.draw(COUNTS), data.draw(RATES)))
    for x, y in pairs(topology):
        assert goodput.point_to_point(after, x, y) >= goodput.point_to_point(before, x, y)
        assert after.injection_gbps(x) >= before.injection_gbps(x)
        assert goodput.broadcast(after, x) >= goodput.broadcast(before, x) * (1 - 1e-9)
    for name in ("allreduce", "allgather", "reduce_scatter"):
        assert WHOLE[name](after) >= WHOLE[name](before) * (1 - 1e-9), name
    bisections = (after.bisection_gbps, before.bisection_gbps)
    assert bisections[0] is not None and bisections[1] is not None
    assert bisections[0] >= bisections[1] * (1 - 1e-9)


@settings(deadline=None, max_examples=effort(60))
@given(topology=near_nodes(), data=st.data())
def test_a_link_never_lowers_the_alltoall_of_near_gpus(topology: Topology, data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(list(itertools.combinations(range(len(topology.gpus)), 2))))
    before = NodeGraph(topology)
    after = NodeGraph(with_link(topology, a, b, data.draw(COUNTS), data.draw(RATES)))
    assert goodput.alltoall(after) >= goodput.alltoall(before) * (1 - 1e-9)
    assert goodput.copy_allgather(after) >= goodput.copy_allgather(before) * (1 - 1e-9)


@settings(deadline=None, max_examples=effort(60))
@given(topology=nodes(), data=st.data())
def test_renumbering_permutes_the_answer(topology: Topology, data: st.DataObject) -> None:
    size = len(topology.gpus)
    new = data.draw(st.permutations(range(size)))
    renamed = node(
        size, [(new[int(x.ends[0][3:])], new[int(x.ends[1][3:])], x.count, x.rate_gbps) for x in topology.links]
    )
    before, after = NodeGraph(topology), NodeGraph(renamed)
    for a, b in pairs(topology):
        x, y = renamed.gpu(new[a.index]), renamed.gpu(new[b.index])
        assert goodput.point_to_point(after, x, y) == goodput.point_to_point(before, a, b)
        assert after.injection_gbps(x) == before.injection_gbps(a)
    for operation in (*WHOLE.values(), goodput.alltoall):
        assert operation(after) == pytest.approx(operation(before))
    assert after.edge_forwarding_index == pytest.approx(before.edge_forwarding_index)
    assert after.bisection_gbps == pytest.approx(before.bisection_gbps)


@pytest.mark.parametrize("name", ["lumi", "aurora", "summit", "sierra"])
def test_renumbering_permutes_the_answer_on_the_papers_systems(name: str) -> None:
    before = system(name)
    order = list(range(len(before.gpus)))
    random.Random(1).shuffle(order)
    moved = replace(before, gpus=tuple(replace(gpu, index=order[gpu.index]) for gpu in before.gpus))
    after = NodeGraph(moved)
    for a, b in itertools.permutations(before.gpus, 2):
        there = goodput.point_to_point(after, moved.gpu(order[a.index]), moved.gpu(order[b.index]))
        assert there == goodput.point_to_point(graph(name), a, b)
    for operation in (*WHOLE.values(), goodput.alltoall):
        assert operation(after) == pytest.approx(operation(graph(name)))


@given(f=st.floats(1, 1000), k=st.integers(1, 64))
def test_packed_with_one_gpu_a_nic_is_one_to_one(f: float, k: int) -> None:
    assert nic.packed(f, k, 1) == pytest.approx(nic.one_to_one(f, k)) == pytest.approx(f * k)
    assert nic.round_robin(f, k, k) == pytest.approx(f * k)


@given(f=st.floats(1, 1000), k=st.integers(1, 64), p=st.integers(1, 8))
def test_more_active_gpus_never_lower_a_packed_node(f: float, k: int, p: int) -> None:
    assert nic.packed(f, k + 1, p) >= nic.packed(f, k, p) >= f


@settings(deadline=None, max_examples=effort(40))
@given(topology=nodes())
def test_rings_share_no_link(topology: Topology) -> None:
    made = NodeGraph(topology)
    found = goodput.rings(made)
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
def test_the_linear_program_agrees_with_the_edge_forwarding_index(name: str) -> None:
    """On the papers' systems the share of a pair is that of the most loaded edge under shortest-path routing."""
    made = graph(name)
    shortest = min(made._whole.edges[one.edge]["rate"] / one.paths for one in made.edge_loads)
    assert made.pair_share_gbps == pytest.approx(shortest)
