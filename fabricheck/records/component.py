"""What can be at fault: a part of the machine, or a piece of its software."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import ClassVar

from pydantic import ConfigDict

from fabricheck.jsonfile import STRICT


class Kind(str, Enum):
    """What a component is. Those before LIBRARY are hardware; a PATH is whatever lies between two ends."""

    NODE = "node"
    GPU = "gpu"
    NIC = "nic"
    DEVICE = "device"
    LINK = "link"
    PATH = "path"
    SWITCH = "switch"
    NUMA = "numa"
    LIBRARY = "library"
    MPI = "mpi"
    DRIVER = "driver"
    KERNEL = "kernel"
    FIRMWARE = "firmware"
    SETTING = "setting"
    CHECK = "check"
    LAUNCH = "launch"
    SYSTEM = "system"

    @property
    def is_software(self) -> bool:
        """Whether it is a library, driver, setting or another thing that is installed or configured."""
        return self in _SOFTWARE


def short_host(host: str) -> str:
    """Return the name of a node without its domain; an address of IPv4 has none."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0] or host


_SOFTWARE = frozenset((Kind.LIBRARY, Kind.MPI, Kind.DRIVER, Kind.KERNEL, Kind.FIRMWARE, Kind.SETTING))
_OF_TWO = frozenset((Kind.LINK, Kind.PATH))
_GPU = re.compile(r"gpu\d+")


@dataclass(frozen=True, order=True)
class Component:
    """One thing that several measurements can share and that can be at fault.

    `name`: on its `node` (`gpu2`, `hsn0`), which is empty for what belongs to no node, such as a switch or a library;
    of a node as a whole `name` is empty. A LINK or PATH has a second end, `far` on `far_node`. `direction`: empty for
    both; `out` of a LINK or PATH for what goes from the first end to the second, `sending` or `receiving` of a part.
    `condition`: under which alone it is slow, such as `with 3 pairs at once`. `version`: of software, if known.
    `address`: of a GPU the PCI address, if known; it is the same GPU without it.
    """

    kind: Kind
    name: str = ""
    node: str = ""
    far: str = ""
    far_node: str = ""
    direction: str = ""
    condition: str = ""
    version: str = ""
    address: str = field(default="", compare=False)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    @classmethod
    def of_node(cls, host: str) -> Component:
        """A node as a whole."""
        return cls(Kind.NODE, node=host)

    @classmethod
    def between(cls, first: Component, second: Component, direction: str = "") -> Component:
        """Whatever lies between two parts or nodes."""
        return cls(Kind.PATH, first.name, first.node, second.name, second.node, direction)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it is a part of, or ends at."""
        return frozenset((self.node, self.far_node)) - {""}

    @property
    def ends(self) -> tuple[Component, ...]:
        """The two ends of a link or path; else the component itself. Which kind of part an end is, its name does not
        tell: it is a DEVICE, a NODE or, outside of nodes, a SWITCH."""
        if self.kind not in _OF_TWO:
            return (self,)
        return _end(self.node, self.name), _end(self.far_node, self.far)

    @property
    def gpu_for_tools(self) -> str:
        """By what vendors' tools know a GPU: its PCI address, whatever number a program had it under; else its index,
        with which every topology ends its name. Empty for other parts."""
        if self.kind is not Kind.GPU:
            return ""
        index = re.search(r"\d+$", self.name)
        return self.address or (index[0] if index else "")

    @property
    def text(self) -> str:
        """Its name for people, such as `nid001:gpu2`, `nid001:gpu0 → nid001:gpu1` and `NCCL 2.29.1`."""
        words = [self.condition] if self.condition else []
        first, second = _at(self.node, self.name), _at(self.far_node, self.far)
        if self.kind in _OF_TWO:
            sign = " → " if self.direction else " ↔ " if self.far_node else "--"
            return " ".join([f"{first}{sign}{second}", *words])
        return " ".join([each for each in (first, self.version, self.direction) if each] + words)

    @property
    def key(self) -> str:
        """The name under which the store keeps it with each metric: a link of a node as `nid001:gpu0-gpu1`.

        Of software it is `library=NCCL`: whatever its version, it is the same in all sessions. `read_keys` reads them.
        """
        if self.kind.is_software:
            return f"{self.kind.value}={self.name}"
        if self.kind is Kind.LINK and self.node and self.node == self.far_node:
            return f"{self.node}:{self.name}-{self.far}"
        return self.text

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, str]:
        """Its fields, without those that are empty."""
        return {each.name: str(value) for each in fields(self) if (value := _plain(getattr(self, each.name)))}


def _plain(value: object) -> str:
    return value.value if isinstance(value, Kind) else str(value)


def _at(node: str, name: str) -> str:
    return f"{node}:{name}" if node and name else node or name


def _end(node: str, name: str) -> Component:
    kind = (Kind.DEVICE if name else Kind.NODE) if node else Kind.SWITCH
    return Component(kind, name, node)


def read_keys(keys: Iterable[str]) -> tuple[Component, ...]:
    """The components of one metric's path, by their keys: the one reader of the form in which the store has them.

    That form has no kinds of parts. A link is known by its ends, which the path crosses too, and a GPU by the name that
    `fabricheck init` gives it, `gpu2`; any other part is a DEVICE.
    """
    key_list = tuple(keys)
    return tuple(_read_key(each, frozenset(key_list)) for each in key_list)


def _read_key(key: str, known: frozenset[str]) -> Component:
    kind, equals, name = key.partition("=")
    if equals and kind in {each.value for each in _SOFTWARE}:
        return Component(Kind(kind), name)
    node, _, part = key.partition(":")
    if not node or not part:
        return Component(Kind.NODE, node=key)
    for hyphen in (place for place, letter in enumerate(part) if letter == "-"):
        near, far = part[:hyphen], part[hyphen + 1 :]
        if f"{node}:{near}" in known and f"{node}:{far}" in known:
            return Component(Kind.LINK, near, node, far, node)
    return Component(Kind.GPU if _GPU.fullmatch(part) else Kind.DEVICE, part, node)


def only_node(components: Iterable[Component]) -> str:
    """The one node to which each of these belongs; empty where one belongs to none or to two, or they to several.

    What is at fault is then on that node, also where it is unknown which of the components it is.
    """
    sets = {each.nodes for each in components}
    return next(iter(sets.pop())) if len(sets) == 1 and all(len(each) == 1 for each in sets) else ""


def either(components: Iterable[Component]) -> str:
    """Components that cannot be told apart, in words."""
    names = [each.text for each in components]
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)
