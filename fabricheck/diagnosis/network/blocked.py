"""Which part of a network lets no packets through, or no large ones, by the probes between its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from fabricheck.diagnosis.causes import named_of
from fabricheck.diagnosis.explain import Row, explain
from fabricheck.diagnosis.table import shares_of_routes
from fabricheck.records.component import Component, Kind, either
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import BlockedPath, NodeState, States, asked_by
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import LEAST_LOSS
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network
from fabricheck.units import few

_SAME = "same-identity"
# By the two nodes of a probe.
_Blocked = Mapping[tuple[str, str], BlockedPath]


def find_blocked(states: States, topology: Topology | None) -> Iterator[Finding]:
    """A finding for each part that explains probes which did not arrive, or a pair that nothing else explains.

    Where the topology names some of the ports, such as those of the fast network, the others' are only told.
    """
    nodes = {**states.before, **states.after}
    blocked: dict[tuple[str, str], dict[tuple[str, str], BlockedPath]] = {}
    for state in (*states.before.values(), *states.after.values()):
        for path in state.blocked:
            code = _SAME if not path.lost_bytes else "packets-too-large" if path.passed_bytes else "no-connection"
            blocked.setdefault((code, path.port), {})[state.host, path.to] = path
    described = {nic.name for nic in topology.nics} if topology is not None else set()
    described &= {nic.name for state in nodes.values() for nic in state.nics}
    network = topology.network if topology is not None else None
    shared = {port: set[str]().union(*paths) for (code, port), paths in blocked.items() if code == _SAME}
    for (code, port), paths in blocked.items():
        if code == _SAME:
            # Of a network that the topology does not have each node may have one of its own.
            ports = tuple(Component(Kind.NIC, port, host) for host in sorted(shared[port]))
            verdict = Verdict.INVALID if port in described else Verdict.PASS
            yield Finding(code, verdict, f"{either(ports)}: both have the same IP address", ports)
            continue
        verdict = Verdict.DEGRADED if not described or port in described else Verdict.PASS
        # A probe of an address that two ports have is answered by either.
        probed = [pair for pair in _probed(nodes, port, paths) if shared.get(port, set()).isdisjoint(pair)]
        for explanation in explain([_row(pair, port, pair in paths, network) for pair in probed]):
            members = [probed[number] for number in explanation.rows]
            components = named_of(explanation.components)
            text = f"{either(components) or port}: {_lost(code, members, paths)}"
            yield Finding(code, verdict, text, components)


def _probed(nodes: Mapping[str, NodeState], port: str, blocked: _Blocked) -> list[tuple[str, str]]:
    """The nodes that a port was probed between."""
    having = {host for host, state in nodes.items() if any(nic.name == port for nic in state.nics)}
    hosts = sorted(having.union(*blocked))
    pairs = {(host, to) for host in hosts for to in asked_by(host, hosts)}
    return sorted(pairs.union(blocked))


def _row(pair: tuple[str, str], port: str, blocked: bool, network: Network | None) -> Row:
    ends = [Component(Kind.NIC, port, host) for host in pair]
    between = Component.between(min(ends), max(ends))
    names = [f"{host}:{port}" for host in pair]
    one_way = replace(ends[0], direction="sending"), replace(ends[1], direction="receiving")
    crosses = dict.fromkeys((*ends, *one_way, between), 1.0)
    if network is not None and set(names) <= set(network.ports):
        crosses |= shares_of_routes(network, *names) | _one_way(network, *names)
    return Row(port, "packets", float(blocked), LEAST_LOSS, blocked, crosses, (between,))


def _one_way(network: Network, source: str, destination: str) -> dict[Component, float]:
    """The cables and trunks on the routes in the direction that they are crossed in, with the share of the routes."""
    routes = network.routes(source, destination)
    shares: dict[Component, float] = {}
    for route in routes:
        for entered, name in pairwise(route.components):
            link, near = network.component(name), network.component(entered)
            if link.kind is not Kind.LINK:
                continue
            if (link.name, link.node) != (near.name, near.node):
                link = Component(Kind.LINK, link.far, link.far_node, link.name, link.node)
            link = replace(link, direction="out")
            shares[link] = shares.get(link, 0.0) + 1 / len(routes)
    return shares


def _lost(code: str, members: Sequence[tuple[str, str]], blocked: _Blocked) -> str:
    paths = few([f"{source} → {destination}" for source, destination in members])
    if code == "no-connection":
        return f"no connection ({paths})"
    lost, passed = min((blocked[pair].lost_bytes, blocked[pair].passed_bytes) for pair in members)
    return (
        f"packets of {lost:,} bytes are lost, packets of {passed:,} bytes pass ({paths}): "
        "a port on the path has a smaller MTU"
    )
