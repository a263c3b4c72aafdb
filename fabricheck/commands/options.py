"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def store_or_default(store: Path | None) -> Path:
    """The store that was given, else the suite's own."""
    from fabricheck.suite import output_folder

    return store if store is not None else output_folder() / "store"


STORE = click.option(
    "--store",
    type=FOLDER,
    callback=lambda _context, _option, store: store_or_default(store),
    help="The sample store.  [default: output/store in the suite]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
POLICY = click.option("--policy", type=FILE, help="A policy file.  [default: config/policy.yaml]")
REFERENCES = click.option("--references", type=FILE, help="A file of references.  [default: the system's]")
