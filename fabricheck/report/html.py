"""Judged runs as one HTML file that needs nothing else: no network, no other file.

The page works without scripts: they only draw the figures, and each figure has a table that says the same. The script
that draws (plotly) and the figures' data are packed (gzip, base64) and unpacked by the browser. A content security
policy forbids every request, and every script but the two whose hashes it names: a name that slipped through the
escaping would still not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from fabricheck.errors import UserError
from fabricheck.history.compare import Comparison
from fabricheck.history.text import (
    alert_line,
    closed_line,
    comparison_counts,
    incident_evidence,
    incident_name,
    nothing_watched,
    side_runs,
    suspect_line,
    versions,
    watch_summary,
)
from fabricheck.history.watch import Watched
from fabricheck.judge.overall import count, coverage, overall, problems_of, rehearsed, verdict_of, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import PAIRS
from fabricheck.records.rehearsal import REHEARSAL
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Finding, Problem, Verdict
from fabricheck.report.content import (
    Facts,
    Group,
    facts_of,
    groups_of,
    judgements_of,
    label_of,
    ladder,
    name_of,
    number,
    percent,
    printable,
    reason_without_source,
    share_of_expected,
    short_message,
    together,
    who,
)
from fabricheck.report.embedded import own_file, packed, packed_plotly, plotly_hash, script_hash
from fabricheck.report.figures import Figure, Rows, figures_of
from fabricheck.report.figures.changes import changes_figure
from fabricheck.report.figures.history import incident_figure, overview, states_table
from fabricheck.report.node import Node, node_of_run
from fabricheck.report.past import Past
from fabricheck.report.places import places_of
from fabricheck.units import format_size, size_label

# What keeps the page short where a run is large; what is left out is counted where it would stand.
_MOST_NOT_PASSED = 30
_MOST_NAMED = 3  # of those with the same verdict
_MOST_ROWS = 64
_MOST_SOURCES = 6
_MOST_RANKS = 64
_MOST_PLACES = 12
_MOST_ALERTS = 12
_MOST_INCIDENTS_DRAWN = 6

_ORDER = list(Verdict)


@dataclass(frozen=True)
class _Row:
    """One metric, as texts; `bounds` are those of the reference."""

    who: str
    verdict: Verdict
    value: str
    interval: str
    expected: str
    share: str
    yardstick: str
    reason: str


@dataclass(frozen=True)
class _Table:
    """The metrics of a group of pairs, or of the groups of all collectives together, worst first.

    `hidden` counts those that are not among the rows.
    """

    name: str
    metric_names: str
    unit: str
    is_pairs: bool
    verdict: Verdict
    counts: tuple[tuple[Verdict, int], ...]
    worst: _Row
    rows: tuple[_Row, ...]
    hidden: tuple[tuple[Verdict, int], ...]
    sources: tuple[str, ...]
    more_sources: int


@dataclass(frozen=True)
class _Run:
    """A run as the template shows it; `problems` are verdicts with messages."""

    id: str
    verdict: Verdict
    facts: Facts
    counts: tuple[tuple[Verdict, int], ...]
    problems: tuple[tuple[Verdict, str], ...]
    tables: tuple[_Table, ...]
    node: Node | None
    figures: tuple[Figure, ...]
    ranks: tuple[Rank, ...]
    more_ranks: int


@dataclass(frozen=True)
class _NotPassed:
    """Something that is not PASS, for the top of the page."""

    run: _Run
    verdict: Verdict
    what: str
    reason: str


@dataclass(frozen=True)
class _Incident:
    """An incident of the history: `name` is the most probable place, `alerts` are texts."""

    name: str
    new: bool
    evidence: str
    alerts: tuple[str, ...]
    more_alerts: int


@dataclass(frozen=True)
class _History:
    """The history as the template shows it; `figures` has the overview, then the incidents."""

    summary: str
    warning: str
    incidents: tuple[_Incident, ...]
    closed: tuple[str, ...]
    more_closed: int
    figures: tuple[Figure, ...]
    states: Rows


@dataclass(frozen=True)
class _Side:
    name: str
    selection: str
    runs: str
    software: tuple[str, ...]


@dataclass(frozen=True)
class _Comparison:
    """A comparison as the template shows it."""

    counts: str
    sides: tuple[_Side, ...]
    software: tuple[str, ...]
    unequal: tuple[str, ...]
    suspects: tuple[str, ...]
    vanished: tuple[str, ...]
    new: tuple[str, ...]
    more_keys: int
    figures: tuple[Figure, ...]


def write_html(
    runs: Sequence[RunJudgement],
    path: Path,
    *,
    title: str,
    system: str,
    problems: Sequence[Problem] = (),
    findings: Sequence[Finding] = (),
    past: Past | None = None,
) -> None:
    """Writes the report of `runs` to `path`; `problems` and `findings` are those of the session that belong to no run.

    The file appears whole or not at all. Raises UserError where it cannot be written.
    """
    text = render_html(runs, title=title, system=system, problems=problems, findings=findings, past=past)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"the report {path} cannot be written: {error.strerror}") from None


def render_html(
    runs: Sequence[RunJudgement],
    *,
    title: str,
    system: str,
    problems: Sequence[Problem] = (),
    findings: Sequence[Finding] = (),
    past: Past | None = None,
) -> str:
    """The report as text. Everything that comes from a result file or a store is escaped.

    `past`: what the sample store adds.
    """
    past = past or Past()
    verdict, all_problems = overall(runs, problems)
    metrics = [each for run in runs for each in run.judgements]
    ranked = worst_first(runs)
    shown = [_run(each, f"run{place}") for place, each in enumerate(ranked, start=1)]
    not_passed = _not_passed(ranked, shown)
    history = _history(past.watched) if past.watched is not None else None
    comparison = _comparison(past.comparison) if past.comparison is not None else None
    result = past.watched.result if past.watched is not None else None
    places = places_of(ranked, all_problems, watched=result, comparison=past.comparison)
    # In the order of their places on the page.
    figures = [
        *(comparison.figures if comparison is not None else ()),
        *(history.figures if history is not None else ()),
        *(figure for run in shown for figure in run.figures),
    ]
    plots = ",".join(figure.plot for figure in figures)
    style, script = own_file("report.css"), own_file("report.js")
    return _template().render(
        title=title,
        system=system,
        verdict=verdict,
        rehearsal=REHEARSAL if rehearsed(runs) else "",
        problems=all_problems,
        findings=findings,
        places=places[:_MOST_PLACES],
        more_places=max(0, len(places) - _MOST_PLACES),
        coverage=coverage(runs).message,
        notes=past.notes,
        comparison=comparison,
        history=history,
        runs=shown,
        not_passed=not_passed[:_MOST_NOT_PASSED],
        more_not_passed=count(each.verdict for each in not_passed[_MOST_NOT_PASSED:]),
        run_counts=count(verdict_of(each) for each in runs),
        metric_counts=count(each.verdict for each in metrics),
        ladder=ladder(metrics),
        style=Markup(style),
        script=Markup(script),
        policy=Markup(
            f"default-src 'none'; script-src {script_hash(script.encode())} {plotly_hash()}; "
            "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
        ),
        plotly=packed_plotly(),
        plots=packed(f"[{plots}]".encode()),
    )


def _run(judged: RunJudgement, name: str) -> _Run:
    return _Run(
        id=name,
        verdict=verdict_of(judged),
        facts=facts_of(judged),
        counts=count(each.verdict for each in judged.judgements),
        problems=tuple((each.verdict, short_message(each, judged)) for each in problems_of(judged)),
        tables=tuple(_tables(groups_of(judged), len(judged.run.ranks))),
        node=node_of_run(judged),
        figures=figures_of(judged),
        ranks=judged.run.ranks[:_MOST_RANKS],
        more_ranks=max(0, len(judged.run.ranks) - _MOST_RANKS),
    )


def _history(found: Watched) -> _History:
    result = found.result
    incidents = result.open_incidents
    closed = [each for each in result.incidents if not each.open]
    drawn = [*incidents, *reversed(closed)][:_MOST_INCIDENTS_DRAWN]
    watched = any(result.count(status) for status in ("watched", "alert"))
    return _History(
        summary=watch_summary(result),
        warning="" if watched else nothing_watched(result),
        incidents=tuple(
            _Incident(
                incident_name(each),
                each.new,
                incident_evidence(each),
                tuple(map(alert_line, each.alerts[:_MOST_ALERTS])),
                max(0, len(each.alerts) - _MOST_ALERTS),
            )
            for each in incidents
        ),
        closed=tuple(map(closed_line, reversed(closed[-_MOST_ALERTS:]))),
        more_closed=max(0, len(closed) - _MOST_ALERTS),
        figures=(
            *([overview(found)] if len(found.series.sessions) > 1 else []),
            *(incident_figure(found, each) for each in drawn),
        ),
        states=states_table(result.states),
    )


def _comparison(found: Comparison) -> _Comparison:
    figure = changes_figure(found)
    vanished, new = found.vanished[:_MOST_ROWS], found.new[:_MOST_ROWS]
    return _Comparison(
        counts=comparison_counts(found),
        sides=tuple(
            _Side(name, side.selection, side_runs(side), tuple(map(versions, side.software[:_MOST_ALERTS])))
            for name, side in (("before", found.base), ("after", found.candidate))
        ),
        software=found.software_changes,
        unequal=found.unequal,
        suspects=tuple(map(suspect_line, found.suspects)),
        vanished=tuple(map(str, vanished)),
        new=tuple(map(str, new)),
        more_keys=len(found.vanished) + len(found.new) - len(vanished) - len(new),
        figures=(figure,) if figure is not None else (),
    )


def _tables(groups: Sequence[Group], world: int) -> Iterator[_Table]:
    """A table for each group of pairs, and one for the collectives of a schedule and quantity together."""
    for members in together(groups):
        first = members[0]
        names = f"{first.operation}_{first.schedule}_…_{size_label(first.bytes)}_{first.quantity}"
        if not first.is_pairs:
            names = f"…_{first.schedule}_…_{first.quantity}"
        yield _table(name_of(members), names, judgements_of(members), first, world)


def _table(name: str, metric_names: str, judgements: Sequence[Judgement], group: Group, world: int) -> _Table:
    rows = tuple(_row(each, world) for each in judgements[:_MOST_ROWS])
    sources = _sources(judgements, world)
    return _Table(
        name=name,
        metric_names=metric_names,
        unit=group.unit,
        is_pairs=group.is_pairs,
        verdict=judgements[0].verdict,
        counts=count(each.verdict for each in judgements),
        worst=rows[0],
        rows=rows,
        hidden=count(each.verdict for each in judgements[_MOST_ROWS:]),
        sources=sources[:_MOST_SOURCES],
        more_sources=max(0, len(sources) - _MOST_SOURCES),
    )


def _row(judged: Judgement, world: int) -> _Row:
    low, high = judged.interval
    expected = judged.expectation.expected
    return _Row(
        who=label_of(judged, world),
        verdict=judged.verdict,
        value=number(judged.value),
        interval=f"{number(low)} to {number(high)}",
        expected="-" if expected is None else number(expected),
        share=percent(share_of_expected(judged)),
        yardstick=_yardstick(judged),
        reason=reason_without_source(judged),
    )


def _yardstick(judged: Judgement) -> str:
    found = judged.yardstick
    if found is None:
        return judged.judged_by
    bound = f" (bound {number(found.bound)})" if found.bound != found.value else ""
    return f"{found.kind} {number(found.value)}{bound}"


def _sources(judgements: Sequence[Judgement], world: int) -> tuple[str, ...]:
    """Where the expected values and the references come from, each with whom it is about."""
    members: dict[str, list[str]] = {}
    for each in judgements:
        texts = [] if each.expectation.expected is None else [f"Expected: {each.expectation.source}"]
        yardstick = each.yardstick
        if yardstick is not None and yardstick.kind not in (
            "floor",
            "siblings",
        ):  # whose source is the expected value's
            texts.append(f"{yardstick.kind.capitalize()}: {yardstick.source}")
        for text in texts:
            label = who(each.samples, world)
            own = label if each.samples.operation in PAIRS else f"{each.samples.operation} {label}"
            members.setdefault(text, []).append(own)
    return tuple(
        text if len(names) == len(judgements) else f"{text} (for {', '.join(names[:4])}{'…' if len(names) > 4 else ''})"
        for text, names in members.items()
    )


def _not_passed(ranked: Sequence[RunJudgement], runs: Sequence[_Run]) -> list[_NotPassed]:
    """The problems, and what is not PASS of each group of metrics: who, worst first, and the reason of the worst."""
    found = []
    for judged, run in zip(ranked, runs, strict=True):
        found += [_NotPassed(run, verdict, "", message) for verdict, message in run.problems]
        for group in groups_of(judged):
            for verdict, alike in group.by_verdict.items():
                if verdict is Verdict.PASS:
                    continue
                named = [who(each.samples, len(judged.run.ranks)) for each in alike[:_MOST_NAMED]]
                more = f" and {len(alike) - _MOST_NAMED} more" if len(alike) > _MOST_NAMED else ""
                what = f"{group.name} {', '.join(named)}{more}"
                found.append(_NotPassed(run, verdict, what, reason_without_source(alike[0])))
    return sorted(found, key=lambda each: -_ORDER.index(each.verdict))


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fabricheck.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"number": number, "size": format_size}
    return environment.get_template("report.html.j2")


def _shown(value: object) -> object:
    """All that a template prints passes here, so that no name can be forgotten."""
    if isinstance(value, (Markup, int)) or (isinstance(value, str) and value.isascii() and value.isprintable()):
        return value
    return printable(value)
