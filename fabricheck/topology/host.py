"""From GPUs to CPUs, over a link of the GPU's own or over a switch that leads to the host alone, and on to NICs."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from fabricheck.topology.model import Gpu, Link, Topology

Flow = TypeVar("Flow", bound=Hashable)


@lru_cache(maxsize=4096)
def host_paths(topology: Topology, gpu: Gpu) -> tuple[tuple[str, ...], ...]:
    """Each path from a GPU to a CPU that it is linked to, or that its switch to the host is, by the devices' names."""
    cpus, hubs = {cpu.name for cpu in topology.cpus}, {one.name for one in topology.host_switches}
    near = _neighbours(topology, gpu.name)
    over = [(gpu.name, hub, cpu) for hub in near if hub in hubs for cpu in _neighbours(topology, hub) if cpu in cpus]
    return (*((gpu.name, cpu) for cpu in near if cpu in cpus), *over)


def _neighbours(topology: Topology, name: str) -> tuple[str, ...]:
    ends = (end for link in topology.links if name in link.ends for end in link.ends if end != name)
    return tuple(dict.fromkeys(ends))


def host_links(topology: Topology, gpus: Sequence[Gpu]) -> tuple[Link, ...]:
    """The links between these GPUs and CPUs."""
    paths = [path for gpu in gpus for path in host_paths(topology, gpu)]
    pairs = {frozenset(pair) for path in paths for pair in itertools.pairwise(path)}
    return tuple(link for link in topology.links if frozenset(link.ends) in pairs)


def host_rates(topology: Topology, gpus: Sequence[Gpu], *, to_device: bool, at_cpus: bool = True) -> dict[str, float]:
    """Gb/s of each GPU, by name, when all of these copy from or to host memory at once; 0 without a path to a CPU.

    What several of them use is shared max-min fairly: links to a switch, and with `at_cpus` each CPU's `device_rate`.
    """
    limits: dict[Hashable, float] = {
        cpu.name: cpu.device_rate_gbps for cpu in topology.cpus if at_cpus and cpu.device_rate_gbps is not None
    }
    flows: dict[tuple[str, ...], list[Hashable]] = {}
    for path in (path for gpu in gpus for path in host_paths(topology, gpu)):
        edges = itertools.pairwise(path[::-1] if to_device else path)
        flows[path] = [*edges, *(name for name in path[-1:] if name in limits)]
    rates = _max_min(flows, {**_edge_rates(topology), **limits})
    return {gpu.name: sum(rate for path, rate in rates.items() if path[0] == gpu.name) for gpu in gpus}


@lru_cache(maxsize=64)
def _edge_rates(topology: Topology) -> Mapping[Hashable, float]:
    rates: dict[Hashable, float] = defaultdict(float)
    for link in topology.links:
        for start, end in (link.ends, link.ends[::-1]):
            rates[start, end] += link.towards(end)
    return rates


def _max_min(flows: Mapping[Flow, Sequence[Hashable]], capacities: Mapping[Hashable, float]) -> dict[Flow, float]:
    """The rate of each flow, of which none can gain but from one that has less; `flows` with what each passes.

    Progressive filling (Bertsekas and Gallager, "Data Networks", section 6.5.2).
    """
    rates: dict[Flow, float] = {}
    left = dict(capacities)
    while len(rates) < len(flows):
        users = Counter(part for flow, parts in flows.items() if flow not in rates for part in parts)
        narrowest = min(users, key=lambda part: left[part] / users[part])
        level = left[narrowest] / users[narrowest]
        full = [flow for flow, parts in flows.items() if flow not in rates and narrowest in parts]
        rates.update(dict.fromkeys(full, level))
        for part in (part for flow in full for part in flows[flow]):
            left[part] = max(0.0, left[part] - level)
    return rates


@dataclass(frozen=True)
class NicPath:
    """What the links between a GPU and NICs carry, the slower way: `gbps` Gb/s of a message in equal stripes over all
    of them, and the link that limits it, by the names of its ends."""

    gbps: float
    limited_by: tuple[str, str]


class NoPathError(Exception):
    """A NIC has links, and these do not lead to the GPU."""


def nic_path(topology: Topology, gpu: Gpu, nics: Sequence[str]) -> NicPath | None:
    """The path of data between a GPU's memory and NICs that take it from there; None where one of these has no link.

    Raises NoPathError where the links of one do not lead to the GPU, as those to another socket.
    """
    paths = {nic: path_to_nic(topology, gpu, nic) for nic in nics}
    if not all(paths.values()):
        return None
    slowest = []
    for step in (1, -1):
        flows = {nic: list(itertools.pairwise(path[::step])) for nic, path in paths.items()}
        rates = _max_min(flows, _edge_rates(topology))
        users = Counter(edge for edges in flows.values() for edge in edges)
        nic = min(rates, key=lambda name: rates[name])
        edge = min(flows[nic], key=lambda edge: _edge_rates(topology)[edge] / users[edge])
        slowest.append(NicPath(len(nics) * rates[nic], (edge[0], edge[1])))
    return min(slowest, key=lambda path: path.gbps)


@lru_cache(maxsize=4096)
def path_to_nic(topology: Topology, gpu: Gpu, nic: str) -> tuple[str, ...]:
    """The devices on the way with the fewest links between a GPU and a NIC, over CPUs and switches; empty where the NIC
    has no link. Raises NoPathError where its links do not lead to the GPU."""
    if not _neighbours(topology, nic):
        return ()
    passed = {cpu.name for cpu in topology.cpus} | {switch.name for switch in topology.switches} | {nic}
    ways: list[tuple[str, ...]] = [(gpu.name,)]
    reached = {gpu.name}
    for way in ways:  # grows: breadth first
        if way[-1] == nic:
            return way
        further = [name for name in _neighbours(topology, way[-1]) if name in passed - reached]
        reached.update(further)
        ways += [(*way, name) for name in further]
    raise NoPathError
