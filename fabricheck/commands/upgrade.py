"""`fabricheck upgrade`: the old and the new software in one job, interleaved, and whether to go or to stay."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.commands.options import BUILT, FOLDER, JSON, MARGIN, SYSTEM, given_as
from fabricheck.commands.run import lock_output
from fabricheck.errors import UserError
from fabricheck.statistics.constants import FALSE_ALARM, FEWEST, MOST_ROUNDS
from fabricheck.units import few

if TYPE_CHECKING:
    from fabricheck.suite import Suite
    from fabricheck.upgrade.comparison import Upgrade, UpgradeCause
    from fabricheck.upgrade.exchange import AddedPart

_MOST_LINES = 10
# What came of a bisection.
_GUILTY = {
    "found": "{guilty}: {old} with this alone is slower",
    "together": "{guilty}: {old} is slower with all of these, and not without any of them",
    "elsewhere": "none of these: {old} with all of them is not slower",
    "cannot say": "cannot say: run with more --rounds on an idle node",
    "no time": "not known after {minutes:g} min: give more --minutes, or select fewer tests",
    "interrupted": "not known, since the run was interrupted: run again",
}


@dataclass(frozen=True)
class UpgradeOptions:
    """The options of `upgrade`."""

    old: str
    new: str
    system: str
    tags: tuple[str, ...]
    names: tuple[str, ...]
    rounds: int | None
    minutes: float
    bisect: bool
    margin: float
    percentile: float
    output: Path | None
    built: Path | None
    as_json: bool
    reframe_options: tuple[str, ...]


@click.command()
@click.argument("old")
@click.argument("new")
@SYSTEM
@click.option("--tag", "tags", multiple=True, help="Compare checks with this tag; repeatable.  [default: nightly]")
@click.option("--name", "names", multiple=True, help="Compare checks whose name matches; repeatable.")
@click.option(
    "--rounds",
    type=int,
    help="How often each test runs with OLD and with NEW.  [default: 8, then as many more as an answer needs, within "
    "--minutes]",
)
@click.option(
    "--minutes",
    type=float,
    default=10.0,
    show_default=True,
    help="How long rounds may go on until there is an answer, and after that the search for the guilty package.",
)
@click.option(
    "--bisect/--no-bisect",
    default=True,
    show_default=True,
    help="Where NEW is slower, exchange the packages that differ one by one, and name the guilty one.",
)
@MARGIN
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100),
    default=50.0,
    show_default=True,
    help="Compare this percentile of the iterations' times, such as 99 for the tail.",
)
@click.option("--output", type=FOLDER, help="The folder for results and logs.  [default: output/ in the suite]")
@BUILT
@JSON
@click.argument("reframe_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- REFRAME_OPTION...]")
@given_as(UpgradeOptions)
def upgrade(given: UpgradeOptions) -> None:
    """Measure with the environments OLD and NEW in one job, interleaved: is NEW slower, and by how much?

    When: before users get a new MPI, NCCL or module tree. Both are environments of the system's settings.py. NEW may
    also be a package, which is added to OLD: the folder that it was installed into, /HASH of Spack, or module:NAME; or
    a variable: NAME=VALUE, and without:NAME or without:profile for what the tuning profile sets.
    Each round runs all tests with both, A B, B A, A B, … on the same nodes, so that nothing else differs. If NEW is
    slower, and several packages or variables differ, each of them is tried in OLD: the guilty ones are named. Vendor
    suites, tests in containers and --nodes are left out. Nothing is stored in the history.

    The exit status is 0 for GO (NEW is the same or better), 1 for STAY (NEW is slower, or does not run), 4 for CANNOT
    SAY (the data are inconclusive), 2 for a mistake in the input.

    \b
    fabricheck upgrade openmpi openmpi-next --system alps:gpu
    fabricheck upgrade openmpi without:NCCL_NET_GDR_LEVEL --system alps:gpu
    """
    context = click.get_current_context()
    from fabricheck.history.text import to_json
    from fabricheck.session.progress import Progress
    from fabricheck.session.reframe import Selection
    from fabricheck.session.start import require_ready
    from fabricheck.session.suite_run import Launcher
    from fabricheck.suite import Suite, output_folder, suite_root
    from fabricheck.upgrade.comparison import judge_upgrade
    from fabricheck.upgrade.decision import LOOKS, Answer, further_rounds
    from fabricheck.upgrade.exchange import Stacks, find_causes

    _require_sensible(given.rounds, given.minutes, given.margin)
    suite = Suite(suite_root())
    old, new, added = _stacks(suite, given.system, given.old, given.new)
    chosen = given.tags or (() if given.names else ("nightly",))
    own_output = (given.output or output_folder(suite.root)) / "upgrades"  # these runs are none of the history
    selection = Selection(
        given.system, chosen, given.names, (f"^{old}$", f"^{new}$"), given.reframe_options, "interleaved"
    )
    with lock_output(context, suite, selection, own_output):
        of_new = added.settings(own_output, suite, selection.whole_system, old) if added else None
        ready = functools.partial(require_ready, suite, selection.whole_system, None)
        launcher = Launcher(suite, own_output, lambda: Progress(functools.partial(click.echo, err=True)), ready)
        stacks = Stacks(launcher, selection, old, given.built)

        def judged(times: int) -> Upgrade:
            stacks.measure([new], times, settings=of_new)
            result = judge_upgrade(
                stacks.sessions,
                suite,
                selection.whole_system,
                (old, new),
                margin=given.margin,
                looks=1 if given.rounds else LOOKS,
                percentile=given.percentile,
            )
            return added.checked(result) if added else result

        click.echo(f"{selection.whole_system}: {', '.join((*chosen, *given.names))} with {old} and {new}", err=True)
        result = judged(given.rounds or FEWEST)
        can_go_on = given.rounds is None and result.answer is Answer.CANNOT_SAY and not result.left_out
        if can_go_on and (
            more := further_rounds(result.changes, given.margin, 60 * given.minutes / max(result.round_seconds, 1))
        ):
            click.echo(f"fabricheck: {result.rounds} rounds cannot say: {more} more", err=True)
            result = judged(more)
        folder = stacks.sessions[0].folder
        if not given.as_json:
            click.echo("\n".join(_lines(result)))
        if given.bisect and result.answer is Answer.WORSE and not result.failures:
            click.echo(f"fabricheck: {new} is slower; what differs is exchanged in {old}", err=True)
            search = functools.partial(stacks.exchange, result, time.monotonic() + 60 * given.minutes)
            result = replace(result, causes=find_causes(result, suite, folder, search))
            for cause in () if given.as_json else result.causes:
                click.echo("\n".join(_lines_of_cause(result, cause, given.minutes)))
    if given.as_json:
        click.echo(to_json(result), nl=False)
    click.echo(f"fabricheck: the results are in {folder}", err=True)
    context.exit(result.exit_status)


def _require_sensible(rounds: int | None, minutes: float, margin: float) -> None:
    if rounds is not None and (rounds < 2 or rounds % 2):
        raise UserError(f"--rounds {rounds}: give an even number, 2 or more")
    if not 0 < minutes < math.inf:
        raise UserError(f"--minutes {minutes:g}: give a number above 0")
    if not 0 < margin < 1:
        raise UserError(f"--margin {margin:g}: give a share between 0 and 1, such as 0.05")


def _stacks(suite: Suite, system: str, old: str, new: str) -> tuple[str, str, AddedPart | None]:
    """The names of both environments, and what makes the new one of the old where it is that."""
    from fabricheck.site.validation import require_partition
    from fabricheck.upgrade.exchange import AddedPart

    suite.require(system.partition(":")[0])
    require_partition(suite.root, system)
    added = AddedPart.of(new, suite, system)
    old, *others = _environments(suite.root, system, old, *([] if added else [new]))
    return old, added.name if added else others[0], added


def _environments(root: Path, system: str, *wanted: str) -> list[str]:
    """The names as the settings write them; case does not matter."""
    from fabricheck.site.validation import environments_of

    name, _, partition = system.partition(":")
    of_partitions = environments_of(root, name)
    known = {each for own, some in of_partitions.items() if partition in ("", own) for each in some}
    by_name = {each.casefold(): each for each in known}
    if missing := [each for each in wanted if each.casefold() not in by_name]:
        raise UserError(f"{system} has no environment {missing[0]!r}: it has {', '.join(sorted(known))}")
    names = [by_name[each.casefold()] for each in wanted]
    if len(names) > len({*names}):
        raise UserError(f"OLD and NEW are the same environment, {names[0]}: give two")
    return names


def _lines(result: Upgrade) -> Iterator[str]:
    from fabricheck.upgrade.decision import Answer

    yield f"{result.system}: {result.old} -> {result.new}, {result.rounds} rounds, interleaved"
    for title, reasons in (
        ("changed", (*result.software, *result.variables_beside, *result.packages)),
        ("changed default", result.defaults),
        ("does not run", result.failures[1:]),
        ("not compared", result.left_out),
        ("left out", result.not_asked),
    ):
        yield from (f"  {title}: {reason}" for reason in [*map(str, reasons)][:_MOST_LINES])
    for group in result.changes.classes:
        yield f"  {group.answer.value}: {group.of}: {group}, {group.metrics} metric{'s' * (group.metrics > 1)}"
    for title in (Answer.WORSE, Answer.BETTER):
        members = [each for each in result.changes.all if each.name and each.answer is title]
        yield from (f"    {title.value}: {each.test or each.of}: {each.name} {each}" for each in members[:_MOST_LINES])
        if len(members) > _MOST_LINES:
            yield f"    {title.value}: {len(members) - _MOST_LINES} more; --json has them all"
    if len(result.suspects) == 1:
        yield f"  suspect: {result.suspects[0].text}: nothing else that differs explains it"
    elif result.suspects:
        names = few([each.name for each in result.suspects], between=" or ")
        yield f"  suspect: {names}: cannot be told apart: exchange them (--bisect), or try {result.old} with each alone"
    surely = f"{1 - FALSE_ALARM:.0%} certain"
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


def _lines_of_cause(result: Upgrade, cause: UpgradeCause, minutes: float) -> Iterator[str]:
    """What the exchanges showed, and what is guilty by them."""
    yield f"  exchanged in {result.old}: {cause.of}"
    for step in cause.steps:
        showed = step.change or f"could not be exchanged so: {step.problem}"
        yield f"    {step.answer.value}: {' + '.join(step.differences)}: {showed}"
    guilty = " and ".join(map(str, cause.guilty))
    yield f"  guilty: {_GUILTY[cause.outcome.value].format(guilty=guilty, old=result.old, minutes=minutes)}"
    if cause.to_try:
        yield f"  left to try: {few([difference.name for difference in cause.to_try], _MOST_LINES)}"
    if cause.left:
        yield f"  not exchanged: {few([difference.name for difference in cause.left])}"


def _why(result: Upgrade) -> str:
    """What keeps an upgrade from an answer, and what would give it."""
    from fabricheck.upgrade.decision import rounds_needed

    needed = rounds_needed(result.changes, result.margin)
    if result.left_out or not needed:
        return result.left_out[0] if result.left_out else "no test measured anything with both"
    unsure = result.changes.unsure[0]
    minutes = max(needed * result.round_seconds / 60, 1)
    step = f"run --rounds {needed} (about {minutes:.0f} min)"
    if needed > MOST_ROUNDS:
        step = "too noisy: use an idle node, or larger tests"
    return f"{unsure.of} may have lost more than {result.margin:.0%} ({unsure}): {step}"
