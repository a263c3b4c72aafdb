"""What differs between the nodes of a run, which should be the same, and what else ran on them."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fabricheck.extras import parse_cores
from fabricheck.judge.evidence import Evidence, NodeReport
from fabricheck.records.component import short_host
from fabricheck.records.node_state import GpuState, NodeState
from fabricheck.records.run import Rank, Run, pci_address
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import set_by_launcher
from fabricheck.topology.model import Topology
from fabricheck.topology.network import fold
from fabricheck.topology.transport_paths import by_rdma
from fabricheck.units import FEW, few

#: A node has little memory left where less of it is free: there earlyoom begins to kill, by default.
LITTLE_MEMORY = 0.1
#: A launcher starts all nodes within its own time-out (fabricheck.rfm.command_line); larger differences are of clocks.
CLOCK_S = 60.0

# What makes copies and libraries slower or chooses their way, whoever set it.
_CHANGES = re.compile(r"(NCCL|RCCL)_.*|(CUDA|HIP)_LAUNCH_BLOCKING|CUDA_MPS_ACTIVE_THREAD_PERCENTAGE|LD_PRELOAD")
_NO_SETTINGS = ("NCCL_VERSION", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
_OF_FILE = " (set by a file such as /etc/nccl.conf)"
_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# Of these each node, or each rank, has its own.
_OWN = ("SLURM_", "PMIX_")


# What *CCL says of RDMA.
_OF_RDMA = re.compile(r"NET/IB|NET plugin|GPU ?Direct ?RDMA|mlx5|ibv_", re.IGNORECASE)


def evidence_of_nodes(nodes: Sequence[NodeReport], run: Run | None, topology: Topology | None) -> Iterator[Evidence]:
    """Of all nodes together; `run` tells the variables of its ranks."""
    yield from _unlike_parts(nodes, run.ranks if run is not None else ())
    if run is not None:
        yield from _unlike_ranks(run)
        yield from _unlike_nvidia_smi(run)
        yield from _few_cores(run)
        yield from _remarks(run, topology)
        yield from _settings(run)
    yield from _clocks(nodes)
    yield from _load(nodes)
    for node in nodes:
        total, free = node.last.memory_bytes, node.last.memory_free_bytes
        if total and free < LITTLE_MEMORY * total:
            text = f"{free / 1e9:.3g} of {total / 1e9:.3g} GB of memory are free"
            yield Evidence("memory-low", node.host, "", text, Verdict.PASS)


def _kind(state: NodeState) -> tuple[str, ...]:
    """Nodes of one kind have the same parts, and should have the same settings."""
    return (state.versions.get("processor", ""), *(gpu.name for gpu in state.gpus))


# A node, or one of its GPUs by its index.
_Place = tuple[str, str | int]


def _unlike_parts(nodes: Sequence[NodeReport], ranks: Sequence[Rank]) -> Iterator[Evidence]:
    """What nodes of one kind, and GPUs of one model, have otherwise than most; builds and ports, such as a container's,
    only some nodes have. Where ranks of the same place drive other GPUs, what is measured is another pair."""
    places: dict[object, list[_Place]] = {}
    facts: dict[tuple[str, object, bool], dict[_Place, str]] = {}

    def add(place: _Place, kind: object, values: Mapping[str, str], *, network: bool = False) -> None:
        for name, value in values.items():
            facts.setdefault((name, kind, network), {})[place] = value

    for node in nodes:
        state, place = node.last, (node.host, "")
        kind = _kind(state)
        places.setdefault(kind, []).append(place)
        add(place, kind, _facts(state))
        add(place, None, {f"build of {name}": build for name, build in state.builds.items()})
        add(place, None, _of_ports(state), network=True)
        for gpu in state.gpus:
            add((node.host, gpu.index), gpu.name, _of_gpu(gpu))
    orders: dict[str, list[str]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.local_rank):
        if rank.device is not None:
            orders.setdefault(short_host(rank.host), []).append(rank.device.address)
    for host, order in orders.items():
        add((host, ""), frozenset(order), {"order of GPUs": ", ".join(order)})
    for (name, of_kind, network), known in facts.items():
        values = {place: known.get(place, "none") for place in places.get(of_kind, known)}
        yield from _unlike(name, values, network=network)


def _facts(state: NodeState) -> dict[str, str]:
    """What nodes of one kind have in common, by name."""
    versions = {name: value for name, value in state.versions.items() if name != "processor"}
    return {**versions, **state.settings, "cores": str(state.cores)}


def _of_ports(state: NodeState) -> dict[str, str]:
    """How the ports that are up are set; of one that is down there is a line of its own."""
    facts = {}
    for nic in state.nics:
        if nic.up is False:
            continue
        if nic.mtu is not None:
            facts[f"MTU of {nic.name}"] = str(nic.mtu)
        if nic.rate_gbps is not None:
            facts[f"rate of {nic.name}"] = f"{nic.rate_gbps:g} Gb/s"
        if nic.duplex:
            facts[f"duplex of {nic.name}"] = nic.duplex
        if nic.firmware:
            facts[f"NIC firmware of {nic.name}"] = nic.firmware
        facts |= {f"{name} of {nic.name}": value for name, value in nic.settings.items()}
    return facts


def _of_gpu(gpu: GpuState) -> dict[str, str]:
    """Of GPUs of one model: power limit, clock, modes."""
    facts = dict(gpu.settings)
    if gpu.power_limit_w is not None:
        facts["power limit"] = f"{gpu.power_limit_w:.0f} W"
    if gpu.clock_most_mhz is not None:
        facts["highest clock"] = f"{gpu.clock_most_mhz} MHz"
    return facts


def _unlike(name: str, values: Mapping[_Place, str], *, network: bool = False) -> Iterator[Evidence]:
    """One line where `values` differ: the fewer places are named."""
    counted = Counter(values.values())
    if len(counted) < 2:
        return
    (usual, most), *_ = counted.most_common()
    odd = [place for place, value in values.items() if value != usual]
    told = "; ".join(
        f"{value} on {_named([place for place in odd if values[place] == value])}"
        for value in counted
        if value != usual
    )
    others = f"{most} others" if most > 1 else _named([place for place in values if place not in odd])
    host, part = odd[0]
    yield Evidence(
        "nodes-differ", host, part, f"{name} differs: {told}, {usual} on {others}", Verdict.DEGRADED, network=network
    )


def _named(places: Sequence[_Place]) -> str:
    if any(part != "" for _, part in places):
        return few([f"GPU {part} of {host}" for host, part in places])
    hosts = [host for host, _ in places]
    return few(hosts) if len(hosts) > FEW else fold(hosts)


def _unlike_ranks(run: Run) -> Iterator[Evidence]:
    """Variables that libraries read, and libraries, that one node has otherwise than the others."""
    if not run.header or len({rank.host for rank in run.ranks}) < 2:
        return
    libraries = {name: _version_of(each) for name, each in run.header.get("libraries", {}).items()}
    variables = [
        each
        for each in run.header.get("environment_differences", [])
        if not each["name"].startswith(_OWN) and not set_by_launcher(each["name"])
    ]
    yield from _by_rank(run, variables, run.header.get("environment", {}), "")
    versions = run.header.get("library_differences", [])
    yield from _by_rank(run, versions, libraries, "library ")


def _version_of(library: Mapping[str, str]) -> str:
    """As the header's `library_differences` have it."""
    driver = f", driver {library['driver']}" if library.get("driver") else ""
    return f"{library['name']} {library['version']}{driver}"


def _by_rank(
    run: Run, given: Sequence[Mapping[str, Any]], of_rank_0: Mapping[str, str], what: str
) -> Iterator[Evidence]:
    """A line for each name that is another on some node; `given`: what ranks have otherwise than rank 0."""
    differences: dict[str, dict[int, str | None]] = {}
    for difference in given:
        differences.setdefault(difference["name"], {})[difference["rank"]] = difference["value"]
    for name, by_rank in differences.items():
        usual = of_rank_0.get(name)
        by_host: dict[str, list[str]] = {}
        for rank in run.ranks:
            value = by_rank.get(rank.rank, usual)
            by_host.setdefault(short_host(rank.host), []).append("unset" if value is None else value)
        values: dict[_Place, str] = {(host, ""): "/".join(dict.fromkeys(told)) for host, told in by_host.items()}
        if name in _DEVICES and _as_many(set(values.values())):
            continue  # which of a shared node's a job has, the scheduler decides
        yield from _unlike(f"{what}{name}", values)


def _as_many(lists: Collection[str]) -> bool:
    """Whether the lists name as many devices, and no two of them the same ones in another order."""
    devices = {frozenset(re.split("[,/]", names)) for names in lists}
    return len(devices) == len(lists) and len({len(names) for names in devices}) == 1 and not {"unset", ""} & {*lists}


def _unlike_nvidia_smi(run: Run) -> Iterator[Evidence]:
    """Nodes on which CUDA numbers GPUs otherwise than NVML and the topology, which go by PCI address."""
    if run.header.get("backend") != "cuda":
        return
    addresses: dict[str, dict[int, str]] = {}
    for rank in run.header.get("ranks", ()):  # with CUDA's own numbers
        if (device := rank.get("device")) is not None:
            addresses.setdefault(short_host(rank["host"]), {})[device["index"]] = pci_address(device["bus_id"])
    for host, by_index in addresses.items():
        order = [address for _, address in sorted(by_index.items())]
        if order != sorted(order):
            text = f"CUDA numbers the GPUs in the order {', '.join(order)}; nvidia-smi numbers them by PCI address"
            yield Evidence("gpu-order", host, "", text, Verdict.DEGRADED)


def _few_cores(run: Run) -> Iterator[Evidence]:
    """Nodes whose ranks have no core beside their own, where libraries have threads that send what GPUs wait for."""
    if not run.header.get("few_cores"):
        return
    allowed: dict[str, list[frozenset[int]]] = {}
    for rank in run.ranks:
        allowed.setdefault(short_host(rank.host), []).append(parse_cores(rank.cpus))
    for host, of_ranks in allowed.items():
        cores = len(frozenset().union(*of_ranks))
        if cores < 2 * len(of_ranks):
            text = f"{len(of_ranks)} ranks have {cores} cores: no core is left for the sending threads of the library"
            yield Evidence("few-cores", host, "", text, Verdict.PASS)


def _remarks(run: Run, topology: Topology | None) -> Iterator[Evidence]:
    """What the log of *CCL warns of, and which reasons it gives, on the node of the first rank that does.

    Where sockets join the nodes, what it says of RDMA is left out: it is about another path.
    """
    remarks = run.footer.get("proof", {}).get("remarks", []) if run.footer else []
    library = run.header.get("libraries", {}).get("ccl", {}).get("name", "NCCL")
    hosts = {rank.rank: short_host(rank.host) for rank in run.ranks}
    nodes = len(set(hosts.values()))
    sockets = topology is not None and nodes > 1 and not by_rdma(topology, "ccl", nodes)
    for remark in remarks:
        host = hosts.get(remark["ranks"][0])
        if host is None or (sockets and _OF_RDMA.search(remark["text"])):
            continue
        more = f" (on {remark['of_ranks']} ranks)" if remark["of_ranks"] > 1 else ""
        verb, verdict = ("warns", Verdict.PASS) if remark["warning"] else ("says", None)
        yield Evidence("library-remark", host, "", f"{library} {verb}: {remark['text']}{more}", verdict)


def _settings(run: Run) -> Iterator[Evidence]:
    """Variables that change how data go, by rank 0: where others have them otherwise there is a line of its own."""
    of_files = set(run.header.get("set_by_library", ()))
    told = [
        f"{name}={value}{_OF_FILE if name in of_files else ''}"
        for name, value in run.header.get("environment", {}).items()
        if _CHANGES.fullmatch(name) and name not in _NO_SETTINGS
    ]
    if told and run.ranks:
        for host in dict.fromkeys(short_host(rank.host) for rank in run.ranks):
            yield Evidence("settings-in-effect", host, "", f"in effect on rank 0: {', '.join(told)}", None)


def _clocks(nodes: Sequence[NodeReport]) -> Iterator[Evidence]:
    times = {node.host: node.before.time_s for node in nodes if node.before is not None}
    if len(times) < 2:
        return
    usual = statistics.median_low(times.values())
    for host, time_s in times.items():
        if abs(time_s - usual) > CLOCK_S:
            way = "ahead of" if time_s > usual else "behind"
            text = f"its clock is {abs(time_s - usual):,.0f} s {way} the other nodes'"
            yield Evidence("clock-off", host, "", text, Verdict.DEGRADED)


def _load(nodes: Sequence[NodeReport]) -> Iterator[Evidence]:
    """What others kept busy before the test began, on the node where it was most."""
    loads = []
    for node in nodes:
        state = node.before
        if state is not None and node.is_busy:
            loads.append((state.busy_cores / state.cores, state))
    if loads:
        _, state = max(loads, key=lambda each: each[0])
        more = f" (and {len(loads) - 1} more nodes)" if len(loads) > 1 else ""
        who = f" (by process: {', '.join(state.busiest)})" if state.busiest else ""
        text = f"{state.busy_cores:.1f} of {state.cores} cores were busy before the test{who}{more}"
        yield Evidence("node-busy", state.host, "", text, Verdict.PASS)
