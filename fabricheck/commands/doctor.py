"""`fabricheck doctor`: whether this node is fit for a job, in seconds."""

from __future__ import annotations

import time
from pathlib import Path

import click

from fabricheck.commands.options import built_folder
from fabricheck.errors import UserError
from fabricheck.records.verdict import Verdict

#: Seconds of `--prolog` for the node's answers; `fabricheck.prolog` ends all of it.
PROLOG_ASKS_S = 2.5
#: Seconds of the others, for all that they do.
USUAL_S, FULL_S = 20.0, 30.0
#: What a prolog refuses a node for: a part that is worse than it should be, has failed, or is missing.
_FAULTS = frozenset((Verdict.DEGRADED, Verdict.FAIL, Verdict.INCOMPLETE))


@click.command()
@click.option(
    "--system", help="A system below site_configs/, or system:partition, whose files the node is compared with."
)
@built_folder("Start one rank on each GPU, with ENVIRONMENT/fabricbench of this folder.")
@click.option(
    "--environment",
    default="openmpi",
    show_default=True,
    help="With --built: the environment whose program and mpirun are used.",
)
@click.option(
    "--full", is_flag=True, help="With --built: measure memory and products of each GPU too, in 30 s at most."
)
@click.option("--limit", type=click.FloatRange(1), help="Time limit in seconds.  [default: 20; with --full 30]")
@click.option(
    "--prolog",
    is_flag=True,
    help="For Slurm's Prolog: end within 5 s, with exit status 0 unless this node is faulty.",
)
@click.pass_context
def doctor(
    context: click.Context,
    *,
    system: str | None,
    built: Path | None,
    environment: str,
    full: bool,
    limit: float | None,
    prolog: bool,
) -> None:
    """Check whether this node is fit: read its state, and with --built start one rank on each of its GPUs.

    When: before a job (--prolog), after a repair or an upgrade. It takes seconds, and measures nothing without --full,
    which compares memory bandwidth and matrix products of each GPU with those of its model, and with --system of its
    peers. Each fault is one line: where, how much, what to do. The exit status is that of the worst fault: 0 no fault,
    1 DEGRADED, 3 a rank failed, 4 a part does not respond, 5 a GPU is in use by others; 2 is a mistake in the input.

    \b
    fabricheck doctor --system alps --built /shared/programs --full
    fabricheck doctor --system alps --prolog
    """
    from fabricheck.judge.node_state import evidence_of_node, finding_of
    from fabricheck.prolog import seconds_left
    from fabricheck.records.acting import proofs
    from fabricheck.records.verdict import EXIT_CODES, worst
    from fabricheck.report.lines import steps
    from fabricheck.session.doctor import ask_this_node, measure_gpus, start_ranks
    from fabricheck.topology.model import find_topology

    if prolog and built is not None:
        raise UserError("--prolog starts no ranks, to end in time: leave out --built")
    if full and built is None:
        raise UserError("--full measures with the program of a folder: give it with --built")
    begin, topology = time.monotonic(), None
    limit = limit or (FULL_S if full else USUAL_S)
    try:
        topology = find_topology(system) if system is not None else None
    except UserError as error:
        if not prolog:
            raise
        click.echo(f"{'note':<12}not compared with {system}: {error}", err=True)
    state = ask_this_node(seconds_left(PROLOG_ASKS_S) if prolog else limit)
    verdicts = [Verdict.PASS]
    for evidence in evidence_of_node(state, topology):
        verdict = evidence.verdict or Verdict.PASS
        finding = finding_of(evidence, verdict, topology)
        # A prolog takes its node away for what it saw, and for nothing else.
        counts = not prolog or bool(proofs([finding], state.host, _FAULTS))
        if counts:
            verdicts.append(verdict)
        shown = verdict.value if counts and verdict is not Verdict.PASS else "note"
        click.echo(f"{shown:<12}{evidence.message}", err=evidence.code == "state-unknown" and prolog)
        if shown != "note" and (its_steps := steps(finding, system=system or "")):
            click.echo(f"{'':<12}next: {its_steps[0]}")
    if not state.gpus and system is None:
        click.echo(f"{'note':<12}{state.host}: no GPU was found; to compare with the expected number, give --system")
    launched = "no rank was started (--built FOLDER starts one on each GPU)"
    if built is not None:
        left = limit - (time.monotonic() - begin)
        launch = start_ranks(built, environment, len(state.gpus), max(left, 1.0))
        launched = launch.text
        if launch.verdict is not Verdict.PASS:
            verdicts.append(launch.verdict)
            click.echo(f"{launch.verdict.value:<12}{state.host}: {launch.text}")
        left = limit - (time.monotonic() - begin)
        measured = measure_gpus(built, environment, state, max(left, 1.0), system)
        for judged, line in measured if full and launch.verdict is Verdict.PASS and state.gpus else ():
            verdicts.append(judged or Verdict.PASS)
            click.echo(f"{judged.value if judged else 'note':<12}{state.host}: {line}")
    verdict = worst(verdicts)
    said = f"{len(state.gpus)} GPUs and {len(state.nics)} ports read in {time.monotonic() - begin:.1f} s"
    click.echo(f"{verdict.value}: {state.host}: {said}; {launched}")
    context.exit(EXIT_CODES[verdict])
