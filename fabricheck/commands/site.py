"""`fabricheck init` and `fabricheck capture`."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabricheck.commands.options import given_as
from fabricheck.errors import UserError, refused
from fabricheck.suite import GIVEN, INSTALLED, SITES, outside_roots, program, require_plain, suite_root

if TYPE_CHECKING:
    from fabricheck.site.found import NodeFacts

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("directory", type=_DIRECTORY, required=False)
@click.option("--script", type=_NEW_FILE, help="Write a Python program for nodes without Fabricheck to this file.")
def capture(directory: Path | None, *, script: Path | None) -> None:
    """Store what this node reports about its GPUs, links, NICs, NUMA domains and software in DIRECTORY.

    When: init cannot start a job on a compute node. Run capture on that node, then `fabricheck init --from DIRECTORY`
    anywhere else. If the node has no Fabricheck, write a program with --script and copy it there: it needs Python 3.6.

    \b
    fabricheck capture /shared/node1
    fabricheck capture --script capture.py
    """
    if script is not None:
        import pynvml

        from fabricheck.state import capture as capturing

        with refused(f"{script}:", "written"), zipfile.ZipFile(script, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(capturing.__file__, "__main__.py")
            archive.write(pynvml.__file__, "pynvml.py")
        click.echo(f"next: on a compute node: python3 {shlex.quote(script.name)} FOLDER")
        click.echo(f"next: here, with that folder: {program()} init --from FOLDER")
        return
    if directory is None:
        raise UserError("capture: name the folder to write to, or --script FILE")
    from fabricheck.site.software import capture_all

    for name in capture_all(directory):
        click.echo(str(directory / name))


@dataclass(frozen=True)
class InitOptions:
    """The options of `init`."""

    system: str | None
    source: Path | None
    partitions: tuple[str, ...]
    access: tuple[str, ...]
    ib: Path | None
    lldp: Path | None
    site: Path | None
    accept: tuple[str, ...]
    wait: int


@click.command()
@click.option("--system", help="The name of the new system.  [default: Slurm's name of the cluster, or the host's]")
@click.option(
    "--from", "source", type=_DIRECTORY, help="A folder written by `fabricheck capture`, or with outputs of tools."
)
@click.option("--partition", "partitions", multiple=True, help="A partition of Slurm; may be repeated.")
@click.option("--access", multiple=True, help="An option that the site's jobs need, such as --account=x; repeatable.")
@click.option("--ibnetdiscover", "ib", type=_FILE, help="A file with the output of ibnetdiscover.")
@click.option("--lldp", type=_FILE, help="A file with the output of `clush -w NODES lldpctl -f keyvalue`.")
@click.option(
    "--site",
    type=click.Path(file_okay=False, resolve_path=True, path_type=Path),
    help="The folder to write to, made if needed.  [default: the first of FABRICHECK_SITES, else the suite]",
)
@click.option(
    "--accept", multiple=True, metavar="CODE", help="Confirm this code: the part is meant to be as it is; repeatable."
)
@click.option("--wait", default=300, show_default=True, help="Seconds to wait for a job on a compute node.")
@given_as(InitOptions)
def init(given: InitOptions) -> None:
    """Write the files of a new system: settings.py, topology.yaml and an empty file of references.

    When: once for each system, on a node with GPUs or on a login node of Slurm. On a login node, init starts a job on a
    compute node. It overwrites no file: settings.py and references of your own stay as they are. To run it again,
    remove the files that it wrote. Each thing that init could not read, or that cannot be measured, is one line. If a
    part is missing, or slower than its peers or its data sheet, init prints a code, and the files describe the part as
    it should be. Repair the part, or confirm it with --accept CODE. The exit status is 1 while something has to be
    repaired, confirmed or filled in.

    \b
    fabricheck init --system mysite --partition gpu --access=--account=x
    """
    context = click.get_current_context()
    from fabricheck.site.facts import read_facts
    from fabricheck.site.nominal import CODES, doubts_of_network, product_of
    from fabricheck.site.plan import Choices, plan
    from fabricheck.site.write import Site, hardware_text, write_site

    if unknown := set(given.accept) - set(CODES):
        raise UserError(f"--accept {min(unknown)}: there is no such code: {', '.join(CODES)}")
    root = _root(given.site)
    with tempfile.TemporaryDirectory(prefix="fabricheck-") as temporary:
        folder = given.source or _capture_this_machine(Path(temporary), given.partitions, given.access, given.wait)
        facts = read_facts(folder, given.accept)
    name = _system_name(given.system, facts)
    planned = plan(facts, name, hardware_text(facts), Choices(given.partitions, given.access))
    of_cables, network = doubts_of_network(_network(facts, planned.nodes, given.ib, given.lldp), given.accept)
    open_ = [each for each in (*facts.doubts, *of_cables) if each.code not in given.accept]
    written = Site(root, name, network)
    new = write_site(facts, planned, written)
    for file in written.files:
        click.echo(f"{file}{'' if file in new else ' (kept as it was)'}")
    of_settings = planned.partitions if written.files[1] in new else ()
    like = product_of(facts)
    seems = f" (looks like {like.name})" if like is not None else ""
    click.echo(f"{name}: {hardware_text(facts)}{seems}{_where(of_settings)}")
    for line in facts.problems:
        click.echo(f"wrong or unknown: {line}", err=True)
    for doubt in open_:
        kept = "" if doubt.changed else "; the files have it as it is"
        click.echo(f"repair or confirm (--accept {doubt.code}): {doubt.text}{kept}", err=True)
    for line in facts.notes:
        click.echo(f"check this: {line}", err=True)
    for line in planned.left_out if of_settings else ():
        click.echo(f"left out: {line}", err=True)
    ready = _ready(name, planned.partitions, own=not of_settings)
    if facts.unseen:
        click.echo(
            "the driver does not show the GPUs on the PCI bus: fix it, remove the files, and run init again", err=True
        )
    if open_:
        parts = f"{len(open_)} {'part' if len(open_) == 1 else 'parts'} to repair or confirm"
        nominal = "the files describe it as it should be; " if all(doubt.changed for doubt in open_) else ""
        click.echo(f"{parts}: {nominal}to confirm, remove what init wrote and run it with --accept", err=True)
    context.exit(0 if ready and not facts.unseen and not open_ else 1)


def _root(site: Path | None) -> Path:
    """The folder whose site_configs/ and reference_values/ are written to; later commands find it by itself."""
    if site is not None:
        require_plain("--site", site)
        with refused(f"--site {site}:", "written"):
            (site / "site_configs").mkdir(parents=True, exist_ok=True)
        os.environ[SITES] = os.pathsep.join([str(site), *filter(None, [os.environ.get(SITES)])])
        GIVEN[SITES] = str(site)
    if outside := outside_roots():
        return outside[0]
    if suite_root() == INSTALLED:
        raise UserError("the installed suite is read-only: give a folder of your own with --site")
    return suite_root()


def _capture_this_machine(folder: Path, partitions: tuple[str, ...], access: tuple[str, ...], wait: int) -> Path:
    """The folder with what this node says; on a login node without GPUs, with what a compute node says that a job of
    Slurm asks."""
    from fabricheck.site.facts import read_facts
    from fabricheck.site.plan import require_partitions
    from fabricheck.site.software import capture_all
    from fabricheck.state.programs import module_command
    from fabricheck.suite import output_folder

    capture_all(folder)
    facts = read_facts(folder)
    require_partitions(facts, partitions)
    known = facts.slurm.partitions if facts.slurm is not None else ()
    wanted = [one for one in known if not partitions or one.name in partitions]
    if facts.gpus or not wanted:
        return folder
    chosen = max(wanted, key=lambda one: (one.gpus > 0, len(one.nodes)))
    if not chosen.gpus and facts.hostname in chosen.nodes:
        return folder
    # The job's node has to see it: the temporary folder of a login node is its own.
    kept = output_folder() / "captured" / re.sub(r"[^A-Za-z0-9_-]+", "-", chosen.name)
    command = ["srun", f"--partition={chosen.name}", "--nodes=1", "--ntasks=1", "--exclusive", "--time=10", *access]
    command += [f"--gres=gpu:{chosen.gres + ':' if chosen.gres else ''}{chosen.gpus}"] if chosen.gpus else []
    _run_job([*command, *module_command("fabricheck", "capture", str(kept))], kept, wait)
    return kept


def _run_job(command: list[str], kept: Path, wait: int) -> None:
    from fabricheck.state.programs import ask

    click.echo(f"this is not a compute node: starting a job by `{shlex.join(command)}`", err=True)
    answer = ask(command, wait)
    if not answer.given:
        raise UserError(
            f"the job on a compute node {answer.problem or 'cannot be started'}: give the options that jobs need with "
            f"--access; or run `fabricheck capture {kept}` on a node, and `fabricheck init --from {kept}` here"
        )


def _system_name(given: str | None, facts: NodeFacts) -> str:
    from fabricheck.store.folders import is_name

    name = given or re.sub(r"[^A-Za-z0-9_.-]+", "-", (facts.slurm.cluster if facts.slurm else "") or facts.hostname)
    if not is_name(name):
        raise UserError(f"{name!r} cannot be the name of a system: use letters, digits, `_`, `.` and `-`, 100 at most")
    return name


def _network(facts: NodeFacts, nodes: tuple[str, ...], ib: Path | None, lldp: Path | None) -> dict[str, Any]:
    from fabricheck.site.nics import network_of_ibnetdiscover, network_of_lldp, network_of_slurm

    if ib is not None:
        return network_of_ibnetdiscover(ib, nodes, facts.nics)
    if lldp is not None:
        return network_of_lldp(lldp, nodes, facts.nics)
    return network_of_slurm(facts.slurm, nodes, facts.nics) if facts.slurm is not None and nodes else {}


def _where(partitions: tuple[dict[str, Any], ...]) -> str:
    return "".join(
        f"{'; ' if place else ', '}partition {partition['name']}: {partition['descr']}"
        for place, partition in enumerate(partitions)
    )


def _ready(system: str, partitions: tuple[dict[str, Any], ...], *, own: bool) -> bool:
    """Whether the files are valid and select checks; says what is wrong, and the next command.

    On a cluster it asks for two nodes: without a number, tests of the network take all up to `most_nodes`. `own`: the
    settings are the site's own, with partitions of other names.
    """
    from fabricheck.session.reframe import Selection, list_suite
    from fabricheck.site.validation import problems
    from fabricheck.suite import Suite, output_folder

    wrong = [*problems(suite_root(), system)]
    for line in wrong:
        click.echo(f"to be filled in: {line}", err=True)
    if wrong:
        click.echo(f"next: with that filled in: {program()} validate --system {system}")
        return False
    listing = list_suite(Suite(suite_root()), Selection(system), output_folder())
    environments = {case.rpartition("+")[2] for case in listing.cases}
    click.echo(f"{len(listing.cases)} checks are selected, with {', '.join(sorted(environments))}")
    widest = max(partitions, key=lambda one: int(one["extras"]["nodes"]))
    is_cluster = widest["extras"]["nodes"] > 1
    where = f"{system}:{widest['name']}" if is_cluster and len(partitions) > 1 and not own else system
    click.echo(f"next: {program()} run --system {where} --tag smoke{' --nodes 2' if is_cluster else ''}")
    return True
