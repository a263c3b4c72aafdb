"""What a link carries of data: its packets have headers, and who sends chooses how large they are.

*Achievable* is nominal times this share: a yardstick for the first day that rests on how links work. Each share has
its source; where none is known there is no achievable value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Who moves data: copy engines, a kernel on the GPU's SMs, a NIC; NCCL or RCCL: collectives, what the switch adds,
#: and pairs; through the NICs of a GPU model that gets less of them than others. `both ways`: of each direction where
#: both are in use and that makes a difference.
MOVERS = (
    *("copy", "copy both ways", "kernel", "kernel both ways", "ccl", "ccl in switch", "ccl pair"),
    *("nic", "ccl nic of A100", "ccl nic of MI250X", "ccl nic pair"),
)


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


_H200 = "measured on four H200 (nvbandwidth 0.8, nccl-tests 2.19.6, 2026-11-21)"
_LAUNCHES = "measured on H200 (docs/results/h200-2026-11-22)"
_ML = "stas00/ml-engineering@744d01e network/README.md"
_A100 = "Azure/AI-benchmarking-guide@8fd0c6e: 231.58 of 300 GB/s, 8 A100 at 8 GB"
_B200 = f"{_ML}: 682.2 of 900 GB/s, 8 B200 at 8 GiB without NVLink SHARP"
_SMS = "SMs send as much on every NVLink that somebody measured, or more"
_XGMI3 = "rocm.blogs.amd.com mi300x-rccl-xgmi: about 48 of 64 GB/s"
_AMD = "ROCm/system-acceptance-docs@23e7312 docs/gpus"
_C2C = f"{_ML}: 359.05 and 377.15 of 450 GB/s on a DGX Station"
_LUMI = "Lumi-supercomputer/lumi-reframe-tests@a6d7984 rccl_test.py, comm_scope over four, two and one links"
_ALCF = "ALCF user guide, Aurora, Single node GPU-Peak benchmarks"
# Collectives of NCCL of 512 MiB and more over four and eight GPUs: 92% to 106% of this, on A100, H100, H200 and B200
# (reference_values/parts).
_FILLED = 0.12
_CSCS = "eth-cscs/cscs-reframe-tests@2f813557 xccl_tests.py: 66 of 100 GB/s busbw, two nodes of four A100 and NICs"
_RCCL = "Lumi-supercomputer/lumi-reframe-tests@a6d7984 rccl_test.py: 85 of 100 GB/s busbw, two nodes of eight GCDs"
_OF_A_NIC = "NVIDIA/nccl-tests issue 119: 24 of 25 GB/s a NIC, 12 of 12.5"
# Owners require what they measured less 4% to 10% (reference_values/parts).
_REQUIRED = 0.1
# What a NIC gets in collectives, said of pairs: as far below as a collective may be of what its links carry.
_OF_COLLECTIVES = 0.3
_AZURE = "Azure/azurehpc-health-checks@0e0a1ac"
_OCI = "oracle-quickstart/oci-hpc@b5285a68 multi_node_active_healthcheck.py"
# NICs by the names that people and `init` give them: by model, by standard, by what the kernel says of a port.
_EDR = ("InfiniBand EDR", "InfiniBand 100 Gb/sec")
_HDR = ("InfiniBand HDR", "InfiniBand 200 Gb/sec")
_NDR = ("ConnectX-7", "InfiniBand NDR", "InfiniBand 400 Gb/sec")
_SLINGSHOT = ("Cassini", "Slingshot-11", "Slingshot (cxi)")
_PCIE = "packets of 256 B with 24 B of header and framing, 128b/130b (PCI Express Base Specification 3.0)"
_SHAPED = "measured on emulated links, by NCCL within 0.2% in 12 series (docs/results/two-gpu-nodes)"

# NVLink: copy engines send 256 B of data in a packet, SMs 128 B (NVIDIA/nccl-tests issue 149).
PAYLOADS = (
    Payload("NVLink4", "copy", 0.881, f"256 B a packet, {_H200}"),
    Payload("NVLink4", "kernel", 0.836, f"128 B a packet, {_H200}"),
    Payload("NVLink4", "ccl", 0.788, f"128 B a packet, {_H200}", _FILLED),
    Payload("NVLink4", "ccl pair", 0.815, f"128 B a packet, 2,934 of 3,600 Gb/s {_LAUNCHES}"),
    Payload(
        "NVLink4",
        "ccl in switch",
        480 / 700,
        f"{_ML}: 480 GB/s busbw, 8 H200 at 16 GiB, where links allow 700",
        _FILLED,
    ),
    Payload("NVLink", "kernel", 682.2 / 900, f"{_SMS}: {_B200}"),
    Payload("NVLink", "ccl", 682.2 / 900, f"{_SMS}: {_B200}", _FILLED),
    Payload("NVLink", "ccl pair", 682.2 / 900, f"{_SMS}: {_B200}"),
    Payload("NVLink3", "copy", 276.3 / 300, "NVIDIA/nvbandwidth@66746a3 README.md: 276.3 of 300 GB/s, 8 A100"),
    Payload("NVLink3", "ccl", 231.58 / 300, _A100, _FILLED),
    Payload("NVLink3", "ccl pair", 231.58 / 300, f"a pair is no slower than the ring: {_A100}"),
    Payload("NVLink5", "copy", 746 / 900, f"{_ML}: 746 of 900 GB/s, GB200"),
    Payload(
        "NVLink5",
        "ccl in switch",
        838 / 1400,
        f"{_ML}: 838 GB/s busbw, 8 B200 at 8 GiB, where links allow 1,400",
        _FILLED,
    ),
    Payload("NVLink-C2C", "copy", 359.05 / 450, _C2C),
    Payload("GPU memory", "copy", 0.87, f"a copy reads and writes: 1.67e4 of 1.92e4 Gb/s {_LAUNCHES}"),
    Payload("GPU memory", "kernel", 0.857, f"a copy reads and writes: 1.65e4 of 1.92e4 Gb/s {_LAUNCHES}"),
    Payload("NVLink2", "copy", 47 / 50, "OpenPOWER Table 1: 47 of 50 GB/s (70.56 of 75, 94.1%, on Sierra)"),
    Payload("NVLink2 to the CPU", "copy", 45.9 / 50, "OpenPOWER Table 1: 45.9 of 50 GB/s (68.78 of 75 on Sierra)"),
    Payload("X-Bus", "copy", 58.01 / 64, "OpenPOWER Table 1: 58.01 of 64 GB/s"),
    Payload("Infinity Fabric", "copy", 0.70, "De Sensi §III-D: about 70% on any pair, copies and MPI"),
    Payload("Infinity Fabric", "kernel", 148 / 200, f"{_LUMI}: 148, 76 and 38 GB/s of 200, 100 and 50"),
    Payload("Infinity Fabric", "kernel both ways", 0.43, "Schieffer §V-B: STREAM kernel, 43% of both directions"),
    Payload("MDFI", "copy", 159 / 256, f"{_ALCF}: copies that write 159, MPI 185 of 256 GB/s"),
    Payload("MDFI", "copy both ways", 269 / 512, f"{_ALCF}: MPI, 269 of 512 GB/s"),
    Payload("Xe Link", "copy", 15 / 20, f"{_ALCF}: MPI, 15 of 20 GB/s"),
    Payload("Xe Link", "copy both ways", 23 / 40, f"{_ALCF}: MPI, 23 of 40 GB/s"),
    Payload("Infinity Fabric,", "ccl", 125 / 200, f"{_AMD} mi250.md:195: 125 of 200 GB/s busbw required, 8 GCDs"),
    Payload("Infinity Fabric to the CPU", "copy", 28.3 / 36, "Schieffer §IV-A: 28.3 of 36 GB/s, pinned memory"),
    Payload("Infinity Fabric 3", "copy", 48 / 64, _XGMI3),
    Payload("Infinity Fabric 3", "kernel", 48 / 64, _XGMI3),
    Payload("Infinity Fabric 3", "ccl", 48 / 64, _XGMI3),
    Payload("Infinity Fabric 3", "ccl pair", 48 / 64, _XGMI3),
    Payload("PCIe", "copy", 256 / 280 * 128 / 130, _PCIE),
    *(Payload(edr, "nic", 11.82 / 12.5, "OpenPOWER Table 1: 11.82 of 12.5 GB/s") for edr in _EDR),
    *(Payload(hdr, "nic", 24 / 25, f"{_OF_A_NIC} at best") for hdr in _HDR),
    *(Payload(ndr, "nic", 390 / 400, f"{_AZURE}: 390 of 400 Gb/s required of ib_write_bw") for ndr in _NDR),
    *(Payload(hdr, "ccl nic pair", 24 / 25, _OF_A_NIC, _OF_COLLECTIVES) for hdr in (*_EDR, *_HDR)),
    *(Payload(ndr, "ccl nic pair", 46 / 50, "NVIDIA/nccl-tests issue 290: 46 to 48 of 50 GB/s a NIC") for ndr in _NDR),
    Payload("RoCE 100 Gb/sec", "nic", 96 / 100, f"{_OCI}: 96 of 100 Gb/s required of ib_write_bw"),
    Payload("RoCE 200 Gb/sec", "nic", 192 / 200, f"{_OCI}: 192 of 200 Gb/s required of ib_write_bw"),
    Payload("RoCE 400 Gb/sec", "nic", 350 / 400, f"{_OCI}: of NICs of 400 Gb/s, 350 required of the slowest"),
    *(Payload(slingshot, "nic", 0.95, "De Sensi §V-B1: 95% on one switch") for slingshot in _SLINGSHOT),
    *(Payload(slingshot, "ccl nic of A100", 66 / 100, _CSCS, _REQUIRED) for slingshot in _SLINGSHOT),
    *(Payload(slingshot, "ccl nic of MI250X", 85 / 100, _RCCL, _REQUIRED) for slingshot in _SLINGSHOT),
    Payload("Slingshot-10", "nic", 11.82 / 12.5, "its NIC is a ConnectX-5; OpenPOWER Table 1: 11.82 of 12.5 GB/s"),
    Payload("EFA", "nic", 364.9 / 400, f"{_ML}: 364.9 of 400 GB/s a node, 4 nodes of 8 H200"),
    Payload("ConnectX-6", "nic", 0.95, "De Sensi §V-B1: 95% on one switch"),
    Payload("shaped veth", "nic", 0.957, f"TCP in Ethernet frames of 1,500 B, {_SHAPED}", 0.04),
)


def payload(technology: str, mover: str) -> Payload | None:
    """The entry with the longest name that a technology starts with; None if unknown."""
    known = [one for one in PAYLOADS if one.mover == mover and technology.startswith(one.technology)]
    return max(known, key=lambda data: len(data.technology), default=None)


def least_payload(technologies: Iterable[str], mover: str) -> Payload | None:
    """That of the technology on the way that carries the least; None where one of them is unknown."""
    payloads = [payload(one, mover) for one in dict.fromkeys(technologies)]
    known = [one for one in payloads if one is not None]
    return min(known, key=lambda data: data.share) if known and len(known) == len(payloads) else None
