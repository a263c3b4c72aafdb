"""What a node should give, as text of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from fabricheck.expectation.estimates import Estimate
from fabricheck.judge.expected_table import Row
from fabricheck.judge.published import Published
from fabricheck.records.operations import PAIRS
from fabricheck.topology.model import Topology

WIDTH = 80
#: How many units of this kind are one Gb/s.
UNITS = {"Gb/s": 1.0, "GB/s": 1 / 8}

MEANING = (
    "Nominal: rate of the links. Optimum: the most of any algorithm; more is implausible. "
    "Expected: of the named algorithm. Achievable: its payload."
)

_HEAD = ("nominal", "optimum", "expected", "achievable", "reference")
_WIDTHS = (9, 9, 9, 11, 10)
_Cells = tuple[str, ...]


def expected_text(
    topology: Topology, rows: Sequence[Row], estimates: Iterable[Estimate], published: Sequence[Published], unit: str
) -> Iterator[str]:
    """Lines of at most 80 columns; pairs with the same values are one line."""
    yield from _wrapped(f"{topology.system}: {topology.description}")
    yield from _wrapped(f"{unit} in one direction, large transfers; -: unknown. {MEANING}")
    if not rows:
        yield from _wrapped("This system has no nominal rates: each run measures the copy rate of its memory.")
    notes: list[str] = []
    pairs = [row for row in rows if row.operation in PAIRS]
    if pairs:
        yield ""
        yield _line("pair", "by", _HEAD)
        yield from _classes(pairs, notes, unit, len(topology.gpus))
    everyone = [row for row in rows if row.transport != "-" and row.operation not in PAIRS]
    if everyone:
        yield ""
        yield _line(f"all {len(everyone[0].devices)}", "by", _HEAD)
        for row in everyone:
            yield f"{_line(row.operation, row.transport, _cells(row, unit))} {_note(notes, row)}"
    parts = [row for row in rows if row.transport == "-"]
    if parts:
        yield ""
        yield _line("part of the node", "", _HEAD)
        yield from _parts(parts, notes, unit)
    if notes:
        yield ""
    for number, note in enumerate(notes, start=1):
        yield from _wrapped(f"[{number}] {note}", indent=5)
    yield from _below(estimates, published, unit)


def _below(estimates: Iterable[Estimate], published: Sequence[Published], unit: str) -> Iterator[str]:
    listed = list(estimates)
    if listed:
        yield ""
        yield "The papers' own estimates, by their formulas:"
    for row in listed:
        own = unit if row.unit == "Gb/s" else row.unit
        value = row.value * UNITS[unit] if row.unit == "Gb/s" else row.value
        yield from _wrapped(f"  {row.what}: {value:,.6g} {own} ({row.source})", indent=4)
    if published:
        yield ""
        yield "Published, under their own conditions:"
    for stated in published:
        number = f"{stated.low:g}" if stated.low == stated.high else f"{stated.low:g} to {stated.high:g}"
        relation = {"about": "about ", "at_least": "at least ", "at_most": "at most "}.get(stated.relation, "")
        yield from _wrapped(
            f"  {stated.what}: {relation}{number} {stated.unit} ({stated.conditions}; {stated.source})", indent=4
        )


def _line(first: str, by: str, cells: Sequence[str]) -> str:
    return f"{first:<16} {by:<8}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _cells(row: Row, unit: str) -> _Cells:
    values = (row.nominal, row.optimum, row.expected, row.achievable, row.reference)
    return tuple("-" if value is None else _number(value * UNITS[unit]) for value in values)


def _number(value: float) -> str:
    if not 0.01 <= value < 1e6:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _note(notes: list[str], row: Row) -> str:
    text = row.source + (f"; achievable: {row.payload}" if row.payload else "")
    if text not in notes:
        notes.append(text)
    return f"[{notes.index(text) + 1}]"


def _classes(pairs: Sequence[Row], notes: list[str], unit: str, gpus: int) -> Iterator[str]:
    """A line for each set of values, with the pairs that have them below it."""
    classes: dict[tuple[str, _Cells], list[Row]] = {}
    for row in pairs:
        classes.setdefault((row.transport, _cells(row, unit)), []).append(row)
    for (transport, cells), members in classes.items():
        everyone = len(members) == gpus * (gpus - 1)
        payloads = {row.payload for row in members}
        sources = {row.source for row in members}
        # Each pair has a path of its own to tell; of a class only what they have in common counts.
        source = sources.pop() if len(sources) == 1 else "the widest path of each (De Sensi §III-D)"
        example = members[0]
        note = _note(notes, Row(example.operation, transport, (), None, source, payload=" or ".join(sorted(payloads))))
        title = "every pair" if everyone else f"{len(members)} pairs" if len(members) > 1 else "1 pair"
        yield f"{_line(title, transport, cells)} {note}"
        if not everyone:
            yield from _wrapped("  " + _pairs_text(members), indent=2)


def _pairs_text(members: Sequence[Row]) -> str:
    """`gcd0-gcd1` for both directions, `gcd0>gcd1` for one."""
    names = {row.devices for row in members}
    texts = []
    for a, b in dict.fromkeys(row.devices for row in members):
        if (b, a) not in names:
            texts.append(f"{a}>{b}")
        elif f"{b}-{a}" not in texts:
            texts.append(f"{a}-{b}")
    return " ".join(texts)


def _parts(parts: Sequence[Row], notes: list[str], unit: str) -> Iterator[str]:
    """Parts of the node; GPUs with the same value are one line."""
    classes: dict[tuple[str, _Cells], list[Row]] = {}
    for row in parts:
        classes.setdefault((row.operation, _cells(row, unit)), []).append(row)
    for (operation, cells), members in classes.items():
        count = (
            f"{len(members)} GPUs"
            if len(members) > 1
            else members[0].devices[0]
            if len(members[0].devices) == 1
            else ""
        )
        title = operation if len(operation) <= 16 else operation.replace("_asymptotic", ", many")
        yield f"{_line(title, count[:8], cells)} {_note(notes, members[0])}"


def _wrapped(text: str, indent: int = 0) -> list[str]:
    lead = len(text) - len(text.lstrip())
    return textwrap.wrap(
        text.strip(), WIDTH, initial_indent=" " * lead, subsequent_indent=" " * indent, break_on_hyphens=False
    )
