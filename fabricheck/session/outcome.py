"""What a session came to: the verdicts of its runs, its own problems, and its findings."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.causes import Diagnosis, diagnose
from fabricheck.diagnosis.of_session import find_all, without_cleared
from fabricheck.fleet.node_verdicts import FleetVerdict, verdict_of_fleet
from fabricheck.fleet.record import TROUBLES, Fleet, read_findings
from fabricheck.fleet.resume import is_taken_over
from fabricheck.judge.node_state import errors_counted
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import LAUNCHED_ONCE, Case, node_of_file
from fabricheck.records.component import Component, short_host
from fabricheck.records.finding import Finding, split
from fabricheck.records.finding_texts import SLOW, Certainty
from fabricheck.records.operations import HOST_PATHS
from fabricheck.records.rehearsal import as_rehearsal
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.fabricbench import read_run
from fabricheck.session.launches import FALSE_ALARMS, Chance, Launch, Sign, Thing
from fabricheck.session.problems import Known, problems_of_cases
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.run_folders import runs_before
from fabricheck.session.slow_once import Slow, name_of, slow_again, slow_before
from fabricheck.site.validation import test_classes
from fabricheck.suite import Suite
from fabricheck.topology.network import fold
from fabricheck.units import few
from fabricheck.wholefile import open_file
from fabricheck.yardsticks.references import ALL_OTHERS

#: The name of a test case, and the node of a fleet or nothing.
Key = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """What a session came to. `diagnosis`: what it shows beside its runs, `judged`.

    `cases` are those that left the files of `judged`, in the same order. `fleet`: of a run over many nodes.
    `slow_once`: what is left to the next session.
    """

    diagnosis: Diagnosis
    judged: tuple[RunJudgement, ...]
    cases: tuple[Case, ...]
    fleet: FleetVerdict | None = None
    slow_once: Slow = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """That of the session."""
        return self.diagnosis.verdict

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What keeps the session from being green, beside what its result files say."""
        return self.diagnosis.problems

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is only told."""
        return self.diagnosis.findings


def judge_session(session: FinishedSession, suite: Suite, system: str, *, may_launch_again: bool = False) -> Outcome:
    """Judges every result file of a session against the topology, the references and the policy of the suite.

    The verdict is the worst of all files and of the session's own problems. A file that cannot be judged is INVALID and
    leaves the others judged. Unless it `may_launch_again`, what only a second launch could confirm is INCOMPLETE, and
    left to the next session; what the session before left is decided by its launch and that of this session.
    """
    outcome = _judge(session, suite, system, may_launch_again=may_launch_again)
    open_ = () if may_launch_again else tuple(_chance_explains(session, outcome))
    return _judge(session, suite, system, open_) if open_ else outcome


def _chance_explains(session: FinishedSession, outcome: Outcome) -> Iterator[Key]:
    """The tests that are slow in their only launch, in metrics that have no reference of their own, and in which no
    part is slower than chance makes one in a healthy session."""
    chance = Chance(sum(len(run.judgements) for run in outcome.judged))
    launches = launches_of(session, outcome)
    for key, run in by_key(outcome):
        is_slow = run.final_verdict is Verdict.DEGRADED and run.run.burn_in is None and key in launches
        is_proven = any(metric.is_shown_by_one_launch for metric in run.judgements)
        if is_slow and not is_proven and all(chance.p_of_one(sign) > FALSE_ALARMS for sign in launches[key].signs):
            yield key


def _judge(
    session: FinishedSession, suite: Suite, system: str, open_: Collection[Key] = (), *, may_launch_again: bool = False
) -> Outcome:
    """As `judge_session`; `open_`: the tests whose only launch proves nothing slow."""
    judge = SystemJudge.of(system, suite.root)
    results = [(case, file) for case in session.cases for file in case.result_files()]
    cases = tuple(case for case, _ in results)
    compared = judge.judge_cases((case, read_result(file, suite, system)) for case, file in results)
    outvoted = frozenset(str(file) for case, file in results if (str(case), node_of_file(file)) in session.outvoted)
    judged = tuple(each.outvoted() if each.run.path in outvoted else each for each in compared.runs)
    slow_once = _slow_once(session, cases, judged, slow_before(session.folder, system), open_)
    told_once: list[Finding] = []
    if not may_launch_again:
        session, judged, told_once = _of_one_launch(session, cases, judged, slow_once)
    runs = tuple(CaseRun.of_case(each.run, case) for each, case in zip(judged, cases, strict=True))
    told = [
        *_missing_checks(suite, judge),
        *_twice(judged),
        *told_once,
        *compared.problems,
        *session.findings,
        *compared.findings,
        *find_all(runs, judge),
        *_taken_over(session),
        *find_slow_copies(session.folder, system, judged),
    ]
    judged = tuple(without_cleared(each, told) for each in judged)
    told = [
        each for each in told if each.verdict is not Verdict.DEGRADED or not outvoted.issuperset(each.files or ("",))
    ]
    problems, findings = split(told)
    known = Known.of_session(judged, told)
    own = (*session.problems, *problems_of_cases(session.cases, known))
    diagnosis = diagnose(judged, (*own, *problems), findings)
    fleet = _fleet_of(session, judged, diagnosis.problems)
    if fleet is not None:
        diagnosis = replace(diagnosis, problems=(*diagnosis.problems, *_left_out(fleet)))
    return Outcome(diagnosis, judged, cases, fleet, slow_once)


def _slow_once(
    session: FinishedSession,
    cases: Sequence[Case],
    judged: Sequence[RunJudgement],
    before: Slow,
    open_: Collection[Key],
) -> dict[str, tuple[str, ...]]:
    """The metrics of each test that are slow in one launch and need a second one, all of those in `open_`, with those
    of the session `before` that did not run in this one."""
    slow, measured = {}, set()
    for case, run in zip(cases, judged, strict=True):
        node = node_of_file(Path(run.run.path))
        measured.add(name_of(case, node))
        key = str(case), node
        names = run.slow_once
        if key in open_:
            names = tuple(each.name for each in run.judgements if each.verdict is Verdict.DEGRADED)
        if names and key not in session.decided and case.test not in LAUNCHED_ONCE:
            slow[name_of(case, node)] = names
    left = {name: names for name, names in before.items() if name not in measured}
    for name in slow_again(before, slow, sum(len(run.judgements) for run in judged)):
        del slow[name]
    return left | slow


def _of_one_launch(
    session: FinishedSession, cases: Sequence[Case], judged: Sequence[RunJudgement], slow: Slow
) -> tuple[FinishedSession, tuple[RunJudgement, ...], list[Finding]]:
    """Leaves out the metrics that are slow in one launch and need a second one; tells of each test that has some."""
    runs, slow_once, slow_only_so = [], [], set()
    for case, run in zip(cases, judged, strict=True):
        name = name_of(case, node_of_file(Path(run.run.path)))
        if name not in slow:
            runs.append(run)
            continue
        runs.append(run.of_one_launch(slow[name]))
        slow_only_so.add(str(case))
        # Without `metrics`: nothing is to be explained by what may be noise.
        text = f"{name}: slow in its only launch, which the next session has to confirm: {few(slow[name])}"
        slow_once.append(Finding("slow-once", Verdict.INCOMPLETE, text, files=(run.run.path,)))
    for case, run in zip(cases, runs, strict=True):
        if run.final_verdict is not Verdict.PASS:
            slow_only_so.discard(str(case))
    kept = tuple(case.outvoted() if str(case) in slow_only_so else case for case in session.cases)
    return replace(session, cases=kept), tuple(runs), slow_once


def _taken_over(session: FinishedSession) -> Iterator[Finding]:
    """What an earlier run measured."""
    if number := sum(map(is_taken_over, session.files)):
        text = (
            f"{number} of {len(session.files)} result files were taken over from the earlier run and not measured again"
        )
        yield Finding("taken-over", Verdict.PASS, text)


def _fleet_of(
    session: FinishedSession, judged: Sequence[RunJudgement], problems: Sequence[Finding]
) -> FleetVerdict | None:
    """The verdict of each node, where the run was one over many."""
    fleet = Fleet.of_run(session.folder)
    if fleet is None:
        return None
    of_launches = [one for case in session.cases if case.folder for one in read_findings(case.folder / TROUBLES)]
    return verdict_of_fleet(fleet, of_launches, judged, problems)


def _left_out(fleet: FleetVerdict) -> Iterator[Finding]:
    """Nodes that were requested and not measured: a node that was not measured is not a PASS."""
    if fleet.unchecked:
        first = next(iter(fleet.unchecked.values()))
        text = f"{len(fleet.unchecked)} of {fleet.nodes} nodes were not checked: {fold(fleet.unchecked)} ({first})"
        yield Finding("nodes-not-checked", Verdict.INCOMPLETE, text)


def read_result(file: Path, suite: Suite, system: str) -> Run:
    """The run in a result file; that of a system in miniature is a rehearsal, also where it used no GPU."""
    run = read_run(file)
    return as_rehearsal(run) if suite.is_miniature(system) else run


def _twice(judged: Sequence[RunJudgement]) -> Iterator[Finding]:
    """Result files of one and the same run of the benchmark, which then stands for two test cases."""
    seen: dict[str, str] = {}
    for run in judged:
        run_id = run.run.header.get("run_id")
        if run_id is not None and seen.setdefault(run_id, run.run.path) != run.run.path:
            text = f"{run.run.path}: has the same run as {seen[run_id]}: remove one of them"
            yield Finding("same-result-twice", Verdict.INVALID, text)


def _missing_checks(suite: Suite, judge: SystemJudge) -> Iterator[Finding]:
    """A check file that is gone leaves no trace in ReFrame, but the system's references still name its tests."""
    if judge.references is None:
        return
    checks = suite.root / "checks"
    known = test_classes(checks)
    for name in (*judge.references.tests, *judge.references.uncalibrated):
        if name not in (*known, ALL_OTHERS):
            text = f"{judge.references.path} names {name}, and no file in {checks} has it: is a file missing?"
            yield Finding("check-missing", Verdict.INCOMPLETE, text)


# Two healthy runs of a minute differed by 20% (2 H100, 2026-11-26), and one whose host paths lost 15 to 23% by 57%
# (H200, 2026-11: 63 and 27 GB/s).
_LEAST = 2 / 3
# Sessions that are looked at, the values that are enough, and the largest result file of one test.
_EARLIER, _ENOUGH, _MOST_BYTES = 5, 3, 1 << 28


def find_slow_copies(folder: Path, system: str, judged: Sequence[RunJudgement]) -> Iterator[Finding]:
    """The nodes on which one core's copy is slow, where all that is slow in a session crosses host memory.

    By the headers of its runs and of the last sessions of the system, whose folders are beside `folder`.
    """
    slow = [(run.run, metric) for run in judged for metric in run.judgements if metric.verdict is not Verdict.PASS]
    for run, metric in slow:
        on_host = metric.samples.operation in HOST_PATHS or run.header.get("transport") == "staging"
        if run.on_gpus and not on_host:
            return
    if not slow:
        return
    now = _by_node(run.run.header for run in judged)
    earlier = _by_node(_headers(folder, system))
    for node in sorted({short_host(run.ranks[0].host) for run, _ in slow if run.ranks} & now.keys()):
        others = [copy for other, copies in now.items() if other != node for copy in copies]
        if len(earlier.get(node, ())) >= _ENOUGH:
            usual, where = statistics.median(earlier[node]), "in earlier sessions"
        elif others:
            usual, where = statistics.median(others), "on other nodes"
        else:
            usual, where = max(now[node]), "earlier in this session"
        own = min(now[node])
        if own < _LEAST * usual:
            text = f"one core copies host memory at {own / 8:.3g} GB/s; {where}: {usual / 8:.3g} GB/s"
            at = (Component.of_node(node),)
            yield Finding("host-memory-slow", Verdict.PASS, text, at, measured=own, expected=usual, unit="Gb/s")


def _by_node(headers: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """What one core copied in each run, in Gb/s, by the node of its rank 0."""
    rates: dict[str, list[float]] = {}
    for header in headers:
        try:
            rates.setdefault(short_host(header["ranks"][0]["host"]), []).append(float(header["host_copy_gbps"]))
        except (KeyError, IndexError, TypeError, ValueError):  # of a vendor's tool, or damaged
            continue
    return rates


def _headers(folder: Path, system: str) -> Iterator[Mapping[str, Any]]:
    """Of the result files of the sessions before that of `folder`."""
    for file in (file for each in runs_before(folder, system)[-_EARLIER:] for file in each.glob("*/**/result.jsonl")):
        try:
            with open_file(file, _MOST_BYTES) as stream:
                yield json.loads(stream.readline())
        except (OSError, ValueError, RecursionError):
            continue


def launches_of(session: FinishedSession, outcome: Outcome, fleet: Fleet | None = None) -> dict[Key, Launch]:
    """What each test case came to: by ReFrame, its files, and problems that its files show. Of a fleet each case on
    each node.

    Without builds, and without what ReFrame's own options launched several times.
    """
    launches: dict[Key, list[Verdict]] = {}
    slow: dict[Key, set[Thing]] = {}
    metrics: Counter[Key] = Counter()
    every: Counter[Key] = Counter()
    several = {str(case) for case in session.cases if case.launches}
    for case in session.cases if fleet is None else ():
        if not case.is_build:
            key = str(case), ""
            checked = case.judged.findings if case.judged is not None else ()
            launches[key] = [_vote(case.verdict, checked), *([] if case.result_files() else [Verdict.INCOMPLETE])]
            slow[key] = set()
    by_file: dict[str, Key] = {}
    runs: dict[Key, list[RunJudgement]] = {}
    told: dict[Key, list[Finding]] = {}
    for key, judged in by_key(outcome):
        by_file[judged.run.path] = key
        runs.setdefault(key, []).append(judged)
        launches.setdefault(key, []).append(_vote(judged.final_verdict, judged.findings))
        bad = (each for each in judged.judgements if each.verdict is not Verdict.PASS)
        own = {each.name for each in bad if _vote(each.verdict, [each.finding]) is Verdict.DEGRADED}
        metrics[key] += len(own)
        every[key] += len(judged.judgements)
        slow.setdefault(key, set()).update(own, *map(_things, judged.problems))
        told.setdefault(key, []).extend(judged.problems)
    for problem in outcome.problems:
        for key in {by_file[file] for file in problem.files if file in by_file}:
            launches[key].append(_vote(problem.verdict, [problem]))
            slow[key] |= _things(problem)
            told[key].append(problem)
    for case in session.cases:  # only its check found that
        key = str(case), ""
        findings = case.judged.findings if case.judged is not None else ()
        is_slow = not findings or any(map(_things, findings))
        if _vote(case.verdict, findings) is Verdict.DEGRADED and slow.get(key) == set() and is_slow:
            slow[key] = set[Thing]({case.test}).union(*map(_things, findings))
    return {
        key: Launch(
            worst(launches[key]),
            frozenset(slow[key]),
            max(metrics[key], 1),
            tuple(_signs(told.get(key, ()), runs.get(key, ()))),
            max(every[key], 1),
        )
        for key in launches
        if key[0] not in several
    }


def _vote(verdict: Verdict, findings: Iterable[Finding]) -> Verdict:
    """How a launch counts: speed alone is launched again as DEGRADED is, also FAIL or on a busy machine; wrong data
    are not."""
    own = [each for each in findings if each.verdict is verdict]
    symptoms = {each.entry.symptom for each in own if verdict is Verdict.FAIL or each.code != "slow-while-busy"}
    is_slow = verdict in (Verdict.FAIL, Verdict.INCOMPLETE) and own and symptoms <= {SLOW}
    return Verdict.DEGRADED if is_slow else verdict


def _things(problem: Finding) -> set[Thing]:
    """The parts that are slow, else the metrics, else what its code means; nothing where it is not about speed, or is
    what a node reports whenever it is asked."""
    if _vote(problem.verdict, [problem]) is not Verdict.DEGRADED or problem.entry.certainty is Certainty.REPORTED:
        return set()
    return set(problem.components or problem.metrics or (problem.code,))


def _signs(told: Sequence[Finding], runs: Sequence[RunJudgement]) -> Iterator[Sign]:
    """Slow things of these runs that chance may not explain: parts, and parts whose errors were counted."""
    metrics = [each for run in runs for each in run.judgements if each.verdict is not Verdict.PASS]
    slow = {each.name: each for each in metrics if _vote(each.verdict, [each.finding]) is Verdict.DEGRADED}
    counted = [one for run in runs for one in errors_counted(run.run, run.topology)] if slow else []
    for finding in counted:
        files = tuple(run.run.path for run in runs)
        yield Sign(replace(finding, metrics=tuple(slow), files=files), counted=True)
    for finding in told:
        if finding.verdict in (Verdict.DEGRADED, Verdict.FAIL) and finding.components and _things(finding):
            pairs: dict[object, set[tuple[int, ...]]] = {}
            for samples in (slow[name].samples for name in finding.metrics or slow if name in slow):
                pairs.setdefault((samples.operation, samples.schedule, samples.bytes), set()).add(tuple(samples.ranks))
            yield Sign(finding, max(map(len, pairs.values()), default=1))


def by_key(outcome: Outcome) -> Iterator[tuple[Key, RunJudgement]]:
    """Each run with the test case, and the node of a fleet, that it is of."""
    for case, judged in zip(outcome.cases, outcome.judged, strict=True):
        yield (str(case), node_of_file(Path(judged.run.path))), judged
