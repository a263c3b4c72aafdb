"""Judged runs as a table for a terminal: one screen, worst first."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.judge.overall import SEVERITY, overall, rehearsed, worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import is_mixed, is_rehearsal, marked
from fabricheck.records.verdict import Verdict
from fabricheck.report.cards import Card, cards_of
from fabricheck.report.content import (
    MetricGroup,
    count,
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
from fabricheck.report.lines import ShownProblem, problems_shown_once, summary
from fabricheck.report.shares import indirectness, share_of_yardstick
from fabricheck.report.summary import next_of_pass, smallest_losses, summarise_counts
from fabricheck.suite import program
from fabricheck.units import format_size, plural

# Only PASS is green.
_COLORS = {
    Verdict.PASS: "green",
    Verdict.DEGRADED: "yellow",
    Verdict.FAIL: "red",
    Verdict.INCOMPLETE: "magenta",
    Verdict.INVALID: "bright_magenta",
}
_NARROWEST, _LOWEST = 40, 24
# Columns of a row that give way where it is narrow: what says the value a second time, then what judged it.
_SPARE_COLUMNS = (3, 6)
# Lines of the total and of what to do next, which are worth nothing cut off.
_MOST_LINES = 6
_INDENT = " " * 12


@dataclass(frozen=True)
class _Detail:
    """How much is shown of what; the rest is counted.

    `runs` that are not PASS, `passes` that get a line of their own, and `passes_whole` whether that is more than one
    line; for each run its `problems` and `groups` of metrics, for each group the `metrics` that are not PASS.
    `suspects` and problems of the session, and `matrices` of pairs, of all runs together.
    """

    runs: int
    passes: int
    passes_whole: bool
    problems: int
    metrics: int
    groups: int
    reason_lines: int
    suspects: int
    matrices: int = 0

    @property
    def messages(self) -> bool:
        """Whether there is room for the level below a finding's line."""
        return self.reason_lines > 3


_ALL = 1_000_000
# From everything to the least; the first that fits is taken. What is PASS gives way first.
_DETAILS = (
    *(_Detail(_ALL, _ALL, True, _ALL, _ALL, _ALL, 100, _ALL, matrices) for matrices in (2, 1, 0)),
    _Detail(_ALL, _ALL, True, _ALL, 8, _ALL, 4, _ALL),
    _Detail(_ALL, _ALL, False, 20, 8, _ALL, 4, 20, 2),
    _Detail(_ALL, _ALL, False, 20, 3, _ALL, 3, 20, 1),
    _Detail(_ALL, 0, False, 20, 3, _ALL, 3, 20, 1),
    _Detail(_ALL, 0, False, 10, 2, 8, 3, 10, 1),
    _Detail(_ALL, 0, False, 4, 1, 4, 2, 8, 1),
    _Detail(_ALL, 0, False, 2, 1, 1, 2, 8, 1),
    _Detail(_ALL, 0, False, 2, 1, 1, 2, 8),
    *(_Detail(runs, 0, False, 2, 1, 1, 1, 8) for runs in (8, 4, 2, 1)),
    *(_Detail(1, 0, False, 1, 0, 1, 1, suspects) for suspects in (6, 4, 2, 1)),
    _Detail(1, 0, False, 1, 0, 0, 1, 1),
)


@dataclass(frozen=True)
class _Line:
    """Text, or a row of the table where `cells` are given. `verdict` is shown before it in its colour, else `label`.

    `narrow` is the row where there is no room for that; what stands at `_SPARE_COLUMNS` in it gives way next, and then
    `short` stands for its second cell.
    """

    verdict: Verdict | None
    text: str
    cells: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    label: str = ""
    short: str = ""


def render(
    runs: Sequence[RunJudgement],
    *,
    width: int,
    color: bool,
    height: int = 40,
    diagnosis: Diagnosis,
    system: str = "",
) -> str:
    """Text of at most `width` columns and, by folding what is better to counts, at most `height` lines. A command of
    Fabricheck that has no room in a line is a longer one, which the terminal breaks and can be pasted.

    `problems` and `findings` are those of the session that belong to no run; `system` is for the commands
    to run next. A terminal has at least 40 columns and 24 lines.
    """
    width, height = max(width, _NARROWEST), max(height, _LOWEST)
    ranked = worst_first(runs)
    verdict, problems = overall(runs, diagnosis.problems)
    findings, suspects = diagnosis.findings, cards_of(runs, diagnosis, system=system)
    told = [*zip(ranked, problems_shown_once(ranked), strict=True)]
    head = [*_first_lines(ranked, verdict, width, system)]
    for detail in _DETAILS:
        lines = _lines(told, problems, findings, suspects, detail=detail, width=width, system=system)
        text = _layout([*head, *lines], width, color)
        if sum(max(-(-len(click.unstyle(line)) // width), 1) for line in text) <= height:
            break
    return "\n".join(text)


def _first_lines(ranked: Sequence[RunJudgement], verdict: Verdict, width: int, system: str) -> Iterator[_Line]:
    """The verdict with what was counted and seen, and the next command: the same in every detail."""
    totals, is_rehearsed = f"{summarise_counts(ranked)}; {coverage_of(ranked).message}", rehearsed(ranked)
    if is_rehearsed and (losses := smallest_losses(ranked)):
        totals += f"; {losses}"
    first, *more = _wrap(marked(totals, rehearsal=is_rehearsed), width - 12, _MOST_LINES)
    yield _Line(verdict, first)
    if next_ := next_of_pass(verdict, ranked, system):
        more += _wrap(f"next: {next_}", width - 12, _MOST_LINES)
    yield from (_Line(None, f"{_INDENT}{line}") for line in more)


def _lines(
    told: Sequence[tuple[RunJudgement, Sequence[ShownProblem]]],
    problems: Sequence[Finding],
    findings: Sequence[Finding],
    suspects: Sequence[Card],
    *,
    detail: _Detail,
    width: int,
    system: str,
) -> Iterator[_Line]:
    # What names no part has its own line among the problems.
    yield from _suspect_lines([each for each in suspects if each.known], detail, width)
    without_part = [ShownProblem(each, each.message) for each in problems if not each.components]
    yield from _problem_lines(without_part, detail.suspects, detail, width, system)
    marks = is_mixed(run.run for run, _ in told)
    bad = [each for each in told if each[0].final_verdict is not Verdict.PASS]
    passes = told[len(bad) :]
    own = [each for each in bad if not _all_is_told(*each)]
    for run, problems_of_run in own[: detail.runs]:
        yield from _run_lines(run, problems_of_run, detail, width, system, marks=marks)
    if rest := [*own[detail.runs :], *(each for each in bad if _all_is_told(*each))]:
        verdicts = _counts(run.final_verdict for run, _ in rest)
        yield _Line(None, f"{_INDENT}and {plural(len(rest), 'more run')}: {verdicts}")
    yield from _finding_lines(findings, detail, width)
    for run, problems_of_run in passes[: detail.passes]:
        yield from _run_lines(run, problems_of_run, detail, width, system, marks=marks)
    if passes[detail.passes :]:
        yield _folded([run for run, _ in passes[detail.passes :]])
    for lines in matrices([run for run, _ in told], width, detail.matrices):
        yield from (_Line(None, line) for line in lines)


def _all_is_told(judged: RunJudgement, told: Sequence[ShownProblem]) -> bool:
    """Whether all that is wrong with a run stands at another."""
    return bool(judged.all_problems) and not told and all(each.verdict is Verdict.PASS for each in judged.judgements)


def _folded(runs: Sequence[RunJudgement]) -> _Line:
    metrics = [each for run in runs for each in run.judgements]
    text = f"{plural(len(runs), 'run')}, {plural(len(metrics), 'metric')}"
    weak = sum(each.judged_by == "floor" for each in metrics)
    text += f", {weak:,} only against the minimum" if weak else ""
    return _Line(Verdict.PASS, text)


def _counts(verdicts: Iterable[Verdict]) -> str:
    return ", ".join(f"{number_} {verdict.value}" for verdict, number_ in count(verdicts))


def _run_lines(
    judged: RunJudgement, told: Sequence[ShownProblem], detail: _Detail, width: int, system: str, *, marks: bool
) -> Iterator[_Line]:
    """`told`: its problems that no run before has; `marks`: whether a rehearsal says so here, where not all are one."""
    facts, verdict = facts_of(judged), judged.final_verdict
    title = marked(f"{facts.name}, {facts.where}", rehearsal=marks and is_rehearsal(judged.run))
    if verdict is Verdict.PASS and not detail.passes_whole:
        end = f": {plural(len(judged.judgements), 'metric')}"
        yield _Line(verdict, _clip(title, width - 12 - len(end)) + end)
        return
    yield _Line(verdict, _clip(title, width - 12))
    if verdict is not Verdict.PASS:
        yield _Line(None, _clip_left(f"{_INDENT}{printable(facts.path)}", width))
    yield from _problem_lines(told, detail.problems, detail, width, system)
    groups = groups_of(judged)
    for group in groups[: detail.groups]:
        yield from _group_lines(group, len(judged.run.ranks), detail, width)
    if rest := [each for group in groups[detail.groups :] for each in group.judgements]:
        yield _Line(None, f"{_INDENT}and {plural(len(rest), 'more metric')}: {_counts(each.verdict for each in rest)}")


def _problem_lines(
    told: Sequence[ShownProblem], most: int, detail: _Detail, width: int, system: str
) -> Iterator[_Line]:
    """The line of each finding and, where there is room for it, its message below."""
    for problem in told[:most]:
        line = summary(problem.finding, system=system, message=problem.message)
        hidden = detail.messages and problem.message not in line
        if hidden:
            line = summary(problem.finding, system=system, message="")
        first, *more = _wrap(line, width - 12, detail.reason_lines, problem.of_runs)
        yield _Line(problem.finding.verdict, first)
        below = _wrap(problem.message, width - 12, detail.reason_lines) if hidden else ()
        yield from (_Line(None, f"{_INDENT}{text}") for text in (*more, *below))
    if rest := told[most:]:
        yield _Line(
            None, f"{_INDENT}and {plural(len(rest), 'more problem')}: {_counts(each.finding.verdict for each in rest)}"
        )


def _suspect_lines(parts: Sequence[Card], detail: _Detail, width: int) -> Iterator[_Line]:
    """Each part with its loss and what to do next."""
    for part in parts[: detail.suspects]:
        loss = f"{'' if part.loss.startswith(('is ', 'loses ')) else ':'} {part.loss}"
        first, *more = _wrap(f"{part.part}{loss}", width - 12, 3)
        yield _Line(None, first, label="SUSPECT")
        for place, step in enumerate(part.next_[: detail.reason_lines]):
            more += _wrap(f"{'then' if place else 'next'}: {step}", width - 12, _MOST_LINES)
        yield from (_Line(None, f"{_INDENT}{line}") for line in more)
    if rest := len(parts[detail.suspects :]):
        yield _Line(None, f"{_INDENT}and {plural(rest, 'more suspect')}")


def _finding_lines(findings: Sequence[Finding], detail: _Detail, width: int) -> Iterator[_Line]:
    for finding in findings[: detail.problems]:
        first, *more = _wrap(finding.message, width - 12, detail.reason_lines)
        yield _Line(None, first, label="note")
        yield from (_Line(None, f"{_INDENT}{line}") for line in more)
    if rest := len(findings[detail.problems :]):
        yield _Line(None, f"{_INDENT}and {plural(rest, 'more note')}")


def _group_lines(group: MetricGroup, world: int, detail: _Detail, width: int) -> Iterator[_Line]:
    """The bad ones each with its reason, as many as the detail allows; the rest as a count and its worst."""
    for verdict, judgements in group.by_verdict.items():
        shown = 0 if verdict is Verdict.PASS else min(detail.metrics, len(judgements))
        for judged in judgements[:shown]:
            yield _row(group, (ranks_text(judged.samples, world),) * 3, judged, judged.judged_by)
            for line in _wrap(reason_without_source(judged), width - 12, detail.reason_lines):
                yield _Line(None, f"{_INDENT}{line}")
        if rest := judgements[shown:]:
            label = ranks_text(rest[0].samples, world)
            labels = (label,) * 3
            if len(rest) > 1:
                some = f"{len(rest)}{' more' if shown else ''}"
                kind = "pairs" if group.is_pairs else "groups"
                more = f"{label} +{len(rest) - 1}"
                labels = f"{some} {kind} {verdict.value}, worst {label}", f"{some}, worst {label}", more
            yield _row(group, labels, rest[0], weakest(rest))


def _row(group: MetricGroup, labels: tuple[str, ...], worst: Judgement, judged_by: str) -> _Line:
    """A row; where it is narrow without what the unit and the percentage say already. `labels`: from wide to short."""
    value, also = f"{number(worst.value)} {unit_shown(worst.unit)}", in_gigabytes(worst)
    share = share_of_yardstick(worst)
    of = f"of {number(worst.yardstick.value)}" if worst.yardstick is not None and share else ""
    name = f"{group.operation} {format_size(group.bytes)}{' contended' if group.schedule == 'contended' else ''}"
    return _Line(
        worst.verdict,
        "",
        (group.name, labels[0], value, also, of, share, shown_kind(judged_by)),
        (name, labels[1], value, also, "", share, shown_kind(judged_by)),
        short=labels[2],
    )


# Above the first row. The share is of the yardstick that decided; its value is beside it where there is room.
_HEADING = _Line(
    None,
    "",
    ("metric", "ranks", "median", "", "share", "", "of"),
    ("metric", "ranks", "median", "", "", "share", "of"),
    short="ranks",
)


def _layout(lines: Sequence[_Line], width: int, color: bool) -> list[str]:
    spare = width - 12
    first = next((place for place, line in enumerate(lines) if line.cells), None)
    if first is not None:
        lines = [*lines[:first], _HEADING, *lines[first:]]
    lines, widths = _fitting(lines, spare)
    text = []
    for line in lines:
        label = line.verdict.value if line.verdict is not None else line.label
        if line.cells:
            content = _clip(_columns(line.cells, widths), spare)
        else:
            content = line.text if _command_in(line.text) else _clip(line.text, spare if label else width)
        padding = " " * (12 - len(label)) if label or line.cells else ""
        styled = click.style(label, fg=_COLORS[line.verdict], bold=True) if color and line.verdict else label
        text.append(f"{styled}{padding}{content}".rstrip())
    return text


def _fitting(lines: Sequence[_Line], spare: int) -> tuple[Sequence[_Line], list[int]]:
    """The lines with the widest rows that fit into `spare` columns, and how wide each column of them is."""
    forms = [lines, [replace(each, cells=each.narrow) for each in lines]]
    for column in _SPARE_COLUMNS:
        forms.append([replace(each, cells=_with(each.cells, column, "")) for each in forms[-1]])
    forms.append([replace(each, cells=_with(each.cells, 1, each.short)) for each in forms[-1]])
    for form in forms:
        # The heading of the last column may be longer than what stands below it.
        rows = [(*line.cells[:-1], line.cells[-1] if line.verdict else "") for line in form if line.cells]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        others = sum(widths[1:]) + 2 * sum(size > 0 for size in widths[1:])
        if not widths or widths[0] + others <= spare:
            return form, widths
    # The metric's name gives way last: what comes after it is what the reader came for.
    return form, [max(spare - others, 12), *widths[1:]]


def _with(cells: tuple[str, ...], column: int, text: str) -> tuple[str, ...]:
    return tuple(text if place == column else cell for place, cell in enumerate(cells))


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *rest = cells
    aligned = [_clip_operation(name, widths[0]).ljust(widths[0])]
    aligned += [
        cell.rjust(size) if 2 <= position <= 5 else _clip(cell, size).ljust(size)
        for position, (cell, size) in enumerate(zip(rest, widths[1:], strict=True), start=1)
    ]
    return "  ".join(cell for cell, size in zip(aligned, widths, strict=True) if size)


def _clip_operation(name: str, width: int) -> str:
    """The name of a metric, whose size is never lost: operations can be told apart by how they begin."""
    operation, blank, rest = name.partition(" ")
    return f"{_clip(operation, max(width - len(blank + rest), 1))}{blank}{rest}"


def _wrap(text: str, width: int, lines: int, more: str = "") -> list[str]:
    """A text of at most `lines` lines; a command of Fabricheck that it ends with can be pasted, and so is not wrapped.
    `more` stands before that."""
    command = _command_in(text)
    prose = f"{text[: command.start()] if command else text}{more}"
    wrapped = textwrap.wrap(printable(prose), width, max_lines=lines, placeholder=" …", break_on_hyphens=False) or [""]
    if command is None:
        return wrapped
    pasted = printable(command[0]).lstrip()
    if len(wrapped[-1]) + 1 + len(pasted) > width:
        return [*wrapped, pasted][:lines]
    return [*wrapped[:-1], f"{wrapped[-1]} {pasted}"]


def _command_in(text: str) -> re.Match[str] | None:
    """The command of Fabricheck that a text ends with."""
    return re.search(rf" {re.escape(program())} [a-z]+ .*", text)


def _clip(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _clip_left(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else f"{_INDENT}…{text[len(text) - width + len(_INDENT) + 1 :]}"


_GBPS_OF_GB = 8.0
_WIDEST, _CELL = 9, 6  # columns of a cell: nvbandwidth's with two decimals, and the least, without


def matrices(runs: Sequence[RunJudgement], width: int, most: int) -> Iterator[list[str]]:
    """The `most` telling matrices that fit into `width` columns: not PASS first, then those of the links."""
    matching = [(run, group) for run in runs for group in groups_of(run) if _is_matrix(group, run)]
    matching.sort(key=lambda pair: (-SEVERITY[pair[1].verdict], *indirectness(pair[0], pair[1].judgements[0].samples)))
    environments = {run.test.rpartition("+")[2] for run, _ in matching}
    for run, group in matching[:most]:
        title = short_name(run) if run.test else facts_of(run).what
        if len(environments) > 1:
            title += f" @{run.test.rpartition('+')[2]}"
        if lines := _matrix(run, group, title, width):
            yield lines


def _is_matrix(group: MetricGroup, run: RunJudgement) -> bool:
    """Whether a group is the goodput of several pairs of one node, alone on their links as nvbandwidth's are."""
    one_node = len({each.host for each in run.run.ranks}) == 1
    plan = run.run.header.get("plan", {})
    of_gpus = "host" not in str(plan.get("buffers")) and not plan.get("shared_devices")
    alone = group.is_pairs and group.schedule == "uncontended"
    return one_node and of_gpus and alone and group.quantity == "goodput" and len(group.judgements) > 1


def _matrix(run: RunJudgement, group: MetricGroup, name: str, width: int) -> list[str]:
    """The lines of a matrix with the name of its test; none where it does not fit."""
    measured = {each.samples.ranks: each for each in group.judgements}
    numbers = sorted({rank for pair in measured for rank in pair})
    cell = min(_WIDEST, (width - 4) // len(numbers))
    if cell < _CELL:
        return []
    gpus = {each.rank: each.device.index for each in run.run.ranks if each.device is not None}
    of_gpus = len({*gpus.values()}) == len(run.run.ranks)  # not where ranks share one
    labels = [str(gpus[each] if of_gpus else each) for each in numbers]
    kind = "GPU" if of_gpus else "rank"
    what = f"{group.operation} {format_size(group.bytes)} {kind}(row) -> {kind}(column) (GB/s)"
    lines = [
        printable(marked(f"{what}, {name}", rehearsal=is_rehearsal(run.run))),
        "    " + "".join(label.rjust(cell - 1) + " " for label in labels),
    ]
    for source, label in zip(numbers, labels, strict=True):
        texts = []
        for destination in numbers:
            judgement = measured.get((source, destination))
            text = "N/A" if judgement is None else f"{judgement.value / _GBPS_OF_GB:.{2 if cell == _WIDEST else 0}f}"
            mark = " " if judgement is None or judgement.verdict is Verdict.PASS else "*"
            texts.append(text.rjust(cell - 1) + mark)
        lines.append(f"{label:>3} {''.join(texts)}")
    if any(each.verdict is not Verdict.PASS for each in group.judgements):
        lines.append("    * is not PASS")
    return lines
