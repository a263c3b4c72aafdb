"""Which nodes had a part in a session, and what it came to on each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fabricheck.history.folders import RUNS, SessionFolder
from fabricheck.history.reading import read_table
from fabricheck.history.session import NodeRecord, SessionRecord
from fabricheck.history.store_tables import verdict_of_whole
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst
from fabricheck.topology.components import links_of_pairs


def node_records(
    cases: Sequence[Case],
    judged: Sequence[RunJudgement],
    said: Mapping[str, Verdict] | None = None,
    problems: Iterable[Finding] = (),
) -> dict[str, NodeRecord]:
    """By node, the worst verdict of the runs that it had a part in, and of `problems` of the session that are its own.

    `cases` are those of `judged`. `said`: the verdicts by node of a run over many nodes, which count then: a node that
    had a part and has none is INCOMPLETE.
    """
    verdicts: dict[str, Verdict] = dict(said or {})
    links: dict[str, set[str]] = {}
    for case, judgement in zip(cases, judged, strict=True):
        verdict = worst([judgement.final_verdict, verdict_of_whole(case, judgement)])
        for host in {rank.host for rank in judgement.run.ranks}:
            name = _node(host, said or {})
            if said is None:
                verdicts[name] = worst([verdict, verdicts.get(name, verdict)])
            else:
                verdicts.setdefault(name, Verdict.INCOMPLETE)
        for host, names in links_of_pairs(judgement.run, judgement.topology).items():
            links.setdefault(_node(host, said or {}), set()).update(names)
    for problem in problems if said is None else ():
        if (name := problem.node) in verdicts:
            verdicts[name] = worst([verdicts[name], problem.verdict])
    return {
        name: NodeRecord(verdict=verdict.value, links=sorted(links.get(name, ()))) for name, verdict in verdicts.items()
    }


def nodes_of(entry: SessionFolder, record: SessionRecord) -> Mapping[str, NodeRecord]:
    """The nodes of a stored session, whose record has been read; of one of before there were any, by its runs.

    Of that it is not known over which links pairs were measured. Raises UserError for damage.
    """
    if record.nodes is not None:
        return record.nodes
    verdicts: dict[str, Verdict] = {}
    for hosts, verdict, result, phase in read_table(entry, RUNS, ["nodes", "verdict", "result", "phase"]).iter_rows():
        is_whole = result == "pass" or (phase == "performance" and verdict != Verdict.PASS.value)
        proven = Verdict(verdict) if is_whole else worst([Verdict(verdict), Verdict.INCOMPLETE])
        verdicts |= {host: worst([proven, verdicts.get(host, proven)]) for host in hosts}
    return {node: NodeRecord(verdict=verdict.value) for node, verdict in verdicts.items()}


def _node(host: str, names: Mapping[str, object]) -> str:
    """The node of a host, which may have a domain."""
    short = host.partition(".")[0]
    return short if short in names and host not in names else host
