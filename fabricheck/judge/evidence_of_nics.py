"""What the network ports of a run's nodes say: links, rates, errors, drops, TCP's own counters, the paths of large
packets, and whether GPUs sent by the NICs that the topology associates with them."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fabricheck.errors import UserError
from fabricheck.judge.evidence import Evidence, NodeReport
from fabricheck.judge.node_rules import judge_facts, rises_of, rules_of
from fabricheck.records.component import short_host
from fabricheck.records.node_state import NicState
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FEWEST_FOR_MIDDLE, MOST, TAKEN
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import nic_of
from fabricheck.topology.placement import gpu_of_ranks

#: Nearly all: metrics of a group that lost something as a whole, bytes that the kernel counted. Chosen.
NEARLY_ALL = 0.9
#: Where 0.1% to 0.3% of the packets are lost, each by itself, the middle one of the senders sent 1.0 to 4.7 segments
#: again for a recovery; a full queue, which drops what comes together, had 25.
RESENT_AT_ONCE = 8.0
#: A port whose link went down so many times as often as the middle one. Chosen.
TIMES_OTHERS = 4.0
#: The probability from which on a node's losses are no chance: the policy's error of a metric.
LOSSES_BY_CHANCE = 1e-6
# What the kernel counts at senders and receivers.
_LOSSES, _GAPS = "TCPSackRecovery", "TCPOFOQueue"


def evidence_of_nics(
    nodes: Sequence[NodeReport], topology: Topology | None, *, alone: bool = False
) -> Iterator[Evidence]:
    """Of each port of each node. Where the topology names some of a node's ports, the others say nothing.

    Ports are judged where data passed between nodes, and with `alone`, where a node is looked at by itself, or its own
    data pass its ports.
    """
    described = {nic.name: nic.rate_gbps for nic in topology.nics} if topology is not None else {}
    judged: list[tuple[str, NicState]] = []
    for node in nodes:
        earlier = {nic.name: nic for nic in node.before.nics} if node.before else {}
        names = {nic.name for nic in node.last.nics}
        for nic in node.last.nics:
            # Where the topology names none of them, those of containers and the like have no hardware.
            if nic.name not in described and (described.keys() & names or not (nic.driver or nic.kind != "ethernet")):
                continue
            before = earlier.get(nic.name) if node.after else None
            judged.append((node.host, nic))
            for evidence in _port(node.host, nic, before, described.get(nic.name)):
                yield evidence if alone or len(nodes) > 1 or evidence.verdict is None else _as_note(evidence)
            is_virtual = "virtual machine" in node.last.settings  # whose slots are made up
            for code, text in _set_up(nic, described.get(nic.name), None if is_virtual else nic.settings.get("PCIe")):
                yield Evidence(code, node.host, nic.name, text, None, network=True)
    yield from _flaps(judged)
    yield from _tcp(nodes)


def _as_note(evidence: Evidence) -> Evidence:
    """No data of a run on one node passed its ports."""
    return replace(evidence, verdict=Verdict.PASS)


def _port(host: str, nic: NicState, before: NicState | None, rate_gbps: float | None) -> Iterator[Evidence]:
    def say(code: str, text: str, verdict: Verdict | None = Verdict.DEGRADED) -> Evidence:
        return Evidence(code, host, nic.name, text, verdict, network=True)

    if nic.up is False and (rate_gbps is not None or (before is not None and before.up)):
        during = " since the test began" if before is not None and before.up else ""
        state = nic.settings.get("state")
        what = f"is in state {state}: no subnet or fabric manager has activated it" if state else "its link is down"
        yield say("nic-down", f"{what}{during}")
    elif nic.rate_gbps and rate_gbps and nic.rate_gbps < 0.99 * rate_gbps:
        yield say("nic-slow", f"its link runs at {nic.rate_gbps:g} of {rate_gbps:g} Gb/s")
    if nic.duplex == "half":
        yield say("nic-slow", "its link is half duplex")
    rises = rises_of(nic.counters, before.counters if before is not None else None)
    for rule, _, text, verdict in judge_facts(rules_of(nic.kind, "any port"), rises):
        yield say(rule.code, text, verdict)


def _set_up(nic: NicState, described_gbps: float | None, slot: str | None) -> Iterator[tuple[str, str]]:
    """Code and text where a port's link to the slot (`16.0 GT/s x8 of …`) or the settings of RoCE cannot do.

    RoCE v1 has no IP header (InfiniBand specification, annex A17): it is not routed and has no ECN. DCQCN needs the
    receiver to notice congestion and the sender to react, on the same priorities (Zhu et al., SIGCOMM 2015, section 3).
    """
    link = re.match(r"([0-9.]+) GT/s x([0-9]+)", slot or "")
    rate = nic.rate_gbps or described_gbps
    if link is not None and rate is not None and float(link[1]) * int(link[2]) < rate:
        yield "pcie-reduced", f"its PCIe link ({link[0]}) carries less than its port ({rate:g} Gb/s)"
    types = nic.settings.get("GID types", "")
    if nic.settings.get("link layer") == "Ethernet" and types and "RoCE v2" not in types:
        yield "roce-settings", f"has no GID of RoCE v2 ({types}): packets are not routed and carry no ECN"
    notices, reacts = (nic.settings.get(f"ECN ({role})") for role in ("np", "rp"))
    if notices is not None and reacts is not None and notices != reacts:
        yield "roce-settings", f"notices congestion on priorities {notices} and reacts to it on {reacts}"


def _flaps(ports: Sequence[tuple[str, NicState]]) -> Iterator[Evidence]:
    """Ports whose links went down far more often than the median port's, since the counters began."""
    downs = [
        (host, nic.name, nic.counters.get("link_downed", nic.counters.get("carrier_changes", 0) // 2))
        for host, nic in ports
    ]
    usual = statistics.median([count for *_, count in downs]) if downs else 0
    for host, name, count in downs:
        if count > TIMES_OTHERS * max(usual, 1):
            text = f"its link went down {count:,} times since its counters began (median of ports: {usual:g})"
            yield Evidence("nic-flaps", host, name, text, None, network=True)


def _tcp(nodes: Sequence[NodeReport]) -> Iterator[Evidence]:
    """Loss, as TCP noticed it: by the recoveries of those that sent, and by the gaps at those that received.

    Each recovery is a loss on the way to a node with gaps. By chance it leads to a node, or from it, as often as
    segments do (binomial). A node that is busy while most others are not may itself be late. Of two nodes it is unknown
    which is usual: that counts beside a slow metric alone.
    """
    from scipy.special import bdtrc  # that of scipy.stats.binom; takes longer than most commands

    rises = {
        node.host: Counter(rises_of(node.after.tcp, node.before.tcp))
        for node in nodes
        if node.before is not None and node.after is not None
    }
    busy = {node.host for node in nodes if node.is_busy}
    whole = sum(rises.values(), Counter[str]())
    having = Counter(name for rise in rises.values() for name, count in rise.items() if count > 0)
    resent = [rise["RetransSegs"] / count for rise in rises.values() if (count := rise[_LOSSES])]
    if not resent or statistics.median(resent) > RESENT_AT_ONCE:
        return
    verdict = Verdict.DEGRADED if len(rises) >= FEWEST_FOR_MIDDLE else None
    for host in rises if 2 * len(busy) > len(rises) else sorted(rises.keys() - busy):
        rise = rises[host]
        to_node = (whole[_LOSSES] - rise[_LOSSES]) * rise[_GAPS] // (whole[_GAPS] or 1)
        ways = (("to", to_node, "InSegs", _LOSSES), ("from", rise[_LOSSES], "OutSegs", _GAPS))
        for way, lost, segments, at_others in ways:
            others = having[at_others] - (rise[at_others] > 0)
            share = rise[segments] / (whole[segments] or 1)
            by_chance = bdtrc(lost - 1, whole[_LOSSES], share)
            if others >= MOST * (len(rises) - 1) and by_chance <= LOSSES_BY_CHANCE:
                text = f"{lost:,} of {whole[_LOSSES]:,} times that TCP lost packets were on the way {way} this node"
                yield Evidence("packets-lost", host, "", text, verdict, network=True)


def evidence_of_association(run: Run, topology: Topology | None) -> Iterator[Evidence]:
    """A NIC that sent next to nothing of what its GPUs sent by *CCL, while all NICs of the node sent it together.

    Silent where the kernel does not count what a library sends by RDMA, and where no GPU has a NIC of its own. MPI
    libraries may spread the data of each rank over all NICs. By libfabric the ranks themselves say which NIC they took
    as the nearest to their GPU; silent where GPUs share NICs, as several may be equally near, where the topology does
    not know a NIC's name, and where it has no PCI address.
    """
    if topology is not None and run.header.get("transport") == "fabric" and run.header["plan"].get("nic") == "near":
        yield from _nearest_nics(run, topology)
    sent = (run.footer or {}).get("proof", {}).get("interfaces", {})
    if topology is None or not sent or run.header.get("transport") != "ccl":
        return
    for host, least in _least_sent(run, topology).items():
        counted = {nic.name: int(sent.get(host, {}).get(nic.name, 0)) for nic in topology.nics}
        whole = sum(least.values())
        if sum(counted.values()) < NEARLY_ALL * whole:
            continue
        for nic, bytes_ in least.items():
            if counted[nic] < TAKEN * bytes_:
                most = max(counted, key=lambda name: counted[name] - least.get(name, 0))
                text = (
                    f"sent {counted[nic] / 1e6:,.0f} MB of the {bytes_ / 1e6:,.0f} MB of its GPUs; {most} sent "
                    f"{counted[most] / 1e6:,.0f} MB: the library associates GPUs with other NICs than the topology"
                )
                yield Evidence("nic-association", short_host(host), nic, text, Verdict.INVALID, network=True)


def _nearest_nics(run: Run, topology: Topology) -> Iterator[Evidence]:
    known = {nic.name for nic in topology.nics}
    if len(known) != len(topology.gpus):
        return
    for rank, index in gpu_of_ranks(run).items():
        place = run.ranks[rank]
        if not all(nic.get("bus_id") for nic in run.header["ranks"][rank].get("nics", ())):
            continue
        gpu = next((gpu for gpu in topology.gpus if gpu.index == index), None)
        nic = nic_of(topology, gpu) if gpu is not None else None
        if gpu is not None and nic is not None and nic.name not in place.nics and known.issuperset(place.nics):
            text = f"not it but {' and '.join(place.nics)} is the nearest to {gpu.name} by PCIe: they changed places"
            yield Evidence("nic-association", short_host(place.host), nic.name, text, Verdict.INVALID, network=True)


def _least_sent(run: Run, topology: Topology) -> dict[str, Counter[str]]:
    """By host and NIC, the bytes that pairs of GPUs on different nodes have at least sent; by the kept iterations."""
    try:
        gpus = {rank: topology.gpu(index) for rank, index in gpu_of_ranks(run).items()}
    except UserError:
        return {}  # devices that the topology does not have: others say so
    hosts = {each.rank: each.host for each in run.ranks}
    sent: dict[str, Counter[str]] = {}
    for samples in run.samples:
        if samples.operation not in PAIRS or len({hosts.get(rank) for rank in samples.ranks}) < 2:
            continue
        for rank in samples.ranks[:1] if samples.operation == "unidirectional" else samples.ranks:
            nic = nic_of(topology, gpus[rank]) if rank in gpus else None
            if nic is not None:
                sent.setdefault(hosts[rank], Counter())[nic.name] += samples.bytes * int(samples.times_ns.size)
    return sent
