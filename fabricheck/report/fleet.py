"""The nodes of a fleet for a terminal, and in ten lines for a telephone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from fabricheck.fleet.verdict import BadNode, FleetVerdict
from fabricheck.report.content import printable
from fabricheck.topology.network import fold

#: What `--short` may take.
LINES, COLUMNS = 10, 60
_INDENT = " " * 12


def next_command(bad: BadNode) -> str:
    """What to type next about a node: about its part where that is known, else to take it out."""
    part = bad.evidence[0].part
    inside = re.search(rf"\b{re.escape(bad.node)}:(\w+)", part)
    if inside is not None and inside[1].startswith("gpu"):
        return f"ssh {bad.node} nvidia-smi -q (or rocm-smi -a)"
    if inside is not None:
        return f"ssh {bad.node} ethtool -S {inside[1]}"
    return f"scontrol update NodeName={bad.node} State=DRAIN Reason=fabricheck"


def table(found: FleetVerdict, width: int = 80) -> Iterator[str]:
    """A line for each bad node, with what was found and what to do next under it, then what was not checked."""
    for each in found.bad:
        first, *others = each.evidence
        more = f" (and {len(others)} more)" if others else ""
        text = printable(f"{first.message}{more}")
        yield f"{each.verdict.value:<10}  {each.node}  {first.part}"
        yield from textwrap.wrap(text, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT)
        yield f"{_INDENT}next: {next_command(each)}"
    for problem in found.elsewhere:
        text = printable(f"{problem.place}: {problem.message}")
        yield from textwrap.wrap(f"{problem.verdict.value:<10}  {text}", max(width, 40), subsequent_indent=_INDENT)
    for why in dict.fromkeys(each.why for each in found.unchecked):
        yield f"not checked: {fold(each.node for each in found.unchecked if each.why == why)}: {printable(why)}"
    yield found.message


def short(found: FleetVerdict) -> Iterator[str]:
    """At most `LINES` lines of `COLUMNS` columns: how many are good, then the bad ones, and those that are left."""
    lines = [found.message]
    lines += [f"{each.node} {each.verdict.value} {each.evidence[0].message}" for each in found.bad]
    lines += [f"{each.verdict.value} {each.place} {each.message}" for each in found.elsewhere]
    if found.unchecked:
        lines.append(f"not checked: {fold(each.node for each in found.unchecked)}")
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"and {len(lines) - LINES + 1} more: see the report"]
    for line in map(printable, lines):
        yield line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"
