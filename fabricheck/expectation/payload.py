"""What a link carries of data: its packets have headers, and who sends chooses how large they are.

*Achievable* is nominal times this share: a yardstick for the first day that rests on how links work. Each share has
its source; where none is known there is no achievable value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Who moves data: copy engines, a kernel on the GPU's SMs, NCCL or RCCL in collectives and between pairs, a NIC.
MOVERS = ("copy", "kernel", "ccl", "ccl pair", "nic")


@dataclass(frozen=True)
class Payload:
    """`share` of a link's nominal rate that `mover` fills with data on links whose technology starts so."""

    technology: str
    mover: str
    share: float
    source: str


_H200 = "measured on four H200 (nvbandwidth 0.8, nccl-tests 2.19.6, 2026-11-21)"
_LAUNCHES = "measured on H200 (docs/results/h200-2026-11-22)"
_PCIE = "packets of 256 B with 24 B of header and framing, 128b/130b (PCI Express Base Specification 3.0)"

# NVLink: copy engines send 256 B of data in a packet, SMs 128 B (NVIDIA/nccl-tests issue 149).
PAYLOADS = (
    Payload("NVLink4", "copy", 0.881, f"256 B a packet, {_H200}"),
    Payload("NVLink4", "kernel", 0.836, f"128 B a packet, {_H200}"),
    Payload("NVLink4", "ccl", 0.788, f"128 B a packet, {_H200}"),
    Payload("NVLink4", "ccl pair", 0.815, f"128 B a packet, 2,934 of 3,600 Gb/s {_LAUNCHES}"),
    Payload("GPU memory", "copy", 0.87, f"a copy reads and writes: 1.67e4 of 1.92e4 Gb/s {_LAUNCHES}"),
    Payload("GPU memory", "kernel", 0.857, f"a copy reads and writes: 1.65e4 of 1.92e4 Gb/s {_LAUNCHES}"),
    Payload("NVLink2", "copy", 47 / 50, "OpenPOWER Table 1: 47 of 50 GB/s (70.56 of 75, 94.1%, on Sierra)"),
    Payload("NVLink2 to the CPU", "copy", 45.9 / 50, "OpenPOWER Table 1: 45.9 of 50 GB/s (68.78 of 75 on Sierra)"),
    Payload("X-Bus", "copy", 58.01 / 64, "OpenPOWER Table 1: 58.01 of 64 GB/s"),
    Payload("Infinity Fabric", "copy", 0.70, "De Sensi §III-D: about 70% on any pair, copies and MPI"),
    Payload("Infinity Fabric to the CPU", "copy", 28.3 / 36, "Schieffer §IV-A: 28.3 of 36 GB/s, pinned memory"),
    Payload("PCIe", "copy", 256 / 280 * 128 / 130, _PCIE),
    Payload("InfiniBand EDR", "nic", 11.82 / 12.5, "OpenPOWER Table 1: 11.82 of 12.5 GB/s"),
    Payload("Cassini", "nic", 0.95, "De Sensi §V-B1: 95% on one switch"),
    Payload("Slingshot-11", "nic", 0.95, "its NIC is a Cassini; De Sensi §V-B1: 95% on one switch"),
    Payload("ConnectX-6", "nic", 0.95, "De Sensi §V-B1: 95% on one switch"),
    Payload("shaped veth", "nic", 0.957, "TCP in Ethernet frames of 1,500 B, measured on emulated links"),
)


def payload(technology: str, mover: str) -> Payload | None:
    """The entry with the longest name that a technology starts with; None where nobody has said."""
    known = [one for one in PAYLOADS if one.mover == mover and technology.startswith(one.technology)]
    return max(known, key=lambda one: len(one.technology), default=None)


def least_payload(technologies: Iterable[str], mover: str) -> Payload | None:
    """That of the technology on the way that carries the least; None where one of them is unknown."""
    found = [payload(one, mover) for one in dict.fromkeys(technologies)]
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: one.share) if known and len(known) == len(found) else None
