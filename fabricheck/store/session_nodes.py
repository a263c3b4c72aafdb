"""Which nodes had a part in a session, and what it came to on each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst
from fabricheck.statistics.constants import READERS
from fabricheck.store.folders import SessionFolder
from fabricheck.store.metric_rows import verdict_of_whole
from fabricheck.store.reading import entries_of
from fabricheck.store.session import NodeRecord, read_record


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
    for case, judgement in zip(cases, judged, strict=True):
        verdict = worst([judgement.final_verdict, verdict_of_whole(case, judgement)])
        for host in {rank.host for rank in judgement.run.ranks}:
            name = _node(host, said or {})
            if said is None:
                verdicts[name] = worst([verdict, verdicts.get(name, verdict)])
            else:
                verdicts.setdefault(name, Verdict.INCOMPLETE)
    for problem in problems if said is None else ():
        if (name := problem.node) in verdicts:
            verdicts[name] = worst([verdicts[name], problem.verdict])
    return {name: NodeRecord(verdict=verdict.value) for name, verdict in verdicts.items()}


def last_sessions(store: Path, system: str) -> dict[str, str]:
    """Return when the last session of a system began that had each node, in UTC, whatever its verdict.

    Raises UserError where the store has nothing of the system or is damaged.
    """
    last: dict[str, str] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for started, hosts in pool.map(_hosts, entries_of(store, system)):  # the oldest first
            for host in hosts:
                last[host] = last[host.partition(".")[0]] = started
    return last


def _hosts(entry: SessionFolder) -> tuple[str, Iterable[str]]:
    record = read_record(entry)
    return record.started, record.nodes or ()  # sessions of before they had nodes have none


def _node(host: str, names: Mapping[str, object]) -> str:
    """The node of a host, which may have a domain."""
    short = host.partition(".")[0]
    return short if short in names and host not in names else host
