"""The cards of a page and the suspects of a terminal: one for each cause, with its evidence and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.diagnosis.causes import Affected, Cause, Diagnosis
from fabricheck.history.text import incident_evidence, incident_name
from fabricheck.history.watch import WatchResult
from fabricheck.judge.overall import SEVERITY, badness, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    facts_of,
    name_of_group,
    number,
    percent,
    plain,
    ranks_text,
    short_message,
    short_name,
    unit_shown,
)
from fabricheck.report.lines import Explained, checks_to_name, headline, marked_steps
from fabricheck.report.part_names import NodeParts
from fabricheck.suite import program
from fabricheck.units import few, plural

_MOST_EVIDENCE = 2
_LONGEST_TITLE = 240


@dataclass(frozen=True)
class Card:
    """One cause for people.

    `part`: its name for those who pull it, or the message where no part is `known`. `loss`: by how much against what.
    `source`: who says so; `evidence`: single observations, a line each. `next_`: steps in order, commands between
    backticks. `link`: an id of the page. `findings`: those that it tells, `why`: the explanation of its code.
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
    folder: str = "",
    watched: WatchResult | None = None,
) -> tuple[Card, ...]:
    """All causes, those that name a component first; none where nothing is wrong. `system` and `folder`, that of the
    session, are for commands."""
    system = plain(system)
    places = {id(each): place for place, each in enumerate(worst_first(runs), start=1)}
    writer = _Writer(runs, tuple(f"run{places[id(each)]}" for each in runs), NodeParts.of(runs), system, folder)
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
    folder: str

    def card(self, cause: Cause) -> Card:
        finding = cause.finding
        tests = [self.runs[number].test for number in cause.runs]
        first = marked_steps(finding, system=self.system, run=self.folder, tests=tests)[:1]
        next_ = (
            *(first if finding.code == "wrong-bytes" or cause.whole or not finding.components else ()),
            *self.parts.looks(finding.components),
            _again(tests, self.system),
        )
        messages = list(dict.fromkeys(each.message for each in cause.told))
        if cause.rows:
            loss = self._loss(cause)
            evidence = [*messages, *(self._evidence(affected) for affected in cause.worst_of_runs)]
        else:
            first_message, *evidence = messages or [finding.message]
            loss = first_message.removeprefix(finding.place).lstrip(": ")
        shown = messages[: _MOST_EVIDENCE + (not cause.rows)]
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
            why=Explained.of(finding, self.system, self.folder, "", tests),
        )

    def _source(self, cause: Cause) -> str:
        names = list(dict.fromkeys(facts_of(self.runs[number]).name for number in cause.runs))
        return (names[0] if len(names) == 1 else f"{len(names)} runs") if names else "session"

    def _loss(self, cause: Cause) -> str:
        """By how much all that a cause explains is slow, such as `6 measurements in 2 runs at 63 % of their peers`."""
        rows = cause.rows
        text = f"{plural(len(rows), 'measurement')} in {plural(len(cause.runs), 'run')}"
        if wrong := sum(row.wrong for row in rows):
            return f"{text}, {wrong} with wrong bytes"
        shares, of = [each.ratio for each in cause.groups], "their peers"
        if cause.whole:
            goodputs = [row.judgement for row in rows if row.judgement.better == "higher"]
            shares, of = [judged.share_of_expected for judged in goodputs], "the expected rate"
            text = f"all {text}"
        known = [share for share in shares if share is not None]
        if not known:
            return f"{text} slow"
        low, high = percent(min(known)), percent(max(known))
        return f"{text} at {low if low == high else f'{low} to {high}'} of {of}"

    def _evidence(self, affected: Affected) -> str:
        """What was measured of one question in a run: its worst row, and how many others there are."""
        judged = self.runs[affected.group.run]
        worst = min((row.judgement for row in affected.rows), key=badness)
        text = f"{short_name(judged)}, {name_of_group(worst)}: {ranks_text(worst.samples, len(judged.run.ranks))}"
        more = f", and {len(affected.rows) - 1} more" if len(affected.rows) > 1 else ""
        return f"{text} {number(worst.value)} {unit_shown(worst.unit)}{more}"

    def of_problems(self, diagnosis: Diagnosis) -> Iterator[Card]:
        """What was not measured, or not what was requested: the first problem of each run, which is the cause."""
        problems: dict[tuple[Verdict, str, str], list[tuple[Finding, str, str]]] = {}
        shown = {each for cause in diagnosis.causes for each in cause.told}
        for problem in diagnosis.problems:
            if not problem.components:
                key = (problem.verdict, problem.code, problem.message)
                problems.setdefault(key, []).append((problem, "session", ""))
        for judged, link in zip(self.runs, self.links, strict=True):
            for problem in judged.all_problems[:1]:
                if problem not in shown:
                    key = (problem.verdict, problem.code, short_message(problem, judged))
                    problems.setdefault(key, []).append((problem, facts_of(judged).name, link))
        for (verdict, code, message), where in sorted(problems.items(), key=lambda item: -SEVERITY[item[0][0]]):
            names = [name for _, name, link in where if link]
            title = message if len(message) <= _LONGEST_TITLE else f"{message[:_LONGEST_TITLE]}…"
            first = marked_steps(where[0][0], system=self.system, run=self.folder, tests=names)[:1]
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
                why=Explained.of(where[0][0], self.system, self.folder, message, names),
            )


def _of_history(watched: WatchResult | None) -> Iterator[Card]:
    if watched is None:
        return
    for incident in watched.open_incidents:
        step = f"`{program()} watch --system {plain(watched.system)}`"
        evidence = incident_evidence(incident)
        yield Card(incident_name(incident), Verdict.DEGRADED, "history", evidence, (), (step,), "history")


def _cut(evidence: Sequence[str]) -> tuple[str, ...]:
    more = len(evidence) - _MOST_EVIDENCE
    return (*evidence[:_MOST_EVIDENCE], f"and {more} more like this") if more > 0 else tuple(evidence)


def _again(tests: Sequence[str], system: str) -> str:
    """The command that measures the same tests again; empty where they are unknown."""
    names = checks_to_name(tests)
    return f"`{program()} run --system {system} --name {names}`" if names and system else ""
