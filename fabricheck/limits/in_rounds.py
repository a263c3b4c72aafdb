"""What pairs and groups that are measured at the same time share: links inside a node, and NICs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from fabricheck.records.operations import COLLECTIVES, PAIRS, SYMMETRIC_PAIRS
from fabricheck.records.run import Run, Samples
from fabricheck.topology.between_nodes import link_loads
from fabricheck.topology.graph import Edge, node_graph
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import nic_of
from fabricheck.topology.placement import ends_of_ranks, gpu_of_ranks


@dataclass(frozen=True)
class Company:
    """How many messages or collectives of a round there are, the asked one among them.

    Of a pair: `edges`, on each directed link of its node, where it is inside one; `nic`, most of them on a NIC that it
    uses, None where it is not known which that is; `loads`, on each link of the network, by name. Of a collective:
    `groups`, with ranks on its first node, and `gpus`, all that these drive there.
    """

    edges: Mapping[Edge, int] = field(default_factory=dict)
    nic: int | None = None
    loads: Mapping[str, float] = field(default_factory=dict)
    groups: int = 1
    gpus: tuple[Gpu, ...] = ()


def is_in_round(samples: Samples) -> bool:
    """Whether other pairs transfer data at the same time."""
    return samples.operation in PAIRS and samples.schedule == "contended"


def company_in_rounds(run: Run, topology: Topology) -> Callable[[Samples], Company | None]:
    """Of each pair and group of a run on such nodes, which goes with others at the same time; None for what goes alone.

    A message takes the widest path of its pair, and a ping-pong or both directions take it both ways. Raises UserError
    for a host that is not a node of the network.
    """
    ends, network = ends_of_ranks(run, topology), topology.network
    gpus = gpu_of_ranks(run)
    hosts = {each.rank: each.host for each in run.ranks}
    graph = node_graph(topology)
    together: dict[tuple[str, int, int], list[Samples]] = {}

    def in_round(samples: Samples) -> bool:  # ranks that the header does not have are a problem of the run
        at_once = is_in_round(samples) or (samples.operation in COLLECTIVES and samples.schedule == "contended")
        return at_once and hosts.keys() >= {*samples.ranks}

    for samples in filter(in_round, run.samples):
        together.setdefault(round_of(samples), []).append(samples)
    members: set[int] = set()
    for own in together.values():
        members.update(*(samples.ranks for samples in own))
    drives = {rank: topology.gpu(gpus[rank]) for rank in sorted(members & gpus.keys())}

    def edges(samples: Samples) -> list[Edge]:
        a, b = samples.ranks
        if hosts[a] != hosts[b] or a not in drives or b not in drives or drives[a] == drives[b]:
            return []
        there = graph.widest_path(drives[a], drives[b]).edges
        back = graph.widest_path(drives[b], drives[a]).edges
        return [*there, *(back if samples.operation in SYMMETRIC_PAIRS else ())]

    def nics(samples: Samples) -> list[tuple[str, str]]:
        if len({hosts[rank] for rank in samples.ranks}) < 2:
            return []
        used = [(hosts[rank], nic_of(topology, drives[rank])) for rank in samples.ranks if rank in drives]
        return [(host, nic.name) for host, nic in used if nic is not None]

    @cache
    def counts(operation: str, round: int, size: int) -> tuple[Counter[tuple[str, Edge]], Counter[tuple[str, str]]]:
        members = together[operation, round, size]
        on_links = Counter((hosts[one.ranks[0]], edge) for one in members for edge in edges(one))
        return on_links, Counter(nic for one in members for nic in nics(one))

    @cache
    def loads(operation: str, round: int, size: int) -> Mapping[str, float]:
        if network is None or not ends:
            return {}
        return link_loads(
            network, ((ends[a], ends[b]) for a, b in (one.ranks for one in together[operation, round, size]))
        )

    def groups(samples: Samples) -> Company:
        host = hosts[samples.ranks[0]]
        there = [one for one in together[round_of(samples)] if host in {hosts[rank] for rank in one.ranks}]
        ranks = [rank for one in there for rank in one.ranks if hosts[rank] == host and rank in drives]
        return Company(groups=len(there), gpus=tuple(drives[rank] for rank in ranks))

    def company(samples: Samples) -> Company | None:
        if not in_round(samples):
            return None
        if samples.operation in COLLECTIVES:
            return groups(samples)
        on_links, on_nics = counts(*round_of(samples))
        own, host = nics(samples), hosts[samples.ranks[0]]
        return Company(
            {edge: on_links[host, edge] for edge in edges(samples)},
            max(on_nics[nic] for nic in own) if len(own) == 2 else None,
            loads(*round_of(samples)),
        )

    return company


def round_of(samples: Samples) -> tuple[str, int, int]:
    """The key that all pairs of a round share."""
    return samples.operation, samples.round, samples.bytes
