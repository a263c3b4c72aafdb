"""Options that several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.decorators import FC

if TYPE_CHECKING:
    from fabricheck.topology.model import Topology

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


_Options = TypeVar("_Options")


def given_as(kind: Callable[..., _Options]) -> Callable[[Callable[[_Options], None]], Callable[..., None]]:
    """Have a command take its options as one value of this kind, whose fields have their names."""

    def decorate(command: Callable[[_Options], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**options: Any) -> None:
            command(kind(**options))

        return with_options

    return decorate


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


def _system(text: str) -> Callable[[FC], FC]:
    return click.option("--system", default="local", show_default=True, help=text)


SYSTEM = _system("A system below site_configs/, or system:partition.")
SYSTEM_OF_RUNS = _system("The system of the runs.")
SYSTEM_OR_FILE = _system("A system below site_configs/, system:partition, or a topology file.")


def is_topology_file(system: str) -> bool:
    """Whether `SYSTEM_OR_FILE` names a file."""
    return system.endswith((".yaml", ".yml"))


def given_topology(system: str) -> Topology:
    """The topology that `SYSTEM_OR_FILE` names. Raises UserError."""
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import suite_root
    from fabricheck.topology.model import find_topology, load_topology

    if is_topology_file(system):
        return load_topology(Path(system))
    topology = find_topology(system)
    require_partition(suite_root(), system)
    return topology


def _trusted(_context: click.Context, _option: click.Parameter, folder: Path | None) -> Path | None:
    """The folder's own path. UserError for root where somebody else could have changed a program in it."""
    from fabricheck.trust import require_trusted_by_root

    if folder is None:
        return None
    require_trusted_by_root("the folder of --built", Path(folder), tree=True)
    return Path(folder).resolve()


def built_folder(text: str) -> Callable[[FC], FC]:
    """The option --built, whose programs are run, with `text` as its help."""
    return click.option(
        "--built",
        envvar="FABRICHECK_BUILT",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        callback=_trusted,
        help=text,
    )


BUILT = built_folder("Do not build fabricbench: take ENVIRONMENT/fabricbench below this folder.")
MARGIN = click.option(
    "--margin", default=0.05, show_default=True, help="A metric is `same` if a loss this large can be excluded."
)
