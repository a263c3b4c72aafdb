"""`fabricheck report`: the report of result files, or of a session of the sample store."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import FILE, FOLDER, store_or_default
from fabricheck.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricheck.judge.verdicts import RunJudgement
    from fabricheck.records.finding import Finding
    from fabricheck.report.past import Past


@dataclass(frozen=True)
class _Shown:
    """What a report is about; `problems` and `findings` are those of no single run, `past` is what the store adds."""

    title: str
    system: str
    judged: tuple[RunJudgement, ...]
    problems: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    past: Past | None = None
    notes: tuple[str, ...] = ()


@click.command()
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...")
@click.option(
    "--system",
    help="A system below site_configs/, or system:partition: its topology and references.  [default: of the FILEs]",
)
@click.option("--output", type=FILE, required=True, help="The HTML file to write.")
@click.option("--title", help="Its title.  [default: the system]")
@click.option(
    "--test",
    help="For FILEs: the test whose references are used: class or printed name.  [default: that of each file]",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="For FILEs: which references to use, such as '$partition=daint:gpu'.  [default: that of each file]",
)
@click.option("--session", help="The stored session, by the beginning of its id.  [default: the latest]")
@click.option(
    "--store",
    type=FOLDER,
    help="The sample store.  [default: output/store in the suite]",
)
@click.option("--base", help="Show what changed since: a session, FROM..TO, software:NAME=VERSION or tag:NAME.")
@click.option("--candidate", help="The runs to compare with --base.  [default: the session shown]")
@click.pass_context
def report(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str | None,
    output: Path,
    title: str | None,
    test: str | None,
    keys: tuple[str, ...],
    session: str | None,
    store: Path | None,
    base: str | None,
    candidate: str | None,
) -> None:
    """Judge result files, or a stored session, and write one HTML file.

    When: to write a report again, or to show before and after (--base). Without a FILE it shows a session of the sample
    store and the history up to it. The exit status is that of the verdicts; the history does not change it.

    \b
    fabricheck report *.jsonl --output report.html
    fabricheck report --system alps --output report.html --base software:NCCL=2.28.3
    """
    from fabricheck.diagnosis.causes import diagnose
    from fabricheck.judge.overall import overall
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.report.html import write_html
    from fabricheck.report.terminal import render
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import suite_root

    if system is not None:
        require_partition(suite_root(), system)
    if files:
        for name, value in (("session", session), ("store", store), ("base", base), ("candidate", candidate)):
            if value is not None:
                raise UserError(f"--{name} is for a stored session: leave out either the option or the result files")
        shown = _of_files(files, output, system, test, keys)
    else:
        for name, given in (("test", test is not None), ("key", bool(keys))):
            if given:
                raise UserError(f"--{name} is for result files: leave it out for a stored session")
        if candidate is not None and base is None:
            raise UserError(f"--candidate {candidate}: give --base, too")
        if system is None:
            raise UserError("give --system: without a result file the report is of a session of the store")
        shown = _of_store(store, system, session, base, candidate)
    diagnosis = diagnose(shown.judged, shown.problems, shown.findings)
    write_html(
        shown.judged,
        output,
        title=title or shown.title or "result files",
        system=shown.system,
        diagnosis=diagnosis,
        past=shown.past,
    )
    size = shutil.get_terminal_size((120, 40))
    color = sys.stdout.isatty()
    click.echo(
        render(
            shown.judged,
            width=size.columns,
            color=color,
            height=size.lines - 2,
            diagnosis=diagnosis,
            system=shown.system,
        )
    )
    for note in shown.notes:
        click.echo(f"fabricheck: {note}", err=True)
    click.echo(f"the report is in {output}")
    context.exit(EXIT_CODES[overall(shown.judged, diagnosis.problems)[0]])


def _of_files(files: Sequence[Path], output: Path, system: str | None, test: str | None, keys: Sequence[str]) -> _Shown:
    from fabricheck.diagnosis.of_session import with_session_findings
    from fabricheck.judge.system import ByHand, SystemJudge, without_references
    from fabricheck.records.case import parse_attribute

    for file in files:
        if output.exists() and file.exists() and output.samefile(file):
            raise UserError(f"--output {output} is a result file, which the report would overwrite: name another file")
    judges = cache(lambda name: SystemJudge.of(system) if system else SystemJudge.of_any(name))
    by_hand = ByHand(judges, system or "", test or "", dict(map(parse_attribute, keys)))
    judged = [by_hand.read(file) for file in files]
    systems = {each.system: each.run.run.path for each in judged}
    if system is None and len(systems) > 1:
        named = "; ".join(f"{path} {name or 'none'}" for name, path in systems.items())
        raise UserError(f"the files name several systems: {named}: choose one with --system")
    note = without_references(judged)
    runs = tuple(with_session_findings(each.run, each.judge, each.partition) for each in judged)
    system_name = system or judged[0].system
    return _Shown(system_name, system_name, runs, notes=tuple(filter(None, [note])))


def _of_store(store: Path | None, system: str, session: str | None, base: str | None, candidate: str | None) -> _Shown:
    from fabricheck.report.past import past_of, stored_session
    from fabricheck.suite import suite_root

    path, root = store_or_default(store), suite_root()
    stored = stored_session(path, system, session, root)
    past = past_of(path, system, root, session=stored.session, base=base, candidate=candidate)
    title = f"{system}, session {stored.session} of {stored.started}"
    notes = (*stored.notes, *past.notes)
    return _Shown(title, system, stored.judged, stored.problems, stored.findings, replace(past, notes=notes), notes)
