"""All that a session tells beside the verdicts on its metrics: findings, and problems such as a slow part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.causes import diagnose
from fabricheck.diagnosis.network.blocked import find_blocked
from fabricheck.diagnosis.network.pair_findings import judge_pairs
from fabricheck.diagnosis.network.results import RETEST, SCREEN
from fabricheck.diagnosis.table import groups_of
from fabricheck.errors import reason_of
from fabricheck.judge.node_state import findings_of
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding, split
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.units import few


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
        find_shortened(runs),
        findings_of((each.run, judge.topology_of(each.partition)) for each in runs),
        find_far_cores(runs),
    ):
        yield from _or_why_not("the runs of this session together", findings)


def without_cleared(judged: RunJudgement, findings: Iterable[Finding]) -> RunJudgement:
    """The run, in which nothing is slow for a part that `findings` say is healthy when measured again (`cleared`)."""
    told = (each for each in findings if each.code == "cleared" and judged.run.path in each.files)
    cleared = set[Component]().union(*(finding.components for finding in told))
    rows = [row for group in groups_of(0, judged, network=True) for row in group.rows] if cleared else []
    crossing = {
        row.judgement.name for row in rows if row.slow and not row.wrong and not cleared.isdisjoint(row.crosses)
    }
    return judged.excused(lambda each: each.name in crossing, "healthy when measured again")


def with_session_findings(judged: RunJudgement, judge: SystemJudge, partition: str = "") -> RunJudgement:
    """A run judged alone with what its session would say of it: of its peers, and of slow parts of a network.

    By `partition` (`system:partition`) the topology is chosen. A run with problems of its own has enough of them.
    """
    compared = judge.compare((judged,))
    (judged,) = compared.runs
    if judged.run.footer is None or judged.run.problems:
        return judged
    run = replace(CaseRun.of_file(judged.run), partition=partition)
    findings = (each for part in _of_one(run, judge) for each in _or_why_not(judged.run.path, part))
    problems, _ = split([*compared.problems, *findings])
    diagnosis = diagnose((judged,), problems)
    everywhere = [each.finding for each in diagnosis.causes if each.rows and not each.finding.components]
    return judged.with_problems([*diagnosis.problems, *everywhere])


def _or_why_not(where: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except Exception as error:  # whatever it is, the others are looked at
        yield Finding("cannot-be-judged", Verdict.INVALID, f"{where}: could not be analysed: {reason_of(error)}")


def _of_one(run: CaseRun, judge: SystemJudge, again: Run | None = None) -> Iterator[Iterator[Finding]]:
    topology = judge.topology_of(run.partition)
    yield find_blocked(run.run.states, topology)
    # In what is over suspects alone there is nothing to compare them with.
    if topology is not None and topology.network is not None and Path(run.run.path).name != RETEST:
        yield judge_pairs(run.run, topology, judge.policy, again)


def find_shortened(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Runs that measured less than their tests ask for, to end in time: they pass without the rest."""
    for run in runs:
        if run.shortened:
            yield Finding("shortened", Verdict.PASS, f"{run.test} ({run.label}): {run.shortened}")


def find_far_cores(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Ranks whose cores are all on another NUMA node than their GPU, a line for each partition.

    Left out are ranks that may use cores of several NUMA nodes, and GPUs whose NUMA node the driver does not know (-1).
    """
    domains_by_host: dict[str, dict[tuple[str, int], str]] = {}
    for run in runs:
        for rank in run.run.ranks:
            if rank.device is None or min(rank.numa_node, rank.device.numa_node) < 0:
                continue
            if rank.numa_node != rank.device.numa_node:
                place = f"local rank {rank.local_rank} on {rank.host}, cores on {rank.numa_node} and GPU on "
                of_partition = domains_by_host.setdefault(run.partition, {})
                of_partition[rank.host, rank.local_rank] = f"{place}{rank.device.numa_node}"
    for partition, ranks in domains_by_host.items():
        named = few([ranks[key] for key in sorted(ranks)], between="; ")
        advice = "bind ranks to the cores next to their GPU (launcher_options of the environment, such as --cpu-bind)"
        yield Finding(
            "affinity",
            Verdict.PASS,
            f"{partition}: ranks ran on another NUMA node than their GPU: {named}: {advice}",
        )
