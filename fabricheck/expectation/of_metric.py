"""What the judge asks: nominal, expected and highest plausible value of one metric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fabricheck.errors import UserError
from fabricheck.expectation import between_nodes, goodput, memory, transfers
from fabricheck.expectation.latency import least_plausible_us
from fabricheck.records.judgement import Expectation
from fabricheck.records.operations import COLLECTIVES, LISTED, MEMORY_PATHS, PAIRS, ROOTED, STRIPING
from fabricheck.records.run import Groups
from fabricheck.topology import nic
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Switch, Topology
from fabricheck.topology.network import node_of

TRANSPORTS = ("staging", "copy", "kernel", "ccl", "mpi")

FLOOR_FRACTION = 0.5

# Rates of data sheets are rounded, and signalling can be a little faster (NVLink's 25 GB/s are 25.8 on the wire).
_MARGIN = 1.05

# Generous start-up times in us: below the size at which they matter, the floor of a goodput falls with the size. A
# collective of n ranks needs up to n - 1 steps. (CommBench §5.2.4: NCCL above 40 us, MPI 6-8 us between nodes.)
_START_UP_US = {"staging": 100.0, "copy": 50.0, "kernel": 50.0, "ccl": 100.0, "mpi": 50.0}

# Shared memory against `host_copy_gbps`, one core's copy of 64 MiB. Nominal: one such copy for each message. What
# fits the caches moves up to ten times as fast as from memory; more is not plausible. MPI may copy twice, in small
# pieces, on cores that other ranks or virtual machines use too: an order of magnitude is the least to ask, and ranks
# that share cores and memory share that.
_CACHE_GAIN = 12.0
_SHARED_MEMORY_FLOOR = 0.05
_SHARED_MEMORY_START_UP_US = 100.0
_SHARED_CORE_START_UP_US = 10_000.0  # ranks that share a core wait for each other's time slice


# Copies inside a GPU's memory that fit its caches are faster than the memory (50 MB on an H200, 256 MB on an MI300X,
# with source and destination in it).
_BEYOND_GPU_CACHES = 256 << 20


@dataclass(frozen=True)
class _Limits:
    """Gb/s, in the convention of result files; None where nobody can say. `start_up_us` bounds the floor."""

    nominal: float | None
    expected: float | None
    ceiling: float | None
    start_up_us: float
    source: str
    floor_share: float = 1.0


@dataclass(frozen=True)
class _Question:
    topology: Topology
    operation: str
    transport: str
    schedule: str
    gpus: tuple[Gpu, ...]  # one a rank, in order; empty for the host backend
    ranks: int
    nodes: int
    ends: tuple[str, ...]  # the node or port of each rank in the network; empty where that is not known
    loads: Mapping[str, float]  # messages on each link at the time
    bytes: int
    host_copy_gbps: float | None
    oversubscribed: bool
    host_memory: str | None = None
    buffers: str | None = None
    steps: tuple[transfers.Step, ...] = ()  # of an operation that is a list of messages
    places: tuple[int, ...] = ()  # the node of each rank
    company: int = 0  # ranks that do something else at the same time
    transports: tuple[str, ...] = ()  # of each step

    @property
    def per_node(self) -> int:
        return max(1, self.ranks // self.nodes)

    @property
    def node_gpus(self) -> tuple[Gpu, ...]:
        return tuple(dict.fromkeys(self.gpus))


def expectation(
    topology: Topology,
    *,
    operation: str,
    implementation: str,
    transport: str,
    schedule: str,
    devices: Sequence[str | int],
    nodes: int,
    ends: Sequence[str] = (),
    loads: Mapping[str, float] | None = None,
    bytes: int,
    quantity: str,
    host_copy_gbps: float | None,
    ranks: int | None = None,
    oversubscribed: bool = False,
    host_memory: str | None = None,
    buffers: str | None = None,
    floor_fraction: float = FLOOR_FRACTION,
    groups: Groups | None = None,
    messages: Sequence[tuple[int, int, int]] = (),
    places: Sequence[int] | None = None,
    company: int = 0,
    step_transports: Sequence[str] = (),
) -> Expectation:
    """What one metric should be, in its own unit: Gb/s for `goodput`, us for `latency`.

    `operation`, `implementation`, `transport`, `schedule` and `bytes` as in the result file. `devices`: the GPU of
    each rank, as node-local index or name, in rank order (source and destination of a pair, the root of a rooted
    collective first); empty for the host backend. `nodes`: on how many nodes the ranks are. `ends`: the node or port of
    each rank in the topology's network, where it has one; `loads`: messages of all pairs of a contended round, by link
    (`between_nodes.link_loads`). `ranks`: how many ranks;
    needed only where `devices` is empty or names each GPU of a node once for several nodes (default: as many as
    `devices`, else two for pairs, else one a node and at least two). `oversubscribed`: ranks share cores.
    `host_memory` and `buffers`: the kind of host memory and where the buffers of a pair lie, as in the plan of the
    result file; None where all is on devices.
    `floor_fraction`: share of `expected` under which
    a large transfer fails; it is lowered by the time that a small one needs to start.

    Of patterns that are lists of messages (`LISTED`): `groups`, their (n, g, k); `messages`, source,
    destination and bytes of each, counted by place among `devices`; `places`, the node of each rank (default: blocks of
    equal size, one after another); `company`, how many ranks do something else at the same time;
    `step_transports`, those of a striping's split, translate and assemble (default: `transport`).

    Of a latency, only `ceiling` is known: the least plausible time. Raises UserError for unknown names or devices.
    """
    for kind, name, known in (
        ("operation", operation, (*PAIRS, *COLLECTIVES, *LISTED, *MEMORY_PATHS)),
        ("implementation", implementation, ("transfers", "library")),
        ("transport", transport, TRANSPORTS),
        ("schedule", schedule, ("uncontended", "contended")),
        ("quantity", quantity, ("goodput", "latency")),
    ):
        if name not in known:
            raise UserError(f"unknown {kind} {name!r}: {', '.join(known)}")
    if nodes < 1 or bytes < 1:
        raise UserError(f"a measurement has at least one node and one byte, not {nodes} and {bytes}")
    gpus = tuple(topology.gpu(device) for device in devices)
    if operation in PAIRS and gpus and len(gpus) != 2:
        raise UserError(f"{operation} is between two devices, not {len(gpus)}")
    if ranks is None:
        alone = 1 if operation in MEMORY_PATHS else max(2, nodes)
        ranks = len(gpus) or (2 if operation in PAIRS else alone)
    plugged = tuple(ends) if topology.network is not None else ()
    question = _Question(
        *(topology, operation, transport, schedule, gpus, ranks, nodes, plugged, loads or {}),
        *(bytes, host_copy_gbps, oversubscribed, host_memory, buffers),
    )
    if operation in LISTED:
        question = replace(
            question,
            steps=transfers.steps_of(operation, ranks=ranks, bytes=bytes, groups=groups, messages=messages),
            places=tuple(places) if places is not None else tuple(rank * nodes // ranks for rank in range(ranks)),
            company=company,
        )
        question = replace(question, transports=_transports(question, step_transports))
    limits = _limits(question)
    if quantity == "latency":
        return _latency(question, limits)
    floor = floor_fraction * limits.floor_share
    if limits.expected:
        ideal_us = 8e-3 * bytes / limits.expected
        floor *= ideal_us / (ideal_us + limits.start_up_us)
    ceiling = _finite(limits.ceiling)
    if ceiling is not None:
        ceiling *= _MARGIN
    return Expectation(_finite(limits.nominal), _finite(limits.expected), ceiling, floor, limits.source)


def _transports(question: _Question, step_transports: Sequence[str]) -> tuple[str, ...]:
    if question.operation in STRIPING and step_transports:
        split, translate, assemble = step_transports
        one = {"striping_split": split, "striping_assemble": assemble}.get(question.operation, translate)
        if question.operation != "striping_pipelined":  # whose steps all go by one
            return (split, translate, assemble) if question.operation == "striping" else (one,)
    return (question.transport,) * len(question.steps)


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _latency(question: _Question, limits: _Limits) -> Expectation:
    """Below the start of any transfer, or below the time that the bytes need at the highest rate, nothing is right."""
    least = least_plausible_us(question.transport, between_nodes=question.nodes > 1, devices=bool(question.gpus))
    if limits.ceiling and math.isfinite(limits.ceiling):
        least = max(least, 8e-3 * question.bytes / (limits.ceiling * _MARGIN))
    return Expectation(None, None, least, 0.0, f"least plausible time; {limits.source}")


def _limits(question: _Question) -> _Limits:
    if question.operation in MEMORY_PATHS:
        return _memory_path(question)
    if question.steps:
        return _listed(question)
    if question.nodes > 1:
        return _between_nodes(question)
    if not question.gpus:
        return _shared_memory(question)
    if question.buffers is not None:
        return _host_and_device(question)
    if len(set(question.gpus)) == 1:
        return _same_gpu(question)
    if question.transport == "staging":
        return _staging(question)
    if question.operation in PAIRS:
        return _pair(question)
    return _collective(question)


# Lists of messages


def _listed(question: _Question) -> _Limits:
    """Each step as fast as the busiest link, NIC or core allows; one step after another."""
    why = "the busiest link, NIC or core of each step, one step after another (CommBench §4.2, §5.2.1)"
    steps = [
        (replace(question, transport=one), step) for one, step in zip(question.transports, question.steps, strict=True)
    ]
    ceilings = [_step_ceiling(*each) for each in steps]
    # Pieces let steps overlap, and the slowest alone counts at best.
    ceiling = min(ceilings) if question.operation == "striping_pipelined" else _in_turn(ceilings)
    start_up = sum(_step_start_up_us(*each) for each in steps)
    expected = [_step_gbps(*each) for each in steps]
    # All ranks' copies pass one memory, whose sharing is not known; on the host caches and shared cores play in.
    least = 1 / question.per_node if question.gpus else _SHARED_MEMORY_FLOOR / FLOOR_FRACTION / question.per_node
    at_worst = [_step_gbps(*each, least) for each in steps]
    if None in expected or None in at_worst:
        why = f"{question.topology.system}: not all rates on the way are known"
        return _Limits(None, None, ceiling, start_up, why)
    rate = _in_turn([one for one in expected if one is not None])
    crowd = _in_turn([one for one in at_worst if one is not None]) / rate if math.isfinite(rate) else 1.0
    if question.company:
        crowd *= question.ranks / (question.ranks + question.company)
        why += ", shared fairly with the ranks beside it at worst"
    return _Limits(rate, rate, ceiling, start_up, why, crowd)


def _in_turn(rates: Sequence[float]) -> float:
    time = sum(1 / rate for rate in rates)
    return 1 / time if time else math.inf


def _step_start_up_us(question: _Question, step: transfers.Step) -> float:
    sent = Counter(each.source for each in step)
    received = Counter(each.destination for each in step)
    messages = max((*sent.values(), *received.values()), default=1)
    if question.gpus:
        return messages * _START_UP_US[question.transport]
    return messages * (_SHARED_CORE_START_UP_US if question.oversubscribed else _SHARED_MEMORY_START_UP_US)


def _step_gbps(question: _Question, step: transfers.Step, copy_share: float = 1.0) -> float | None:
    """`copy_share`: of the rate of a copy in host memory that each rank gets."""
    topology, gpus, places = question.topology, question.gpus, question.places
    inside, across = transfers.inside(step, places), transfers.across(step, places)
    if across and not topology.nics:
        return None
    network = transfers.network_gbps(topology, gpus, places, across)
    if not gpus:
        copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
        if inside and copy is None:
            return None
        return min(network, copy * copy_share / transfers.busiest(inside)) if inside and copy else network
    if question.transport == "staging":
        return _staged_step_gbps(question, step, network, copy_share)
    local = memory.local_copy_gbps(topology)
    same = [each for each in inside if gpus[each.source] == gpus[each.destination]]
    if same and local is None:
        return None
    own = local / transfers.busiest(same) if same and local else math.inf
    return min(network, own, transfers.fabric_gbps(node_graph(topology), gpus, inside))


def _staged_step_gbps(question: _Question, step: transfers.Step, network: float, copy_share: float) -> float | None:
    """Device to host, host to host, host to device: one after another (De Sensi §III-A)."""
    topology = question.topology
    copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
    inside = transfers.inside(step, question.places)
    if any(memory.host_link_gbps(topology, gpu) is None for gpu in question.gpus) or (inside and copy is None):
        return None
    link = min(memory.host_device_gbps(topology, question.node_gpus).values())
    sent, received = transfers.sent_and_received(step)
    hosts = min(network, copy * copy_share / transfers.busiest(inside) if inside and copy else math.inf)
    return _in_turn([link / max(sent.values()), hosts, link / max(received.values())])


def _step_ceiling(question: _Question, step: transfers.Step) -> float:
    topology, gpus, places = question.topology, question.gpus, question.places
    inside, across = transfers.inside(step, places), transfers.across(step, places)
    network = transfers.node_network_gbps(topology, places, across) if across else math.inf
    if across and not topology.nics:
        return math.inf
    burst = max((one.burst_bytes for one in topology.nics), default=0) * max(2, question.nodes) if across else 0
    if burst:
        network = math.inf if question.bytes <= burst else network * question.bytes / (question.bytes - burst)
    if not gpus:
        copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
        return min(network, copy * _CACHE_GAIN / transfers.busiest(inside)) if inside and copy else network
    same = any(gpus[each.source] == gpus[each.destination] for each in inside)
    if same or question.transport == "staging":
        return network
    return min(network, transfers.injection_gbps(node_graph(topology), gpus, inside))


# Inside a node, GPUs


def _pair(question: _Question) -> _Limits:
    graph = node_graph(question.topology)
    source, destination = question.gpus
    path = graph.widest_path(source, destination)
    expected = path.rate_gbps
    why = f"widest path {'-'.join(path.devices)} (De Sensi §III-D)"
    if question.schedule == "contended" and not (graph.fully_connected or graph.star):
        # A round has at most one pair for two GPUs; how many of them share a link is not known here.
        expected /= max(1, len(question.topology.gpus) // 2)
        why += ", shared by all pairs of a round at worst"
    return _Limits(path.rate_gbps, expected, path.rate_gbps, _START_UP_US[question.transport], why)


def _same_gpu(question: _Question) -> _Limits:
    rate = memory.local_copy_gbps(question.topology)
    if rate and question.operation == "bidirectional":
        rate /= 2  # both directions pass the same memory (OpenPOWER §5.2)
    return _inside_gpu(question, rate)


def _inside_gpu(question: _Question, rate: float | None) -> _Limits:
    share = question.bytes // (question.ranks if question.operation in MEMORY_PATHS else 1)
    ceiling = rate if share >= _BEYOND_GPU_CACHES else None
    return _Limits(rate, rate, ceiling, _START_UP_US[question.transport], "half of the GPU memory's bandwidth")


# Between memories


def _memory_path(question: _Question) -> _Limits:
    """All ranks move the same share of `bytes`, so the slowest of them tells how fast all are together."""
    topology, start_up = question.topology, _START_UP_US[question.transport]
    on_gpu = Counter(question.gpus)
    if question.operation == "local_copy":
        rate = memory.local_copy_gbps(topology)
        together = rate * question.ranks / max(on_gpu.values(), default=1) if rate else None
        return _inside_gpu(question, together)
    links = {gpu: memory.host_link_gbps(topology, gpu) for gpu in on_gpu}
    if not links or None in links.values():
        return _Limits(None, None, None, start_up, f"{topology.system}: the rate between GPUs and CPU is unknown")
    shared = memory.host_device_gbps(topology, question.node_gpus)
    nominal = question.ranks * min((links[gpu] or 0.0) / number for gpu, number in on_gpu.items())
    expected = question.ranks * min(shared[gpu.name] / number for gpu, number in on_gpu.items())
    why = "links between GPUs and CPUs, shared where all of them go at once (Schieffer §IV)"
    if topology.host_memory_gbps:
        ways = 1 if question.operation in {"host_to_device", "device_to_host"} else 2
        expected = min(expected, question.nodes * topology.host_memory_gbps / ways)
    if question.host_memory == "pageable" and question.host_copy_gbps:
        expected = min(expected, question.ranks * question.host_copy_gbps)
        why += ", through a page-locked buffer at the rate of the processor's own copy"
    return _Limits(nominal, expected, nominal, start_up, why)


def _host_and_device(question: _Question) -> _Limits:
    """Between two ranks by MPI, with buffers on different sides (OpenPOWER §5.3)."""
    if question.buffers == "host-host":
        return _shared_memory(question)
    gpu = question.gpus[1 if question.buffers == "host-device" else 0]
    link = memory.host_link_gbps(question.topology, gpu)
    why = f"link between {gpu.name} and its CPU (OpenPOWER §5.3)"
    return _Limits(link, link, link, _START_UP_US[question.transport], why)


def _collective(question: _Question) -> _Limits:
    graph = node_graph(_part(question.topology, frozenset(question.gpus)))
    n, root = len(question.node_gpus), question.gpus[0]
    injection = graph.least_injection_gbps
    by_copy = question.transport in {"copy", "kernel"}
    ceiling = injection
    own = n / (n - 1)  # of an alltoall's buffer, the own share does not travel
    if question.operation == "alltoall":
        expected, ceiling = goodput.alltoall(graph) * own, injection * own
        source = "edge forwarding index (De Sensi §IV-A), own share included"
    elif question.operation in ("allgather", "reduce_scatter"):
        expected, ceiling = goodput.allgather(graph), injection * own
        source = "injection or edge-disjoint rings, (n-1)/n of the buffer"
        if by_copy:
            expected, source = goodput.copy_allgather(graph), "all pairs at once"
    elif question.operation == "allreduce":
        bound = goodput.allreduce_bound(graph)
        expected = min(goodput.allreduce(graph), bound)
        source = "trees or edge-disjoint rings (De Sensi §IV-C), at most 2(n-1)/n of the buffer sent"
        if by_copy:
            expected = goodput.copy_allreduce(graph, root)
            source = "reduce on one GPU, then broadcast (De Sensi §IV-D)"
        # Only a switch that reduces (NVLink SHARP) lets the buffer cross a GPU's links once.
        if not any(switch.in_network_reduction for switch in question.topology.switches):
            ceiling = bound
    else:
        ceiling = graph.injection_gbps(root)
        expected, source = goodput.broadcast(graph, root), "least cut between the root and another GPU"
        if by_copy:
            expected, source = goodput.copy_broadcast(graph, root), "the root's links shared by all peers"
    start_up = _START_UP_US[question.transport] * max(1, n - 1)
    return _Limits(ceiling, expected, max(ceiling, expected), start_up, source)


def _staging(question: _Question) -> _Limits:
    """Three steps, not pipelined (De Sensi §III-A). With all GPUs at once the CPUs' links are shared."""
    topology = question.topology
    copy = memory.host_copy_gbps(topology, question.host_copy_gbps)
    start_up = _START_UP_US["staging"] * max(1, question.ranks - 1)
    if any(memory.host_link_gbps(topology, gpu) is None for gpu in question.gpus):
        return _Limits(None, None, None, start_up, f"{topology.system}: the rate between GPUs and CPU is unknown")
    alone = min(memory.host_device_gbps(topology, [gpu])[gpu.name] for gpu in question.node_gpus)
    shared = min(memory.host_device_gbps(topology, question.node_gpus).values())
    out, back = _staged_shares(question.operation, question.ranks)
    ceiling = 1 / (out / alone + back / alone)
    why = "device to host, host to host, host to device, one after another (De Sensi §III-A)"
    if copy is None:
        return _Limits(alone, None, ceiling, start_up, f"{why}; the host's copy rate is unknown")
    moved = out if question.operation in PAIRS else _host_share(question.operation, question.ranks)
    link = alone if question.operation in PAIRS and question.schedule == "uncontended" else shared
    expected = 1 / (out / link + moved / copy + back / link)
    # All ranks' copies and reductions pass one memory, whose sharing is not known.
    crowd = 1.0 if question.operation in PAIRS and question.schedule == "uncontended" else 1 / question.per_node
    return _Limits(alone, expected, ceiling, start_up, why, crowd)


def _staged_shares(operation: str, n: int) -> tuple[float, float]:
    """Shares of `bytes` that a rank copies from its device and back to it."""
    if operation == "allgather":
        return 1 / n, 1.0
    if operation == "reduce_scatter":
        return 1.0, 1 / n
    return 1.0, 1.0


def _host_share(operation: str, n: int) -> float:
    """Share of `bytes` that a rank copies between host buffers in a collective."""
    if operation == "allreduce":
        return 2 * (n - 1) / n
    return 1.0 if operation in ROOTED else (n - 1) / n


# Inside a node, host memory


def _shared_memory(question: _Question) -> _Limits:
    start_up = _SHARED_CORE_START_UP_US if question.oversubscribed else _SHARED_MEMORY_START_UP_US
    copy = memory.host_copy_gbps(question.topology, question.host_copy_gbps)
    if copy is None:
        why = "the host's copy rate is unknown"
        return _Limits(None, None, None, start_up, f"{question.topology.system}: {why}")
    share = 1.0 if question.operation in PAIRS else _host_share(question.operation, question.ranks)
    expected = copy / share
    others = 1 if question.operation in PAIRS and question.schedule == "uncontended" else question.ranks
    why = "one copy of each message at the rate that this run measured"
    if not question.host_copy_gbps:
        why = "one copy of each message at half of the memory's bandwidth"
    return _Limits(
        expected,
        expected,
        expected * _CACHE_GAIN,
        start_up,
        why,
        _SHARED_MEMORY_FLOOR / FLOOR_FRACTION / others,
    )


# Between nodes


def _between_nodes(question: _Question) -> _Limits:
    topology, operation = question.topology, question.operation
    start_up = _START_UP_US[question.transport] * max(1, question.ranks - 1)
    all_nics = sum(one.rate_gbps for one in topology.nics)
    if not all_nics:
        return _Limits(None, None, None, start_up, f"{topology.system}: no NIC is known")
    between = _pair_between if operation in PAIRS else _collective_between
    rate, expected, ceiling, source = between(question, all_nics)
    if question.transport == "staging" and question.gpus:
        link = [memory.host_link_gbps(topology, gpu) for gpu in question.gpus]
        known = [one for one in link if one]
        if len(known) < len(link):
            return _Limits(rate, None, ceiling, start_up, f"{source}; the rate between GPUs and CPU is unknown")
        out, back = _staged_shares(operation, question.ranks)
        expected = 1 / (out / min(known) + 1 / expected + back / min(known))
        source += ", between a copy to the host and one from it (De Sensi §III-A)"
    burst = max(one.burst_bytes for one in topology.nics) * max(2, question.nodes)
    if burst:
        # What a shaper's bucket lets pass at once can arrive at any speed.
        ceiling = math.inf if question.bytes <= burst else ceiling * question.bytes / (question.bytes - burst)
    return _Limits(rate, expected, ceiling, start_up, source)


def _pair_between(question: _Question, all_nics: float) -> tuple[float, float, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why."""
    topology = question.topology
    used = [one for one in (nic.nic_of(topology, gpu) for gpu in question.gpus) if one]
    rate = min(one.rate_gbps for one in used or topology.nics)
    expected = rate
    if question.schedule == "contended":
        sharing = math.ceil(max(1, len(topology.gpus)) / len(topology.nics))
        expected = rate / sharing
    # A library may use all NICs of a node for one message (OpenPOWER §5.5).
    if topology.network is None or not question.ends:
        return rate, expected, all_nics, f"rate of the NIC ({(used or topology.nics)[0].model})"
    source, destination = question.ends
    way = between_nodes.pair_rates(topology.network, source, destination, question.loads)
    why = f"{way.slowest_link or 'the slowest link'} from {source} to {destination}"
    return min(rate, way.nominal), min(expected, way.expected), min(all_nics, way.ceiling), why


def _collective_between(question: _Question, all_nics: float) -> tuple[float, float, float, str]:
    """Nominal, expected and highest plausible Gb/s, and why."""
    topology, operation = question.topology, question.operation
    node = nic.gpus_gbps(topology, question.node_gpus) if question.gpus else _host_ranks_gbps(question)
    share = _remote_share(operation, question.nodes, question.per_node)
    source = f"the node's NICs carry {share:.4g} of the buffer (De Sensi §V-C)"
    ceiling = all_nics / share
    if operation == "allreduce":
        ceiling = all_nics  # switches may reduce (SHARP), so that the buffer crosses once
    if topology.network is not None and question.ends:
        nodes = frozenset(map(node_of, question.ends))
        cut = between_nodes.least_cut_gbps(topology.network, nodes)
        # In an alltoall all nodes use the trunks at once; the best rings and trees of the others pass a cut once.
        through = between_nodes.alltoall_gbps(topology.network, nodes) if operation == "alltoall" else cut
        if through < node:
            node, source = through, f"the links between the nodes carry {share:.4g} of the buffer for each of them"
        if operation in ("allreduce", *ROOTED):
            # At least once the buffer passes whatever parts two of the nodes.
            ceiling = min(ceiling, cut)
    rate = expected = node / share
    if question.gpus and question.transport != "staging" and len(question.node_gpus) > 1:
        inside = _collective(question)
        if inside.expected is not None:
            expected = min(expected, inside.expected)
    return rate, expected, ceiling, source


def _host_ranks_gbps(question: _Question) -> float:
    """All NICs of a node where it has a rank for each; one rank uses one, as a GPU does (CommBench §2.1.2)."""
    nics = question.topology.nics
    return min(one.rate_gbps for one in nics) * min(question.per_node, len(nics))


def _remote_share(operation: str, nodes: int, per_node: int) -> float:
    """Bytes that leave a node, for each byte of one rank's buffer.

    alltoall: of each of the node's ranks, the share of ranks elsewhere (De Sensi §V-C). The rest: best known
    algorithms that reduce or gather inside the node first.
    """
    away = (nodes - 1) / nodes
    return {
        "alltoall": per_node * away,
        "allreduce": 2 * away,
        "allgather": away,
        "reduce_scatter": away,
        "broadcast": 1.0,
        "reduce": 1.0,
    }[operation]


@lru_cache(maxsize=64)
def _part(topology: Topology, gpus: frozenset[Gpu]) -> Topology:
    """The node as these GPUs alone use it. The others forward where no way leads round them, and are left out else."""
    if len(gpus) == len(topology.gpus):
        return topology
    gone = [gpu for gpu in topology.gpus if gpu not in gpus]
    names = {gpu.name for gpu in gone}
    alone = replace(
        topology,
        gpus=tuple(gpu for gpu in topology.gpus if gpu in gpus),
        links=tuple(link for link in topology.links if not names & set(link.ends)),
    )
    if len(node_graph(alone).islands) <= len(node_graph(topology).islands):
        return alone
    return replace(
        topology, gpus=alone.gpus, switches=(*topology.switches, *(Switch(gpu.name, gpu.model) for gpu in gone))
    )
