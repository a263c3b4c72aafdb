"""Nodes as they are sold and rented: what a captured one looks like, and what it has less of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.site.found import FoundGpu, FoundNic
from fabricheck.topology.hardware import NodeProduct, known_nodes

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
    for shape in known_nodes():
        if not models or not all(map(shape.model.search, models)):
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


def _ports(nics: Sequence[FoundNic], shape: NodeProduct) -> int:
    return sum(nic.rate_gbps == shape.gbps and shape.kind.match(nic.model) is not None for nic in nics)
