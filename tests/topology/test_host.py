"""Switches to the host: what GPUs share on the way to CPUs, and that nothing goes over them from GPU to GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.topology.graph import NodeGraph
from fabricheck.topology.host import host_links, host_paths, host_rates
from fabricheck.topology.model import Cpu, Link, Switch, Topology
from tests.support.effort import effort
from tests.support.nodes import node, system

RATES = st.sampled_from([50.0, 100.0, 200.0, 400.0])


@st.composite
def hosts(draw: st.DrawFn) -> Topology:
    """A node whose GPUs have links of their own to CPUs, links to switches to the host, or both."""
    made = node(draw(st.integers(1, 6)), [])
    hubs = [f"hub{number}" for number in range(draw(st.integers(1, 3)))]
    cpus = ["cpu0", "cpu1"]
    pairs = [(hub, draw(st.sampled_from(cpus))) for hub in hubs]
    for gpu in made.gpus:
        pairs += [(gpu.name, end) for end in draw(st.lists(st.sampled_from([*hubs, *cpus]), min_size=1, unique=True))]
    return replace(
        made,
        cpus=tuple(Cpu(name, draw(st.none() | RATES)) for name in cpus),
        switches=tuple(Switch(name, "test", host_only=True) for name in hubs),
        links=tuple(Link(pair, "test", 1, draw(RATES), "test", draw(st.none() | RATES)) for pair in pairs),
    )


@settings(deadline=None, max_examples=effort(60))
@given(topology=hosts(), to_device=st.booleans())
def test_no_link_carries_more_than_it_can_and_no_gpu_gets_nothing(topology: Topology, to_device: bool) -> None:
    alone = {gpu.name: host_rates(topology, [gpu], to_device=to_device)[gpu.name] for gpu in topology.gpus}
    together = host_rates(topology, topology.gpus, to_device=to_device)
    assert all(0 < together[name] <= rate * (1 + 1e-9) for name, rate in alone.items())
    # No share is smaller than one of as many as there are paths.
    paths = sum(len(host_paths(topology, gpu)) for gpu in topology.gpus)
    assert all(together[name] >= rate / paths * (1 - 1e-9) for name, rate in alone.items())
    for cpu in topology.cpus:
        into = [gpu.name for gpu in topology.gpus if {path[-1] for path in host_paths(topology, gpu)} == {cpu.name}]
        assert cpu.device_rate_gbps is None or sum(together[name] for name in into) <= cpu.device_rate_gbps * (1 + 1e-9)
    for hub in topology.host_switches:
        over = [gpu.name for gpu in topology.gpus if {path[1] for path in host_paths(topology, gpu)} == {hub.name}]
        (link,) = [link for link in topology.links if link.ends[0] == hub.name]
        rate = link.towards(hub.name if to_device else link.ends[1])
        assert sum(together[name] for name in over) <= rate * (1 + 1e-9)


def test_what_a_narrow_link_leaves_of_a_switch_is_the_others_in_each_direction() -> None:
    made = node(3, [])
    rates = {("gpu0", "hub"): (50.0, 20.0), ("gpu1", "hub"): (400.0, 400.0), ("gpu2", "hub"): (400.0, 400.0)}
    links = [Link(ends, "test", 1, there, "test", back) for ends, (there, back) in rates.items()]
    links.append(Link(("hub", "cpu0"), "test", 1, 350.0, "test", 100.0))
    topology = replace(made, switches=(Switch("hub", "test", host_only=True),), links=tuple(links))
    assert host_rates(topology, topology.gpus, to_device=False) == {"gpu0": 50, "gpu1": 150, "gpu2": 150}
    assert host_rates(topology, topology.gpus, to_device=True) == {"gpu0": 20, "gpu1": 40, "gpu2": 40}


def test_links_to_the_host_are_those_of_the_gpus_own_switch() -> None:
    aurora = system("aurora")
    assert host_paths(aurora, aurora.gpu(7)) == (("tile7", "pcie3", "cpu1"),)
    assert [link.ends for link in host_links(aurora, [aurora.gpu(7)])] == [("tile7", "pcie3"), ("pcie3", "cpu1")]


def test_over_a_switch_for_peers_the_tiles_of_a_gpu_would_reach_each_other_beside_mdfi() -> None:
    aurora = system("aurora")
    for host_only, gbytes in ((True, 256 + 5 * 20), (False, 256 + 64 + 5 * 20)):
        switches = tuple(replace(switch, host_only=host_only) for switch in aurora.switches)
        graph = NodeGraph(replace(aurora, switches=switches))
        assert graph.flow_gbps(aurora.gpu(0), aurora.gpu(1)) == pytest.approx(8 * gbytes)
