"""What a part is built into: its links, by which a node of so many can be described without a description."""

from __future__ import annotations

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

    `between`: the links of a GPU to the switch, or to each other GPU (`over`: direct); None where GPUs only meet on the
    host's links. `in_switch`: the switch reduces (NVLink SHARP). `host`: to the CPU, at the least rate over the path.
    `nvlink_domain_nodes`: how many boards the switches join.
    """

    model_config = _STRICT

    gpus: Annotated[int, Field(gt=0)]
    """how many the board carries"""
    over: Literal["switch", "direct"] = "direct"
    """links to a switch, or to each other GPU"""
    between: LinksOfPart | None = None
    in_switch: bool = False
    host: LinksOfPart
    memory: Rate
    source: _Text
    nvlink_domain_nodes: Annotated[int, Field(gt=0)] = 1

    def node(self, model: str, gpus: int, nics: tuple[Nic, ...] = ()) -> Topology:
        """A node with so many of its GPUs; NICs are dealt to them one after another."""
        names = [f"gpu{index}" for index in range(gpus)]
        switch = Switch("switch", "switch", self.in_switch)
        by_switch = self.between is not None and self.over == "switch" and gpus > 1
        links = [self.host.between(name, "cpu0") for name in names]
        if self.between is not None and by_switch:
            links += [self.between.between(name, switch.name) for name in names]
        elif self.between is not None:
            links += [self.between.between(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
        return Topology(
            system=model,
            description=f"{gpus} x {model}, as its maker builds them",
            gpus=tuple(Gpu(name, index, model) for index, name in enumerate(names)),
            cpus=(Cpu("cpu0"),),
            switches=(switch,) if by_switch else (),
            nics=nics,
            links=tuple(links),
            nic_scheme="packed" if nics and gpus % len(nics) == 0 else None,
            gpu_memory_gbps=parse_rate(self.memory),
            nvlink_domain_nodes=self.nvlink_domain_nodes,
        )
