"""A finding in words: the one line for people, the figures in it, and the steps of its row of the catalogue.

A line has one order: verdict, what, how much of what, and what to do next. The message of the finding and all that its
row says is one level deeper: `of_entry`.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CatalogueEntry
from fabricheck.records.nic_families import family_of
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import number, plain, short_message, unit_shown
from fabricheck.suite import program, script
from fabricheck.topology.network import fold
from fabricheck.units import apart, plural

#: Characters of a line for people.
LONGEST = 160
# Units of what is counted, in whole numbers.
_COUNTED = ("nodes", "words")
# What stands for what a step asks for and the finding does not have.
_UNKNOWN = {"nodes": "LIST", "gpu": "N", "state": "ethtool PART", "counters": "ethtool -S PART"} | {
    name: name.upper() for name in ("node", "part", "system", "file", "run", "test")
}
#: Commands by themselves.
_COMMANDS = ("state", "counters", "test")
_MOST_CHECKS = 3
# The name of a test of ReFrame, and where it ran: `PingPong %transport=ccl @alps:gpu+PrgEnv-gnu`.
_CASE = re.compile(r"([A-Za-z_]\w*)(?: %.*)? @[\w.-]+:?[\w.-]*\+")


def line(finding: Finding, *, system: str = "", run: str = "") -> str:
    """What people read first, of at most 160 characters.

    Such as `DEGRADED nid001 is slower than its peers: 1,809 Gb/s, 42.8% below 3,165 Gb/s. On nid001: dmesg -T`.
    """
    before = f"{finding.verdict.value} "
    return plain(before + summary(finding, system=system, run=run, most=LONGEST - len(before)))


def summary(
    finding: Finding,
    *,
    system: str = "",
    run: str = "",
    tests: Sequence[str] = (),
    message: str | None = None,
    most: int = 149,
) -> str:
    """The line without its verdict, of at most `most` characters, with the first step where there is room for it, whose
    commands are between backticks.

    A finding that names no component says with its message what it is about, as far as there is room; `message` may be
    a shorter one than its own. `run`: the folder of the run.
    """
    what, amount = headline(finding), figures(finding)
    if not finding.components and not amount:
        amount = finding.message if message is None else message
    if amount:
        what += f": {amount}"
    what = plain(what)
    if len(what) > most:
        return f"{what[: most - 1]}…"
    first = next(iter(marked_steps(finding, system=system, run=run, tests=tests)), "")
    return f"{what.rstrip('.')}. {first}" if first and len(what) + 2 + len(plain(first)) <= most else what


def headline(finding: Finding) -> str:
    """What is wrong, and where."""
    entry = finding.entry
    if not entry.subject:
        return f"{finding.place}: {entry.sentence}" if finding.components else entry.sentence
    if finding.components:
        return f"{finding.place} {entry.sentence}"
    return f"{finding.metrics[0]} {entry.sentence}" if len(finding.metrics) == 1 else entry.alone


def figures(finding: Finding) -> str:
    """How much of what, such as `1,809 Gb/s, 42.8% below 3,165 Gb/s`; empty where the finding has no figure."""
    measured, expected = finding.measured, finding.expected
    if measured is None or not math.isfinite(measured):
        return ""
    text = _amount(measured, finding.unit)
    if expected is None or not (math.isfinite(expected) and expected > 0):
        return text
    share = measured / expected
    against = f"{number(share)} times" if share >= 2 else apart(measured, expected)
    return f"{text}, {against} {_amount(expected, finding.unit)}"


def _amount(value: float, unit: str) -> str:
    if unit in _COUNTED:
        return plural(round(value), unit.removesuffix("s"))
    return f"{number(value)} {unit_shown(unit)}".rstrip()


def steps(finding: Finding, *, system: str = "", run: str = "", tests: Sequence[str] = ()) -> tuple[str, ...]:
    """What to do, the first first, with the finding's own names in the commands. `tests`: which had it, as verdict.json
    calls them."""
    return tuple(map(plain, marked_steps(finding, system=system, run=run, tests=tests)))


def marked_steps(finding: Finding, *, system: str = "", run: str = "", tests: Sequence[str] = ()) -> tuple[str, ...]:
    """The same with each command between backticks. A step is left out where its command needs a name that neither the
    finding nor its run has."""
    names = {**_names(finding, system, run), "test": checks_to_name(tests)}
    missing = [f"{{{name}}}" for name in _UNKNOWN if not names[name]]
    possible = [each for each in finding.entry.steps if not any(name in _commands(each) for name in missing)]
    return tuple(with_program(fill_names(step, names)) for step in possible)


def _commands(step: str) -> str:
    return "".join(step.split("`")[1::2])


def checks_to_name(tests: Sequence[str]) -> str:
    """What follows `--name` to run the checks of some tests again, of many the first; empty where no check is known."""
    names = dict.fromkeys(match[1] for test in tests if (match := _CASE.match(test)))
    return " --name ".join([*names][:_MOST_CHECKS])


def fill_names(step: str, names: dict[str, str]) -> str:
    """A step with `names` in place of `{node}` and so on; what has no name keeps a word such as NODE. In commands they
    are as a shell reads them."""
    known = {name: plain(names.get(name) or word) for name, word in _UNKNOWN.items()}
    quoted = {name: text if name in _COMMANDS else shlex.quote(text) for name, text in known.items()}
    parts = step.split("`")
    return "`".join(part.format(**(quoted if place % 2 else known)) for place, part in enumerate(parts))


def with_program(text: str) -> str:
    """A text of the catalogue with commands that can be pasted into a shell here."""
    return text.replace("`fabricheck ", f"`{program()} ").replace("`python ci/drain.py", f"`{script('ci/drain.py')}")


def of_entry(entry: CatalogueEntry, its_steps: tuple[str, ...], width: int = 100) -> Iterator[str]:
    """What a row of the catalogue says beside its sentence."""
    yield from wrap(f"What decides it: {plain(with_program(entry.decides))}", width)
    yield from wrap(f"How sure it is: {entry.certainty.value}", width)
    # A command is pasted from one line.
    yield from (f"  {place}. {each}" for place, each in enumerate(its_steps, start=1))


@dataclass(frozen=True)
class Explained:
    """A finding with its line, and one level deeper its message, what decides it and what to do; commands are between
    backticks."""

    verdict: Verdict
    code: str
    line: str
    message: str
    decides: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, finding: Finding, system: str, run: str, message: str, tests: Sequence[str] = ()) -> Explained:
        """`message`: a shorter one than the finding's own. `tests`: which had it; empty of a session's."""
        line = summary(finding, system=system, run=run, tests=tests, message=message)
        its_steps = marked_steps(finding, system=system, run=run, tests=tests)
        return cls(finding.verdict, finding.code, line, message, with_program(finding.entry.decides), its_steps)


def untold(
    runs: Sequence[RunJudgement], told: Iterable[Finding], system: str, folder: str
) -> Iterator[tuple[Explained, ...]]:
    """The problems of each run that are not told before: by a card, or at a run before it. `folder`: of the session."""
    shown = set(told)
    for run in runs:
        problems = []
        for finding in run.all_problems:
            message = short_message(finding, run)
            # In other runs it names another file.
            everywhere = replace(finding, message=message)
            if not shown & {finding, everywhere}:
                shown.add(everywhere)
                problems.append(Explained.of(finding, system, folder, message, [run.test]))
        yield tuple(problems)


def general_steps(entry: CatalogueEntry) -> tuple[str, ...]:
    """The steps of a row of the catalogue for no finding in particular."""
    return tuple(plain(with_program(fill_names(step, {}))) for step in entry.steps)


def wrap(text: str, width: int, indent: str = "  ") -> list[str]:
    """Indented lines of at most `width` characters; paths and commands are not broken within a word."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _names(finding: Finding, system: str, run: str) -> dict[str, str]:
    listed = fold(sorted({node for each in finding.components for node in each.nodes}))
    part = next((each for each in finding.components if each.name), Component.of_node(""))
    return {
        "node": listed,
        "nodes": listed,
        "part": part.name,
        "gpu": part.gpu_for_tools,
        "state": family_of(part.name).state.format(part.name) if part.name else "",
        "counters": family_of(part.name).counters.format(part.name) if part.name else "",
        "system": system,
        "file": next(iter(finding.files), ""),
        "run": run,
    }
