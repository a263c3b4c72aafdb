"""What a session of two environments, interleaved, says of the new one: does it run, is it slower, and by what.

The session has each test of either environment once a round (ReFrame's --repeat), all in one job.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fabricheck.diagnosis.causes import named_of
from fabricheck.diagnosis.explain import Row, explain, known_noise
from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case
from fabricheck.records.component import Component, Kind
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.session.outcome import read_result
from fabricheck.session.problems import problems_of_cases
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.store.changes import (
    NOTHING,
    StackDifference,
    packages_changed,
    settings_changed,
    software_of,
    tuning_of,
)
from fabricheck.store.software_of_metrics import ANY_MOVER, library_owner, owners_of_packages, software_crossed
from fabricheck.suite import Suite
from fabricheck.upgrade.bisection import BisectionOutcome
from fabricheck.upgrade.decision import Answer, Changes, UpgradeChange, changes_of


@dataclass(frozen=True)
class Exchanged:
    """What the exchange of some differences changed in the old environment; the `problem` where it was not measured."""

    differences: tuple[str, ...]
    change: UpgradeChange | None
    answer: Answer
    problem: str = ""


@dataclass(frozen=True)
class UpgradeCause:
    """Which differences are `guilty` of the loss `of` a class or operation, and what each exchange showed.

    `left`: differences that cannot be exchanged. `to_try`: where the search ended early, those that may be guilty.
    """

    outcome: BisectionOutcome
    of: str
    guilty: tuple[StackDifference, ...]
    steps: tuple[Exchanged, ...]
    left: tuple[StackDifference, ...]
    to_try: tuple[StackDifference, ...] = ()


@dataclass(frozen=True)
class Upgrade:
    """What came of an upgrade from the environment `old` to `new`.

    `failures`: why tests that ran with the old one do not with the new one. `left_out`: what could not be compared, and
    why. `not_asked`: tests that do not apply, or cannot be interleaved.
    What differs: versions (`software`), `variables`, `packages`, by the libraries that were loaded, and `defaults` of
    their settings. `suspects`: what differs and explains what is worse, software with its version, a package with its
    folder; more than one where they cannot be told apart. `round_seconds`: how long a round took. `causes`: what
    exchanges of packages and variables, and those of defaults, came to.
    """

    system: str
    old: str
    new: str
    rounds: int
    margin: float
    changes: Changes
    failures: tuple[str, ...]
    left_out: tuple[str, ...]
    not_asked: tuple[str, ...]
    software: tuple[StackDifference, ...]
    variables: tuple[StackDifference, ...]
    packages: tuple[StackDifference, ...]
    defaults: tuple[StackDifference, ...]
    suspects: tuple[Component, ...]
    round_seconds: float
    causes: tuple[UpgradeCause, ...] = ()

    @property
    def answer(self) -> Answer:
        """Go, stay, or cannot say. A test that fails with the new environment alone means stay."""
        if self.failures:
            return Answer.WORSE
        known = self.changes.answer
        return Answer.CANNOT_SAY if self.left_out and known is not Answer.WORSE else known

    @property
    def variables_beside(self) -> tuple[StackDifference, ...]:
        """The variables that say more than the packages."""
        return _beside(self.packages, self.variables)

    @property
    def worst(self) -> UpgradeChange | None:
        """What is most surely worse; None where nothing is."""
        worse = (each for each in self.changes.all if each.answer is Answer.WORSE)
        return min(worse, key=lambda change: math.log(change.gain) / change.error, default=None)

    @property
    def exit_status(self) -> int:
        """0: go; 1: stay; 4: the data cannot say."""
        return {Answer.WORSE: 1, Answer.CANNOT_SAY: 4}.get(self.answer, 0)


@dataclass(frozen=True)
class _Side:
    """What one environment measured of a test: the runs in the order of their rounds, and the cases without one."""

    test: str
    cases: tuple[Case, ...]
    runs: tuple[Run, ...]
    bad: tuple[Case, ...]
    rounds: int

    @classmethod
    def of(cls, test: str, rounds: int, cases: Iterable[Case], suite: Suite, system: str) -> _Side:
        in_order = sorted(cases, key=lambda case: case.repetition)
        runs: list[Run] = []
        bad: list[Case] = []
        for case in in_order:
            files = case.result_files() if case.trusts_its_run else []
            read = [read_result(file, suite, system) for file in files]
            if not read or any(samples.wrong_bytes for run in read for samples in run.samples):
                bad.append(case)
            else:
                runs += read
        return cls(test, tuple(in_order), tuple(runs), tuple(bad), rounds)

    @property
    def is_implausible(self) -> bool:
        """Whether it measured, and what keeps it from counting are values above what the hardware can do alone."""
        judged = [case.judged for case in self.bad if case.judged is not None]
        codes = {each.code for own in judged for each in own.findings if each.verdict is Verdict.INVALID}
        return codes == {"implausible-value"} and [own.verdict for own in judged] == [Verdict.INVALID] * len(self.bad)

    @property
    def why(self) -> str:
        """Why it did not measure; empty where it always did."""
        if not self.cases:
            return f"no {self.test} in this environment"
        if not self.bad:
            ran = len(self.cases)
            return "" if ran == self.rounds else f"{self.test} ran {ran} of {self.rounds} times"
        told = next((each.message for each in problems_of_cases(self.bad[:1])), self.bad[0].reason or "no reason given")
        often = "" if len(self.bad) == len(self.cases) else f" ({len(self.bad)} of {len(self.cases)} launches)"
        return f"{told.splitlines()[0]}{often}"


@dataclass(frozen=True)
class UpgradeComparison:
    """What sessions measured with an old and a new environment, by test: the runs of each round, and either side.

    `failures` and `left_out` are those of an Upgrade; `rounds` is how many were whole.
    """

    pairs: Mapping[str, Sequence[tuple[Run, Run]]]
    sides: Mapping[str, tuple[_Side, _Side]]
    failures: tuple[str, ...]
    left_out: tuple[str, ...]
    rounds: int

    @classmethod
    def of(
        cls, sessions: Sequence[FinishedSession], suite: Suite, system: str, names: tuple[str, str]
    ) -> UpgradeComparison:
        """Of the environments `names`, the old and the new one."""
        old = names[0]
        every = [case for session in sessions for case in session.cases if case.environment in names]
        # Tests that wait for a build did not run either: that is the same failure.
        old_not_built, new_not_built = (list(_not_built(every, name)) for name in names)
        failures, left_out = [*new_not_built], [*old_not_built]
        rounds, tests = 0, dict[str, list[Case]]()
        for session in sessions:
            cases = [case for case in session.cases if not case.is_build and not case.does_not_apply]
            asked = max((case.repetition + 1 for case in cases), default=0)
            whole: Sequence[int] = range(asked)
            if session.interrupted:
                whole = _whole_rounds(cases)
                left_out.insert(0, f"the run was interrupted: {len(whole)} of {asked} rounds are compared")
            rounds += len(whole)
            for case in cases:
                if case.repetition in whole:
                    tests.setdefault(f"{case.name_without_repeat} @{case.partition}", []).append(case)
        pairs: dict[str, list[tuple[Run, Run]]] = {}
        sides: dict[str, tuple[_Side, _Side]] = {}
        for test, own in tests.items():
            before, after = (
                _Side.of(test, rounds, (case for case in own if case.environment == name), suite, system)
                for name in names
            )
            both = list(zip(before.runs, after.runs, strict=False))
            unlike = [reason for pair in both if (reason := _unlike(*pair))]
            if not before.cases:
                continue  # what only the new one can is no loss
            if before.why:
                left_out += [] if old_not_built else [f"{old}: {before.why}"]
            elif after.is_implausible:  # which is no loss
                left_out.append(f"{names[1]}: {after.why}")
            elif after.why:
                failures += [] if new_not_built else [after.why]
            elif unlike:
                left_out.append(unlike[0])
            else:
                pairs[test], sides[test] = both, (before, after)
        return cls(pairs, sides, tuple(failures), tuple(left_out), rounds)

    @property
    def round_seconds(self) -> float:
        """How long a round took, by when the runs started."""
        starts: list[datetime] = []
        for rounds in self.pairs.values():
            starts += [parse_utc(run.header["started_utc"]) for pair in rounds for run in pair]
        return (max(starts) - min(starts)).total_seconds() / (self.rounds - 1) if self.rounds > 1 and starts else 0.0


def judge_upgrade(
    sessions: Sequence[FinishedSession],
    suite: Suite,
    system: str,
    names: tuple[str, str],
    *,
    margin: float,
    looks: int = 1,
    percentile: float = 50.0,
) -> Upgrade:
    """Compares what sessions measured with the environments `names`, the old and the new one.

    `looks`: how often an answer is looked for before it stands; they share the probability of an error. `percentile` of
    the iterations' times.
    """
    comparison = UpgradeComparison.of(sessions, suite, system, names)
    sides, failures, left_out = comparison.sides.values(), comparison.failures, comparison.left_out
    smallest = SystemJudge.of(system, suite.root).policy.smallest_effect
    how = {"smallest_effect": smallest, "margin": margin, "percentile": percentile}
    try:
        changes = changes_of(comparison.pairs, looks=looks, **how)
    except UserError as error:
        changes = Changes((), (), ())
        left_out = (*left_out, str(error))
    if any(session.interrupted for session in sessions):
        left_out, failures = (*left_out, *failures), ()
    old, new = ([_software(side[number]) for side in sides] for number in (0, 1))
    software = _different([versions for versions, _ in old], [versions for versions, _ in new])
    variables = _different([tuning for _, tuning in old], [tuning for _, tuning in new])
    set_by_variable = {each.name for each in variables}
    settings = settings_changed(*(_runs_of(sides, number) for number in (0, 1)))
    packages = packages_changed(*([side[number].runs[0] for side in sides] for number in (0, 1)))
    told = [each for session in sessions for each in session.findings]
    return Upgrade(
        system,
        *names,
        comparison.rounds,
        margin,
        changes,
        tuple(dict.fromkeys(failures)),
        tuple(dict.fromkeys(left_out)),
        tuple(dict.fromkeys(each.message for each in told if each.code == "does-not-apply")),
        software,
        variables,
        packages,
        tuple(each for each in settings if each.name not in set_by_variable),
        _suspects(changes, comparison, software, variables),
        comparison.round_seconds,
    )


def _unlike(old: Run, new: Run) -> str:
    """What keeps the runs of a round from being comparable: other ranks, or another plan. Empty where nothing does."""

    def places(run: Run) -> list[tuple[str, str | None]]:
        return [(place.host, place.device.uuid if place.device else None) for place in run.ranks]

    different = ["where its ranks were"] if places(old) != places(new) else []
    if old.header["plan"]["series"] != new.header["plan"]["series"]:
        different.append("what was measured")
    told = f"{new.path}:1: differs from {old.path} in {', '.join(different)}: they cannot be compared"
    return told if different else ""


def _whole_rounds(cases: Iterable[Case]) -> Sequence[int]:
    """Those of which no test was cut off, an even number: what drifts cancels over A B, B A."""
    measured = Counter(case.repetition for case in cases if case.trusts_its_run and case.result_files())
    whole = sorted(number for number, of_round in measured.items() if of_round == max(measured.values()))
    return whole[: len(whole) // 2 * 2]


def _not_built(cases: Iterable[Case], environment: str) -> Iterator[str]:
    builds = [case for case in cases if case.is_build and case.environment == environment]
    yield from (each.message for each in problems_of_cases(builds) if each.verdict is not Verdict.PASS)


def _software(side: _Side) -> tuple[str, str]:
    """Versions and variables of the first round, as JSON."""
    run, case = side.runs[0], side.cases[0]
    return software_of(run, case, {}, {}), tuning_of(run, case)


def _runs_of(sides: Iterable[tuple[_Side, _Side]], number: int) -> list[Run]:
    return [run for side in sides for run in side[number].runs]


def _different(old_texts: Iterable[str], new_texts: Iterable[str]) -> tuple[StackDifference, ...]:
    """What differs between names and values, as JSON, of either side."""
    old, new = list(map(json.loads, old_texts)), list(map(json.loads, new_texts))

    def known(side: Sequence[Mapping[str, str]], name: str) -> str:
        return ", ".join(sorted({each[name] for each in side if name in each})) or NOTHING

    names = sorted({name for each in (*old, *new) for name in each})
    return tuple(
        StackDifference(name, known(old, name), known(new, name))
        for name in names
        if known(old, name) != known(new, name)
    )


def _beside(packages: Sequence[StackDifference], variables: Sequence[StackDifference]) -> tuple[StackDifference, ...]:
    """The variables that say more than the packages: what LD_PRELOAD has is loaded."""
    return tuple(each for each in variables if not (packages and each.name == "LD_PRELOAD"))


def _suspects(
    changes: Changes,
    comparison: UpgradeComparison,
    software: Sequence[StackDifference],
    variables: Sequence[StackDifference],
) -> tuple[Component, ...]:
    """What changed, and explains what is worse: software that is to blame, and packages and variables of which it is
    unknown what uses them. A package is loaded by more than what uses it, so that nothing clears it.
    """
    worse_classes = {each.of for each in changes.all if each.answer is Answer.WORSE}
    worse = [each for each in changes.metrics if each.answer is Answer.WORSE]
    worse = worse or [each for each in changes.metrics if each.of in worse_classes]
    others = [each for each in changes.metrics if each not in worse and each.of not in worse_classes]
    if not worse:
        return ()
    slow = [comparison.sides[test] for test in sorted({each.test for each in worse})]
    packages = packages_changed(*([side[number].runs[0] for side in slow] for number in (0, 1)))
    owners = owners_of_packages(packages)
    unknown = [package for package, own in zip(packages, owners, strict=True) if not own]
    if not packages:  # where it is unknown what was loaded, the modules of a job tell of packages
        known = {each.name for side in slow for each in software_crossed(ANY_MOVER, _software(side[1])[0])}
        unknown = [each for each in software if each.name not in known]
    return (
        *_blamed(worse, others, comparison.sides, frozenset[str]().union(*owners)),
        *(Component(Kind.LIBRARY, each.name, version=each.new) for each in unknown),
        *(Component(Kind.SETTING, each.name, version=each.new) for each in _beside(packages, variables)),
    )


def _blamed(
    worse: Sequence[UpgradeChange],
    others: Sequence[UpgradeChange],
    sides: Mapping[str, tuple[_Side, _Side]],
    replaced: frozenset[str],
) -> list[Component]:
    """Software that changed, and explains what is worse.

    It changed by its version, or by its package, whose owner is among the `replaced`.
    """
    old, new = (
        {test: software_crossed(test, _software(side[number])[0]) for test, side in sides.items()} for number in (0, 1)
    )
    before = {each: version for crossed in old.values() for each, version in crossed.items()}
    versions = {each: version for crossed in new.values() for each, version in crossed.items()}
    changed = {
        each for each, version in versions.items() if before.get(each) != version or library_owner(each) in replaced
    }
    rows = [*_rows(worse, new, changed, slow=True), *_rows(others, new, changed, slow=False)]
    causes = [named_of(each.components) for each in explain(rows)]
    components = dict.fromkeys(one for named in causes for one in named)
    return [Component(each.kind, each.name, version=versions[each]) for each in components]


def _rows(
    metrics: Sequence[UpgradeChange],
    crossed: Mapping[str, Iterable[Component]],
    changed: Collection[Component],
    *,
    slow: bool,
) -> Iterator[Row]:
    """Metrics as rows for `explain`, each with the changed software that its test crosses."""
    for metric in metrics:
        own = tuple(each for each in crossed[metric.test] if each in changed)
        loss, noise = -math.log(metric.gain), known_noise(metric.error)
        yield Row(metric.of, metric.quantity, loss, noise, slow, dict.fromkeys(own, 1.0), own)
