"""Parts of a result file of fabricbench, valid by its format: as records, and what is wrong with them.

The header plans measurements, which are all to be there. Its nodes are who they say they are: the name that a host has,
and the one that the scheduler knows it by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fabricheck.records.operations import (
    COLLECTIVES,
    GROUP_PATTERNS,
    MEMORY_PATHS,
    PAIRS,
    SHAPED,
    SPARSE,
    STRIPING,
    TRAINING,
    VICTIMS,
)
from fabricheck.records.order_statistics import LONGEST, kept_ranks
from fabricheck.records.pair_rule import PairRule
from fabricheck.records.run import Device, Groups, Rank, Samples, list_ranks
from fabricheck.records.split import Split
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench_format import (
    AggressorModel,
    HeaderModel,
    ProofModel,
    RankModel,
    RuledSeriesModel,
    SamplesModel,
    SeriesModel,
)
from fabricheck.units import few


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
        messages=tuple(tuple(message) for message in messages),
        aggressor=_aggressor_of(model, model.aggressor) if model.aggressor is not None else None,
        cold_us=float(np.median(model.cold_times_ns)) / 2000 if model.cold_times_ns else 0.0,
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


# What makes two samples lines the same measurement, and what a planned series must agree with: operation, schedule,
# bytes, ranks, groups, implementation and round.
Key = tuple[str, str, int, tuple[int, ...], tuple[int, ...], str, int]


def key_of(series: SamplesModel | SeriesModel, size: int) -> Key:
    """The measurement of a line of samples, or of a series at one of its sizes."""
    groups = tuple(series.groups or ())
    return series.operation, series.schedule, size, tuple(series.ranks), groups, series.implementation, series.round


def describe(key: Key) -> str:
    """A measurement, for messages."""
    operation, schedule, size, ranks, groups, *_ = key
    shape = f" {'x'.join(map(str, groups))}" if groups else ""
    return f"{operation}{shape} {schedule} of {size} B on ranks {list_ranks(ranks)}"


def planned_keys(header: HeaderModel) -> Iterator[Key]:
    """All measurements of a plan; none of a series whose rule is not possible."""
    for series in header.plan.series:
        if isinstance(series, SeriesModel):
            yield from (key_of(series, size) for size in series.bytes)
        elif rule_mistake(series, header) is None:
            for number, pairs in _rule_of(series).rounds():
                for source, destination in pairs.tolist():
                    ranks = (source, destination)
                    for size in series.bytes:
                        yield series.operation, series.schedule, size, ranks, (), series.implementation, number


def mode_mistakes(header: HeaderModel, proof: ProofModel) -> Iterator[str]:
    """The modes of *CCL that were requested and were not in effect, or are not proven to have been.

    NCCL uses registered buffers for large messages only: there the largest size of each operation has to be proven, and
    with the other modes each size.
    """
    wanted = header.plan.ccl_mode.split(",") if header.plan.ccl_mode else []
    if set(proof.ccl_modes) != set(wanted):
        modes = ", ".join(sorted(proof.ccl_modes)) or "none"
        yield f"the footer has the modes of *CCL {modes}, and {', '.join(wanted) or 'none'} was requested"
    for mode in (each for each in wanted if each in proof.ccl_modes):
        told = proof.ccl_modes[mode]
        unproven = [
            f"{operation} of {size} B"
            for operation, sizes in told.unproven.items()
            for size in sizes
            if mode != "registered" or size >= max(told.proven.get(operation, (0,)))
        ]
        unproven += [name for name in header.plan.operations if name not in {**told.proven, **told.unproven}]
        if unproven:
            yield (f"the mode {mode} was not in effect in {few(unproven, 1)}, or has no evidence: {told.evidence}")


def plan_mistakes(header: HeaderModel, planned: Counter[Key]) -> Iterator[str]:
    """What is wrong with the plan of a header, of which `planned` counts the measurements."""
    plan, ranks = header.plan, len(header.ranks)
    count = planned.total()
    if count != header.expected_records:
        yield f"expected_records is {header.expected_records} and the plan has {count}"
    # A pair may be in several of the rounds that the user has written down.
    depth = 5 if plan.rounds is None else None
    if len({key[:depth] for key in planned}) != count:
        yield "the plan has a measurement twice"
    for series in plan.series:
        if isinstance(series, SeriesModel):
            if (mistake := group_mistake(series, ranks)) is not None:
                yield mistake
            yield from _company_mistakes(series, ranks)
        elif (mistake := rule_mistake(series, header)) is not None:
            yield mistake
    yield from _split_mistakes(header)
    if {series.operation for series in plan.series} != set(plan.operations):
        yield "the series of the plan are not for the operations of the plan"
    if {series.schedule for series in plan.series} != set(plan.schedules):
        yield "the series of the plan are not for the schedules of the plan"
    iterations = plan.iterations
    if iterations.minimum > iterations.maximum or (
        iterations.mode == "fixed" and iterations.minimum != iterations.maximum
    ):
        yield f"the plan has {iterations.minimum} to {iterations.maximum} iterations"


def _split_mistakes(header: HeaderModel) -> Iterator[str]:
    """What keeps the groups of collectives from being all those of the split that was requested."""
    count, together = len(header.ranks), dict[tuple[str, str], list[tuple[int, ...]]]()
    for series in header.plan.series:
        if isinstance(series, SeriesModel) and series.operation in COLLECTIVES:
            together.setdefault((series.operation, series.schedule), []).append(tuple(series.ranks))
    for (operation, schedule), groups in together.items():
        split, name = Split.of(groups[0]), header.plan.split or ""
        if split is None or not split.fits(name, count) or list(split.groups(count)) != groups:
            yield f"the groups of {operation} {schedule} are not {name or 'all ranks'}"


def rule_mistake(series: RuledSeriesModel, header: HeaderModel) -> str | None:
    """What keeps a series from being the pairs of this run that its rule gives."""
    rule, ranks = _rule_of(series), len(header.ranks)
    if header.format == 1:
        return "a file of format version 1 has no rules: it was changed"
    # A ping-pong was measured from either end by earlier versions.
    allowed = {"unidirectional": (2,), "bidirectional": (1,), "pingpong": (1, 2)}
    if rule.directions not in allowed.get(series.operation, ()):
        return f"{series.operation} has no rule for pairs that are measured {rule.directions} times"
    if rule.ranks != ranks or not rule.is_possible:
        return f"no rule has {rule.ranks} ranks in groups of {rule.group}, of this run of {ranks} ranks"
    if rule.hash_text() != series.rule.hash:
        return (
            f"the pairs of {series.operation} {series.schedule} differ from those of this version: use matching "
            "versions"
        )
    return None


def _rule_of(series: RuledSeriesModel) -> PairRule:
    rule = series.rule
    return PairRule(rule.ranks, rule.group, rule.directions, series.schedule == "contended", rule.turns or 0)


def group_mistake(series: SamplesModel | SeriesModel, count: int) -> str | None:
    """Why the ranks of a measurement cannot be those of its operation, in a run of `count` ranks."""
    operation, ranks = series.operation, series.ranks
    if max(ranks) >= count:
        return f"rank {max(ranks)} is not in this run of {count} ranks"
    if len(set(ranks)) != len(ranks):
        return f"{operation} has a rank twice in {list_ranks(ranks)}"
    if operation not in MEMORY_PATHS and len(ranks) < 2:
        return f"{operation} needs two ranks or more, not only rank {ranks[0]}"
    if operation in PAIRS and len(ranks) != 2:
        return f"{operation} is between two ranks, not {len(ranks)}"
    if (series.groups is not None) != (operation in SHAPED):
        return f"{operation} {'has groups' if series.groups is not None else 'does not name its groups'}"
    return _shape_mistake(operation, ranks, *series.groups) if series.groups is not None else None


def _shape_mistake(operation: str, ranks: Sequence[int], *groups: int) -> str | None:
    count, size, active = groups
    striping = operation in STRIPING
    two = striping or GROUP_PATTERNS.get(operation, ("", ""))[0] == "asymmetric"
    least = 2 if striping else size if operation in TRAINING else 1
    alone = operation in TRAINING and size < 2
    if count < 2 or active > size or (two and count != 2) or active < least or alone:
        return f"{operation} cannot be among (n, g, k) = {groups}"
    if list(ranks) != list(range(count * size)):
        return f"{operation} among (n, g, k) = {groups} is not on ranks {list_ranks(ranks)}"
    return None


def _company_mistakes(series: SeriesModel, ranks: int) -> Iterator[str]:
    """Of the messages of a matrix, and of the ranks beside a victim, which only a series has."""
    operation, messages, aggressors = series.operation, series.messages, series.aggressors
    if (messages is not None) != (operation in SPARSE):
        yield f"{operation} {'has messages' if messages else 'does not name its messages'} in the plan"
    if (aggressors is not None) != (operation in VICTIMS):
        yield f"{operation} {'has aggressors' if aggressors else 'names no aggressors'} in the plan"
    for source, destination, size, *_ in messages or ():
        if source == destination or size == 0 or not {source, destination} <= set(series.ranks):
            yield f"{operation} has a message from rank {source} to rank {destination}"
            return
    if messages is not None and [sum(message[2] for message in messages)] != series.bytes:
        yield f"the messages of {operation} are not the bytes of the plan"
    if aggressors is not None and (
        max(aggressors) >= ranks or len({*aggressors, *series.ranks}) < len(aggressors) + len(series.ranks)
    ):
        yield f"{operation} has an aggressor twice, among its victims or from outside"


def samples_mistakes(samples: SamplesModel, what: str, header: HeaderModel) -> Iterator[tuple[str, Verdict]]:
    """What is wrong with a line of samples, called `what`, of a run with this header."""
    if (mistake := group_mistake(samples, len(header.ranks))) is not None:
        yield mistake, Verdict.INVALID
    plan, kept = header.plan.iterations, len(samples.times_ns)
    count = samples.iterations or kept
    if count != kept and (mistake := order_mistake(samples, header)) is not None:
        yield f"{what} {mistake}", Verdict.INVALID
    if samples.cold_times_ns is not None and len(samples.cold_times_ns) != kept:
        yield f"{what} has {kept} times and {len(samples.cold_times_ns)} cold ones", Verdict.INVALID
    if plan.mode == "fixed":
        if count != plan.maximum or samples.stopped != "fixed" or samples.warmup != header.plan.warmup:
            yield (
                f"{what} has {count} iterations after {samples.warmup} of warm-up ({samples.stopped}) where "
                f"{plan.maximum} after {header.plan.warmup} were planned",
                Verdict.INVALID,
            )
    elif (
        count > plan.maximum
        or samples.stopped == "fixed"
        or (samples.stopped == "maximum" and count != plan.maximum)
        or samples.warmup > header.plan.warmup
    ):
        yield (
            f"{what} has {count} iterations after {samples.warmup} of warm-up ({samples.stopped}) where at most "
            f"{plan.maximum} after at most {header.plan.warmup} were planned",
            Verdict.INVALID,
        )
    if samples.wrong_bytes > 0:
        yield f"{what} delivered {samples.wrong_bytes} wrong bytes", Verdict.FAIL
    elif header.plan.verifies != (samples.wrong_bytes == 0):
        said = (
            "were not verified, contrary to the plan" if header.plan.verifies else "were verified, contrary to the plan"
        )
        yield f"the data of {what} {said}", Verdict.INVALID


def order_mistake(samples: SamplesModel, header: HeaderModel) -> str | None:
    """Why the times of a line cannot be the order statistics of more iterations, which pairs of two nodes have."""
    hosts = {header.ranks[rank].host for rank in samples.ranks if rank < len(header.ranks)}
    possible = header.format > 1 and samples.operation in PAIRS and len(hosts) == len(samples.ranks)
    if not possible or samples.iterations > LONGEST or len(kept_ranks(samples.iterations)) != len(samples.times_ns):
        return f"says {samples.iterations} iterations, but has {len(samples.times_ns)} times"
    if any(later < earlier for earlier, later in pairwise(samples.times_ns)):
        return "has order statistics that are not in ascending order"
    return None
