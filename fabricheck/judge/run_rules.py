"""What a run shows beside its metrics: stalls, slow iterations, other GPUs, and a switch or NICs left unused.

A median does not show parts that are slow for a twentieth of the time. So the 95th percentile of each series over its
own median is a metric of its own, which has its peers as yardstick. Nor does it show slowness for a first second only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fabricheck.judge.equal_metrics import Equals, Member
from fabricheck.judge.evidence import busy_hosts
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.limits.algorithms import allreduce_in_switch
from fabricheck.limits.gpus import algorithm_of, node_part
from fabricheck.records.component import Component, Kind, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import LADDER
from fabricheck.records.operations import ONE_AT_A_TIME, PAIRS, bus_factor, kernel_settings
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Rank, Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.proof_logs import facts_of_remarks
from fabricheck.statistics.constants import FEWEST_AT_FIRST, FILLS_A_NIC
from fabricheck.statistics.outliers import Outlier, outliers
from fabricheck.topology.graph import node_graph
from fabricheck.topology.hardware import least_payload
from fabricheck.topology.model import Topology
from fabricheck.topology.placement import gpu_of_ranks
from fabricheck.yardsticks.part_values import RunContext, is_comparable
from fabricheck.yardsticks.policy import Policy

#: A tail that is longer by less costs nobody anything; and how much those of healthy peers differ at least. Chosen.
LEAST_EXCESS, LEAST_SPREAD_OF_TAILS = 0.1, 0.02
#: Of 26,830 recorded series of healthy machines (docs/results) none has an iteration that took 0.37 s more than its
#: median; retransmission after a lost link, a hung driver or a paused process take seconds.
STALL_S = 1.0
#: A series is slow at first where several iterations took so much longer than its median, and lost so much together. Of
#: 27,004 recorded series of healthy machines (docs/results) 359 have the first, and none has both; two begin with a
#: single iteration that took 0.28 and 0.36 s more, on the busy cores of an emulated cluster.
SLOW_AT_FIRST, LEAST_LOST_S = 1.5, 0.2


def find_stalls(judged: RunJudgement) -> Iterator[Finding]:
    """Where a run made no progress: DEGRADED where it did so more than once, or its nodes say that a link went down."""
    run = judged.run
    slow: list[tuple[float, int, int]] = []
    for number, series in enumerate(run.samples):
        if series.times_ns.size > 1:
            middle = float(np.median(series.times_ns))
            late = series.times_ns[series.times_ns - middle > max(middle, STALL_S * 1e9)]
            if late.size:
                slow.append((float(late.max()) / 1e9, late.size, number))
    flapped = any(each.code in ("nic-flaps", "gpu-links-down") for each in judged.problems)
    if slow:
        seconds, _, number = max(slow)
        count, samples = sum(each for _, each, _ in slow), run.samples[number]
        total = sum(each.times_ns.size for each in run.samples)
        usual = float(np.median(samples.times_ns)) / 1e6
        own = [run.ranks[each] for each in samples.ranks if each < len(run.ranks)]
        hosts = dict.fromkeys(short_host(rank.host) for rank in _paused(run, seconds) or own)
        text = (
            f"{samples.operation} of {samples.bytes:,} bytes made no progress for {seconds:.3g} s, its median is "
            f"{usual:.3g} ms: {count} of {total:,} iterations of the run took seconds"
            f"{'; a link went down' if flapped else ''}"
        )
        verdict = Verdict.DEGRADED if count > 1 or flapped else Verdict.PASS
        yield Finding("stalled", verdict, text, tuple(map(Component.of_node, hosts)), seconds, usual / 1e3, "s")


def _paused(run: Run, seconds: float) -> list[Rank]:
    """The ranks for which the others waited: these did not run for most of so many seconds at a time."""
    pauses = (run.footer or {}).get("proof", {}).get("pauses", {})
    return [rank for rank in run.ranks if pauses.get(str(rank.rank), {}).get("longest_ns", 0) > seconds * 1e9 / 2]


def find_pauses(judged: RunJudgement) -> Iterator[Finding]:
    """Nodes whose ranks did not run for a while again and again: DEGRADED where most nodes did, and had cores to."""
    run = judged.run
    footer = run.footer or {}
    pauses = footer.get("proof", {}).get("pauses", {})
    measured_ns = footer.get("wall_ns", 0) - footer.get("setup_ns", 0)
    if not pauses or measured_ns <= 0:
        return
    # A loss of goodput of 1% is the least that references of H100 and H200 tell apart (docs/results).
    noticed_ns, fewest = 0.01 * measured_ns, 5
    lost_ns = dict.fromkeys((short_host(rank.host) for rank in run.ranks), 0)
    texts = {}
    for rank in run.ranks:
        of_rank, host = pauses.get(str(rank.rank), {}), short_host(rank.host)
        throttled = of_rank.get("throttled_ns", 0)
        paused = of_rank.get("total_ns", 0) if of_rank.get("count", 0) >= fewest else 0
        lost = max(throttled, paused)
        if lost > lost_ns[host]:
            lost_ns[host] = lost
            texts[host] = f"a CPU quota stopped rank {rank.rank} for {throttled / 1e9:.3g} s, all threads"
            if paused > throttled:
                longest_ms = of_rank["longest_ns"] / 1e6
                texts[host] = (
                    f"paused {of_rank['count']} times, {longest_ms:.3g} ms at most and {paused / 1e9:.3g} s together"
                )
    pausing = [host for host, lost in lost_ns.items() if lost >= noticed_ns]
    alone = len(lost_ns) == 1 or 2 * len(pausing) <= len(lost_ns)
    short_of_cores = run.header.get("oversubscribed") or run.header.get("few_cores")
    for host in pausing:
        excused = not alone or short_of_cores or host in {short_host(busy) for busy in busy_hosts(run)}
        text = f"{texts[host]}, in a run of {measured_ns / 1e9:.3g} s"
        verdict = Verdict.PASS if excused else Verdict.DEGRADED
        yield Finding("pausing-node", verdict, text, (Component.of_node(host),), lost_ns[host] / 1e9, 0.0, "s")


def switch_not_used(judged: RunJudgement, topology: Topology) -> Finding | None:
    """DEGRADED where an allreduce by NCCL in a node is too slow, and no faster than what the links allow without the
    switch, which can reduce and which no variable keeps NCCL from using."""
    run = judged.run
    if not is_comparable(run) or run.header["transport"] != "ccl":
        return None
    facts, gpus = RunContext(run, topology), gpu_of_ranks(run)
    for judgement in judged.judgements if facts.in_switch else ():
        samples = judgement.samples
        slow = judgement.verdict.is_slow and judgement.better == "higher"
        if samples.operation != "allreduce" or not slow or facts.nodes(samples) > 1:
            continue
        used = tuple(dict.fromkeys(topology.gpu(gpus[rank]) for rank in samples.ranks if rank in gpus))
        if len(used) < len(samples.ranks):
            continue
        most = algorithm_of(topology, "allreduce", "ccl", used).gbps
        reduced = allreduce_in_switch(node_graph(node_part(topology, frozenset(used))))
        if reduced is None or reduced.gbps <= most or judgement.value > most:
            continue
        to_bus = bus_factor("allreduce", len(samples.ranks)) / 8
        text = (
            f"allreduce of {len(used)} GPUs: {judgement.value * to_bus:.4g} GB/s busbw; the links carry "
            f"{most * to_bus:.4g} GB/s without NVLink SHARP and {reduced.gbps * to_bus:.4g} GB/s with it"
        )
        told = facts_of_remarks((run.footer or {}).get("proof") or {}).get("NVLS")
        text += f"; the library reports: {told}" if told else ""
        name, _, version = facts.library.partition(" ")
        library = Component(Kind.LIBRARY, name or "NCCL", version=version)
        figures = (judgement.value, reduced.gbps, judgement.unit)
        return Finding("nvls-not-used", Verdict.DEGRADED, text, (library,), *figures, metrics=(judgement.name,))
    return None


_STRONGER = LADDER[: LADDER.index("siblings")]


def nics_not_filled(judged: RunJudgement, topology: Topology, policy: Policy) -> Finding | None:
    """DEGRADED where even the best pair of nodes by libfabric, MPI or NCCL is under what the NIC carries of GPUs' data.

    Distance and the load of others slow some pairs, and speed none up. For NCCL and RCCL over Slingshot no source says
    that every GPU fills its NIC with a single pair: CSCS has 54% of it with A100 and MI250X, and 96% with GH200.
    """
    run = judged.run
    if not is_comparable(run):
        return None
    mover = {"mpi": "nic", "fabric": "nic", "ccl": "ccl nic pair"}.get(run.header["transport"])
    data = least_payload([nic.model for nic in topology.nics], mover) if mover is not None else None
    if data is None or run.header["plan"].get("buffers") is not None or kernel_settings(run.header["plan"]):
        return None
    facts = RunContext(run, topology)
    pairs = [
        (each.value / each.expectation.expected, each)
        for each in judged.judgements
        if each.samples.operation in (PAIRS if mover == "ccl nic pair" else ONE_AT_A_TIME)
        and each.better == "higher"
        and each.samples.bytes >= FILLS_A_NIC
        and each.expectation.expected
        and each.expectation.achievable is None
        and facts.nodes(each.samples) > 1
    ]
    if not pairs or any(each.judged_by in _STRONGER for _, each in pairs):
        return None
    share, best = max(pairs, key=lambda pair: pair[0])
    if share >= data.share * (1 - (policy.achievable_margin if data.margin is None else data.margin)):
        return None
    text = (
        f"the best of {len(pairs)} pairs between nodes has {best.value:.4g} {best.unit}: {share:.0%} of the NIC's rate "
        f"instead of {data.share:.0%} ({data.source}); check software, settings and the parts that all pairs share"
    )
    expected = data.share * (best.expectation.expected or 0.0)
    return Finding("all-slow", Verdict.DEGRADED, text, (), best.value, expected, best.unit, metrics=(best.name,))


# H100, GH200, MI250X; not 80GB, HBM3 or SXM4. Names without one, such as "PVC tile", are not compared.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[A-Z]{1,3}[0-9]{2,4}[A-Z]{0,2}(?![A-Za-z0-9])")

# The GPU of a Grace Hopper superchip calls itself by the name of that; papers and people also say what it is.
_ALSO = {"GH200": "H100"}


def problem_of_gpus(run: Run, topology: Topology) -> Finding | None:
    """INVALID where ranks drove GPUs of another model than the topology has: another system's file was given."""
    described = [gpu.model for gpu in topology.gpus]
    known = _numbers(described)
    if not known or is_rehearsal(run):
        return None
    for rank in run.ranks:
        name = rank.device.name if rank.device is not None else ""
        numbers = _numbers([name])
        if numbers and not numbers & known:
            wanted = " and ".join(dict.fromkeys(described))
            todo = "give the system of this machine, or correct `model` in its topology"
            what = f"rank {rank.rank} used {name}, and the GPUs of {topology.system} are {wanted}"
            return Finding("other-gpus", Verdict.INVALID, f"{run.path}: {what}: {todo}")
    return None


def _numbers(names: Iterable[str]) -> set[str]:
    return {_ALSO.get(number, number) for name in names for number in _NUMBER.findall(name)}


def find_slow_tails(equals: Equals, run: RunJudgement, error: float) -> Iterator[Finding]:
    """Peers that are slow now and then, with the error of a healthy group: one line for those that share a part.

    A single series tells of what happened once: of 131 recorded sessions of healthy H200 nodes (docs/results) four have
    one with a longer tail than its peers, and none has two that share a part.
    """
    members = [each for each in equals.members if each.tail is not None]
    for outlier in slow_tails(members, error):
        slow = [run.judgements[members[each].number] for each in outlier.members]
        times = np.concatenate([each.samples.times_ns / np.median(each.samples.times_ns) for each in slow])
        p95, p99 = np.percentile(times, [95, 99])
        text = (
            f"{equals.what}: p95 {p95:.3g} x the median ({outlier.equals} peers {np.exp(outlier.centre):.3g} x, "
            f"p = {outlier.p:.1g}), p99 {p99:.3g} x, {np.mean(times > 2):.1%} over 2 x; "
            "check error counters and processes"
        )
        names = tuple(each.name for each in slow)
        yield Finding("slow-now-and-then", Verdict.DEGRADED, text, metrics=names, p=outlier.p)


def slow_tails(members: Sequence[Member], error: float) -> tuple[Outlier, ...]:
    """Those of peers, which all have a tail, whose tails are longer, with the error of a healthy group."""
    if len(members) < 2:
        return ()
    values, inside = (np.array([getattr(each, name) for each in members]) for name in ("tail", "inside"))
    slow = outliers(values, inside, [each.parts for each in members], LEAST_SPREAD_OF_TAILS, error)
    return tuple(one for one in slow if one.excess >= LEAST_EXCESS and len(one.members) > 1)


def find_slow_starts(equals: Equals, run: RunJudgement) -> Iterator[Finding]:
    """What was slow at first, and then as fast as usual, where most of its peers were not: one line for a group.

    Where all are, it is how such a measurement begins.
    """
    starts = {each.number: _slow_iterations(run, each.number) for each in equals.members}
    slow = [each for each in equals.members if starts[each.number]]
    if not slow or 2 * len(slow) > len(equals.members):
        return
    times = run.judgements[slow[0].number].samples.times_ns
    count, middle = starts[slow[0].number], float(np.median(times))
    lost_s = float((times[:count] - middle).sum()) / 1e9
    text = (
        f"{equals.what}: the first {count} of {times.size} iterations took "
        f"{np.median(times[:count]) / middle:.3g} x the median ({lost_s:.2g} s lost); "
        f"{len(equals.members) - len(slow)} peers were not slow; check links, clocks, and what ran before"
    )
    names = tuple(run.judgements[each.number].name for each in slow)
    yield Finding("slow-at-first", Verdict.DEGRADED, text, metrics=names)


def _slow_iterations(run: RunJudgement, number: int) -> int:
    """With how many slow iterations a series begins; 0 where these are too few, or cost too little."""
    times = run.judgements[number].samples.times_ns
    middle = np.median(times)
    fast = np.flatnonzero(times <= SLOW_AT_FIRST * middle)
    count = int(fast[0]) if fast.size else 0
    lost_s = float((times[:count] - middle).sum()) / 1e9
    enough = count >= FEWEST_AT_FIRST and lost_s >= LEAST_LOST_S
    return count if enough else 0
