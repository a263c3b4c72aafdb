"""Ranks and samples of a result file of fabricbench, valid by its format, as records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabricheck.records.run import Device, Groups, Rank, Samples
from fabricheck.results.fabricbench_format import RankModel, SamplesModel


def rank_of(each: RankModel, platform: str) -> Rank:
    """A rank of the header; a processor in the place of a GPU (platform `cpu`) is no device of it."""
    device = Device(**each.device.model_dump()) if each.device is not None and platform != "cpu" else None
    return Rank(
        rank=each.rank,
        host=each.host,
        local_rank=each.local_rank,
        pid=each.pid,
        cpus=each.cpus,
        numa_node=each.numa_node,
        device=device,
    )


def samples_of(each: SamplesModel, messages: Sequence[Sequence[int]]) -> Samples:
    """A line of samples, with the messages of its series in the plan."""
    times = np.array(each.times_ns, dtype=np.int64)
    times.flags.writeable = False
    return Samples(
        operation=each.operation,
        implementation=each.implementation,
        schedule=each.schedule,
        round=each.round,
        ranks=tuple(each.ranks),
        bytes=each.bytes,
        warmup=each.warmup,
        stopped=each.stopped,
        wrong_bytes=each.wrong_bytes,
        times_ns=times,
        statistic=each.statistic,
        groups=Groups(*each.groups) if each.groups is not None else None,
        messages=tuple((source, destination, size) for source, destination, size in messages),
    )
