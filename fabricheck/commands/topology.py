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
@click.option(
    "--unit", type=click.Choice(["Gb/s", "GB/s"]), default="Gb/s", show_default=True, help="Unit of the text."
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the node into this file.")
def expected(system: str, layout: str, unit: str, svg: Path | None) -> None:
    """Print the bandwidth that every pair and collective of a node should reach with large transfers.

    When: a value looks wrong, or to check a new topology.yaml. SYSTEM is a folder of site_configs/, or a topology.yaml.
    Nominal is the rate of the hardware's links. Optimum is the most that any algorithm could reach; a value above it is
    implausible. Expected is the rate that the named algorithm reaches, achievable its payload.
    Reference was measured while the system was healthy. csv and json are in Gb/s, one row a pair.

    \b
    fabricheck expected alps --unit GB/s --svg node.svg
    """
    from fabricheck.commands.expected_text import expected_text
    from fabricheck.expectation.estimates import estimates
    from fabricheck.judge.expected_table import rows
    from fabricheck.topology.drawing import draw
    from fabricheck.wholefile import whole_file

    topology, references, published = _load(system)
    table = list(rows(topology, references))
    if svg is not None:
        try:
            with whole_file(svg) as file:
                file.write_text(draw(topology), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{svg}: cannot be written: {error.strerror}") from None
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
    elif layout == "csv":
        _print_csv(table)
    else:
        for line in expected_text(topology, table, estimates(topology), published, unit):
            click.echo(line)


@click.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM]...")
@click.pass_context
def validate(context: click.Context, names: tuple[str, ...]) -> None:
    """Check the files of each SYSTEM together; without a SYSTEM, of all of them.

    When: after each change of settings.py, topology.yaml or references. The exit status is 1 if anything is wrong.

    \b
    fabricheck validate alps
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
    from fabricheck.judge.published import load_published
    from fabricheck.judge.references import load_references
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import site_root, suite_root
    from fabricheck.topology.model import find_topology, load_topology

    if system.endswith((".yaml", ".yml")):
        return load_topology(Path(system)), None, ()
    root = suite_root()
    site = site_root(system, root)
    topology = find_topology(system, site / "site_configs")
    require_partition(root, system)
    values, name = site / "reference_values", system.partition(":")[0]
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
            "optimum",
            "expected",
            "achievable",
            "ceiling",
            "reference",
            "reference_bytes",
            "source",
        ]
    )
    for row in table:
        known = (row.nominal, row.optimum, row.expected, row.achievable)
        numbers = (*known, row.ceiling, row.reference, row.reference_bytes)
        cells = ["" if one is None else f"{one:.10g}" for one in numbers]
        writer.writerow([row.operation, row.transport, " ".join(row.devices), *cells, row.source])
