"""`fabricheck explain`: what a finding means, what decides it, how sure it is and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@click.argument("what", required=False, metavar="[CODE|RUN]")
@click.option("--system", default="local", show_default=True, help="Explain the latest run of this system.")
@click.option("--list", "list_all", is_flag=True, help="List all codes.")
def explain(*, what: str | None, system: str, list_all: bool) -> None:
    """Explain what a finding means and what to do: of a CODE, or of each finding of a RUN.

    When: after a run that is not PASS. RUN is the folder of a run below output/runs/, or its verdict.json; without RUN
    and CODE it is the latest run of --system. The exit status is 0, or 2 if there is no such code or run.

    \b
    fabricheck explain slow-gpu
    fabricheck explain --system alps
    fabricheck explain output/runs/alps-20261122T020000Z
    """
    from fabricheck.report.explain import all_codes, explain_code

    if list_all and what is not None:
        raise UserError(f"--list cannot be used with {what}: leave out one of them")
    if list_all:
        lines = all_codes()
    elif what is None:
        lines = _of_run(_latest(system))
    else:
        lines = _of_run(Path(what)) if Path(what).exists() else explain_code(what)
    click.echo("\n".join(lines))


def _of_run(run: Path) -> Iterator[str]:
    from fabricheck.jsonfile import read_json
    from fabricheck.report.explain import explain_run
    from fabricheck.session.run_folders import VERDICT
    from fabricheck.suite import remember_output

    file = run / VERDICT if run.is_dir() else run
    if file.absolute().parents[1].name == "runs":
        remember_output(file.absolute().parents[2])
    if not file.exists():
        raise UserError(f"{run} has no {VERDICT}: not the folder of a judged run: name one below output/runs/")
    content = read_json(file)
    try:
        yield from explain_run(content, str(file.parent))
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{file}: is not the {VERDICT} of a run: {error!r}") from None


def _latest(system: str) -> Path:
    """The folder of the latest run of a system that was judged. Raises UserError."""
    from fabricheck.session.run_folders import judged_runs
    from fabricheck.suite import output_folder

    folder, name = output_folder() / "runs", system.partition(":")[0]
    if not (runs := judged_runs(folder, name)):
        raise UserError(f"no run of {name} below {folder}: name a run or a code, or give --system")
    return runs[-1]
