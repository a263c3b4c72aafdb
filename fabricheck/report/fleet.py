"""The nodes of a fleet for a terminal."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from fabricheck.fleet.node_verdicts import BadNode, FleetVerdict
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import plain, printable
from fabricheck.report.lines import steps
from fabricheck.report.part_names import NodeParts
from fabricheck.suite import script
from fabricheck.topology.network import fold

_INDENT = " " * 12
# Nodes with an entry of their own; where more are bad, it is not for each of them.
_ENTRIES = 20


def next_step(bad: BadNode, parts: NodeParts, system: str, folder: str) -> str:
    """What to do next about a node: about its part where that is known; where others used it, to run again."""
    if looks := parts.looks(bad.evidence[0].components):
        return plain("; ".join(looks))
    busy = Finding("node-busy", Verdict.PASS, "", (Component.of_node(bad.node),))
    return next(iter(steps(busy if bad.busy else bad.evidence[0], system=system, run=folder)), "")


def table(
    verdict: FleetVerdict, parts: NodeParts, width: int = 80, *, system: str = "", folder: str = ""
) -> Iterator[str]:
    """A line for each bad node, with what was found and what to do next under it, and the command that drains within
    the site's limits; then what was not checked.

    `parts`: of the runs that it is the verdict of. `system` and `folder`, that of the session, are for commands.
    """
    for bad in verdict.bad[:_ENTRIES]:
        first, *others = bad.evidence
        more = f" (and {len(others)} more)" if others else ""
        text = printable(f"{first.message}{more}")
        part = f"  {parts.place(first.components)}" if any(one.name for one in first.components) else ""
        yield f"{bad.verdict.value:<10}  {bad.node}{part}"
        yield from textwrap.wrap(text, max(width, 40), initial_indent=_INDENT, subsequent_indent=_INDENT)
        if step := next_step(bad, parts, system, folder):
            yield f"{_INDENT}next: {step}"
    if len(verdict.bad) > _ENTRIES:
        rest = verdict.bad[_ENTRIES:]
        yield f"and {len(rest)} more (verdict.json): {fold(each.node for each in rest)}"
    if any(not each.busy for each in verdict.bad):
        command = f"{script('ci/drain.py')} {shlex.quote(folder)}/verdict.json --system {system}"
        yield f"to drain at most as many as config/policy.yaml allows: {command}"
    for problem in verdict.elsewhere:
        text = printable(f"{problem.place}: {problem.message}")
        yield from textwrap.wrap(f"{problem.verdict.value:<10}  {text}", max(width, 40), subsequent_indent=_INDENT)
    for why in dict.fromkeys(verdict.unchecked.values()):
        nodes = fold(node for node in verdict.unchecked if verdict.unchecked[node] == why)
        yield f"not checked: {nodes}: {printable(why)}"
    yield f"{verdict.message}; {verdict.coverage.message}"
