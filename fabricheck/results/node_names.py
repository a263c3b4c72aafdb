"""Whether nodes are who they say they are: the name that a host has, and the one that the scheduler knows it by."""

from __future__ import annotations

from collections.abc import Iterator

from fabricheck.results.fabricbench_format import HeaderModel

#: What slurmd calls the node, set for each task that srun starts.
SCHEDULERS_NAME = "SLURMD_NODENAME"


def mistaken_names(header: HeaderModel) -> Iterator[str]:
    """Nodes whose names are exchanged, and nodes of one name: what a run then says of one of them is another's.

    Only where the scheduler's names tell as many nodes apart as hosts do. A launcher that hands the first node's
    variables to all ranks tells nothing, nor does a site whose nodes are called otherwise than their hosts.
    """
    for difference in header.environment_differences:
        if difference.rank >= len(header.ranks):
            yield f"environment_differences names rank {difference.rank}, which is not in the run"
    first = header.environment.get(SCHEDULERS_NAME)
    if first is None:
        return
    others = {each.rank: each.value for each in header.environment_differences if each.name == SCHEDULERS_NAME}
    names = {each.rank: _short(others.get(each.rank, first) or "") for each in header.ranks}
    hosts = {each.rank: _short(each.host) for each in header.ranks}
    known = set(names.values())
    if "" in known or len(known) < len(set(hosts.values())):
        return
    by_host: dict[str, dict[str, None]] = {}
    for rank, host in hosts.items():
        by_host.setdefault(host, {})[names[rank]] = None
    for host, nodes in by_host.items():
        if len(nodes) > 1:
            yield f"nodes {', '.join(nodes)} of the scheduler all have the host name {host}: give each its own"
        elif next(iter(nodes)) != host and next(iter(nodes)) in by_host:
            (name,) = nodes
            yield f"the node that the scheduler calls {name} has the host name {host}: are their names exchanged?"


def _short(name: str) -> str:
    return name.partition(".")[0]
