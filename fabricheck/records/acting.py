"""The one rule for acting on a node: a drain, an undrain, a prolog's refusal.

Who acts has a finding that was measured or compared, newer than what it changes, of this node, boot and system.
All else (late, old, foreign, odd, not certain) leaves the node alone, with one line that says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabricheck.records.component import short_host
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import Certainty
from fabricheck.records.verdict import Verdict

_CERTAIN = (Certainty.MEASURED, Certainty.CONTRAST)
#: What came and went is watched: it does not prove that the node is bad now.
_PASSED = "intermittent"
#: Clocks of the machines of one site differ by less than this.
SLACK = timedelta(minutes=1)


@dataclass(frozen=True)
class Sight:
    """One session's view of one node. `began` and `ended` have a time zone."""

    system: str
    node: str
    began: datetime
    ended: datetime


@dataclass(frozen=True)
class Target:
    """A node that may be changed. `since`: the times of what the change needs to be newer than, such as its boot."""

    system: str
    node: str
    since: tuple[datetime, ...] = ()


def why_untimely(sight: Sight, target: Target, now: datetime, oldest: timedelta) -> str:
    """Return why a session proves nothing of a node as it is now; empty where it may."""
    if sight.system != target.system:
        return f"is of {sight.system} instead of {target.system}: give the verdict of this system"
    if short_host(sight.node) != short_host(target.node) or not target.node:
        return f"is of {sight.node} instead of {target.node}"
    if sight.began > sight.ended:
        return "ends before it begins: measure again"
    if not -SLACK <= now - sight.ended <= oldest:
        return f"was measured {(now - sight.ended) / timedelta(hours=1):,.1f} hours ago: measure again"
    if any(sight.began <= time for time in target.since):
        return f"is older than the state of {target.node}: measure again"
    return ""


def proofs(findings: Iterable[Finding], node: str, verdicts: frozenset[Verdict]) -> tuple[Finding, ...]:
    """Return the findings that prove one of `verdicts` of this node alone, in their order."""
    return tuple(
        finding
        for finding in findings
        if finding.verdict in verdicts
        and finding.entry.certainty in _CERTAIN
        and finding.code != _PASSED
        and (not finding.components or short_host(finding.node) == short_host(node))
    )
