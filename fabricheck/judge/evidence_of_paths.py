"""Nodes that large packets do not reach or leave: a port on the way takes smaller ones than the nodes' ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from fabricheck.judge.evidence import Evidence, Node
from fabricheck.records.state import BlockedPath
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology
from fabricheck.topology.network import fold


def evidence_of_paths(nodes: Sequence[Node], topology: Topology | None) -> Iterator[Evidence]:
    """A line for each node that explains most of the ways that are left, and one for those that no node explains.

    Where the topology names some of the ports, such as those of the fast network, the others' are only told.
    """
    described = {nic.name for nic in topology.nics} if topology is not None else set()
    described &= {nic.name for node in nodes for nic in node.last.nics}
    by_port: dict[str, list[tuple[str, BlockedPath]]] = {}
    for node in nodes:
        for way in node.last.blocked:
            by_port.setdefault(way.port, []).append((node.host, way))
    for port, ways in by_port.items():
        verdict = Verdict.DEGRADED if not described or port in described else Verdict.PASS
        yield from _of_port(port, ways, verdict)


def _of_port(port: str, ways: Sequence[tuple[str, BlockedPath]], verdict: Verdict) -> Iterator[Evidence]:
    left = list(ways)
    while left:
        ends = Counter(host for source, way in left for host in (source, way.to))
        (host, most), *others = ends.most_common()
        alone = all(count < most for _, count in others)
        own = [each for each in left if not alone or host in (each[0], each[1].to)]
        left = [each for each in left if each not in own]
        lost, passed = min((way.lost_bytes, way.passed_bytes) for _, way in own)
        where = "to or from it" if alone else f"between {fold(sorted(ends))}"
        text = (
            f"packets of {lost:,} bytes are lost {where}, those of {passed:,} pass ({_ways(own)}): "
            "a port on the path has a smaller MTU"
        )
        yield Evidence("packets-too-large", host, port, text, verdict, network=True)


def _ways(ways: Iterable[tuple[str, BlockedPath]]) -> str:
    named = [f"{source} → {way.to}" for source, way in ways]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return f"{', '.join(named[:3])}{more}"
