"""What a part is built into: its links, by which a node of so many can be described without a description."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.topology.model import Cpu, Gpu, Link, Nic, Switch, Topology
from fabricheck.topology.schema import Rate
from fabricheck.units import parse_rate

_Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True)


class LinksOfPart(BaseModel):
    """Parallel links of one GPU to the same device, and the rate of each in one direction."""

    model_config = _STRICT

    technology: _Text
    count: Annotated[int, Field(gt=0)]
    rate: Rate
    source: _Text

    def between(self, source: str, destination: str) -> Link:
        """A link of this kind between two parts of a node, its rate in Gb/s."""
        return Link((source, destination), self.technology, self.count, parse_rate(self.rate), self.source)


class Board(BaseModel):
    """The board that carries so many `gpus` of a part, as their maker builds it.

    `between`: the links of a GPU to what `over` says; None where GPUs only meet on the host's links. `pairs`: how many
    links join two GPUs, by `0-1`, where that differs. `in_switch`: the switch reduces (NVLink SHARP). `host`: to the
    CPU, at the least rate over the path. `nvlink_domain_nodes`: how many boards the switches join.
    """

    model_config = _STRICT

    gpus: Annotated[int, Field(gt=0)]
    """how many the board carries"""
    over: Literal["switch", "direct", "bridges"] = "direct"
    """links to a switch, to each other GPU, or to the one beside it"""
    between: LinksOfPart | None = None
    pairs: dict[Annotated[str, Field(pattern=r"^[0-9]+-[0-9]+$")], Annotated[int, Field(gt=0)]] = {}
    in_switch: bool = False
    host: LinksOfPart
    gpus_of_a_cpu: Annotated[int, Field(gt=0)] | None = None
    """on one processor: 1 where each has its own; all where left out"""
    memory: Rate
    source: _Text
    nvlink_domain_nodes: Annotated[int, Field(gt=0)] = 1

    def node(self, model: str, gpus: int, nics: tuple[Nic, ...] = ()) -> Topology:
        """A node with so many of its GPUs; NICs are dealt to them one after another."""
        names = [f"gpu{index}" for index in range(gpus)]
        per_cpu = self.gpus_of_a_cpu or gpus
        by_switch = self.between is not None and self.over == "switch" and gpus > 1
        links = [self.host.between(name, f"cpu{index // per_cpu}") for index, name in enumerate(names)]
        links += self._between(names) if gpus > 1 else ()
        return Topology(
            system=model,
            description=f"{gpus} x {model}, as its maker builds them",
            gpus=tuple(Gpu(name, index, model) for index, name in enumerate(names)),
            cpus=tuple(Cpu(f"cpu{index}") for index in range(-(-gpus // per_cpu))),
            switches=(Switch("switch", "switch", self.in_switch),) if by_switch else (),
            nics=nics,
            links=tuple(links),
            nic_scheme="packed" if nics and gpus % len(nics) == 0 else None,
            gpu_memory_gbps=parse_rate(self.memory),
            nvlink_domain_nodes=self.nvlink_domain_nodes,
        )

    def _between(self, names: list[str]) -> Iterator[Link]:
        if self.between is None:
            return
        if self.over == "switch":
            yield from (self.between.between(name, "switch") for name in names)
            return
        for (a, first), (b, other) in itertools.combinations(enumerate(names), 2):
            count = self.pairs.get(f"{a}-{b}", 0) if self.pairs else self.between.count
            if self.over == "bridges" and (a % 2 == 1 or b != a + 1):
                count = 0
            if count:
                yield replace(self.between.between(first, other), count=count)
