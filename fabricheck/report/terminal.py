"""Judged runs as a table for a terminal: one screen, worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.judge.overall import rehearsed, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import is_mixed, is_rehearsal, marked
from fabricheck.records.verdict import Verdict
from fabricheck.report.cards import Card, cards_of
from fabricheck.report.content import (
    MetricGroup,
    counts,
    facts_of,
    groups_of,
    in_gigabytes,
    number,
    printable,
    ranks_text,
    reason_without_source,
    short_name,
    shown_kind,
    unit_shown,
    weakest,
)
from fabricheck.report.shares import map_of_gpus, share_of_yardstick
from fabricheck.report.summary import next_of_pass, summarise_counts
from fabricheck.units import format_size, plural

# Only PASS is green.
_COLORS = {
    Verdict.PASS.value: "green",
    Verdict.DEGRADED.value: "yellow",
    Verdict.FAIL.value: "red",
    Verdict.INCOMPLETE.value: "magenta",
    Verdict.INVALID.value: "bright_magenta",
}
_NARROWEST, _LOWEST = 40, 24
_INDENT = " " * 12
# How much is shown; the rest is counted, and verdict.json and the page have it: of causes and notes; of runs with
# metrics that are not PASS; of each of these groups of metrics, and metrics of a group that are not PASS.
_MOST_CARDS, _MOST_NOTES = 12, 8
_MOST_RUNS, _MOST_GROUPS, _MOST_METRICS = 8, 8, 2
# Runs that are PASS have a line for each group of metrics, where they are as few as this.
_FEW_RUNS = 2
_UNBROKEN = "\xa0"  # a blank of a command
_MOST_LINES = 3  # of a text; of the total and the next command, which are worth nothing cut off, twice as many


@dataclass(frozen=True)
class _Line:
    """Text, or a row of the table where `cells` are given; `label` is shown before it, a verdict in its colour."""

    label: str
    text: str = ""
    cells: tuple[str, ...] = ()


# Above the first row. The share is of the yardstick that decided; its value is beside it where there is room.
_HEADING = _Line("", cells=("metric", "ranks", "median", "", "share", "", "of"))
# Columns that are left out where it is narrow, which say the value a second time.
_SPARE_COLUMNS = (3, 5)


def render(
    runs: Sequence[RunJudgement],
    *,
    width: int,
    color: bool,
    height: int = 40,
    diagnosis: Diagnosis,
    system: str = "",
    folder: str = "",
) -> str:
    """Text of at most `width` columns and `height` lines, the worst first; lines without room are counted. A command of
    Fabricheck that has no room in a line is a longer one, which the terminal breaks and can be pasted.

    `system` and `folder`, that of the session, are for the commands to run next. A terminal has at least 40
    columns and 24 lines.
    """
    width, height = max(width, _NARROWEST), max(height, _LOWEST)
    cards = cards_of(runs, diagnosis, system=system, folder=folder)
    lines = [*_all_lines(runs, diagnosis, cards, width, system)]
    shown: list[str] = []
    left = height - 1
    texts = _layout(lines, width, color)
    for text in texts:
        left -= max(-(-len(click.unstyle(text)) // width), 1)
        if left < 0:
            break
        shown.append(text)
    if more := len(texts) - len(shown):
        shown.append(f"{_INDENT}and {plural(more, 'more line')}")
    return "\n".join(shown)


def _all_lines(
    runs: Sequence[RunJudgement], diagnosis: Diagnosis, cards: Sequence[Card], width: int, system: str
) -> Iterator[_Line]:
    ranked = worst_first(runs)
    yield from _first_lines(ranked, diagnosis.verdict, width, system)
    yield from _card_lines(cards, width)
    marks = is_mixed(run.run for run in runs)
    passed: list[RunJudgement] = []
    bad: list[RunJudgement] = []
    rest: list[RunJudgement] = []
    for run in ranked:
        if run.final_verdict is Verdict.PASS:
            passed.append(run)
        elif len(bad) < _MOST_RUNS and any(metric.verdict is not Verdict.PASS for metric in run.judgements):
            bad.append(run)
        else:
            rest.append(run)
    for run in bad:
        yield from _run_lines(run, width, marks=marks)
    if rest:
        yield _Line("", f"{_INDENT}and {plural(len(rest), 'more run')}: {counts([run.final_verdict for run in rest])}")
    yield from _finding_lines(diagnosis.findings, width)
    if len(passed) <= _FEW_RUNS:
        for run in passed:
            yield from _run_lines(run, width, marks=marks)
    else:
        yield _folded(passed)
    yield from (_Line("", line) for line in _map_lines(ranked, width))


def _first_lines(ranked: Sequence[RunJudgement], verdict: Verdict, width: int, system: str) -> Iterator[_Line]:
    """The verdict with what was counted and seen, and the next command."""
    totals, is_rehearsed = f"{summarise_counts(ranked)}; {coverage_of(ranked).message}", rehearsed(ranked)
    yield from _text(verdict.value, marked(totals, rehearsal=is_rehearsed), width, 2 * _MOST_LINES)
    if next_ := next_of_pass(verdict, ranked, system):
        yield from _text("", f"next: {next_}", width, 2 * _MOST_LINES)


def _text(label: str, text: str, width: int, most: int = _MOST_LINES, more: str = "") -> Iterator[_Line]:
    """A text of at most `most` lines behind its label; `more` as `_wrap` takes it."""
    first, *others = _wrap(text, width - len(_INDENT), most, more)
    yield _Line(label, first if label else f"{_INDENT}{first}")
    yield from (_Line("", f"{_INDENT}{line}") for line in others)


def _folded(runs: Sequence[RunJudgement]) -> _Line:
    metrics = [metric for run in runs for metric in run.judgements]
    text = f"{plural(len(runs), 'run')}, {plural(len(metrics), 'metric')}"
    weak = sum(metric.judged_by == "floor" for metric in metrics)
    return _Line(Verdict.PASS.value, f"{text}, {weak:,} only against the minimum" if weak else text)


def _run_lines(judged: RunJudgement, width: int, *, marks: bool) -> Iterator[_Line]:
    """`marks`: whether a rehearsal is marked here, where not all are one."""
    facts, verdict = facts_of(judged), judged.final_verdict
    title = marked(f"{facts.name}, {facts.where}", rehearsal=marks and is_rehearsal(judged.run))
    yield _Line(verdict.value, _clip(title, width - len(_INDENT)))
    if verdict is not Verdict.PASS:
        yield _Line("", _clip_left(f"{_INDENT}{printable(facts.path)}", width))
    groups = groups_of(judged)
    for group in groups[:_MOST_GROUPS]:
        yield from _group_lines(group, len(judged.run.ranks), width)
    if rest := [metric.verdict for group in groups[_MOST_GROUPS:] for metric in group.judgements]:
        yield _Line("", f"{_INDENT}and {plural(len(rest), 'more metric')}: {counts(rest)}")


def _card_lines(cards: Sequence[Card], width: int) -> Iterator[_Line]:
    """Each part with its loss and what to do next; of what names no part, the line for people."""
    for card in cards[:_MOST_CARDS]:
        if card.why is not None and not card.known:
            of_runs = f" ({len(card.findings)} runs)" if len(card.findings) > 1 else ""
            yield from _text(card.verdict.value, card.why.line, width, more=of_runs)
            continue
        loss = f"{'' if card.loss.startswith(('is ', 'loses ')) else ':'} {card.loss}"
        yield from _text("SUSPECT", f"{card.part}{loss}", width)
        for place, step in enumerate(card.next_):
            yield from _text("", f"{'then' if place else 'next'}: {step}", width, 2 * _MOST_LINES)
    if rest := cards[_MOST_CARDS:]:
        verdicts = counts([card.verdict for card in rest])
        yield _Line("", f"{_INDENT}and {plural(len(rest), 'more cause')}: {verdicts}")


def _finding_lines(findings: Sequence[Finding], width: int) -> Iterator[_Line]:
    for finding in findings[:_MOST_NOTES]:
        yield from _text("note", finding.message, width)
    if rest := len(findings[_MOST_NOTES:]):
        yield _Line("", f"{_INDENT}and {plural(rest, 'more note')}")


def _group_lines(group: MetricGroup, world: int, width: int) -> Iterator[_Line]:
    """Some of the bad ones each with its reason; the rest as a count and its worst."""
    for verdict, judgements in group.by_verdict.items():
        shown = 0 if verdict is Verdict.PASS else min(_MOST_METRICS, len(judgements))
        for judged in judgements[:shown]:
            yield _row(group, ranks_text(judged.samples, world), judged, judged.judged_by)
            yield from _text("", reason_without_source(judged), width)
        if rest := judgements[shown:]:
            label = ranks_text(rest[0].samples, world)
            if len(rest) > 1:
                label = f"{len(rest)}{' more' if shown else ''}, worst {label}"
            yield _row(group, label, rest[0], weakest(rest))


def _row(group: MetricGroup, label: str, worst: Judgement, judged_by: str) -> _Line:
    name = f"{group.operation} {format_size(group.bytes)}{' contended' if group.schedule == 'contended' else ''}"
    value, share = f"{number(worst.value)} {unit_shown(worst.unit)}", share_of_yardstick(worst)
    of = f"of {number(worst.yardstick.value)}" if worst.yardstick is not None and share else ""
    cells = (name, label, value, in_gigabytes(worst), share, of, shown_kind(judged_by))
    return _Line(worst.verdict.value, cells=cells)


def _layout(lines: Sequence[_Line], width: int, color: bool) -> list[str]:
    spare = width - len(_INDENT)
    first = next((place for place, line in enumerate(lines) if line.cells), None)
    if first is not None:
        lines = [*lines[:first], _HEADING, *lines[first:]]
    widths = _widths(lines, spare)
    texts = []
    for line in lines:
        if line.cells:
            content = _clip(_columns(line.cells, widths), spare)
        else:
            content = line.text if _UNBROKEN in line.text else _clip(line.text, spare if line.label else width)
        padding = " " * (len(_INDENT) - len(line.label)) if line.label or line.cells else ""
        styled = click.style(line.label, fg=_COLORS[line.label], bold=True) if color and line.label in _COLORS else ""
        texts.append(f"{styled or line.label}{padding}{content}".rstrip().replace(_UNBROKEN, " "))
    return texts


def _widths(lines: Sequence[_Line], spare: int) -> list[int]:
    """How wide each column of the table is in `spare` columns; 0 of one that is left out."""
    rows = [line.cells for line in lines if line.cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for column in (*_SPARE_COLUMNS, 0):
        more = sum(widths) + 2 * sum(size > 0 for size in widths[1:]) - spare
        if more > 0:
            # The metric's name gives way last: what comes after it is what the reader came for.
            widths[column] = max(widths[0] - more, 12) if column == 0 else 0
    return widths


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, ranks, *others, of = cells
    aligned = [_clip_operation(name, widths[0]).ljust(widths[0]), ranks.ljust(widths[1])]
    aligned += [cell.rjust(size) for cell, size in zip(others, widths[2:], strict=False)]
    aligned.append(of.ljust(widths[-1]))
    return "  ".join(cell for cell, size in zip(aligned, widths, strict=True) if size)


def _clip_operation(name: str, width: int) -> str:
    """The name of a metric, whose size is never lost: operations can be told apart by how they begin."""
    operation, blank, rest = name.partition(" ")
    return f"{_clip(operation, max(width - len(blank + rest), 1))}{blank}{rest}"


def _wrap(text: str, width: int, lines: int, more: str = "") -> list[str]:
    """A text of at most `lines` lines; its commands, between backticks, are not wrapped. `more` stands before them."""
    prose, *rest = printable(text).split("`")
    rest[::2] = [command.replace(" ", _UNBROKEN) for command in rest[::2]]
    whole = "".join([f"{prose.rstrip()}{more} " if more else prose, *rest])
    wrapper = textwrap.TextWrapper(width, max_lines=lines, placeholder=" …", break_on_hyphens=False)
    wrapper.break_long_words = not rest
    return wrapper.wrap(whole) or [""]


def _clip(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _clip_left(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else f"{_INDENT}…{text[len(text) - width + len(_INDENT) + 1 :]}"


_GBPS_OF_GB = 8.0
_WIDEST, _CELL = 9, 6  # columns of a cell: nvbandwidth's with two decimals, and the least, without


def _map_lines(runs: Sequence[RunJudgement], width: int) -> Iterator[str]:
    """The page's map of the GPUs of a node, as nvbandwidth prints it; nothing where none fits into `width` columns."""
    names = [short_name(run) if run.test else facts_of(run).what for run in runs]
    grid = map_of_gpus(runs, names, most=(width - 4) // _CELL)
    if grid is None:
        return
    width_of_cell = min(_WIDEST, (width - 4) // len(grid.columns))
    decimals = 2 if width_of_cell == _WIDEST else 0
    yield _clip(f"{grid.title} (GB/s, from row to column)", width)
    yield "    " + "".join(f"{label.split()[-1]:>{width_of_cell - 1}} " for label in grid.columns)
    verdicts = {each.verdict for row in grid.cells for each in row} - {None}
    for label, row in zip(grid.rows, grid.cells, strict=True):
        line = f"{label.split()[-1]:>3} "
        for pair in row:
            rate = "N/A" if pair.verdict is None else f"{pair.gbps / _GBPS_OF_GB:.{decimals}f}"
            line += rate.rjust(width_of_cell - 1) + (" " if pair.verdict in (None, Verdict.PASS) else "*")
        yield line
    if verdicts != {Verdict.PASS}:
        yield "    * is not PASS"
