"""Paths between a GPU's memory and the host's."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.topology.host import host_paths, host_rates
from fabricheck.topology.model import Gpu, Topology


def host_link_gbps(topology: Topology, gpu: Gpu, *, to_device: bool | None = None) -> float | None:
    """Gb/s of a GPU's links to CPUs, used by it alone (nominal host-device bandwidth, OpenPOWER Table 1).

    `to_device`: the direction; None: the slower one. None if no link to a CPU is known.
    """
    ways = (True, False) if to_device is None else (to_device,)
    return min(host_rates(topology, [gpu], to_device=way, at_cpus=False)[gpu.name] for way in ways) or None


def host_device_gbps(
    topology: Topology, active: Sequence[Gpu], *, to_device: bool | None = None, at_cpus: bool = True
) -> dict[str, float]:
    """Gb/s of each of several GPUs, by name, when all of them copy from or to host memory at once.

    GPUs on one CPU or NUMA domain share its `device_rate`: two GCDs of one MI250X get no more together than one of
    them alone (Schieffer §IV-C, figures 4 and 5). So do those on one switch to the host. A GPU with links to several
    CPUs gets what it has of each. `to_device`: the direction; None: the slower one. `at_cpus`: held to their
    `device_rate`, or to links alone. Raises UserError if a GPU has no known link to a CPU.
    """
    if to_device is None:
        there, back = (host_device_gbps(topology, active, to_device=way, at_cpus=at_cpus) for way in (True, False))
        return {name: min(rate, back[name]) for name, rate in there.items()}
    for gpu in active:
        if not host_paths(topology, gpu):
            raise UserError(f"{topology.system}: no link from {gpu.name} to a CPU is known")
    return host_rates(topology, active, to_device=to_device, at_cpus=at_cpus)


@dataclass(frozen=True)
class Placements:
    """Sets of GPUs, by node-local index, that are to use host memory at the same time (Schieffer §IV-C).

    `same_gpu`: the parts of each GPU that has several; `spread`: 2, 3, … all, each time on as many GPUs as there are.
    """

    same_gpu: tuple[tuple[int, ...], ...]
    spread: tuple[tuple[int, ...], ...]


def placements(topology: Topology, gpus: int) -> Placements:
    """The placements of the first `gpus` GPUs of a node. A GPU without a `package` is one by itself."""
    packages: dict[str, list[int]] = defaultdict(list)
    for gpu in sorted(topology.gpus, key=lambda gpu: gpu.index)[:gpus]:
        packages[gpu.package or gpu.name].append(gpu.index)
    turns = itertools.zip_longest(*packages.values())
    order = [index for turn in turns for index in turn if index is not None]
    return Placements(
        tuple(tuple(parts) for parts in packages.values() if len(parts) > 1),
        tuple(tuple(sorted(order[:count])) for count in range(2, len(order) + 1)),
    )


def host_copy_gbps(topology: Topology, measured_gbps: float | None) -> float | None:
    """Gb/s of a copy from host memory to host memory: half of the memory's bandwidth, as it is read and written once.

    `measured_gbps`, what one core really copies, where the memory's bandwidth is unknown or higher than that.
    """
    nominal = topology.host_memory_gbps / 2 if topology.host_memory_gbps else None
    known = [rate for rate in (nominal, measured_gbps) if rate]
    return min(known, default=None)


def local_copy_gbps(topology: Topology) -> float | None:
    """Gb/s of a copy inside one GPU's memory, bytes counted once: half of its bandwidth. None where unknown."""
    return topology.gpu_memory_gbps / 2 if topology.gpu_memory_gbps else None
