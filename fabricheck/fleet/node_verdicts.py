"""The verdict of each node of a fleet: what its own runs, the network between nodes and its launches say of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.fleet.record import Fleet
from fabricheck.judge.evidence import busy_hosts
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, short_host
from fabricheck.records.coverage import Coverage
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import TELLING, Verdict


@dataclass(frozen=True)
class BadNode:
    """A node that is not PASS, by the worst of its `evidence`, which is first; all of it is of this node alone.

    `busy`: others used it while it was measured, which proves nothing of it.
    """

    node: str
    evidence: tuple[Finding, ...]
    busy: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict of its first evidence."""
        return self.evidence[0].verdict


@dataclass(frozen=True)
class FleetVerdict:
    """What a run over many nodes came to. `nodes`: how many were requested; `good`: those that passed all.

    `elsewhere`: slow parts that are not proven of one node, such as a trunk, or one of two nodes. `job`: the
    scheduler's number. `unchecked`: why, by node.
    """

    job: str
    nodes: int
    good: tuple[str, ...]
    bad: tuple[BadNode, ...]
    unchecked: Mapping[str, str]
    elsewhere: tuple[Finding, ...] = ()
    coverage: Coverage = field(default_factory=lambda: Coverage(0))

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Of each node that has one."""
        return {**dict.fromkeys(self.good, Verdict.PASS), **{each.node: each.verdict for each in self.bad}}

    @property
    def message(self) -> str:
        """`N of M nodes good, K bad, L not checked`."""
        return (
            f"{len(self.good):,} of {self.nodes:,} nodes good, {len(self.bad):,} bad, "
            f"{len(self.unchecked):,} not checked"
        )


def verdict_of_fleet(
    fleet: Fleet, of_launches: Iterable[Finding], judged: Sequence[RunJudgement], problems: Iterable[Finding]
) -> FleetVerdict:
    """Each node by all that is known of it.

    `of_launches`: what launches said of nodes, beside those for which nodes were excluded; `judged`: the runs of the
    session, `problems` its own. A node is good where a measurement crossed it and nothing is said against it. What
    several nodes took part in is said against a node only where all of its components belong to that node. None is
    good where the job ended before all was measured.
    """
    evidence: dict[str, list[Finding]] = {}
    elsewhere: list[Finding] = []
    nodes = frozenset(fleet.nodes)
    for finding in dict.fromkeys((*fleet.excluded, *of_launches)):
        evidence.setdefault(finding.node, []).append(finding)
    for problem in problems:
        node = _node(problem.node, nodes)
        if node:
            evidence.setdefault(node, []).append(problem)
        elif problem.components:
            elsewhere.append(problem)
    for run in judged:
        hosts = dict.fromkeys(_node(rank.host, nodes) for rank in run.run.ranks)
        if len(hosts) == 1 and (host := next(iter(hosts))):
            own = evidence.setdefault(host, [])
            explained = {name for finding in own if run.run.path in finding.files for name in finding.metrics}
            own.extend(_of_run(run, host, explained))
    busy = {_node(host, nodes) for run in judged for host in busy_hosts(run.run)}
    named = [node for node in fleet.nodes if evidence.get(node)]
    bad = tuple(BadNode(node, _worst_first(evidence[node]), node in busy) for node in named)
    out = {each.node for each in bad}
    coverage = coverage_of(judged)
    seen = {_node(host, nodes) for host in (*coverage.inside_in_part, *coverage.between)}
    clean = set() if fleet.ended else seen - out
    good = tuple(node for node in fleet.nodes if node in clean)
    why = fleet.ended or "no measurement ran on it"
    left = {**fleet.unchecked, **{node: why for node in fleet.nodes if node not in clean | out}}
    asked = len(fleet.nodes) + len(fleet.unchecked)
    return FleetVerdict(fleet.job, asked, good, bad, left, tuple(dict.fromkeys(elsewhere)), coverage)


def _node(host: str, nodes: frozenset[str]) -> str:
    """The node of a host, which may have a domain; empty for another machine."""
    return next((each for each in (host, short_host(host)) if each in nodes), "")


def _of_run(run: RunJudgement, host: str, explained: Collection[str]) -> Iterator[Finding]:
    """What a run on one node says against that node, without the metrics whose cause is known already."""
    if run.final_verdict is Verdict.PASS:
        return
    own = (Component.of_node(host),)
    for problem in run.all_problems:
        yield problem if problem.components else replace(problem, components=own)
    test = run.test.partition(" @")[0]
    unexplained = [each for each in run.judgements if each.name not in explained]
    bad = [each.finding for each in unexplained if each.verdict is not Verdict.PASS]
    for verdict in TELLING:
        findings = [each for each in bad if each.verdict is verdict]
        if findings:
            more = f" (and {len(findings) - 1} more metrics)" if len(findings) > 1 else ""
            names = tuple(name for each in findings for name in each.metrics)
            text = f"{test}: {findings[0].message}{more}"
            yield replace(findings[0], message=text, components=own, metrics=names)


def _worst_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    # What is nearest to a part says more than the node.
    return tuple(
        sorted(
            dict.fromkeys(findings),
            key=lambda finding: (TELLING.index(finding.verdict), not finding.components[0].name),
        )
    )


def as_json(verdict: FleetVerdict) -> Mapping[str, object]:
    """For verdict.json."""
    return {
        "message": verdict.message,
        "job": verdict.job,
        "nodes": verdict.nodes,
        "good": list(verdict.good),
        "bad": [
            {
                "node": each.node,
                "verdict": each.verdict.value,
                "evidence": [{**one.as_json(), "part": one.place} for one in each.evidence],
            }
            for each in verdict.bad
        ],
        "not_checked": [{"node": node, "why": why} for node, why in verdict.unchecked.items()],
        "elsewhere": [{**each.as_json(), "part": each.place} for each in verdict.elsewhere],
    }
