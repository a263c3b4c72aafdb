"""`fabricheck expected` and `fabricheck validate`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import SYSTEM_OR_FILE, given_topology, is_topology_file
from fabricheck.errors import UserError
from fabricheck.records.operations import PAIRS

if TYPE_CHECKING:
    from fabricheck.limits.algorithms import Estimate
    from fabricheck.topology.model import Topology
    from fabricheck.yardsticks.expected_table import ExpectedRow
    from fabricheck.yardsticks.published import Published
    from fabricheck.yardsticks.references import References

_WIDTH = 80
# How many units of this kind are one Gb/s.
_UNITS = {"Gb/s": 1.0, "GB/s": 1 / 8}

_MEANING = (
    "Nominal: rate of the links. Optimum: highest rate of any algorithm. "
    "Expected: rate of the named algorithm. Achievable: its payload without protocol overhead."
)

_HEAD = ("nominal", "optimum", "expected", "achievable", "reference")
_WIDTHS = (9, 9, 9, 11, 10)
_Cells = tuple[str, ...]


@click.command()
@SYSTEM_OR_FILE
@click.option("--format", "layout", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--unit", type=click.Choice(["Gb/s", "GB/s"]), default="Gb/s", show_default=True, help="Unit of the text."
)
def expected(system: str, layout: str, unit: str) -> None:
    """Print the bandwidth that every pair and collective of a node should reach with large transfers.

    When: a value looks wrong, or to check a new topology.yaml.
    Nominal is the rate of the hardware's links. Optimum is the highest rate that an algorithm can reach; a measured
    value above it is implausible. Expected is the rate of the named algorithm, achievable is that rate without protocol
    overhead. Reference was measured while the system was healthy. json is in Gb/s and has one row for each pair or
    collective.

    \b
    fabricheck expected --system alps --unit GB/s
    """
    from fabricheck.limits.algorithms import estimates
    from fabricheck.yardsticks.expected_table import expected_rows

    topology, references, published = _load(system)
    table = list(expected_rows(topology, references))
    if layout == "json":
        content = {
            "system": topology.system,
            "unit": "Gb/s",
            "rows": [asdict(row) for row in table],
            "estimates": [asdict(one) for one in estimates(topology)],
            "published": [
                {
                    **one.model_dump(exclude={"value", "judges"}),
                    "low": one.low,
                    "high": one.high,
                    "judges": one.judges and one.judges.model_dump(exclude_defaults=True),
                    "share_of_nominal": one.judges and one.judges.share_of_nominal,
                }
                for one in published
            ],
        }
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        for line in _expected_text(topology, table, estimates(topology), published, unit):
            click.echo(line)


@click.command()
@click.option("--system", "names", multiple=True, help="A system below site_configs/; repeatable.  [default: all]")
@click.pass_context
def validate(context: click.Context, names: tuple[str, ...]) -> None:
    """Check the files of each system together.

    When: after each change of settings.py, topology.yaml or references. The exit status is 1 if anything is wrong.

    \b
    fabricheck validate --system alps
    """
    from fabricheck.site.validation import problems, systems
    from fabricheck.suite import suite_root

    root = suite_root()
    known = systems(root)
    for name in names:
        if name not in known:
            raise UserError(f"no system {name!r} here or in FABRICHECK_SITES: systems are {', '.join(known)}")
    failed = False
    for name in names or known:
        mistakes = list(problems(root, name))
        failed |= bool(mistakes)
        click.echo(f"{name}: {'ok' if not mistakes else f'{len(mistakes)} wrong'}")
        for problem in mistakes:
            click.echo(f"  {problem}")
    context.exit(1 if failed else 0)


def _load(system: str) -> tuple[Topology, References | None, tuple[Published, ...]]:
    from fabricheck.suite import site_root
    from fabricheck.yardsticks.published import load_published
    from fabricheck.yardsticks.references import load_references

    topology = given_topology(system)
    if is_topology_file(system):
        return topology, None, ()
    values, name = site_root(system) / "reference_values", system.partition(":")[0]
    own, published = values / f"{name}.yaml", values / "published" / f"{name}.yaml"
    return (
        topology,
        load_references(own) if own.exists() else None,
        load_published(published) if published.exists() else (),
    )


def _expected_text(
    topology: Topology,
    rows: Sequence[ExpectedRow],
    estimates: Iterable[Estimate],
    published: Sequence[Published],
    unit: str,
) -> Iterator[str]:
    """Lines of at most 80 columns; pairs with the same values are one line."""
    yield from _wrapped(f"{topology.system}: {topology.description}")
    yield from _wrapped(f"{unit} in one direction, for large transfers (- is unknown). {_MEANING}")
    if not rows:
        yield from _wrapped("This system has no nominal rates: each run measures the copy rate of its memory.")
    notes: list[str] = []
    pairs = [row for row in rows if row.operation in PAIRS]
    parts = [row for row in rows if row.transport == "-"]
    everyone = [row for row in rows if row not in pairs and row not in parts]
    if pairs:
        yield from ("", _line("pair", "by", _HEAD))
    for members in _classes(pairs, unit):
        is_every = len(members) == len(topology.gpus) * (len(topology.gpus) - 1)
        yield from _lines_of_pairs(members, notes, unit, is_every=is_every)
    if everyone:
        yield from ("", _line(f"all {len(everyone[0].devices)}", "by", _HEAD))
    for row in everyone:
        yield f"{_line(row.operation, row.transport, _cells(row, unit))} {_note(notes, row)}"
    if parts:
        yield from ("", _line("part of the node", "", _HEAD))
    for members in _classes(parts, unit):
        name, devices = members[0].operation, members[0].devices
        count = f"{len(members)} GPUs" if len(members) > 1 else "".join(devices[:1] if len(devices) == 1 else ())
        title = name if len(name) <= 16 else name.replace("_asymptotic", ", many")
        yield f"{_line(title, count[:8], _cells(members[0], unit))} {_note(notes, members[0])}"
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
        value = row.value * _UNITS[unit] if row.unit == "Gb/s" else row.value
        yield from _wrapped(f"  {row.what}: {value:,.6g} {own} ({row.source})", indent=4)
    if published:
        yield ""
        yield "Published, under their own conditions:"
    for stated in published:
        number = f"{stated.low:g}" if stated.low == stated.high else f"{stated.low:g} to {stated.high:g}"
        relation = {"about": "about ", "at_least": "at least ", "at_most": "at most "}.get(stated.relation, "")
        shown = f"; waits for {stated.waits_for}" if stated.waits_for else ""
        text = f"{relation}{number} {stated.unit} ({stated.conditions}; {stated.source}{shown})"
        yield from _wrapped(f"  {stated.what}: {text}", indent=4)


def _line(first: str, by: str, cells: Sequence[str]) -> str:
    return f"{first:<16} {by:<8}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _cells(row: ExpectedRow, unit: str) -> _Cells:
    values = (row.nominal, row.optimum, row.expected, row.achievable, row.reference)
    return tuple("-" if value is None else _number(value * _UNITS[unit]) for value in values)


def _number(value: float) -> str:
    if not 0.01 <= value < 1e6:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _note(notes: list[str], row: ExpectedRow) -> str:
    text = row.source + (f"; achievable: {row.payload}" if row.payload else "")
    if text not in notes:
        notes.append(text)
    return f"[{notes.index(text) + 1}]"


def _classes(rows: Iterable[ExpectedRow], unit: str) -> Iterable[list[ExpectedRow]]:
    """Rows of one kind with the same values together."""
    classes: dict[tuple[str, str, _Cells], list[ExpectedRow]] = {}
    for row in rows:
        kind = "" if row.operation in PAIRS else row.operation
        classes.setdefault((kind, row.transport, _cells(row, unit)), []).append(row)
    return classes.values()


def _lines_of_pairs(members: Sequence[ExpectedRow], notes: list[str], unit: str, *, is_every: bool) -> Iterator[str]:
    """A line of pairs with the same values, and which they are."""
    payloads, sources = {row.payload for row in members}, {row.source for row in members}
    # Each pair has a path of its own to tell; of a class only what they have in common counts.
    source = sources.pop() if len(sources) == 1 else "the widest path of each (De Sensi §III-D)"
    note = _note(notes, replace(members[0], source=source, payload=" or ".join(sorted(payloads))))
    title = "every pair" if is_every else f"{len(members)} pairs" if len(members) > 1 else "1 pair"
    yield f"{_line(title, members[0].transport, _cells(members[0], unit))} {note}"
    if not is_every:
        yield from _wrapped("  " + _pairs_text(members), indent=2)


def _pairs_text(members: Sequence[ExpectedRow]) -> str:
    """`gcd0-gcd1` for both directions, `gcd0>gcd1` for one."""
    names = {row.devices for row in members}
    texts = []
    for a, b in dict.fromkeys(row.devices for row in members):
        if (b, a) not in names:
            texts.append(f"{a}>{b}")
        elif f"{b}-{a}" not in texts:
            texts.append(f"{a}-{b}")
    return " ".join(texts)


def _wrapped(text: str, indent: int = 0) -> list[str]:
    lead = len(text) - len(text.lstrip())
    return textwrap.wrap(
        text.strip(), _WIDTH, initial_indent=" " * lead, subsequent_indent=" " * indent, break_on_hyphens=False
    )
