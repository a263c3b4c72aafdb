"""The cards of a page and the suspects of a terminal: one for each cause, with its evidence and what to do next."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.diagnosis.causes import Cause, Diagnosis
from fabricheck.diagnosis.table import Group, Measurement
from fabricheck.history.text import incident_evidence, incident_name
from fabricheck.history.watch import WatchResult
from fabricheck.judge.overall import SEVERITY, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    facts_of,
    name_of_group,
    number,
    percent,
    ranks_text,
    short_message,
    short_name,
    unit_shown,
)
from fabricheck.report.lines import Explained, checks_to_name, headline, steps
from fabricheck.report.part_names import NodeParts
from fabricheck.suite import program
from fabricheck.units import few, plural

_MOST_EVIDENCE = 2
_LONGEST_TITLE = 240


@dataclass(frozen=True)
class Card:
    """One cause for people.

    `part`: its name for those who pull it, or the message where no part is `known`. `loss`: by how much against what.
    `source`: who says so; `evidence`: single observations, a line each. `next_`: commands and steps, in order. `link`:
    an id of the page. `findings`: those that it tells, `why`: the explanation of its code.
    """

    part: str
    verdict: Verdict
    source: str
    loss: str = ""
    evidence: tuple[str, ...] = ()
    next_: tuple[str, ...] = ()
    link: str = ""
    known: bool = True
    code: str = ""
    findings: tuple[Finding, ...] = ()
    why: Explained | None = None


def cards_of(
    runs: Sequence[RunJudgement],
    diagnosis: Diagnosis,
    *,
    system: str = "",
    watched: WatchResult | None = None,
) -> tuple[Card, ...]:
    """All causes, those that name a component first; none where nothing is wrong. `found`: the diagnosis of `runs`."""
    places = {id(each): place for place, each in enumerate(worst_first(runs), start=1)}
    writer = _Writer(runs, tuple(f"run{places[id(each)]}" for each in runs), NodeParts.of(runs), system)
    return (
        *(writer.card(each) for each in diagnosis.causes if each.finding.components),
        *writer.of_problems(diagnosis),
        *(writer.card(each) for each in diagnosis.causes if not each.finding.components),
        *_of_history(watched),
    )


@dataclass(frozen=True)
class _Writer:
    """`links`: the id of each run on the page, where the worst come first."""

    runs: Sequence[RunJudgement]
    links: Sequence[str]
    parts: NodeParts
    system: str

    def card(self, cause: Cause) -> Card:
        finding = cause.finding
        tests = [self.runs[number].test for number in cause.runs]
        first = steps(finding, system=self.system, tests=tests)[:1]
        next_ = (
            *(first if finding.code == "wrong-bytes" or cause.whole or not finding.components else ()),
            *self.parts.looks(finding.components),
            _again(tests, self.system),
        )
        told = list(dict.fromkeys(each.message for each in cause.told))
        evidence = [*told, *(self._evidence(cause, each.group, each.rows, each.ratio) for each in cause.worst_of_runs)]
        shown = told[: _MOST_EVIDENCE + (not cause.rows)]
        if not cause.rows:
            said, *more = told or [finding.message]
            evidence, loss = more, said.removeprefix(finding.place).lstrip(": ")
        else:
            loss = self._loss(cause)
        return Card(
            headline(finding) if cause.whole else self.parts.place(finding.components) or headline(finding),
            finding.verdict,
            self._source(cause),
            loss,
            _cut(evidence),
            tuple(filter(None, next_)),
            self.links[cause.runs[0]] if cause.rows else "",
            code=finding.code,
            findings=tuple(each for each in cause.told if each.message in shown),
            why=Explained.of(finding, self.system, "", tests),
        )

    def _source(self, cause: Cause) -> str:
        names = list(dict.fromkeys(facts_of(self.runs[number]).name for number in cause.runs))
        return (names[0] if len(names) == 1 else f"{len(names)} runs") if names else "session"

    def _loss(self, cause: Cause) -> str:
        """By how much all that a cause explains is slow, such as `6 measurements in 2 runs at 63 % of their peers`."""
        rows = cause.rows
        what, where = plural(len(rows), "measurement"), f" in {plural(len(cause.runs), 'run')}"
        wrong = sum(row.wrong for row in rows)
        if wrong == len(rows):
            return f"{what}{where} delivered wrong bytes"
        more = f"; {wrong} of them delivered wrong bytes" if wrong else ""
        if cause.whole:
            shares = [row.judgement.share_of_expected for row in rows if row.judgement.better == "higher"]
            against = "the expected rate"
            equally = "equally " if cause.finding.code != "no-healthy-majority" else ""
            what = f"all {what} {equally}slow" if len(rows) > 1 else f"{what} slow"
        else:
            shares, against = [each.ratio for each in cause.groups], "their peers"
        known = [each for each in shares if each is not None]
        if not known:
            return f"{what}{where}{more}" if cause.whole else f"{what}{where} slow{more}"
        low, high = percent(min(known)), percent(max(known))
        return f"{what}{where} at {low if low == high else f'{low} to {high}'} of {against}{more}"

    def _evidence(self, cause: Cause, group: Group, rows: Sequence[Measurement], ratio: float | None) -> str:
        """By how much against what."""
        judged = self.runs[group.run]
        world, first = len(judged.run.ranks), rows[0].judgement
        name, unit = f"{short_name(judged)}, {name_of_group(first)}", unit_shown(first.unit)
        kind = "pair" if group.pairs else "measurement"
        if wrong := [row for row in rows if row.wrong]:
            return f"{name}: {plural(len(wrong), kind)} delivered wrong bytes ({_named(wrong, world)})"
        value = f"{number(statistics.median(row.judgement.value for row in rows))} {unit}"
        if cause.whole and cause.finding.code == "no-healthy-majority":
            ends = sorted(rows, key=lambda row: row.judgement.value, reverse=first.better != "higher")
            worst, best = (
                f"{number(row.judgement.value)} {unit} ({ranks_text(row.judgement.samples, world)})"
                for row in (ends[0], ends[-1])
            )
            return f"{name}: all {len(rows)} {kind}s slow, from {worst} to {best}"
        if cause.whole:
            known = [share for row in rows if (share := row.judgement.share_of_expected) is not None]
            against = f", {percent(statistics.median(known))} of expected" if known else ""
            return f"{name}: {'' if len(rows) == 1 else f'all {len(rows)} {kind}s equally slow, '}{value}{against}"
        against = ""
        if ratio is not None:
            usual = number(statistics.median(row.judgement.value for row in group.fast))
            equals = "its one peer" if len(group.fast) == 1 else f"the {len(group.fast)} others'"
            against = f", {percent(ratio)} of {equals} {usual} {unit}"
        is_part = any(each.kind.value != "path" for each in cause.finding.components)
        how_many = f"all {len(rows)} {kind}s over it" if is_part and len(rows) > 1 else plural(len(rows), kind)
        return f"{name}: {how_many} at {value}{against} ({_named(rows, world)})"

    def of_problems(self, diagnosis: Diagnosis) -> Iterator[Card]:
        """What was not measured, or not what was requested: the first problem of each run, which is the cause."""
        problems: dict[tuple[Verdict, str, str, tuple[str, ...]], list[tuple[Finding, str, str]]] = {}
        shown = {each for cause in diagnosis.causes for each in cause.told}
        for problem in diagnosis.problems:
            if not problem.components:
                key = (problem.verdict, problem.code, problem.message, steps(problem, system=self.system)[:1])
                problems.setdefault(key, []).append((problem, "session", ""))
        for judged, link in zip(self.runs, self.links, strict=True):
            for problem in judged.all_problems[:1]:
                if problem not in shown:
                    first = steps(problem, system=self.system)[:1]
                    key = (problem.verdict, problem.code, short_message(problem, judged), first)
                    problems.setdefault(key, []).append((problem, facts_of(judged).name, link))
        for (verdict, code, message, _), where in sorted(problems.items(), key=lambda item: -SEVERITY[item[0][0]]):
            names = [name for _, name, link in where if link]
            title = message if len(message) <= _LONGEST_TITLE else f"{message[:_LONGEST_TITLE]}…"
            first = steps(where[0][0], system=self.system, tests=names)[:1]
            next_ = tuple(filter(None, (*first, _again(names, self.system))))
            loss = f"in {few(names, between='; ')}" if names else ""
            yield Card(
                title,
                verdict,
                "session",
                loss,
                next_=next_,
                link=where[0][2],
                known=False,
                code=code,
                findings=tuple(problem for problem, _, _ in where),
                why=Explained.of(where[0][0], self.system, message, names),
            )


def _of_history(watched: WatchResult | None) -> Iterator[Card]:
    if watched is None:
        return
    for incident in watched.open_incidents:
        step = f"{program()} watch --system {watched.system}"
        evidence = incident_evidence(incident)
        yield Card(incident_name(incident), Verdict.DEGRADED, "history", evidence, (), (step,), "history")


def _named(rows: Sequence[Measurement], world: int) -> str:
    return few([ranks_text(row.judgement.samples, world) for row in rows])


def _cut(evidence: Sequence[str]) -> tuple[str, ...]:
    more = len(evidence) - _MOST_EVIDENCE
    return (*evidence[:_MOST_EVIDENCE], f"and {more} more like this") if more > 0 else tuple(evidence)


def _again(tests: Sequence[str], system: str) -> str:
    """The command that measures the same tests again; empty where they are unknown."""
    names = checks_to_name(tests)
    return f"{program()} run --system {system} --name {names}" if names and system else ""
