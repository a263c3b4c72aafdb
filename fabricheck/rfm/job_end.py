"""What a job left behind besides measurements: its exit status, who ended it, and all that as one line.

A test that an earlier run measured to its end is not measured again (`run --resume` without `--nodes`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.exceptions import SanityError

from fabricheck.fleet.resume import RESUMES, TAKEN, folders_in
from fabricheck.judge.node_state import evidence_without_run, finding_of
from fabricheck.judge.overall import SEVERITY
from fabricheck.records.component import Component, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import write_judgement
from fabricheck.results.fabricbench import read_run, read_unsupported
from fabricheck.results.guards import require_arrival
from fabricheck.results.node_state import FOLDER, read_nics, read_states
from fabricheck.results.start_failures import start_failures
from fabricheck.rfm.launch import nodes_lost, not_launched, topology_of
from fabricheck.units import few

RESULT = "result.jsonl"
EXIT_STATUS = "exit-status"
#: What fabricbench leaves in the folder of a plan as soon as it begins.
BEGUN = "begun"

#: fabricbench's exit status where something failed, where all was measured and data arrived wrong, and where the
#: machine cannot run it.
FAILED = 3
WRONG_DATA = 5
UNSUPPORTED = 6
# No program's exit status: the job was ended, with its launcher or scheduler, after the last line of the result file.
LOST_AFTERWARDS = -1
# What a shell says of a launcher that somebody ended; one that crashed by itself ends otherwise.
_ENDED_BY_SIGNAL = frozenset(128 + each for each in (signal.SIGHUP, signal.SIGKILL, signal.SIGTERM))


def read_exit_status(test: rfm.RegressionTest, more: str) -> int:
    """The exit status that the job of `test` left; where it left none, LOST_AFTERWARDS if all was measured, and FAILED
    if fabricbench wrote why it ended.

    `not_judged`, with `more` at its end, where there is none and fabricbench had not come to its end.
    """
    folder = Path(test.stagedir)
    try:
        return int((folder / EXIT_STATUS).read_text())
    except (OSError, ValueError):
        last = _last_record(folder / RESULT)
        if last.get("record") == "footer":
            return LOST_AFTERWARDS
        if last.get("record") == "error" and last.get("kind") != "crash":
            return FAILED
        text = "the job ended before fabricbench and left no exit status"
        ended_early = Finding("result-incomplete", Verdict.INCOMPLETE, text)
        raise not_judged(folder, [*who_failed(test), ended_early], more) from None


def _last_record(result: Path) -> dict[str, Any]:
    """Return the last line of a result file, a footer when all ranks have measured everything; empty without one."""
    try:
        last = json.loads(result.read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return last if isinstance(last, dict) else {}


def own_status(run: Run, status: int, errors: str) -> int:
    """fabricbench's exit status (of what its job left, `status`), 0 where its file or `words_of_job` say the same."""
    computed_wrong = run.burn_in is not None and any(run.burn_in.wrong)
    if status == WRONG_DATA and (computed_wrong or any(each.wrong_bytes > 0 for each in run.samples)):
        return 0
    return 0 if _ended_afterwards(run, status, errors) else status


def _ended_afterwards(run: Run, status: int, errors: str) -> str:
    """What ended the job of a complete `run` from outside; else empty. Of a rank, launcher and Slurm say it."""
    if status == LOST_AFTERWARDS:
        return "the job was ended before it left an exit status"
    if run.footer is not None and status in _ENDED_BY_SIGNAL and not start_failures(errors):
        return f"the launcher was ended by {signal.Signals(status - 128).name}"
    return ""


def read_words(file: Path) -> str:
    """Return the text that a job wrote to a file, whatever bytes it has; empty if there is no file."""
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


def no_result(test: rfm.RegressionTest, text: str) -> SanityError:
    """What to raise for a job of `test` that left no result, as `text` says: with who kept it from that."""
    own = Finding("no-result", Verdict.INCOMPLETE, f"{text}{test.stderr_tail()}")
    return not_judged(Path(test.stagedir), [*who_failed(test), own])


def who_failed(test: rfm.RegressionTest) -> list[Finding]:
    """Who kept the job of `test` from its end: nodes that Slurm lost or could not start it on, those that scheduler,
    launcher and libraries name, else those that left no state; and the worst that the nodes report."""
    result = Path(test.stagedir) / RESULT
    # Slurm's list of a job that ended for a node may leave that one out.
    hosts = (place.host for place in read_run(result).ranks) if result.exists() else ()
    return [
        *nodes_lost(test, hosts),
        *not_launched(test),
        *_named(test, result),
        *faults_of_nodes(result, test.current_partition.fullname),
    ]


def _named(test: rfm.RegressionTest, result: Path) -> tuple[Finding, ...]:
    topology = topology_of(test.current_partition.fullname)
    nodes = topology.network.nodes if topology is not None and topology.network is not None else ()
    own = (test.job.nodelist if test.job is not None else None) or ["None"]  # as ReFrame has it where a job was short
    if own != ["None"]:
        nodes = tuple(own)
    told = start_failures(test.errors() + test.output(), nodes, test.num_nodes, nics=read_nics(result))
    before = {short_host(host) for host in read_states(result).before}
    silent = [node for node in nodes if short_host(node) not in before] if test.num_nodes == len(nodes) else []
    if told or not before or len(silent) > len(nodes) / 2:
        return told
    text = "the command that reads the state of a node left none: it did not start, or the folder of results is missing"
    return tuple(
        Finding("start-failed", Verdict.INCOMPLETE, f"{node}: {text}", (Component.of_node(node),)) for node in silent
    )


def faults_of_nodes(result: Path, where: str) -> list[Finding]:
    """What is wrong with the nodes of a job that measured nothing, by their own states, the worst first.

    `where`: its `system:partition`.
    """
    from fabricheck.diagnosis.network.blocked import find_blocked  # a listing needs none of it

    topology = topology_of(where)
    states = read_states(result)
    # What is DEGRADED beside a measurement kept this one from starting.
    blocked = [
        replace(each, verdict=Verdict.INCOMPLETE) if each.verdict is Verdict.DEGRADED else each
        for each in find_blocked(states, topology)
        if each.is_problem
    ]
    evidence = evidence_without_run(states, topology)
    return [*blocked, *(finding_of(fact, fact.verdict, topology) for fact in evidence if fact.verdict is not None)]


def unsupported_reason(folder: Path, status: int) -> str | None:
    """Why this node cannot run the measurement, where fabricbench ended for that reason."""
    file = folder / RESULT
    return read_unsupported(file) if status == UNSUPPORTED and file.exists() else None


def describe_end(errors: str) -> str:
    """What ended a rank, by launcher or scheduler, and the last line that fabricbench said on stderr (`errors`)."""
    ended = [each.message for each in start_failures(errors)[:1]]
    own = [line for line in reversed(errors.splitlines()) if line.startswith("fabricbench:")]
    own.sort(key=lambda line: "did not arrive" not in line)  # of several nodes the one that knows who is behind
    return "".join(f": {part.strip()}" for part in (*ended, *own[:1]))


def missing_paths_text(variables: Mapping[str, str]) -> str:
    """The paths in an environment's variables that this machine does not have, for the end of a message."""
    missing = [
        f"{path} ({name})"
        for name, value in variables.items()
        for path in value.split(os.pathsep)
        if path.startswith("/") and not os.path.exists(path)
    ]
    return f": not on this machine: {few(missing)}" if missing else ""


def words_of_job(test: rfm.RegressionTest, run: Run, status: int, errors: str) -> tuple[Finding, ...]:
    """What tells the nodes and ranks for which `run` did not get to its end, of Slurm and of the run's stderr.

    A job or launcher that was ended after all was measured costs no measurement, but the run did not end as it should.
    """
    if ended := _ended_afterwards(run, status, errors):
        text = f"{run.path}: {ended} after all was measured: see the scheduler's log{describe_end(errors)}"
        return (Finding("ended-after-measuring", Verdict.INCOMPLETE, text),)
    if run.footer is not None:
        return ()  # the words are of another launch of the job, whose ranks may have had other nodes
    lost = nodes_lost(test, (each.host for each in run.ranks))
    problems = (replace(finding, message=f"{run.path}: {finding.message}") for finding in lost)
    ranks = {str(place.rank): place.host for place in run.ranks}
    return (*problems, *require_arrival(run, errors), *start_failures(errors, run.hosts, ranks=ranks))


def not_judged(folder: Path, findings: Iterable[Finding], more: str = "") -> SanityError:
    """What to raise where there is nothing to judge: the findings, the worst first, are the judgement in `folder`.

    `more` belongs to the first of them.
    """
    first, *others = worst_first(findings)
    causes = (replace(first, message=f"{first.message}{more}"), *others)
    write_judgement(folder, causes)
    return SanityError(summary(causes, ""))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by verdict, the worst first, else in their order."""
    return sorted(findings, key=lambda each: -SEVERITY[each.verdict])


def summary(problems: Iterable[Finding], more: str) -> str:
    """One line: the worst first, with how many others there are, and `more` at its end."""
    ranked = worst_first(problems)
    others = f" (and {len(ranked) - 1} more)" if len(ranked) > 1 else ""
    return f"{ranked[0].verdict.value}: {ranked[0].message}{others}{more}"


def take_over(check: Any) -> None:
    """Copies what the earlier run left of a test into its stage directory, where its job would do the same."""
    if RESUMES not in os.environ:
        return
    earlier, stage = Path(os.environ[RESUMES]), Path(check.stagedir)
    run = stage.parents[4]
    for before in folders_in(earlier, stage.relative_to(run / "stage")):
        scripts = (before / check.job.script_filename, earlier), (stage / check.job.script_filename, run)
        if _is_whole(before) and len({_commands(*script) for script in scripts}) == 1:
            shutil.copytree(before, stage, dirs_exist_ok=True, ignore=shutil.ignore_patterns(BEGUN, ".rfm*"))
            if (launch := _launches_in(before.parent).get(str(before))) is not None:
                leave_words(stage, launch)
            (stage / TAKEN).write_text(f"{before}\n", encoding="utf-8")
            check.keep_files = [*check.keep_files, TAKEN]
            check.started = datetime.fromtimestamp(0, timezone.utc)  # it was looked at whether its result is of its job
            return


@cache
def _launches_in(folder: Path) -> Mapping[str, Path]:
    """Of the shared jobs below a folder of an earlier run, the folder of the launch of each stage directory."""
    lists = sorted(folder.glob("shared-job-*/*/plans-*"))
    return {
        line.partition(" ")[0]: file.parent for file in lists for line in file.read_text(encoding="utf-8").splitlines()
    }


def _is_whole(folder: Path) -> bool:
    try:
        status = int((folder / EXIT_STATUS).read_text())
    except (OSError, ValueError):
        return False
    return status in (0, WRONG_DATA) and _last_record(folder / RESULT).get("record") == "footer"


def _commands(script: Path, run: Path) -> str:
    """What a job script of a run does, without what is for the scheduler and wherever the run is."""
    try:
        lines = script.read_text(encoding="utf-8").replace(str(run), "").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if not line.startswith("#"))


def leave_words(stage: Path, launch: Path) -> None:
    """What a plan and its job printed, where the job did not come to leave that; `launch`: the folder of its launch."""
    for kind in ("out", "err"):
        own = stage / f"rfm_job.{kind}"
        files = (launch / f"launch.{kind}", stage / f"plan.{kind}", launch.parent / f"job.{kind}")
        if not own.exists():
            own.write_bytes(b"".join(file.read_bytes() for file in files if file.exists()))
    if (launch / FOLDER).is_dir() and not (stage / FOLDER).exists():
        shutil.copytree(launch / FOLDER, stage / FOLDER)
