"""Ranks and samples of a result file of fabricbench, valid by its format, as records, and whether its nodes are who
they say they are: the name that a host has, and the one that the scheduler knows it by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fabricheck.records.run import Device, Groups, Rank, Samples
from fabricheck.results.fabricbench_format import AggressorModel, HeaderModel, RankModel, SamplesModel


def rank_of(model: RankModel, platform: str) -> Rank:
    """A rank of the header; a processor in the place of a GPU (platform `cpu`) is not a device of it."""
    device = Device(**model.device.model_dump()) if model.device is not None and platform != "cpu" else None
    return Rank(
        rank=model.rank,
        host=model.host,
        local_rank=model.local_rank,
        pid=model.pid,
        cpus=model.cpus,
        numa_node=model.numa_node,
        device=device,
        nics=tuple(nic.name for nic in model.nics or ()),
    )


def samples_of(model: SamplesModel, messages: Sequence[Sequence[int]], kept_of: int = 0) -> Samples:
    """A line of samples, with the messages of its series in the plan; `kept_of` as in `Samples`."""
    times = np.array(model.times_ns, dtype=np.int64)
    times.flags.writeable = False
    return Samples(
        operation=model.operation,
        implementation=model.implementation,
        schedule=model.schedule,
        round=model.round,
        ranks=tuple(model.ranks),
        bytes=model.bytes,
        warmup=model.warmup,
        stopped=model.stopped,
        wrong_bytes=model.wrong_bytes,
        times_ns=times,
        statistic=model.statistic,
        groups=Groups(*model.groups) if model.groups is not None else None,
        kept_of=kept_of,
        rank_error=model.rank_error if kept_of else 0.0,
        messages=tuple((source, destination, size) for source, destination, size in messages),
        aggressor=_aggressor_of(model, model.aggressor) if model.aggressor is not None else None,
    )


def _aggressor_of(victim: SamplesModel, model: AggressorModel) -> Samples:
    """A repetition of the aggressors as a measurement that the model knows: an alltoall of buffers of
    `--aggressor-size`, or messages of that size to the first rank."""
    first, *others = model.ranks
    incast = victim.operation.endswith("_incast")
    return Samples(
        operation="sparse" if incast else "alltoall",
        implementation="transfers",
        schedule="uncontended",
        round=-1,
        ranks=(first, *others),
        bytes=model.bytes * len(others) if incast else model.bytes,
        warmup=0,
        stopped=victim.stopped,
        wrong_bytes=victim.wrong_bytes,
        times_ns=np.array(model.times_ns, dtype=np.int64),
        messages=tuple((rank, first, model.bytes) for rank in others) if incast else (),
    )


def timed_ns(samples: Iterable[Samples]) -> int:
    """The time inside the clock: of pairs that go at the same time, each iteration counts as its slowest pair."""
    total = 0
    rounds: dict[tuple[str, str, str, int, int], npt.NDArray[np.int64]] = {}
    for record in samples:
        if record.round < 0:
            total += int(record.times_ns.sum())
            continue
        key = (record.operation, record.implementation, record.schedule, record.round, record.bytes)
        slowest = rounds.setdefault(key, record.times_ns)
        count = min(slowest.size, record.times_ns.size)
        rounds[key] = np.maximum(slowest[:count], record.times_ns[:count])
    return total + sum(int(slowest.sum()) for slowest in rounds.values())


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
