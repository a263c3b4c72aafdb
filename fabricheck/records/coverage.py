"""Coverage of a session: how data crossed each component, and the smallest loss that would have been red."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from fabricheck.records.component import Component, Kind


class SeenJson(TypedDict):
    """Components of one kind that were seen in the same way."""

    kind: str
    """`node`, `gpu`, `nic`, `device`, `link` or `switch`"""
    seen: str
    """`not`; `inside only`: no data between nodes; `together`: by collectives alone; `pairs`, `all pairs`"""
    pairs: int
    """with how many others it was measured as a pair; of a switch or trunk, how many pairs of nodes crossed it"""
    of_pairs: int
    """how many there are; 0: unknown"""
    smallest_loss: float | None
    """the share, in percent steps, that a pair or memory path had to lose to be red; null: no such measurement"""
    components: list[str]
    """their names"""


class CoverageJson(TypedDict):
    """Coverage as verdict.json has it; INVALID and INCOMPLETE measurements cover nothing."""

    message: str
    """the same for people"""
    nodes: int
    """nodes of the system; 0: not known"""
    inside: list[str]
    """nodes inside of which data crossed every known GPU and its links"""
    components: list[SeenJson]
    """parts of nodes that are not listed were not seen"""


@dataclass(frozen=True)
class Seen:
    """Coverage of one `component` by a session, as in `SeenJson`.

    `inside`: data that stayed on its node crossed it; `between`: data between nodes did.
    """

    component: Component
    inside: bool = False
    between: bool = False
    pairs: int = 0
    of_pairs: int = 0
    smallest_loss: float | None = None

    @property
    def how(self) -> str:
        """One word of `SeenJson`."""
        if not (self.inside or self.between):
            return "not"
        if self.component.kind is Kind.NODE and not self.between:
            return "inside only"
        if not self.pairs:
            return "together"
        return "all pairs" if self.pairs == self.of_pairs else "pairs"


@dataclass(frozen=True)
class Coverage:
    """Coverage of a system of `nodes` nodes (0: unknown), by component."""

    nodes: int
    seen: tuple[Seen, ...] = ()

    def of_kind(self, kind: Kind) -> tuple[Seen, ...]:
        """The components of a kind."""
        return tuple(each for each in self.seen if each.component.kind is kind)

    @property
    def inside(self) -> tuple[str, ...]:
        """The nodes inside of which data crossed every known GPU, and every link from it that is not a NIC's."""
        gpus = {(each.component.node, each.component.name) for each in self.of_kind(Kind.GPU)}
        nics = {(each.component.node, each.component.name) for each in self.of_kind(Kind.NIC)}
        partly = set()
        for part in self.seen:
            ends = {(end.node, end.name) for end in part.component.ends}
            if not part.inside and ends & gpus and not ends & nics:
                partly.add(part.component.node)
        return tuple(node for node in self.inside_in_part if node not in partly)

    @property
    def inside_in_part(self) -> tuple[str, ...]:
        """The nodes inside of which anything was measured."""
        return tuple(each.component.node for each in self.of_kind(Kind.NODE) if each.inside)

    @property
    def between(self) -> tuple[str, ...]:
        """The nodes to or from which data of other nodes went."""
        return tuple(each.component.node for each in self.of_kind(Kind.NODE) if each.between)

    @property
    def pairs(self) -> int:
        """How many pairs of nodes were measured."""
        return sum(each.pairs for each in self.of_kind(Kind.NODE)) // 2

    @property
    def message(self) -> str:
        """Such as `inside of 1 of 6 nodes; network of 6 of 6, 0 of 15 pairs`."""
        whole, known = len(self.inside), f" of {self.nodes:,}" if self.nodes else ""
        text = f"inside of {whole:,}{known} {'node' if (self.nodes or whole) == 1 else 'nodes'}"
        if more := len(self.inside_in_part) - whole:
            text += f", in part of {more:,}"
        if self.nodes == 1:
            return text
        if not self.between:
            return f"{text}; network not tested"
        total = self.nodes or len(self.of_kind(Kind.NODE))
        pairs = f"{self.pairs:,} of {total * (total - 1) // 2:,} pairs"
        text += f"; network of {len(self.between):,}{known or ' nodes'}, {pairs}"
        trunks = [each for each in self.of_kind(Kind.LINK) if not each.component.nodes]
        unseen = sum(each.how == "not" for each in trunks)
        return f"{text}, {unseen:,} of {len(trunks):,} trunks not seen" if unseen else text

    def as_json(self) -> CoverageJson:
        """All of it; components that were seen in the same way stand in one row."""
        rows: dict[tuple[Any, ...], SeenJson] = {}
        for part in self.seen:
            loss = None if part.smallest_loss is None else round(part.smallest_loss, 2)
            key = (part.component.kind, part.how, part.pairs, part.of_pairs, loss)
            kind, how, pairs, of_pairs, _ = key
            row = SeenJson(kind=kind.value, seen=how, pairs=pairs, of_pairs=of_pairs, smallest_loss=loss, components=[])
            rows.setdefault(key, row)["components"].append(part.component.text)
        return {
            "message": self.message,
            "nodes": self.nodes,
            "inside": list(self.inside),
            "components": list(rows.values()),
        }
