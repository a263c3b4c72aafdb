"""`fabricheck upgrade`: the old and the new software in one job, interleaved, and whether to go or to stay."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import BUILT, FOLDER, JSON, MARGIN
from fabricheck.commands.run import alone, prebuilt
from fabricheck.errors import UserError

if TYPE_CHECKING:
    from fabricheck.diagnosis.upgrade import UpgradeChange
    from fabricheck.session.upgrade import Upgrade

_MOST_LINES = 10
_USUAL_ROUNDS, _MOST_ROUNDS = 8, 64
# The standard normal value that nine in ten are below.
_NINE_IN_TEN = 1.2816


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--system", default="local", show_default=True, help="A system below site_configs/, or system:partition.")
@click.option("--tag", "tags", multiple=True, help="Compare checks with this tag; repeatable.  [default: nightly]")
@click.option("--name", "names", multiple=True, help="Compare checks whose name matches; repeatable.")
@click.option(
    "--rounds", default=_USUAL_ROUNDS, show_default=True, help="How often each test runs with OLD and with NEW."
)
@MARGIN
@click.option("--output", type=FOLDER, help="The folder for results and logs.  [default: output/ in the suite]")
@BUILT
@JSON
@click.argument("reframe_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- REFRAME_OPTION...]")
@click.pass_context
def upgrade(
    context: click.Context,
    *,
    old: str,
    new: str,
    system: str,
    tags: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int,
    margin: float,
    output: Path | None,
    built: Path | None,
    as_json: bool,
    reframe_options: tuple[str, ...],
) -> None:
    """Measure with the environments OLD and NEW in one job, interleaved: is NEW slower, and by how much?

    When: before users get a new MPI, NCCL or module tree. Both are environments of the system's settings.py. Each
    round runs all tests with both, A B, B A, A B, … on the same nodes, so that nothing else differs. Vendor suites,
    tests in containers and --nodes are left out. Nothing is stored in the history.

    The exit status is 0 for GO (NEW is the same or better), 1 for STAY (NEW is slower, or does not run), 4 for CANNOT
    SAY (the data are inconclusive), 2 for a mistake in the input.

    \b
    fabricheck upgrade openmpi openmpi-next --system alps:gpu
    """
    from fabricheck.history.text import to_json
    from fabricheck.session.progress import Progress
    from fabricheck.session.reframe import Selection
    from fabricheck.session.start import require_ready
    from fabricheck.session.suite_run import run_suite
    from fabricheck.session.upgrade import judge_upgrade
    from fabricheck.suite import Suite, output_folder, suite_root

    if rounds < 2 or rounds % 2:
        raise UserError(f"--rounds {rounds}: give an even number, 2 or more")
    if not 0 < margin < 1:
        raise UserError(f"--margin {margin:g}: give a share between 0 and 1, such as 0.05")
    suite = Suite(suite_root())
    old, new = _environments(suite.root, system, old, new)
    chosen = tags or (() if names else ("nightly",))
    options = (*prebuilt(built), f"--repeat={rounds}", *reframe_options)
    selection = Selection(system, chosen, names, (f"^{old}$", f"^{new}$"), options, "interleaved")
    # Beside the runs of the system: these are none of its history.
    own_output = (output or output_folder(suite.root)) / "upgrades"
    with alone(context, suite, selection, own_output) as has_locks:
        click.echo(f"{selection.whole_system}: {', '.join((*chosen, *names))} with {old} and {new}", err=True)
        ready = functools.partial(require_ready, suite, selection.whole_system, None)
        progress = Progress(functools.partial(click.echo, err=True))
        session = run_suite(suite, selection, own_output, progress, meanwhile=ready, has_locks=has_locks)
        result = judge_upgrade(session, suite, selection.whole_system, (old, new), rounds=rounds, margin=margin)
    click.echo(to_json(result) if as_json else "\n".join(_lines(result)), nl=not as_json)
    click.echo(f"fabricheck: the results are in {session.folder}", err=True)
    context.exit(result.exit_status)


def _environments(root: Path, system: str, *wanted: str) -> list[str]:
    """The names as the settings write them; case does not matter."""
    from fabricheck.site.validation import environments_of, require_partition
    from fabricheck.suite import Suite

    name, _, partition = system.partition(":")
    Suite(root).require(name)
    require_partition(root, system)
    of_partitions = environments_of(root, name)
    known = {each for own, some in of_partitions.items() if partition in ("", own) for each in some}
    by_name = {each.casefold(): each for each in known}
    if missing := [each for each in wanted if each.casefold() not in by_name]:
        raise UserError(f"{system} has no environment {missing[0]!r}: it has {', '.join(sorted(known))}")
    names = [by_name[each.casefold()] for each in wanted]
    if names[0] == names[1]:
        raise UserError(f"OLD and NEW are the same environment, {names[0]}: give two")
    return names


def _lines(result: Upgrade) -> Iterator[str]:
    from fabricheck.diagnosis.upgrade import CONFIDENCE, Answer

    yield f"{result.system}: {result.old} -> {result.new}, {result.rounds} rounds, interleaved"
    for title, reasons in (
        ("changed", (*result.software, *result.variables, *result.packages)),
        ("does not run", result.failures),
        ("not compared", result.left_out),
        ("left out", result.not_asked),
    ):
        yield from (f"  {title}: {each}" for each in reasons[:_MOST_LINES])
    for group in result.changes.classes:
        yield f"  {group.answer.value}: {group.of}: {group}, {group.metrics} metric{'s' * (group.metrics > 1)}"
    for title in (Answer.WORSE, Answer.BETTER):
        members = [each for each in result.changes.all if each.name and each.answer is title]
        yield from (f"    {title.value}: {each.test or each.of}: {each.name} {each}" for each in members[:_MOST_LINES])
        if len(members) > _MOST_LINES:
            yield f"    {title.value}: {len(members) - _MOST_LINES} more; --json has them all"
    if result.suspects:
        yield f"  suspect: {' or '.join(each.text for each in result.suspects)}: only what uses it is slower"
    elif result.answer is Answer.WORSE and not result.failures and result.only_change:
        yield f"  suspect: {result.only_change}: nothing else is known to differ"
    elif result.answer is Answer.WORSE and not result.failures and len(result.packages) > 1:
        yield f"  next: compare {result.old} with {result.old} plus one of the packages (LD_LIBRARY_PATH), one by one"
    surely = f"{CONFIDENCE:.0%} certain"
    if result.failures:
        yield f"STAY: {result.new} does not run: {result.failures[0]}"
    elif result.answer is Answer.WORSE:
        worst = next(each for each in result.changes.all if each.answer is Answer.WORSE)
        yield f"STAY: {result.new} is slower: {' '.join(filter(None, (worst.of, worst.name)))}: {worst} ({surely})"
    elif result.answer is Answer.CANNOT_SAY:
        yield f"CANNOT SAY: {_why(result)}"
    else:
        lost = f"no class of metrics lost {result.margin:.0%} or more ({surely})"
        yield f"GO: {result.new} is {result.answer.value}: {lost}"


def _why(result: Upgrade) -> str:
    """What keeps an upgrade from an answer, and what would give it."""
    from fabricheck.diagnosis.upgrade import Answer

    unsure = [each for each in result.changes.classes if each.answer is Answer.CANNOT_SAY]
    if result.left_out or not unsure:
        return result.left_out[0] if result.left_out else "no test measured anything with both"
    needed = max(_rounds_for(each, result.rounds, result.margin) for each in unsure)
    needed = _USUAL_ROUNDS if result.rounds < _USUAL_ROUNDS else needed
    step = (
        f"run --rounds {max(needed, result.rounds + 2):.0f}"
        if needed <= _MOST_ROUNDS
        else "too noisy: use an idle node, or larger tests"
    )
    return f"{unsure[0].of} may have lost more than {result.margin:.0%} ({unsure[0]}): {step}"


def _rounds_for(change: UpgradeChange, rounds: int, margin: float) -> float:
    """How many rounds show nine times in ten that nothing is lost where nothing is; errors shrink with their root."""
    reach = math.log(change.gain / change.interval[0]) + _NINE_IN_TEN * change.error
    return 2 * math.ceil(rounds / 2 * (reach / -math.log1p(-margin)) ** 2)
