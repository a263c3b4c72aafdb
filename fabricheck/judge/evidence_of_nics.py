"""What the network ports of a run's nodes say: links, rates, errors, drops, and TCP's own counters."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fabricheck.judge.counter_rules import CONGESTION, NIC_COUNTERS, judge_counters, rises_of
from fabricheck.judge.evidence import Evidence, Node
from fabricheck.records.state import NicState
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology

# Of the segments that a node received, the share that came after a gap, and of those that the others sent, the share
# that made them recover from a loss. On healthy shaped links, whose shaper drops what is too fast, up to 6% and 0.036%;
# where 1% of the packets to a node are lost, 6% to 44% and 0.047% to 0.11% (docs/state.md). So many gaps tell alone.
# With 0.1%, 3% to 8% and 11 to 25 recoveries, at every other node and of a packet or few each: at the middle one 1.0 to
# 4.7 segments were sent again for a recovery, where a shaper, which drops what comes together, had 25. Who is late on
# busy cores has as many.
_GAPS_SHARE, _RECOVERIES_SHARE, _GAPS_ALONE = 0.02, 5e-4, 0.1
_RESENT_AT_ONCE, _FEWEST_OF_A_NODE, _MOST_NODES = 8.0, 2, 0.75
# Of those that it sent, the share that it sent again: on the same links up to 0.6% where pairs take turns, and up to
# 3.6% where four nodes sent to one another at once.
_RESENT_SHARE = 0.02
_FEWEST, _FEWEST_RECOVERIES, _TIMES_OTHERS, _FEWEST_NODES = 20, 10, 4.0, 3
_MANY_NODES = 50


def evidence_of_nics(nodes: Sequence[Node], topology: Topology | None, *, alone: bool = False) -> Iterator[Evidence]:
    """Of each port of each node. Where the topology names some of a node's ports, the others say nothing.

    Ports are judged where data passed between nodes, and with `alone`, where a node is looked at by itself.
    """
    described = {nic.name: nic.rate_gbps for nic in topology.nics} if topology is not None else {}
    for node in nodes:
        earlier = {nic.name: nic for nic in node.before.nics} if node.before else {}
        names = {nic.name for nic in node.last.nics}
        for nic in node.last.nics:
            # Where the topology names none of them, those of containers and the like have no hardware.
            if nic.name not in described and (described.keys() & names or not (nic.driver or nic.kind != "ethernet")):
                continue
            before = earlier.get(nic.name) if node.after else None
            for each in _port(node.host, nic, before, described.get(nic.name)):
                yield each if alone or len(nodes) > 1 or each.verdict is None else _as_note(each)
    yield from _tcp(nodes)


def _as_note(each: Evidence) -> Evidence:
    """No data of a run on one node passed its ports."""
    return replace(each, verdict=Verdict.PASS)


def _port(host: str, nic: NicState, before: NicState | None, rate_gbps: float | None) -> Iterator[Evidence]:
    def say(code: str, text: str, verdict: Verdict | None = Verdict.DEGRADED) -> Evidence:
        return Evidence(code, host, nic.name, text, verdict, network=True)

    if nic.up is False and (rate_gbps is not None or (before is not None and before.up)):
        during = " since the test began" if before is not None and before.up else ""
        yield say("nic-down", f"its link is down{during}")
    elif nic.rate_gbps and rate_gbps and nic.rate_gbps < 0.99 * rate_gbps:
        yield say("nic-slow", f"its link runs at {nic.rate_gbps:g} of {rate_gbps:g} Gb/s")
    if nic.duplex == "half":
        yield say("nic-slow", "its link is half duplex")
    rises = rises_of(nic.counters, before.counters if before is not None else None)
    for found in judge_counters((*NIC_COUNTERS.get(nic.kind, ()), CONGESTION), rises):
        yield say(*found)


def _tcp(nodes: Sequence[Node]) -> Iterator[Evidence]:
    """Loss, as TCP noticed it: at the node that data did not reach, and at those that had to send them again.

    Of two nodes nobody knows which is usual, and the one that only receives has all the gaps: that counts beside a slow
    metric alone. So does what was sent again, since many senders to one receiver lose packets at a healthy switch too.
    """
    rises = {node.host: _tcp_rise(node) for node in nodes if node.before is not None and node.after is not None}

    def say(above: tuple[str, float, float], counted: str, meaning: str, verdict: Verdict | None) -> Evidence:
        host, share, usual = above
        text = f"{counted} ({100 * share:.2g}%, the other nodes' median {100 * usual:.2g}%): {meaning}"
        return Evidence("packets-lost", host, "", text, verdict, network=True)

    idle = not any(node.is_busy for node in nodes)
    gaps = {host: (rise.get("TCPOFOQueue", 0), rise.get("InSegs", 0)) for host, rise in rises.items()}
    for above in _above(gaps, _GAPS_SHARE):
        host, share, _ = above
        others = [rise for other, rise in rises.items() if other != host]
        # Of these, what belongs to nodes with more gaps is not this one's.
        more = sum(part for other, (part, whole) in gaps.items() if other != host and part > share * whole)
        recoveries = sum(rise.get("TCPSackRecovery", 0) for rise in others) * gaps[host][0] / (gaps[host][0] + more)
        told = share > _GAPS_ALONE or (idle and _one_by_one(others))
        usual = 0 if told else _RECOVERIES_SHARE * sum(map(_sent, others))
        if recoveries >= max(_FEWEST_RECOVERIES, usual):
            count, segments = gaps[host]
            counted = f"{count:,} of {segments:,} TCP segments came after a gap"
            verdict = Verdict.DEGRADED if len(rises) >= _FEWEST_NODES else None
            yield say(above, counted, "packets to it are lost", verdict)
    sent = {host: (rise.get("RetransSegs", 0), _sent(rise)) for host, rise in rises.items()}
    for above in _above(sent, _RESENT_SHARE):
        again, segments = sent[above[0]]
        counted = f"TCP sent {again:,} of {segments:,} segments again"
        meaning = "packets from it are lost, or its port or its path to the others is slow"
        yield say(above, counted, meaning, None)


def _one_by_one(others: Sequence[Mapping[str, int]]) -> bool:
    """Whether nearly all of the nodes that sent had to recover, and most of a packet or few each time."""
    found = [
        rise.get("RetransSegs", 0) / count
        for rise in others
        if (count := rise.get("TCPSackRecovery", 0)) >= _FEWEST_OF_A_NODE
    ]
    return len(found) >= _MOST_NODES * len(others) and statistics.median(found) <= _RESENT_AT_ONCE


def _above(counts: Mapping[str, tuple[int, int]], share: float) -> Iterator[tuple[str, float, float]]:
    """The nodes whose part of a whole is above `share` and far above that of the other nodes; with both."""
    shares = {host: part / whole if whole else 0.0 for host, (part, whole) in counts.items()}
    of_all = statistics.median(shares.values()) if shares else 0.0
    for host, (part, _) in counts.items():
        if part < _FEWEST or shares[host] <= share or len(shares) < 2:
            continue
        # One among many hardly moves their median, and there may be thousands.
        others = [each for other, each in shares.items() if other != host] if len(shares) < _MANY_NODES else []
        usual = statistics.median(others) if others else of_all
        if shares[host] > _TIMES_OTHERS * usual:
            yield host, shares[host], usual


def _sent(rise: Mapping[str, int]) -> int:
    """Segments that a node sent, those that it sent again among them, which the kernel counts apart."""
    return rise.get("OutSegs", 0) + rise.get("RetransSegs", 0)


def _tcp_rise(node: Node) -> Mapping[str, int]:
    if node.before is None or node.after is None:
        return {}
    return {name: value - node.before.tcp.get(name, 0) for name, value in node.after.tcp.items()}
