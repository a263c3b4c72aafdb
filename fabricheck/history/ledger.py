"""When each node of a system, and each of its links to other nodes, was last verified, by the sessions in a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fabricheck.history.folders import SessionFolder
from fabricheck.history.reading import entries_of
from fabricheck.history.session import read_record
from fabricheck.history.session_nodes import nodes_of
from fabricheck.judge.constants import READERS

#: What a session has to have come to on a node for that to be verified: whatever it found, it measured all.
_VERIFIED = ("PASS", "DEGRADED", "FAIL")


@dataclass(frozen=True)
class Checked:
    """A session that had a part of the machine: when it began (UTC, as in session.json), which checks were requested
    (None: not known), and what it came to there."""

    started: str
    session: str
    level: str | None
    verdict: str


@dataclass(frozen=True)
class VerifiedNic:
    """A NIC of a node, and the last session that verified it in pairs with other nodes; None: none did."""

    name: str
    verified: Checked | None


@dataclass(frozen=True)
class LedgerNode:
    """A node: the last session that came to a verdict on it, and `later` the last one, where that came to none."""

    node: str
    verified: Checked | None
    later: Checked | None
    links: tuple[VerifiedNic, ...]

    @property
    def last(self) -> str:
        """When the last session had it, whatever that came to; empty: never."""
        return max((each.started for each in (self.verified, self.later) if each is not None), default="")


@dataclass(frozen=True)
class Ledger:
    """The nodes of a system or partition, those that were never verified first, then the longest ago.

    `others`: nodes that the store has and that are not among those requested. `rehearsal`: any session was one.
    """

    system: str
    nodes: tuple[LedgerNode, ...]
    others: tuple[str, ...]
    rehearsal: bool

    def oldest(self, nodes: Iterable[str]) -> list[str]:
        """Some nodes, those first that no session had, then those whose last one is the longest ago.

        Whatever it came to, so that a node that never gets a verdict does not take the turn of all others. In their
        own order where that is the same.
        """
        last = {each.node: each.last for each in self.nodes}
        return sorted(nodes, key=lambda node: last.get(node, ""))


def read_ledger(store: Path, system: str, nodes: Sequence[str] = (), nics: Sequence[str] = ()) -> Ledger:
    """The ledger of the `nodes` of a system, of all that the store has where none are given; in their order where they
    were verified at the same time.

    `nics`: those that each node has, whether they were measured or not. Raises UserError where the store has nothing of
    the system or is damaged.
    """
    verified: dict[str, Checked] = {}
    last: dict[str, Checked] = {}
    links: dict[str, dict[str, Checked]] = {}
    wanted, rehearsal = set(nodes), False
    with ThreadPoolExecutor(READERS) as pool:
        for hosts, is_rehearsal in pool.map(_of_session, entries_of(store, system)):  # the oldest first
            rehearsal |= is_rehearsal
            for host, checked, names in hosts:
                node = host if host in wanted else host.partition(".")[0]
                last[node] = checked
                if checked.verdict in _VERIFIED:
                    verified[node] = checked
                    links.setdefault(node, {}).update(dict.fromkeys(names, checked))
    lines = [
        LedgerNode(
            node,
            verified.get(node),
            last[node] if last.get(node) is not verified.get(node) else None,
            tuple(
                VerifiedNic(name, own.get(name))
                for own in [links.get(node, {})]
                for name in dict.fromkeys((*nics, *own))
            ),
        )
        for node in nodes or sorted(last)
    ]
    lines.sort(key=lambda each: (each.verified.started if each.verified else "", each.last))
    others = tuple(sorted(set(last) - wanted)) if nodes else ()
    return Ledger(system, tuple(lines), others, rehearsal)


def _of_session(entry: SessionFolder) -> tuple[list[tuple[str, Checked, tuple[str, ...]]], bool]:
    """Of each node what a session came to, and the NICs that it measured; and whether it was a rehearsal."""
    record = read_record(entry)
    hosts = [
        (node, Checked(record.started, record.session, record.level, each.verdict), tuple(each.links))
        for node, each in nodes_of(entry, record).items()
    ]
    return hosts, record.rehearsal
