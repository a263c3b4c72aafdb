"""Reads what a test left, of a run or of every node of a fleet, with all that keeps it from being what was requested.

A test of one node that ran on every node of a fleet at once leaves files of each node, judged as a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import reframe as rfm

from fabricheck import mpi
from fabricheck.fleet.record import TROUBLES, Fleet, not_run, read_findings
from fabricheck.fleet.settings import KEY
from fabricheck.judge.verdicts import NOTHING_JUDGED, RunJudgement
from fabricheck.records.case import NODES
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.operations import ONE_PATH
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.guards import Requested, least_sent, require, require_fresh
from fabricheck.rfm.bounds import attributes_of
from fabricheck.rfm.job_end import (
    EXIT_STATUS,
    RESULT,
    UNSUPPORTED,
    not_judged,
    own_status,
    unsupported_reason,
    words_of_job,
)
from fabricheck.rfm.paths import nics_of, with_logs
from fabricheck.topology.transport_paths import Paths


def read_guarded(
    test: rfm.RegressionTest,
    file: Path,
    status: int,
    environment: Mapping[str, str | None],
    paths_of: Callable[[bool], Paths],
) -> Run:
    """The run in a result file, with all that keeps it from being the run that `test` requested as problems.

    `status`: fabricbench's exit status. `environment`: variables that have to be in effect (`None`: unset). `paths_of`:
    the transport paths to check, given whether all data stayed inside their nodes.
    """
    run = read_run(file)
    sent = bool(least_sent(run))
    paths = paths_of(bool(run.samples) and not sent)
    # Copies and kernels go over NVLink, whose bytes no interface counts.
    is_over_nodes = test.num_nodes > 1 and test.transport not in ONE_PATH
    # Else what their networks carried is MPI's start alone.
    over_network = is_over_nodes and sent
    extras = test.current_environ.extras
    if test.transport == "mpi" and is_over_nodes:
        run = with_logs(run, test.output() + test.errors())
    asked = Requested(
        transport=test.transport,
        backend=test.backend,
        ranks=test.num_tasks,
        nodes=test.num_nodes,
        devices=test.backend != "host" and not (extras.get("share_devices") and run.header.get("platform") == "cpu"),
        exit_code=own_status(run, status, test.errors()),
        operations=test.operations,
        environment=environment,
        mpi_library=mpi.LIBRARIES.get(extras.get("mpi", "")),
        plan=test.chosen_settings(),
        paths_forbidden=paths.forbidden,
        paths_required=paths.required,
        described=paths.described,
        interfaces=test.current_partition.extras.get("network_interfaces", []) if over_network else [],
        nics=nics_of(test.current_partition.fullname) if over_network else [],
        verified=test.verified,
    )
    problems = require(run, asked)
    told = (*test.away, *words_of_job(test, run, status, test.errors()), *run.problems, *problems)
    said = test.output() if file.parent.samefile(test.stagedir) else ""  # other launches of the job are --quiet
    return replace(run, problems=(*told, *require_fresh(run, not_before=test.started, output=said)))


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
