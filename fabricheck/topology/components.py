"""Which parts of the machine the data of a measurement pass."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from fabricheck.records.component import Component, Kind
from fabricheck.records.operations import uses_host_memory
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.topology.graph import node_graph
from fabricheck.topology.host import NoPathError, host_links, path_to_nic
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import nics_of
from fabricheck.topology.placement import gpu_of_ranks, nics_of_ranks

# What schedulers and MPI's start send over another network is less than this share of all that a node sent.
_LEAST_SHARE = 0.1


def components_of(run: Run, samples: Samples, topology: Topology | None) -> tuple[Component, ...]:
    """What the data of a measurement pass: nodes, and on each its parts and links.

    Parts and links are those of the topology's widest paths between the GPUs of a node, or between GPUs and CPUs
    where the data come from host memory, go to it or to a NIC (and on to that NIC, where the topology has its links),
    and the NICs that the run names, or where there are several nodes each GPU's NIC (without, the NICs that sent most
    by the kernel's counters; all where those do not know them). Switches between nodes are unknown.
    """
    members = [each for each in run.ranks if each.rank in samples.ranks]
    hosts = dict.fromkeys(each.host for each in members)
    components = {Component.of_node(host) for host in hosts}
    if topology is None:
        return _by_name(components)
    indexes = gpu_of_ranks(run)
    buffers = run.header.get("plan", {}).get("buffers")
    to_cpu = run.header.get("transport") in ("staging", "fabric") or uses_host_memory(samples.operation, buffers)
    # Of a pair with a buffer on the host, the GPU of that rank has no part.
    place = dict(zip(samples.ranks, str(buffers).split("-"), strict=False)) if buffers else {}
    for host in hosts:
        gpus = tuple(
            dict.fromkeys(
                topology.gpu(indexes[each.rank])
                for each in members
                if each.host == host and each.device and place.get(each.rank) != "host"
            )
        )
        parts = _parts_inside(topology, gpus, to_cpu)
        told = _nics_told(run, [rank for rank in members if rank.host == host], topology)
        if told or len(hosts) > 1:
            names = told or _nics(topology, gpus) or _nics_that_sent(run, host, topology)
            parts |= {Component(Kind.NIC, name) for name in names}
            parts |= {*_links_to_nics(topology, gpus, told)}
        addresses = {
            topology.gpu(indexes[each.rank]).name: each.device.address
            for each in members
            if each.host == host and each.device is not None
        }
        components |= {
            replace(each, node=host, far_node=host if each.far else "", address=addresses.get(each.name, ""))
            for each in parts
        }
    return _by_name(components)


def _by_name(components: Iterable[Component]) -> tuple[Component, ...]:
    return tuple(sorted(components, key=lambda component: component.key))


@lru_cache(maxsize=4096)
def _parts_inside(topology: Topology, gpus: tuple[Gpu, ...], to_cpu: bool) -> frozenset[Component]:
    """Parts and links of some node."""
    edges: set[tuple[str, str]] = set()
    if to_cpu:
        edges |= {(min(link.ends), max(link.ends)) for link in host_links(topology, gpus)}
    else:
        graph = node_graph(topology)
        for pair in itertools.permutations(gpus, 2):
            edges |= {(min(edge), max(edge)) for edge in graph.widest_path(*pair).edges}
    names = {gpu.name for gpu in topology.gpus}
    ends = {gpu.name for gpu in gpus} | {end for edge in edges for end in edge}
    return frozenset(
        {
            *(Component(Kind.GPU if end in names else Kind.DEVICE, end) for end in ends),
            *(Component(Kind.LINK, a, far=b) for a, b in edges),
        }
    )


def _links_to_nics(topology: Topology, gpus: Iterable[Gpu], nics: Iterable[str]) -> Iterator[Component]:
    for gpu, nic in itertools.product(gpus, nics):
        with contextlib.suppress(NoPathError):
            for edge in itertools.pairwise(path_to_nic(topology, gpu, nic)):
                yield Component(Kind.LINK, min(edge), far=max(edge))


def _nics(topology: Topology, gpus: tuple[Gpu, ...]) -> frozenset[str]:
    """The NICs of the GPUs; none where there are no GPUs, or that of one is unknown."""
    nics_of_gpus = [nics_of(topology, gpu) for gpu in gpus]
    if () in nics_of_gpus:
        return frozenset()
    return frozenset(nic.name for nics in nics_of_gpus for nic in nics)


def _nics_told(run: Run, ranks: Iterable[Rank], topology: Topology) -> frozenset[str]:
    """Those that libfabric was told to use, or told of; it may have other names for them than the topology."""
    nics = nics_of_ranks(run, topology)
    names = {name for rank in ranks for name in nics[rank.rank]}
    return frozenset(nic.name for nic in topology.nics if nic.name in names)


def _nics_that_sent(run: Run, host: str, topology: Topology) -> frozenset[str]:
    sent: Mapping[str, int] = run.footer.get("proof", {}).get("interfaces", {}).get(host, {}) if run.footer else {}
    names = frozenset(each.name for each in topology.nics)
    used = {name for name in names if sent.get(name, 0) > _LEAST_SHARE * sum(sent.values())}
    return frozenset(used) or names
