"""All that a session tells beside the verdicts on its metrics: findings, and problems such as a slow part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fabricheck.diagnosis.causes import diagnose
from fabricheck.diagnosis.network.judge import judge_pairs
from fabricheck.diagnosis.network.results import RETEST, SCREEN
from fabricheck.diagnosis.network.wiring import find_swapped
from fabricheck.errors import reason_of
from fabricheck.findings.affinity import find_far_cores
from fabricheck.findings.association import find_associations
from fabricheck.findings.case_runs import CaseRun
from fabricheck.findings.crossover import find_crossovers
from fabricheck.findings.distances import find_distance_classes
from fabricheck.findings.observations import find_observations
from fabricheck.findings.scaling import find_scalings
from fabricheck.findings.slowdown import find_slowdowns
from fabricheck.judge.evidence import short_name
from fabricheck.judge.node_state import findings_of
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding, split
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict, worst
from fabricheck.topology.network import Network, fold, unfold


def find_all(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """What a session tells: first of each run by itself, then of its runs together.

    What cannot be looked at, such as a run on nodes that the topology does not have, is a problem and costs nothing
    else.
    """
    again = {Path(each.run.path).parent: each.run for each in runs if Path(each.run.path).name == RETEST}
    for run in runs:
        screened = Path(run.run.path)
        for findings in _of_one(run, judge, again.get(screened.parent) if screened.name == SCREEN else None):
            for finding in _or_why_not(run.run.path, findings):
                yield replace(finding, files=(run.run.path,))
    for findings in (
        find_unused_gpus(runs, judge),
        find_unmeasured_nodes(runs, judge),
        find_shortened(runs),
        findings_of((each.run, judge.topology_of(each.partition)) for each in runs),
        find_far_cores(runs),
        find_scalings(runs, judge),
        find_crossovers(runs),
        find_observations(runs, judge),
    ):
        yield from _or_why_not("the runs of this session together", findings)


def with_session_findings(judged: RunJudgement, judge: SystemJudge, partition: str = "") -> RunJudgement:
    """A run judged alone with what its session would say of it: of its equals, and of slow parts of a network.

    By `partition` (`system:partition`) the topology is chosen. A run with problems of its own has enough of them.
    """
    compared = judge.compare((judged,))
    (judged,) = compared.runs
    if judged.run.footer is None or judged.run.problems:
        return judged
    run = replace(CaseRun.of_file(judged.run), partition=partition)
    findings = (each for part in _of_one(run, judge) for each in _or_why_not(judged.run.path, part))
    problems, _ = split([*compared.problems, *findings])
    problems = diagnose((judged,), problems).problems
    verdict = worst([judged.verdict, *(each.verdict for each in problems)])
    return replace(judged, verdict=verdict, problems=(*judged.problems, *problems))


def _or_why_not(where: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except Exception as error:  # whatever it is, the others are looked at
        yield Finding("cannot-be-judged", Verdict.INVALID, f"{where}: could not be analysed: {reason_of(error)}")


def _of_one(run: CaseRun, judge: SystemJudge, again: Run | None = None) -> Iterator[Iterator[Finding]]:
    topology = judge.topology_of(run.partition)
    if topology is not None:
        # In what is over suspects alone there is nothing to compare them with.
        if topology.network is not None and Path(run.run.path).name != RETEST:
            yield judge_pairs(run.run, topology, judge.policy, again)
            yield find_swapped(run.run, topology, judge.policy.equals_error)
            yield find_distance_classes(run.run, topology.network)
        yield find_associations(run.run, topology)
    yield find_slowdowns(run)


def find_unused_gpus(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Partitions whose runs drove fewer GPUs of a node than its topology has: they pass without the others."""
    used: dict[str, int] = {}
    for run in runs:
        devices = {(rank.host, rank.device.uuid) for rank in run.run.ranks if rank.device is not None}
        of_a_node = Counter(host for host, _ in devices)
        if of_a_node:
            used[run.partition] = max(used.get(run.partition, 0), *of_a_node.values())
    for partition, number in used.items():
        topology = judge.topology_of(partition)
        if topology is not None and number < len(topology.gpus):
            where = partition or topology.system
            text = f"{where}: of the {len(topology.gpus)} GPUs that its topology has, no run used more than {number}"
            yield Finding("unused-gpus", Verdict.PASS, text)


def find_unmeasured_nodes(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Nodes of a network that none of the runs was on, of which some measured it: they pass without those."""
    measured: dict[Network, set[str]] = {}
    for run in runs:
        hosts = {rank.host for rank in run.run.ranks}
        topology = judge.topology_of(run.partition)
        network = topology.network if topology is not None else None
        if network is not None and len(hosts) > 1:
            measured.setdefault(network, set()).update(hosts, map(short_name, hosts))
    yield from _nodes_of_slurm(runs, judge)
    for network, nodes in measured.items():
        if others := [each for each in network.nodes if each not in nodes]:
            text = f"no run used {len(others)} of the {len(network.nodes)} nodes of the description"
            yield Finding("unused-nodes", Verdict.PASS, f"{text}: {fold(others)}")


def _nodes_of_slurm(runs: Sequence[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """Nodes of a partition of Slurm that no description has: a job of all nodes takes as many as are described."""
    left: dict[str, set[str]] = {}
    for run in runs:
        if run.slurm_nodes:
            left.setdefault(run.partition, set(unfold(run.slurm_nodes)))
    for partition, names in left.items():
        topology = judge.topology_of(partition)
        described = set(topology.network.nodes) if topology is not None and topology.network is not None else set()
        measured = {short_name(rank.host) for each in runs if each.partition == partition for rank in each.run.ranks}
        if others := sorted(name for name in names - described if short_name(name) not in measured):
            text = f"{partition}: Slurm has {len(names)} nodes, more than are described: no run used {fold(others)}"
            yield Finding(
                "nodes-not-declared",
                Verdict.PASS,
                f"{text}; set `nodes` in the partition's extras, or the network's in topology.yaml",
            )


def find_shortened(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Runs that measured less than their tests ask for, to end in time: they pass without the rest."""
    for run in runs:
        if run.shortened:
            yield Finding("shortened", Verdict.PASS, f"{run.test} ({run.label}): {run.shortened}")
