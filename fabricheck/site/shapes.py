"""Nodes as they are sold and rented: what a captured one looks like, and what it has less of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.site.found import FoundGpu, FoundNic


@dataclass(frozen=True)
class Shape:
    """A product by its data sheet or its cloud's documentation: `gpus` of a model (a pattern of its name in lower case)
    and `ports` of so many Gb/s that serve them between nodes; of a `kind` as `FoundNic` words models."""

    name: str
    model: str
    gpus: int
    ports: int
    gbps: float
    kind: str


_IB, _ROCE, _EFA, _CXI, _NET = "InfiniBand|RoCE", "RoCE", "EFA", "Slingshot", "Ethernet"
#: Sources: NVIDIA's data sheets and user guides of DGX A100, H100, H200, B200, B300 and GB200 NVL72; AMD's of the
#: MI300X platform; AWS, Azure, Google Cloud and Oracle Cloud documentation of the instance types; the papers in
#: `site_configs`.
SHAPES = (
    Shape("DGX A100, or Azure ND A100 v4", r"a100", 8, 8, 200, _IB),
    Shape("DGX H100 or HGX H100, or Azure ND H100 v5", r"h100", 8, 8, 400, _IB),
    Shape("DGX H200 or HGX H200, or Azure ND H200 v5", r"h200", 8, 8, 400, _IB),
    Shape("DGX B200 or HGX B200", r"(?<!g)b200", 8, 8, 400, _IB),
    Shape("DGX B300 or HGX B300", r"(?<!g)b300", 8, 8, 800, _IB),
    Shape("a compute tray of GB200 NVL72", r"gb200", 4, 4, 400, _IB),
    Shape("a compute tray of GB300 NVL72", r"gb300", 4, 4, 800, _IB),
    Shape("an MI300X platform of eight OAMs, or Azure ND MI300X v5", r"mi300x", 8, 8, 400, _IB),
    Shape("an MI355X platform of eight OAMs", r"mi355x", 8, 8, 400, _IB),
    Shape("a node of MI250X with Slingshot 11 (Frontier, LUMI)", r"mi250x", 8, 4, 200, _CXI),
    Shape("a node of GH200 with Slingshot 11 (Alps)", r"gh200", 4, 4, 200, _CXI),
    Shape("AWS p4d or p4de", r"a100", 8, 4, 100, _EFA),
    Shape("AWS p5", r"h100", 8, 32, 100, _EFA),
    Shape("AWS p5e", r"h200", 8, 32, 100, _EFA),
    Shape("AWS p5en", r"h200", 8, 16, 200, _EFA),
    Shape("AWS p6-b200", r"(?<!g)b200", 8, 8, 400, _EFA),
    Shape("Google a3-highgpu", r"h100", 8, 4, 200, _NET),
    Shape("Google a3-megagpu", r"h100", 8, 8, 200, _NET),
    Shape("Google a3-ultragpu", r"h200", 8, 8, 400, _ROCE),
    Shape("Oracle BM.GPU4.8", r"a100", 8, 16, 100, _ROCE),
    Shape("Oracle BM.GPU.H100.8", r"h100", 8, 16, 200, _ROCE),
)
# A node that has less than all but this many parts of a shape is something else.
_MOST_MISSING = 2


@dataclass(frozen=True)
class Likeness:
    """The shape that a node is most like; and what it has less of, in words (`lacks`)."""

    name: str
    lacks: tuple[str, ...]


def find_nearest_shape(gpus: Sequence[FoundGpu], nics: Sequence[FoundNic]) -> Likeness | None:
    """Of the shapes with these GPUs the one of which least is missing on a node; None where none is similar.

    Whoever has more, such as ports for storage, is like it.
    """
    candidates: list[tuple[int, int, Likeness]] = []
    models = {gpu.model.lower() for gpu in gpus}
    for shape in SHAPES:
        if not models or not all(re.search(shape.model, model) for model in models):
            continue
        ports = _ports(nics, shape)
        no_gpus, no_ports = shape.gpus - len(gpus), shape.ports - ports
        if not (0 <= no_gpus <= _MOST_MISSING and no_ports <= _MOST_MISSING) or ports < shape.ports / 2:
            continue
        lacks = [f"{len(gpus)} of {shape.gpus} GPUs"] if no_gpus else []
        lacks += [f"{ports} of {shape.ports} ports of {shape.gbps:g} Gb/s"] if no_ports > 0 else []
        missing = no_gpus + max(no_ports, 0)
        candidates.append((missing, abs(no_ports), Likeness(shape.name, tuple(lacks))))
    return min(candidates, key=lambda each: each[:2])[2] if candidates else None


def _ports(nics: Sequence[FoundNic], shape: Shape) -> int:
    return sum(nic.rate_gbps == shape.gbps and re.match(shape.kind, nic.model) is not None for nic in nics)
