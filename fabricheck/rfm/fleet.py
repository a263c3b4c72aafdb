"""A test of one node that ran on every node of a fleet at once: each node's files, judged as a run of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import reframe as rfm

from fabricheck.fleet.record import TROUBLES, Fleet, not_run, read_findings
from fabricheck.fleet.settings import KEY
from fabricheck.judge.verdicts import NOTHING_JUDGED, RunJudgement
from fabricheck.records.case import NODES
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.rfm.bounds import attributes_of
from fabricheck.rfm.guarded import read_guarded
from fabricheck.rfm.job_end import EXIT_STATUS, RESULT, UNSUPPORTED, not_judged, unsupported_reason

#: What a test over a fleet leaves beside what every test does.
FILES_OF_NODES = (NODES, TROUBLES)
#: What a result file is called that something else wrote than was asked for: it is kept, and judged no more.
_INVALID = f"{RESULT}.invalid"


@dataclass(frozen=True)
class _Node:
    name: str
    folder: Path

    @property
    def status(self) -> int | None:
        try:
            return int((self.folder / EXIT_STATUS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def judge_nodes(test: rfm.RegressionTest) -> RunJudgement:
    """Judges the files of all nodes; what is wrong with a node is a problem of the test, and costs no other's result.

    The judgement that is returned is that of the test as a whole, and has no metrics: those are the nodes' own. Raises
    `not_judged` where no node left a result, or no node supports it.
    """
    stage = Path(test.stagedir)
    fleet = Fleet.read(Path(test.current_partition.extras[KEY]))
    nodes = [_Node(each.name, each) for each in sorted((stage / NODES).glob("*"))]
    unsupported = [each for each in nodes if each.status == UNSUPPORTED]
    if nodes and len(unsupported) == len(nodes):
        reason = unsupported_reason(nodes[0].folder, UNSUPPORTED)
        test.leave_out_unsupported(reason or "unsupported", "none of the nodes")
    told = {each.node: each for each in read_findings(stage / TROUBLES)}
    problems = [replace(each, verdict=Verdict.INCOMPLETE) for each in told.values()]
    runs: list[RunJudgement] = []
    judge = test.system_judge()
    for node in nodes:
        if not (node.folder / RESULT).exists():
            if node.name not in told and not fleet.ended:
                problems.append(not_run(node.name, f"left no results (exit status {node.status})"))
            continue
        status = node.status if node.status is not None else 1
        run = read_guarded(test, node.folder / RESULT, status, test.wanted_environment(), test.paths)
        if any(one.verdict is Verdict.INVALID for one in run.problems):
            (node.folder / RESULT).rename(node.folder / _INVALID)
            problems += [_of_node(one, node.name) for one in run.problems]
            continue
        runs.append(judge.judge_or_invalid(run, type(test).__name__, attributes_of(test)))
    if not runs:
        why = f": {fleet.ended}" if fleet.ended else test.stderr_tail()
        none = Finding("no-result", Verdict.INCOMPLETE, f"none of {len(fleet.nodes)} nodes left a result{why}")
        raise not_judged(stage, [none, *problems])
    if fleet.ended:
        problems.append(
            Finding(
                "job-ended", Verdict.INCOMPLETE, f"{len(runs)} of {len(fleet.nodes)} nodes have a result: {fleet.ended}"
            )
        )
    problems += _bad(judge.compare(runs).runs)
    test.fleet_problems = tuple(problems)
    return RunJudgement(Run(str(stage), {}, (), (), None), Verdict.PASS, (), ())


def _bad(judged: tuple[RunJudgement, ...]) -> Iterator[Finding]:
    """The worst of each node that is not PASS, as the session finds it in the node's file."""
    for run in judged:
        verdict = run.final_verdict
        if verdict is not Verdict.PASS:
            host = run.run.ranks[0].host if run.run.ranks else run.run.path
            problems = [one for one in run.problems if one.verdict is verdict]
            problems += [one.finding for one in run.judgements if one.verdict is verdict]
            worst = problems[0] if problems else NOTHING_JUDGED
            # What one node did wrong must not cost the others' results.
            mild = Verdict.INCOMPLETE if verdict is Verdict.INVALID else verdict
            yield replace(worst, verdict=mild, message=f"{host}: {worst.message}", files=(run.run.path,))


def _of_node(finding: Finding, node: str) -> Finding:
    """A problem of a node whose file is judged no more, as the test over all of them has it."""
    at_fault = finding.components or (Component.of_node(node),)
    return replace(finding, verdict=Verdict.INCOMPLETE, message=f"{node}: {finding.message}", components=at_fault)
