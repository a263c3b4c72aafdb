"""Ranks and samples of a result file of fabricbench, valid by its format, as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fabricheck.records.run import Device, Groups, Rank, Samples
from fabricheck.results.fabricbench_format import AggressorModel, RankModel, SamplesModel


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


def samples_of(each: SamplesModel, messages: Sequence[Sequence[int]], kept_of: int = 0) -> Samples:
    """A line of samples, with the messages of its series in the plan; `kept_of` as in `Samples`."""
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
        kept_of=kept_of,
        rank_error=each.rank_error if kept_of else 0.0,
        messages=tuple((source, destination, size) for source, destination, size in messages),
        aggressor=_aggressor_of(each, each.aggressor) if each.aggressor is not None else None,
    )


def _aggressor_of(victim: SamplesModel, each: AggressorModel) -> Samples:
    """A repetition of the aggressors as a measurement that the model knows: an alltoall of buffers of
    `--aggressor-size`, or messages of that size to the first rank."""
    first, *others = each.ranks
    incast = victim.operation.endswith("_incast")
    return Samples(
        operation="sparse" if incast else "alltoall",
        implementation="transfers",
        schedule="uncontended",
        round=-1,
        ranks=(first, *others),
        bytes=each.bytes * len(others) if incast else each.bytes,
        warmup=0,
        stopped=victim.stopped,
        wrong_bytes=victim.wrong_bytes,
        times_ns=np.array(each.times_ns, dtype=np.int64),
        messages=tuple((rank, first, each.bytes) for rank in others) if incast else (),
    )


def timed_ns(samples: Iterable[Samples]) -> int:
    """The time inside the clock: of pairs that go at the same time, each iteration counts as its slowest pair."""
    total = 0
    rounds: dict[tuple[str, str, str, int, int], npt.NDArray[np.int64]] = {}
    for each in samples:
        if each.round < 0:
            total += int(each.times_ns.sum())
            continue
        key = (each.operation, each.implementation, each.schedule, each.round, each.bytes)
        slowest = rounds.setdefault(key, each.times_ns)
        count = min(slowest.size, each.times_ns.size)
        rounds[key] = np.maximum(slowest[:count], each.times_ns[:count])
    return total + sum(int(slowest.sum()) for slowest in rounds.values())
