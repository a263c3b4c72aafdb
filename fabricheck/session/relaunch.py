"""What a session shows to be slow is launched again, on the same nodes, and the launches decide together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabricheck.errors import UserError, reason_of_system
from fabricheck.fleet.held_jobs import let_go
from fabricheck.fleet.record import Fleet
from fabricheck.records.case import Case, node_of_file
from fabricheck.records.component import short_host
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import (
    Chance,
    Launch,
    Launched,
    Sign,
    Thing,
    beyond_chance,
    deciding_launch,
    is_open,
    is_outvoted,
    write_launched,
)
from fabricheck.session.outcome import Key, Outcome, by_key, judge_session, launches_of
from fabricheck.session.reframe import Selection
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.slow_once import name_of, slow_before
from fabricheck.session.suite_run import Launcher
from fabricheck.units import few

# Launching by itself, or other tests than ReFrame first lists: then the name of a test does not find it again.
_OWN = ("--max-retries", "--reruns", "--repeat", "--duration", "--distribute", "--parameterize", "-P", "--dry-run")
_SLURM = ("slurm", "squeue")
# The nodes were ours a moment ago; who has to wait longer for them lets the first launch stand.
_LONGEST_WAIT = "15m"


@dataclass(frozen=True)
class Again:
    """How tests are launched again by `launcher`, after a run of `selection`: `most` launches in all, the first
    included. `tell` gets a line before each round."""

    launcher: Launcher
    selection: Selection
    most: int
    tell: Callable[[str], None]

    @property
    def is_possible(self) -> bool:
        """Whether tests may be launched again by what was asked."""
        return self.most > 1 and not any(word.startswith(_OWN) for word in self.selection.more)

    def judge(self, session: FinishedSession) -> tuple[FinishedSession, Outcome | None]:
        """The session with the launch that counts in place of each that was slow; what it comes to, where known.

        A test is launched, `most` times in all, until most launches pass or chance does not explain the slow results
        (`is_open`), each judged beside the first launches of all other tests. Hangs, wrong data and what nodes report
        are not launched again. Of a run over a fleet, whose job has to be there, the tests of each node are, on the
        nodes that are slow in them; the network between nodes has a second look of its own. Jobs that kept their nodes
        for that are let go of at the end. Where no launch can be made, what only a second one could show is INCOMPLETE
        (`judge_session`).
        """
        try:
            return self._judge(session)
        finally:
            let_go(session.folder)

    def _judge(self, session: FinishedSession) -> tuple[FinishedSession, Outcome | None]:
        if session.interrupted or not self.is_possible:
            return session, None
        fleet = Fleet.of_run(session.folder)
        if fleet is None:
            outcome = self._judged(session)
            decided = self._decide(session, outcome, None)
            return decided, outcome if decided is session and outcome.verdict is Verdict.PASS else None
        if _of_nodes(session) and not fleet.ended:
            session = self._decide(session, self._judged(replace(session, cases=_of_nodes(session))), fleet)
        return session, None

    def _judged(self, session: FinishedSession) -> Outcome:
        return judge_session(session, self.launcher.suite, self.selection.whole_system, may_launch_again=True)

    def _decide(self, session: FinishedSession, outcome: Outcome, fleet: Fleet | None) -> FinishedSession:
        try:
            return self._launched(session, outcome, fleet)
        except (OSError, UserError) as error:
            reason = reason_of_system(error) if isinstance(error, OSError) else error
            self.tell(f"the slow tests could not be relaunched, so the verdict stands: {reason}")
            return session

    def _launched(self, session: FinishedSession, outcome: Outcome, fleet: Fleet | None) -> FinishedSession:
        hosts, cases = _hosts_of(outcome), {str(case): case for case in session.cases}
        launches = launches_of(session, outcome, fleet)
        # A load of minutes or hours is repetition enough, and what it shows may need that long to come back.
        loads = {judged.test for judged in outcome.judged if judged.run.burn_in is not None}
        bad = {
            key: launch
            for key, launch in launches.items()
            if launch.verdict is Verdict.DEGRADED and launch.slow and key[0] not in loads
        }
        left_before = slow_before(session.folder, self.selection.whole_system)
        slow = [_Tried(cases[case], node, [launch]) for (case, node), launch in bad.items()]
        slow.sort(key=lambda attempt: attempt.name not in left_before)  # these first: they were left open
        ended_by, metrics = "", sum(len(judged.judgements) for judged in outcome.judged)
        for number in range(2, self.most + 1):
            chance = Chance.of(metrics, [each.launches for each in slow])
            left = [each for each in slow if is_open(each.launches, self.most, chance)]
            if not left or ended_by:
                break
            names = few([each.name for each in left])
            self.tell(f"slow so far; launching again ({number} of {self.most} times at most): {names}")
            made, ended_by = self._launch(session.folder, number, left, hosts, fleet)
            changed = session
            for attempt in left:
                if attempt.key in made:
                    changed = changed.instead(made[attempt.key][0], attempt.node)
            judged = self._judged(changed if fleet is None else replace(changed, cases=_of_nodes(changed)))
            launches, where = launches_of(changed, judged, fleet), _hosts_of(judged)
            for attempt in left:
                if attempt.key not in made or attempt.key not in launches:
                    attempt.add(Launch(Verdict.INCOMPLETE), "did not run")
                elif where.get(attempt.key, hosts[attempt.key]) != hosts[attempt.key]:
                    attempt.add(Launch(Verdict.INCOMPLETE), "on other nodes")
                else:
                    attempt.add(launches[attempt.key], folder=made[attempt.key][1])
        chance = Chance.of(metrics, [each.launches for each in slow])
        launched = [each.launched(chance) for each in slow if len(each.launches) > 1]
        if not launched:
            return session
        write_launched(session.folder, launched)
        decided = session.with_launches(launched)
        if ended_by:
            text = f"{ended_by} ended the relaunches: the verdicts so far stand"
            decided = replace(decided, findings=(*decided.findings, Finding("launches-ended", Verdict.PASS, text)))
        return decided

    def _launch(
        self, folder: Path, number: int, tried: Iterable[_Tried], hosts: Mapping[Key, set[str]], fleet: Fleet | None
    ) -> tuple[dict[Key, tuple[Case, str]], str]:
        """Launches cases once more, those of a partition and environment on the same nodes together: each by its key,
        with the folder in which its files are; and by which signal that was to end."""
        groups: dict[tuple[str, str, str], list[_Tried]] = {}
        for attempt in tried:
            asked = fleet is None and attempt.case.attributes.get("scheduler") in _SLURM
            nodes = ",".join(sorted(hosts.get(attempt.key, ()))) if asked else ""
            groups.setdefault((attempt.case.partition, attempt.case.environment, nodes), []).append(attempt)
        made: dict[Key, tuple[Case, str]] = {}
        ended_by = ""
        for place, ((_, _, nodes), members) in enumerate(groups.items(), start=1):
            if ended_by:
                break
            where = folder / (f"launch-{number}" if place == 1 else f"launch-{number}-{place}")
            more = (f"--job-option=nodelist={nodes}", f"--setvar=max_pending_time={_LONGEST_WAIT}") if nodes else ()
            finished, ended_by = self.launcher.run_again(
                replace(self.selection, more=(*self.selection.more, *more)),
                list({str(each.case): each.case for each in members}.values()),
                where,
                fleet and replace(fleet, nodes=tuple(sorted({each.node for each in members})), earlier=()),
            )
            cases = {str(case): case for case in finished}
            for attempt in members:
                case = cases.get(str(attempt.case))
                if case is not None and attempt.node in ("", *map(node_of_file, case.result_files())):
                    made[attempt.key] = case, where.name
        return made, ended_by


@dataclass
class _Tried:
    """A test case, on one `node` of a fleet, and its launches so far: verdicts, what is said of each, and in which
    folder it is."""

    case: Case
    node: str
    launches: list[Launch]
    said: list[str] = field(default_factory=lambda: [Verdict.DEGRADED.value])
    folders: list[str] = field(default_factory=lambda: [""])

    @property
    def key(self) -> Key:
        return str(self.case), self.node

    @property
    def name(self) -> str:
        return name_of(self.case, self.node)

    def add(self, launch: Launch, said: str = "", folder: str = "") -> None:
        seen = frozenset[Thing]().union(*(each.slow for each in self.launches))
        other = " by something else" if launch.slow and not launch.slow & seen else ""
        self.launches.append(launch)
        self.said.append(said or f"{launch.verdict.value}{other}")
        self.folders.append(folder)

    def launched(self, chance: Chance) -> Launched:
        counts = deciding_launch(self.launches)
        outvoted = is_outvoted(self.launches, chance)
        verdict = Verdict.PASS if outvoted else self.launches[counts].verdict
        several = verdict is Verdict.DEGRADED and sum(bool(each.slow) for each in self.launches) > 1
        p = chance.p_value(self.launches) if several else None
        signs = tuple(self._intermittent(*each, chance) for each in beyond_chance(self.launches, chance))
        return Launched(
            str(self.case), tuple(self.said), verdict.value, self.folders[counts], self.node, p, signs, outvoted
        )

    def _intermittent(self, number: int, sign: Sign, chance: Chance) -> Finding:
        """What chance does not explain in the launch of this number, beside others that passed."""
        passed = sum(each.verdict is Verdict.PASS for each in self.launches)
        text = f"{self.name}: in launch {number}, while {passed} others passed: {sign.finding.message}"
        p = None if sign.finding.p is None else chance.p_of_one(sign)
        return replace(sign.finding, code="intermittent", verdict=Verdict.DEGRADED, message=text, p=p)


def _of_nodes(session: FinishedSession) -> tuple[Case, ...]:
    """The tests that each node of a fleet did by itself."""
    return tuple(case for case in session.cases if any(map(node_of_file, case.result_files())))


def _hosts_of(outcome: Outcome) -> dict[Key, set[str]]:
    hosts: dict[Key, set[str]] = {}
    for key, judged in by_key(outcome):
        hosts.setdefault(key, set()).update(short_host(rank.host) for rank in judged.run.ranks)
    return hosts
