"""`fabricheck report`: the acceptance document of a run."""

from __future__ import annotations

from pathlib import Path

import click

from fabricheck.commands.options import FILE
from fabricheck.errors import UserError


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--output", type=FILE, required=True, help="The HTML file to write.")
@click.option("--title", help="Its title.  [default: the system]")
def report(*, folder: Path, output: Path, title: str | None) -> None:
    """Judge a run again, and write its acceptance document, to print and sign, and its rows as CSV.

    When: to hand a result over. RUN is the folder of a run, below output/runs/. The exit status is that of the
    verdict. Each run has its page, report.html; `fabricheck judge --html` writes one of result files.

    \b
    fabricheck report output/runs/alps-20261122T020000Z --output acceptance.html
    """
    from fabricheck.jsonfile import read_json
    from fabricheck.records.verdict import EXIT_CODES
    from fabricheck.report.acceptance import write_acceptance
    from fabricheck.session.outcome import judge_session
    from fabricheck.session.reframe_report import read_session
    from fabricheck.session.run_folders import VERDICT
    from fabricheck.suite import Suite, suite_root
    from fabricheck.topology.network import fold

    if not (folder / VERDICT).is_file():
        raise UserError(f"{folder}: has no {VERDICT}: name the folder of a run, below output/runs/")
    system = str(read_json(folder / VERDICT).get("system"))
    outcome = judge_session(read_session(folder), Suite(suite_root()), system)
    unchecked = outcome.fleet.unchecked if outcome.fleet is not None else {}
    problems = [*outcome.problems, *(problem for run in outcome.judged for problem in run.all_problems)]
    reasons = dict.fromkeys(unchecked.values())
    lines = [f"Not tested: {fold(node for node in unchecked if unchecked[node] == why)}: {why}" for why in reasons]
    lines += dict.fromkeys(f"{problem.verdict.value}: {problem.message}" for problem in problems)
    lines += [f"Note: {finding.message}" for finding in outcome.findings]
    table = write_acceptance(
        outcome.judged, output, title=title or system, system=system, verdict=outcome.verdict, exclusions=lines
    )
    click.echo(
        f"{outcome.verdict.value}: the document is {output}, its rows are {table}, all figures {folder / VERDICT}"
    )
    click.get_current_context().exit(EXIT_CODES[outcome.verdict])
