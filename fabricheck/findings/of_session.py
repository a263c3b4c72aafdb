"""All that a session tells beside the verdicts on its metrics: findings, and problems such as a slow part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fabricheck.findings.association import find_associations
from fabricheck.findings.case_runs import CaseRun
from fabricheck.findings.crossover import find_crossovers
from fabricheck.findings.distances import find_distance_classes
from fabricheck.findings.observations import find_observations
from fabricheck.findings.scaling import find_scalings
from fabricheck.findings.slowdown import find_slowdowns
from fabricheck.judge.system import SystemJudge
from fabricheck.localization.judge import judge_pairs
from fabricheck.records.verdict import Finding, Problem


def find_all(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Problem | Finding]:
    """What a session tells: first of each run by itself, then of its runs together.

    Raises UserError where a run was on nodes or devices that the topology does not have.
    """
    for each in runs:
        yield from _of_one(each, judge)
    yield from find_unused_gpus(runs, judge)
    yield from find_scalings(runs, judge)
    yield from find_crossovers(runs)
    yield from find_observations(runs, judge)


def _of_one(run: CaseRun, judge: SystemJudge) -> Iterator[Problem | Finding]:
    topology = judge.topology_of(run.partition)
    if topology is not None:
        if topology.network is not None:
            yield from judge_pairs(run.run, topology.network, judge.policy)
            yield from find_distance_classes(run.run, topology.network)
        yield from find_associations(run.run, topology)
    yield from find_slowdowns(run)


def find_unused_gpus(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Partitions whose runs drove fewer GPUs of a node than its topology has: they pass without the others."""
    used: dict[str, int] = {}
    for each in runs:
        devices = {(rank.host, rank.device.uuid) for rank in each.run.ranks if rank.device is not None}
        of_a_node = Counter(host for host, _ in devices)
        if of_a_node:
            used[each.partition] = max(used.get(each.partition, 0), *of_a_node.values())
    for partition, number in used.items():
        topology = judge.topology_of(partition)
        if topology is not None and number < len(topology.gpus):
            where = partition or topology.system
            text = f"{where}: of the {len(topology.gpus)} GPUs that its topology has, no run drove more than {number}"
            yield Finding(text)
