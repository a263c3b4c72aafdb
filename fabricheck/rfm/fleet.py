"""A test of one node that ran on every node of a fleet at once: each node's files, judged as a run of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import reframe as rfm
from reframe.core.exceptions import SanityError

from fabricheck.fleet.record import TROUBLES, Fleet, read_troubles
from fabricheck.fleet.settings import KEY
from fabricheck.judge.overall import verdict_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import NODES
from fabricheck.records.run import Run
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.rfm.bounds import attributes_of
from fabricheck.rfm.outcome import EXIT_STATUS, RESULT, UNSUPPORTED, unsupported_reason

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
    SanityError where no node left a result, or no node supports it.
    """
    stage = Path(test.stagedir)
    fleet = Fleet.read(Path(test.current_partition.extras[KEY]))
    nodes = [_Node(each.name, each) for each in sorted((stage / NODES).glob("*"))]
    unsupported = [each for each in nodes if each.status == UNSUPPORTED]
    if nodes and len(unsupported) == len(nodes):
        reason = unsupported_reason(nodes[0].folder, UNSUPPORTED)
        test.leave_out_unsupported(reason or "unsupported", "none of the nodes")
    told = {each.node: each.what for each in read_troubles(stage / TROUBLES)}
    problems = [Problem(Verdict.INCOMPLETE, f"{name}: {what}", name) for name, what in told.items()]
    runs: list[RunJudgement] = []
    judge = test.system_judge()
    for each in nodes:
        if not (each.folder / RESULT).exists():
            if each.name not in told and not fleet.ended:
                text = f"{each.name}: left no results (exit status {each.status})"
                problems.append(Problem(Verdict.INCOMPLETE, text, each.name))
            continue
        status = each.status if each.status is not None else 1
        run = test.read_guarded(each.folder / RESULT, status, test.wanted_environment(), test.paths())
        if any(one.verdict is Verdict.INVALID for one in run.problems):
            (each.folder / RESULT).rename(each.folder / _INVALID)
            # What a node did wrong must not cost the others: the test is INCOMPLETE by it.
            problems += [Problem(Verdict.INCOMPLETE, f"{each.name}: {one.message}", each.name) for one in run.problems]
            continue
        runs.append(judge.judge_anyhow(run, type(test).__name__, attributes_of(test)))
    if not runs:
        why = f": {fleet.ended}" if fleet.ended else test.last_words()
        raise SanityError(f"INCOMPLETE: none of {len(fleet.nodes)} nodes left a result{why}")
    if fleet.ended:
        problems.append(
            Problem(Verdict.INCOMPLETE, f"{len(runs)} of {len(fleet.nodes)} nodes have a result: {fleet.ended}")
        )
    problems += _bad(judge.compare(runs).runs)
    test.fleet_problems = tuple(problems)
    return RunJudgement(Run(str(stage), {}, (), (), None), Verdict.PASS, (), ())


def _bad(judged: tuple[RunJudgement, ...]) -> Iterator[Problem]:
    """The worst that is said of each node that is not PASS."""
    for each in judged:
        verdict = verdict_of(each)
        if verdict is not Verdict.PASS:
            host = each.run.ranks[0].host if each.run.ranks else each.run.path
            said = [one.message for one in each.problems if one.verdict is verdict]
            said += [f"{one.name}: {one.reason}" for one in each.judgements if one.verdict is verdict]
            kept = Verdict.INCOMPLETE if verdict is Verdict.INVALID else verdict
            yield Problem(kept, f"{host}: {said[0] if said else verdict.value}", host)
