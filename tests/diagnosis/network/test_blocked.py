"""Probes that do not arrive: of random parts of random networks the one at fault is named, and no healthy node."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fabricheck.diagnosis.network.blocked import find_blocked
from fabricheck.records.component import Kind
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import BlockedPath, asked_by
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from fabricheck.topology.model import Topology, find_topology
from fabricheck.topology.network import Network, Route
from fabricheck_lab.simulated_network import fat_tree, hashed
from tests.support.effort import effort
from tests.support.states import nic, node, states

ALPS = find_topology("alps", suite_root() / "site_configs")
PORT = "hsn0"


@dataclass(frozen=True)
class Described:
    """As much of a topology as probes need."""

    network: Network
    nics: tuple[()] = ()


def route_of(network: Network, source: str, destination: str) -> Route:
    """That which the switches choose; the same one in both directions."""
    ends = [f"{each}:{PORT}" for each in sorted((source, destination))]
    return hashed(ends[0], ends[1], network.routes(*ends))


def is_crossed(network: Network, pair: tuple[str, str], fault: str, way: str) -> bool:
    """Whether a pair's data cross a part in a way: `both`, or as a cable or trunk is named, `out`, or `back`."""
    crossed = route_of(network, *pair).components
    if fault not in crossed or way == "both" or "--" not in fault:
        return fault in crossed
    crossed = crossed if pair[0] < pair[1] else crossed[::-1]
    entered = crossed[crossed.index(fault) - 1]
    return fault.startswith(f"{entered}--") is (way == "out")


def probed(network: Network, nodes: Collection[str], fault: str, passed: int, way: str) -> list[Finding]:
    """What comes of probes between these nodes, of which those over `fault` do not arrive."""
    names = sorted(nodes)
    reports = []
    for host in names:
        blocked = tuple(
            BlockedPath(PORT, to, 9000, passed)
            for to in asked_by(host, names)
            if is_crossed(network, (host, to), fault, way)
        )
        reports.append(node(host, "after", nics=(nic(PORT),), blocked=blocked))
    topology: Topology = Described(network)  # type: ignore[assignment]
    return list(find_blocked(states([node(each) for each in names], reports), topology))


@pytest.mark.parametrize("seed", range(effort(10)))
def test_the_part_that_probes_do_not_pass_is_named_and_no_healthy_node(seed: int) -> None:
    """With all nodes of the network, and with some of each leaf."""
    rng = np.random.default_rng(seed)
    leaves = int(rng.integers(1, 5))
    spines = int(rng.integers(1, 3))
    network = fat_tree(leaves * int(rng.integers(2, 7)), leaves, spines)
    share = float(rng.choice([0.5, 1.0]))
    nodes = [each for each in network.nodes if rng.random() <= share]
    pairs = [(host, to) for host in nodes for to in asked_by(host, sorted(nodes))]
    parts = sorted({part for pair in pairs for part in route_of(network, *pair).components})
    if not parts:
        return
    fault, passed, way = str(rng.choice(parts)), int(rng.choice([0, 1500])), str(rng.choice(["both", "out", "back"]))
    found = probed(network, nodes, fault, passed, way)
    if not found and way != "both":
        return
    assert {each.code for each in found} == {"packets-too-large" if passed else "no-connection"}
    true = network.component(fault)
    assert all(each.node in ("", true.node) for each in found), (true, found)
    named = found[0].components
    # Where it is unknown which way a message took, it may be a pair that only a few probes tell of.
    between = [each for each in named if each.kind is Kind.PATH]
    on_path = any(fault in route_of(network, each.node, each.far_node).components for each in between)
    links = {replace(part, direction="") for part in named}
    links |= {replace(part, name=part.far, node=part.far_node, far=part.name, far_node=part.node) for part in links}
    # A healthy port is not blamed alone: its cable is as suspect, and the port of the switch with it.
    of_its_node = true.kind is not Kind.LINK and any(not true.nodes.isdisjoint(part.nodes) for part in named)
    assert true in links or of_its_node or on_path, (true, found)
    assert len(found) == 1 or spines > 1


def test_ports_of_another_network_than_the_described_one_are_only_told() -> None:
    """ALPS has hsn0 to hsn3. The state before the test counts as well."""
    for port, verdict in ((PORT, Verdict.DEGRADED), ("eth0", Verdict.PASS)):
        path = BlockedPath(port, "nid002", 60, 0)
        both = (nic(PORT), nic("eth0"))
        hosts = ("nid001", "nid002", "nid003", "nid004")
        before = [node(each, nics=both, blocked=() if each == "nid002" else (path,)) for each in hosts]
        (found,) = find_blocked(states(before, [node(each, "after", nics=both) for each in hosts]), ALPS)
        assert (found.code, found.verdict, found.node) == ("no-connection", verdict, "nid002")


@pytest.mark.parametrize("seed", range(effort(5)))
def test_ports_with_one_address_are_named_and_no_other(seed: int) -> None:
    """Of a described port; each node may have a bridge of its own. What is sent to an address that two have arrives
    at either."""
    rng = np.random.default_rng(seed)
    hosts = [f"nid00{number}" for number in range(1, rng.integers(3, 9))]
    for port, verdict in ((PORT, Verdict.INVALID), ("docker0", Verdict.PASS)):
        same = sorted(map(str, rng.choice(hosts, 2, replace=False)))
        before = []
        for host in hosts:
            blocked = [BlockedPath(port, other, 0, 0) for other in same if host in same and other != host]
            lost = [other for other in hosts if (host in same) != (other in same) and rng.random() < 0.5]
            blocked += [BlockedPath(port, other, 60, 0) for other in lost]
            before.append(node(host, nics=(nic(PORT), nic("docker0")), blocked=tuple(blocked)))
        (found,) = find_blocked(states(before, []), ALPS)
        assert (found.code, found.verdict) == ("same-identity", verdict)
        assert [part.text for part in found.components] == [f"{host}:{port}" for host in same]
