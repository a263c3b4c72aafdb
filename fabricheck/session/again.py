"""What a session shows to be DEGRADED is launched again, on the same nodes, and the launches decide together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabricheck.errors import UserError, reason_of_system
from fabricheck.judge.evidence import short_name
from fabricheck.judge.overall import verdict_of
from fabricheck.records.case import Case
from fabricheck.records.verdict import Finding, Verdict, worst
from fabricheck.session.launches import Launched, is_open, that_counts, write_launched
from fabricheck.session.outcome import Outcome, judge_session
from fabricheck.session.progress import Progress
from fabricheck.session.reading import Session
from fabricheck.session.reframe import Selection, launch
from fabricheck.suite import Suite

# Launching by itself, or other tests than ReFrame first lists: then the name of a test does not find it again.
_OWN = ("--max-retries", "--reruns", "--repeat", "--duration", "--distribute", "--parameterize", "-P", "--dry-run")
_SLOW = Verdict.DEGRADED
_MOST_NAMED = 3
_SLURM = ("slurm", "squeue")
# The nodes were ours a moment ago; who has to wait longer for them lets the first launch stand.
_LONGEST_WAIT = "15m"


@dataclass(frozen=True)
class Again:
    """How tests are launched again: `most` launches in all, the first included. `tell` gets a line before each round;
    `progress` makes what follows ReFrame, or None."""

    suite: Suite
    selection: Selection
    output: Path
    most: int
    tell: Callable[[str], None]
    progress: Callable[[], Progress | None]
    has_locks: bool = True

    def judge(self, session: Session) -> tuple[Session, Outcome]:
        """The session with the launch that counts in place of each that was DEGRADED, and what it comes to.

        A test is launched until more than half of `most` launches agree, each judged beside the first launches of all
        other tests. Hangs and wrong data are not launched again, nor what a run over a fleet found, which measures its
        suspects again by itself. Where no launch can be made, what was found stands.
        """
        outcome = judge_session(session, self.suite, self.selection.whole_system)
        has_own = outcome.fleet is not None or any(word.startswith(_OWN) for word in self.selection.more)
        if session.interrupted or has_own:
            return session, outcome
        try:
            return self._decide(session, outcome)
        except (OSError, UserError) as error:
            reason = reason_of_system(error) if isinstance(error, OSError) else error
            self.tell(f"what is DEGRADED could not be launched again, so it stands: {reason}")
            return session, outcome

    def _decide(self, session: Session, outcome: Outcome) -> tuple[Session, Outcome]:
        hosts = _hosts_of(outcome)
        cases = {str(case): case for case in session.cases}
        slow = [_Tried(cases[name]) for name, verdict in verdicts_of(session, outcome).items() if verdict is _SLOW]
        ended_by = ""
        for number in range(2, self.most + 1):
            left = [each for each in slow if is_open(each.verdicts, self.most)]
            if not left or ended_by:
                break
            names = ", ".join(str(each.case) for each in left[:_MOST_NAMED])
            more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
            self.tell(f"DEGRADED so far, so launched again ({number} of {self.most} times at most): {names}{more}")
            made, ended_by = self._launch(session.folder, number, [each.case for each in left], hosts)
            one = session
            for case, _ in made.values():
                one = one.instead(case)
            judged = judge_session(one, self.suite, self.selection.whole_system)
            verdicts, where = verdicts_of(one, judged), _hosts_of(judged)
            for each in left:
                name = str(each.case)
                if name not in made:
                    each.add(Verdict.INCOMPLETE, "did not run", "")
                elif where.get(name, hosts[name]) != hosts[name]:
                    each.add(Verdict.INCOMPLETE, "on other nodes", made[name][1])
                else:
                    each.add(verdicts[name], verdicts[name].value, made[name][1])
        launched = [each.launched for each in slow if len(each.verdicts) > 1]
        if not launched:
            return session, outcome
        write_launched(session.folder, launched)
        decided = session.with_launches(launched)
        if ended_by:
            text = f"{ended_by} ended the launches of what was DEGRADED: what was found until then stands"
            decided = replace(decided, findings=(*decided.findings, Finding(text)))
        return decided, judge_session(decided, self.suite, self.selection.whole_system)

    def _launch(
        self, folder: Path, number: int, cases: Iterable[Case], hosts: Mapping[str, set[str]]
    ) -> tuple[dict[str, tuple[Case, str]], str]:
        """Launches cases once more, those of a partition and environment on the same nodes together: each by its name,
        with the folder in which its files are; and by which signal that was to end."""
        groups: dict[tuple[str, str, str], list[Case]] = {}
        for case in cases:
            nodes = ",".join(sorted(hosts.get(str(case), ()))) if case.attributes.get("scheduler") in _SLURM else ""
            groups.setdefault((case.partition, case.environment, nodes), []).append(case)
        made: dict[str, tuple[Case, str]] = {}
        ended_by = ""
        for place, ((_, _, nodes), members) in enumerate(groups.items(), start=1):
            if ended_by:
                break
            where = folder / (f"launch-{number}" if place == 1 else f"launch-{number}-{place}")
            more = (f"--job-option=nodelist={nodes}", f"--setvar=max_pending_time={_LONGEST_WAIT}") if nodes else ()
            selection = replace(self.selection, more=(*self.selection.more, *more))
            found, ended_by = launch(
                self.suite,
                selection,
                members,
                where,
                output=self.output,
                progress=self.progress(),
                has_locks=self.has_locks,
            )
            made |= {str(case): (case, where.name) for case in found}
        return made, ended_by


@dataclass
class _Tried:
    """A test case and its launches so far: verdicts, what is said of each, and in which folder it is."""

    case: Case
    verdicts: list[Verdict] = field(default_factory=lambda: [_SLOW])
    said: list[str] = field(default_factory=lambda: [_SLOW.value])
    folders: list[str] = field(default_factory=lambda: [""])

    def add(self, verdict: Verdict, said: str, folder: str) -> None:
        self.verdicts.append(verdict)
        self.said.append(said)
        self.folders.append(folder)

    @property
    def launched(self) -> Launched:
        counts = that_counts(self.verdicts)
        last = max(place for place, verdict in enumerate(self.verdicts) if verdict is counts)
        return Launched(str(self.case), tuple(self.said), counts.value, self.folders[last])


def verdicts_of(session: Session, outcome: Outcome) -> dict[str, Verdict]:
    """The verdict of each test case, by its name: of ReFrame, of its files, and of problems that its files show.

    Without builds, and without what ReFrame's own options launched several times.
    """
    found: dict[str, list[Verdict]] = {}
    for case in session.cases:
        if not case.is_build and not case.launches:
            found[str(case)] = [case.verdict, *([] if case.result_files() else [Verdict.INCOMPLETE])]
    by_file = {}
    for case, judged in zip(outcome.cases, outcome.judged, strict=True):
        by_file[judged.run.path] = str(case)
        if str(case) in found:
            found[str(case)].append(verdict_of(judged))
    for problem in outcome.problems:
        for file in problem.files:
            if by_file.get(file) in found:
                found[by_file[file]].append(problem.verdict)
    return {name: worst(each) for name, each in found.items()}


def _hosts_of(outcome: Outcome) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for case, judged in zip(outcome.cases, outcome.judged, strict=True):
        found.setdefault(str(case), set()).update(short_name(rank.host) for rank in judged.run.ranks)
    return found
