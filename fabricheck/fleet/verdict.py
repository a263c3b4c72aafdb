"""The verdict of each node of a fleet: what its own runs, the network between nodes and its launches say of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.fleet.record import Fleet, Trouble, Unchecked
from fabricheck.judge.overall import problems_of, verdict_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import node_of

# A yardstick says more than one of these of why a node is bad; the rest of its lines follow.
_ORDER = (Verdict.FAIL, Verdict.DEGRADED, Verdict.INCOMPLETE, Verdict.INVALID)


@dataclass(frozen=True)
class Evidence:
    """One thing that is wrong with a node. `part`: what is to be looked at, the node itself where nothing is nearer."""

    verdict: Verdict
    part: str
    message: str


@dataclass(frozen=True)
class BadNode:
    """A node that is not PASS, by the worst of its `evidence`, which is first."""

    node: str
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        return self.evidence[0].verdict


@dataclass(frozen=True)
class FleetVerdict:
    """What a run over many nodes came to. `nodes`: how many were asked for; `good`: those that passed all.

    `elsewhere`: what is slow and belongs to no one node, such as a trunk. `job`: the scheduler's number.
    """

    job: str
    nodes: int
    good: tuple[str, ...]
    bad: tuple[BadNode, ...]
    unchecked: tuple[Unchecked, ...]
    elsewhere: tuple[Finding, ...] = ()

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
    fleet: Fleet, troubles: Iterable[Trouble], judged: Sequence[RunJudgement], problems: Iterable[Finding]
) -> FleetVerdict:
    """Each node by all that is known of it.

    `troubles`: what launches said of nodes, beside those for which nodes were excluded; `judged`: the runs of the
    session, `problems` its own. A node is good where at least one run was on it and nothing is said against it: what
    several nodes took part in is said against a node only where it is named as the one place. None is good where the
    job ended before all was measured.
    """
    evidence: dict[str, list[Evidence]] = {}
    measured: set[str] = set()
    elsewhere: list[Finding] = []
    names = _Names(frozenset(fleet.nodes))
    for trouble in dict.fromkeys((*fleet.excluded, *troubles)):
        verdict = Verdict.FAIL if trouble.guilty else Verdict.INCOMPLETE
        evidence.setdefault(trouble.node, []).append(Evidence(verdict, trouble.node, trouble.what))
    for run in judged:
        hosts = dict.fromkeys(names.node(rank.host) for rank in run.run.ranks)
        measured |= {each for each in hosts if each}
        if len(hosts) == 1 and (host := next(iter(hosts))):
            evidence.setdefault(host, []).extend(_of_run(run, host))
    for problem in problems:
        nodes = names.in_place(problem.place)
        if len(nodes) == 1:
            evidence.setdefault(nodes[0], []).append(Evidence(problem.verdict, problem.place, problem.message))
        elif problem.place:
            elsewhere.append(problem)
    bad = tuple(BadNode(node, _worst_first(evidence[node])) for node in fleet.nodes if evidence.get(node))
    out = {each.node for each in bad}
    clean = set() if fleet.ended else measured - out
    good = tuple(node for node in fleet.nodes if node in clean)
    why = fleet.ended or "nothing was measured on it"
    nothing = tuple(Unchecked(node, why) for node in fleet.nodes if node not in clean | out)
    left = (*fleet.unchecked, *nothing)
    asked = len(fleet.nodes) + len(fleet.unchecked)
    return FleetVerdict(fleet.job, asked, good, bad, left, tuple(dict.fromkeys(elsewhere)))


@dataclass(frozen=True)
class _Names:
    nodes: frozenset[str]

    def node(self, host: str) -> str:
        """The node of a host, which may have a domain; empty for another machine."""
        return next((each for each in (host, host.partition(".")[0]) if each in self.nodes), "")

    def in_place(self, place: str) -> list[str]:
        """The nodes that a place such as `nid002, nid002:hsn0 or nid002:hsn0--leaf0` is about; empty where a switch or
        trunk may be it as well."""
        parts = [each for each in re.split(r", | or | and ", place) if each.strip()]
        # A place may have words behind its name: `nid002:rank1 sending`.
        nodes = [self.node(node_of(each.split()[0].partition("--")[0])) for each in parts]
        return list(dict.fromkeys(nodes)) if all(nodes) else []


def _of_run(run: RunJudgement, host: str) -> Iterator[Evidence]:
    if verdict_of(run) is Verdict.PASS:
        return
    test = run.test.partition(" @")[0]
    for problem in problems_of(run):
        yield Evidence(problem.verdict, problem.place or host, problem.message)
    for verdict in _ORDER:
        found = [each for each in run.judgements if each.verdict is verdict]
        if found:
            more = f" (and {len(found) - 1} more metrics)" if len(found) > 1 else ""
            yield Evidence(verdict, host, f"{test}: {found[0].name}: {found[0].reason}{more}")


def _worst_first(found: Sequence[Evidence]) -> tuple[Evidence, ...]:
    # What is nearest to a part says more than the node.
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (_ORDER.index(each.verdict), ":" not in each.part)))


def as_json(found: FleetVerdict) -> Mapping[str, object]:
    """For verdict.json."""
    return {
        "message": found.message,
        "job": found.job,
        "nodes": found.nodes,
        "good": list(found.good),
        "bad": [
            {
                "node": each.node,
                "verdict": each.verdict.value,
                "evidence": [
                    {"verdict": one.verdict.value, "part": one.part, "message": one.message} for one in each.evidence
                ],
            }
            for each in found.bad
        ],
        "not_checked": [{"node": each.node, "why": each.why} for each in found.unchecked],
        "elsewhere": [
            {"verdict": each.verdict.value, "part": each.place, "message": each.message} for each in found.elsewhere
        ],
    }
