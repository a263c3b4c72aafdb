"""What is known of GPUs, nodes, links and NICs before anything is measured: config/hardware.yaml.

A link carries less data than its nominal rate: its packets have headers, and who sends chooses how large they are.
*Achievable* is nominal times the payload's share: a yardstick for the first day that rests on how links work. Each
share has its source; where none is known there is no achievable value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.suite import config_file
from fabricheck.yamlfile import read_yaml

#: Who moves data: copy engines, a kernel on the GPU's SMs, a NIC; NCCL or RCCL: collectives, what the switch adds,
#: and pairs; through the NICs of a GPU model that gets less of them than others. `both ways`: of each direction where
#: both are in use and that makes a difference.
Mover = Literal[
    "copy",
    "copy both ways",
    "kernel",
    "kernel both ways",
    "ccl",
    "ccl in switch",
    "ccl pair",
    "nic",
    "ccl nic of A100",
    "ccl nic of MI250X",
    "ccl nic pair",
]
MOVERS: tuple[Mover, ...] = get_args(Mover)
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class GpuProduct:
    """A model by its data sheet; `model`: a pattern of its name in lower case. PCIe generation and width at most;
    `links` to GPUs or their switch (NVLink, Infinity Fabric), where all boards of the model have as many: 0 for none;
    None where bridges or the board decide, or the sheet does not tell. `links_of_bridge`: of each bridge between two
    cards. `to_cpu`: what joins it to its CPU, where that is not PCIe."""

    __pydantic_config__ = _STRICT

    model: re.Pattern[str]
    backend: str
    arch: str
    pcie_generation: int | None = None
    pcie_width: int | None = None
    links: int | None = None
    links_of_bridge: int | None = None
    to_cpu: str = ""


@dataclass(frozen=True)
class NodeProduct:
    """A node as it is sold or rented: `gpus` of a model (a pattern of its name in lower case) and `ports` of so many
    Gb/s that serve them between nodes; `kind`: a pattern of how the models of its NICs begin."""

    __pydantic_config__ = _STRICT

    name: str
    model: re.Pattern[str]
    gpus: int
    ports: int
    gbps: float
    kind: re.Pattern[str]


@dataclass(frozen=True)
class Payload:
    """`share` of a link's nominal rate that `mover` fills with data on links whose technology starts so.

    `margin`: how far below healthy links are at most, where `source` knows it better than the policy.
    """

    technology: str
    mover: str
    share: float
    source: str
    margin: float | None = None


@dataclass(frozen=True)
class _PayloadOfSeveral:
    """The same of several technologies; the share is `share` out of `of`."""

    __pydantic_config__ = _STRICT

    technologies: tuple[str, ...]
    mover: Mover
    share: Annotated[float, Field(gt=0)]
    source: str
    of: Annotated[float, Field(gt=0)] = 1.0
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = _STRICT

    gpus: tuple[GpuProduct, ...]
    nodes: tuple[NodeProduct, ...]
    payloads: tuple[_PayloadOfSeveral, ...]


def known_nodes() -> tuple[NodeProduct, ...]:
    """Nodes as they are sold and rented. Raises UserError for a mistake in config/hardware.yaml."""
    return _read(config_file("hardware.yaml")).nodes


def gpu_product(model: str) -> GpuProduct | None:
    """The product of a model's name, such as `NVIDIA H100 80GB HBM3`; None where it is unknown.

    Raises UserError for a mistake in config/hardware.yaml.
    """
    words = re.sub(r"[_-]", " ", model.lower())
    return next((product for product in _read(config_file("hardware.yaml")).gpus if product.model.search(words)), None)


def payload(technology: str, mover: str) -> Payload | None:
    """The entry with the longest name that a technology starts with; None if unknown.

    Raises UserError for a mistake in config/hardware.yaml.
    """
    known = [
        one
        for one in _payloads(config_file("hardware.yaml"))
        if one.mover == mover and technology.startswith(one.technology)
    ]
    return max(known, key=lambda data: len(data.technology), default=None)


def least_payload(technologies: Iterable[str], mover: str) -> Payload | None:
    """That of the technology on the way that carries the least; None where one of them is unknown."""
    payloads = [payload(one, mover) for one in dict.fromkeys(technologies)]
    known = [one for one in payloads if one is not None]
    return min(known, key=lambda data: data.share) if known and len(known) == len(payloads) else None


@cache
def _payloads(path: Path) -> tuple[Payload, ...]:
    return tuple(
        Payload(technology, row.mover, row.share / row.of, row.source, row.margin)
        for row in _read(path).payloads
        for technology in row.technologies
    )


@cache
def _read(path: Path) -> _File:
    file = read_yaml(path)
    return file.validated(TypeAdapter(_File).validate_json, file.as_json)
