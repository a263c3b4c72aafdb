"""`fabricheck expected` and `fabricheck validate`."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
    from fabricheck.judge.expected_table import Row
    from fabricheck.judge.published import Published
    from fabricheck.judge.references import References
    from fabricheck.topology.model import Topology


@click.command()
@click.argument("system")
@click.option("--format", "layout", type=click.Choice(["text", "csv", "json"]), default="text", show_default=True)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the node into this file.")
def expected(system: str, layout: str, svg: Path | None) -> None:
    """What every pair and collective of a node should give, in Gb/s for large transfers.

    SYSTEM is a folder of site_configs/, or the path of a topology.yaml. nominal: what the hardware allows; expected:
    what an ideal algorithm gets; reference: what was measured when all was well.
    """
    from fabricheck.judge.expected_table import rows
    from fabricheck.topology.drawing import draw

    topology, references, published = _load(system)
    table = list(rows(topology, references))
    if svg is not None:
        try:
            svg.write_text(draw(topology), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{svg}: cannot be written: {error.strerror}") from None
    if layout == "json":
        content = {
            "system": topology.system,
            "unit": "Gb/s",
            "rows": [asdict(row) for row in table],
            "published": [asdict(one) for one in published],
        }
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    elif layout == "csv":
        _print_csv(table)
    else:
        _print_text(topology, table, published)


@click.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM]...")
@click.pass_context
def validate(context: click.Context, names: tuple[str, ...]) -> None:
    """Check the files of each system together: all of them, if none is named.

    Exits with 1 if anything is wrong.
    """
    from fabricheck.site.validation import problems, systems
    from fabricheck.suite import suite_root

    root = suite_root()
    known = systems(root)
    for name in names:
        if name not in known:
            raise UserError(f"there is no system {name!r} in {root / 'site_configs'}: systems are {', '.join(known)}")
    failed = False
    for name in names or known:
        found = list(problems(root, name))
        failed |= bool(found)
        click.echo(f"{name}: {'ok' if not found else f'{len(found)} wrong'}")
        for problem in found:
            click.echo(f"  {problem}")
    context.exit(1 if failed else 0)


def _load(system: str) -> tuple[Topology, References | None, tuple[Published, ...]]:
    from fabricheck.judge.published import load_published
    from fabricheck.judge.references import load_references
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import suite_root
    from fabricheck.topology.model import find_topology, load_topology

    if system.endswith((".yaml", ".yml")):
        return load_topology(Path(system)), None, ()
    root = suite_root()
    topology = find_topology(system, root / "site_configs")
    require_partition(root, system)
    values, name = root / "reference_values", system.partition(":")[0]
    own, published = values / f"{name}.yaml", values / "published" / f"{name}.yaml"
    return (
        topology,
        load_references(own) if own.exists() else None,
        load_published(published) if published.exists() else (),
    )


def _print_csv(table: list[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(
        [
            "operation",
            "transport",
            "devices",
            "nominal",
            "expected",
            "ceiling",
            "reference",
            "reference_bytes",
            "source",
        ]
    )
    for row in table:
        numbers = (row.nominal, row.expected, row.ceiling, row.reference, row.reference_bytes)
        cells = ["" if one is None else f"{one:.10g}" for one in numbers]
        writer.writerow([row.operation, row.transport, " ".join(row.devices), *cells, row.source])


def _print_text(topology: Topology, table: list[Row], published: tuple[Published, ...]) -> None:
    click.echo(f"{topology.system}: {topology.description}")
    click.echo("Gb/s in one direction, large transfers; - where nothing is known, uncalibrated without a reference")
    if not table:
        click.echo("Nothing nominal is known of this system: each run measures what its memory copies.")
    lines = [("operation", "by", "between", "nominal", "expected", "reference", "source")]
    lines += [
        (
            row.operation,
            row.transport,
            " ".join(row.devices) if len(row.devices) <= 2 else f"all {len(row.devices)}",
            _number(row.nominal),
            _number(row.expected),
            "uncalibrated" if row.reference is None and row.transport != "-" else _number(row.reference),
            row.source,
        )
        for row in table
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    for line in lines if table else []:
        left = [line[column].ljust(widths[column]) for column in range(3)]
        right = [line[column].rjust(widths[column]) for column in range(3, 6)]
        click.echo("  ".join([*left, *right, line[6]]).rstrip())
    if published:
        click.echo("\nPublished, under their own conditions:")
    for one in published:
        value = f"{one.low:g}" if one.low == one.high else f"{one.low:g} to {one.high:g}"
        relation = {"about": "about ", "at_least": "at least ", "at_most": "at most "}.get(one.relation, "")
        click.echo(f"  {one.what}: {relation}{value} {one.unit} ({one.conditions}; {one.source})")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
