"""Between GPUs and CPUs: over a link of the GPU's own, or over a switch that leads to the host alone."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
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
    pairs = {frozenset(pair) for gpu in gpus for path in host_paths(topology, gpu) for pair in itertools.pairwise(path)}
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
