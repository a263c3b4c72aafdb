"""Judged runs as a table for a terminal: one screen, worst first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from fabricheck.judge.overall import count, coverage, overall, problems_of, rehearsed, verdict_of, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import marked
from fabricheck.records.verdict import Finding, Problem, Verdict
from fabricheck.report.content import (
    Group,
    facts_of,
    groups_of,
    in_gigabytes,
    ladder,
    number,
    percent,
    plural,
    printable,
    share_of_expected,
    short_message,
    weakest,
    who,
)
from fabricheck.report.suspects import NO_PART, Suspect, suspects_of
from fabricheck.report.text_matrix import matrices
from fabricheck.units import format_size

# Only PASS is green.
_COLORS = {
    Verdict.PASS: "green",
    Verdict.DEGRADED: "yellow",
    Verdict.FAIL: "red",
    Verdict.INCOMPLETE: "magenta",
    Verdict.INVALID: "bright_magenta",
}
_NARROWEST, _LOWEST, _SPARE_COLUMN = 40, 24, 3
_INDENT = " " * 12


@dataclass(frozen=True)
class _Detail:
    """How much is shown of what; the rest is counted.

    `runs` that are not PASS, `passes` that get a line of their own, and `passes_whole` whether that is more than one
    line; for each run its `problems` and `groups` of metrics, for each group the `metrics` that are not PASS.
    `matrices` of pairs, of all runs together.
    """

    runs: int
    passes: int
    passes_whole: bool
    problems: int
    metrics: int
    groups: int
    reason_lines: int
    matrices: int = 0


_ALL = 1_000_000
# From everything to the least; the first that fits is taken. What is PASS gives way first.
_DETAILS = (
    *(_Detail(_ALL, _ALL, True, _ALL, _ALL, _ALL, 100, matrices) for matrices in (2, 1, 0)),
    _Detail(_ALL, _ALL, True, _ALL, 8, _ALL, 4),
    _Detail(_ALL, _ALL, False, 20, 8, _ALL, 4, 2),
    _Detail(_ALL, _ALL, False, 20, 3, _ALL, 3, 1),
    _Detail(_ALL, 0, False, 20, 3, _ALL, 3, 1),
    _Detail(_ALL, 0, False, 10, 2, 8, 3, 1),
    _Detail(_ALL, 0, False, 4, 1, 4, 2, 1),
    _Detail(_ALL, 0, False, 2, 1, 1, 2, 1),
    _Detail(_ALL, 0, False, 2, 1, 1, 2),
    *(_Detail(runs, 0, False, 2, 1, 1, 1) for runs in (8, 4, 2, 1)),
    _Detail(1, 0, False, 1, 0, 1, 1),
)


@dataclass(frozen=True)
class _Line:
    """Text, or a row of the table where `cells` are given. `verdict` is shown before it in its colour, else `label`.

    `narrow` is the row where there is no room for that; what stands at `_SPARE_COLUMN` in it gives way next.
    """

    verdict: Verdict | None
    text: str
    cells: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    label: str = ""


def render(
    runs: Sequence[RunJudgement],
    *,
    width: int,
    color: bool,
    height: int = 40,
    problems: Sequence[Problem] = (),
    findings: Sequence[Finding] = (),
    system: str = "",
) -> str:
    """Text of at most `width` columns and, by folding what is better to counts, at most `height` lines.

    `problems` and `findings` are those of the session that belong to no run; `system` is for the commands
    to run next. A terminal has at least 40 columns and 24 lines.
    """
    width, height = max(width, _NARROWEST), max(height, _LOWEST)
    text: list[str] = []
    for detail in _DETAILS:
        text = _layout(list(_lines(runs, problems, findings, detail, width=width, system=system)), width, color)
        if len(text) <= height:
            break
    return "\n".join(text)


def _lines(
    runs: Sequence[RunJudgement],
    problems: Sequence[Problem],
    findings: Sequence[Finding],
    detail: _Detail,
    *,
    width: int,
    system: str,
) -> Iterator[_Line]:
    verdict, problems = overall(runs, problems)
    first, *more = _wrap(marked(_totals(runs), rehearsal=rehearsed(runs)), width - 12, 3)
    yield _Line(verdict, first)
    yield from (_Line(None, f"{_INDENT}{line}") for line in more)
    ranked = worst_first(runs)
    suspects = _parts_of(suspects_of(ranked, problems, findings=findings, system=system))
    yield from _suspect_lines(suspects, detail, width)
    told = {line for each in suspects[: detail.problems] for line in each.evidence}
    untold = ((each.verdict, each.message) for each in problems if each.message not in told)
    yield from _problem_lines(untold, detail, width)
    bad = [each for each in ranked if verdict_of(each) is not Verdict.PASS]
    passes = ranked[len(bad) :]
    for each in bad[: detail.runs]:
        yield from _run_lines(each, detail, width)
    if rest := bad[detail.runs :]:
        yield _Line(None, f"{_INDENT}and {plural(len(rest), 'more run')}: {_counts(verdict_of(each) for each in rest)}")
    yield from _finding_lines(findings, detail, width)
    for each in passes[: detail.passes]:
        yield from _run_lines(each, detail, width)
    if passes[detail.passes :]:
        yield _folded(passes[detail.passes :])
    for lines in matrices(ranked, width, detail.matrices):
        yield from (_Line(None, line) for line in lines)


def _folded(runs: Sequence[RunJudgement]) -> _Line:
    metrics = [each for run in runs for each in run.judgements]
    text = f"{plural(len(runs), 'run')}, {plural(len(metrics), 'metric')}"
    shares = [
        (share, each.name)
        for each in metrics
        if each.better == "higher" and (share := share_of_expected(each)) is not None
    ]
    if shares:
        share, name = min(shares)
        text += f", lowest {percent(share)} of expected ({name})"
    return _Line(Verdict.PASS, text)


def _totals(runs: Sequence[RunJudgement]) -> str:
    metrics = [each for run in runs for each in run.judgements]
    text = plural(len(runs), "run")
    if runs:
        text += f": {_counts(verdict_of(each) for each in runs)}"
    text += f"; {plural(len(metrics), 'metric')}"
    if metrics:
        text += f": {_counts(each.verdict for each in metrics)}"
        text += f", judged by {ladder(metrics)}" if ladder(metrics) else ""
    return f"{text}; {coverage(runs).message}"


def _counts(verdicts: Iterable[Verdict]) -> str:
    return ", ".join(f"{number_} {verdict.value}" for verdict, number_ in count(verdicts))


def _run_lines(judged: RunJudgement, detail: _Detail, width: int) -> Iterator[_Line]:
    facts, verdict = facts_of(judged), verdict_of(judged)
    if verdict is Verdict.PASS and not detail.passes_whole:
        end = f": {plural(len(judged.judgements), 'metric')}"
        yield _Line(verdict, _clip(f"{facts.name}, {facts.where}", width - 12 - len(end)) + end)
        return
    yield _Line(verdict, _clip(f"{facts.name}, {facts.where}", width - 12))
    if verdict is not Verdict.PASS:
        yield _Line(None, _clip_left(f"{_INDENT}{printable(facts.path)}", width))
    messages = ((each.verdict, short_message(each, judged)) for each in problems_of(judged))
    yield from _problem_lines(messages, detail, width)
    groups = groups_of(judged)
    for group in groups[: detail.groups]:
        yield from _group_lines(group, len(judged.run.ranks), detail, width)
    if rest := [each for group in groups[detail.groups :] for each in group.judgements]:
        yield _Line(None, f"{_INDENT}and {plural(len(rest), 'more metric')}: {_counts(each.verdict for each in rest)}")


def _problem_lines(messages: Iterable[tuple[Verdict, str]], detail: _Detail, width: int) -> Iterator[_Line]:
    all_ = list(messages)
    for verdict, message in all_[: detail.problems]:
        first, *more = _wrap(message, width - 12, detail.reason_lines)
        yield _Line(verdict, first)
        yield from (_Line(None, f"{_INDENT}{line}") for line in more)
    if rest := all_[detail.problems :]:
        yield _Line(
            None, f"{_INDENT}and {plural(len(rest), 'more problem')}: {_counts(verdict for verdict, _ in rest)}"
        )


def _parts_of(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Parts that are at fault; what names no part has its own line among the problems."""
    return [each for each in suspects if (each.loss and each.source != "session") or each.part == NO_PART]


def _suspect_lines(parts: Sequence[Suspect], detail: _Detail, width: int) -> Iterator[_Line]:
    """Each part with its loss and what to do next."""
    for each in parts[: detail.problems]:
        first, *more = _wrap(f"{each.part}: {each.loss}", width - 12, 3)
        yield _Line(None, first, label="SUSPECT")
        steps = _wrap(f"next: {', then '.join(each.next_)}", width - 12, 2) if each.next_ else []
        yield from (_Line(None, f"{_INDENT}{line}") for line in (*more, *steps))
    if rest := len(parts[detail.problems :]):
        yield _Line(None, f"{_INDENT}and {plural(rest, 'more suspect')}")


def _finding_lines(findings: Sequence[Finding], detail: _Detail, width: int) -> Iterator[_Line]:
    for each in findings[: detail.problems]:
        first, *more = _wrap(each.message, width - 12, detail.reason_lines)
        yield _Line(None, first, label="finding")
        yield from (_Line(None, f"{_INDENT}{line}") for line in more)
    if rest := len(findings[detail.problems :]):
        yield _Line(None, f"{_INDENT}and {plural(rest, 'more finding')}")


def _group_lines(group: Group, world: int, detail: _Detail, width: int) -> Iterator[_Line]:
    """The bad ones each with its reason, as many as the detail allows; the rest as a count and its worst."""
    for verdict, judgements in group.by_verdict.items():
        shown = 0 if verdict is Verdict.PASS else min(detail.metrics, len(judgements))
        for each in judgements[:shown]:
            label = who(each.samples, world)
            yield _row(group, (label, label), each, each.judged_by)
            for line in _wrap(each.reason, width - 12, detail.reason_lines):
                yield _Line(None, f"{_INDENT}{line}")
        if rest := judgements[shown:]:
            label = who(rest[0].samples, world)
            labels = label, label
            if len(rest) > 1:
                some = f"{len(rest)}{' more' if shown else ''}"
                kind = "pairs" if group.is_pairs else "groups"
                labels = f"{some} {kind} {verdict.value}, worst {label}", f"{some}, worst {label}"
            yield _row(group, labels, rest[0], weakest(rest))


def _row(group: Group, labels: tuple[str, str], worst: Judgement, judged_by: str) -> _Line:
    """A row; where it is narrow without what the unit and the percentage say already. `labels`: wide and narrow."""
    expected = worst.expectation.expected
    value, also = f"{number(worst.value)} {worst.unit}", in_gigabytes(worst)
    share = percent(share_of_expected(worst)) if expected is not None else ""
    of = f"of {number(expected)}" if expected is not None else ""
    name = f"{group.operation} {format_size(group.bytes)}{' contended' if group.schedule == 'contended' else ''}"
    return _Line(
        worst.verdict,
        "",
        (group.name, labels[0], value, also, of, share, judged_by),
        (name, labels[1], value, also, "", share, judged_by),
    )


def _layout(lines: Sequence[_Line], width: int, color: bool) -> list[str]:
    spare = width - 12
    lines, widths = _fitting(lines, spare)
    text = []
    for line in lines:
        content = _columns(line.cells, widths) if line.cells else line.text
        label = line.verdict.value if line.verdict is not None else line.label
        content = _clip(content, spare if label else width)
        padding = " " * (12 - len(label)) if label else ""
        styled = click.style(label, fg=_COLORS[line.verdict], bold=True) if color and line.verdict else label
        text.append(f"{styled}{padding}{content}".rstrip())
    return text


def _fitting(lines: Sequence[_Line], spare: int) -> tuple[Sequence[_Line], list[int]]:
    """The lines with the widest rows that fit into `spare` columns, and how wide each column of them is."""
    narrow = [replace(each, cells=each.narrow) for each in lines]
    cut = [replace(each, cells=_without(each.narrow, _SPARE_COLUMN)) for each in lines]
    widths: list[int] = []
    for form in (lines, narrow, cut):
        rows = [line.cells for line in form if line.cells]
        widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
        others = sum(widths[1:]) + 2 * sum(size > 0 for size in widths[1:])
        if not widths or widths[0] + others <= spare:
            return form, widths
    # The metric's name first: what comes after it is what the reader came for.
    return cut, [max(spare - others, 12), *widths[1:]]


def _without(cells: tuple[str, ...], column: int) -> tuple[str, ...]:
    return tuple("" if place == column else cell for place, cell in enumerate(cells))


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.rjust(size) if 2 <= position <= 5 else _clip(cell, size).ljust(size)
        for position, (cell, size) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(cell for cell, size in zip(aligned, widths, strict=True) if size)


def _wrap(text: str, width: int, lines: int) -> list[str]:
    wrapped = textwrap.wrap(printable(text), width, max_lines=lines, placeholder=" …", break_on_hyphens=False)
    return wrapped or [""]


def _clip(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _clip_left(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else f"{_INDENT}…{text[len(text) - width + len(_INDENT) + 1 :]}"
