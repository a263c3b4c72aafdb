"""Families of NICs: what shows the state and the counters of a port, and what gives a NIC access to memory of GPUs.

All advice about ports comes from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class NicFamily:
    """`pattern`: of a port's name or model, a provider of libfabric, or a path. `state` and `counters`: commands,
    with `{}` for the port; `gpu_memory`: a question."""

    pattern: re.Pattern[str]
    state: str
    counters: str
    gpu_memory: str


_VERBS_MEMORY = "is a module for peer memory loaded (lsmod | grep peer), or do kernel and driver have DMA-BUF?"
_VERBS_COUNTERS = "grep -r . /sys/class/infiniband/{}/ports/1/hw_counters"
_HMEM = "does libfabric take device memory (fi_info{} -c FI_HMEM)?"
# The first that fits. Sources: the manuals of HPE Slingshot Host Software, AWS EFA, Cornelis OPX, rdma-core, MFT.
FAMILIES = (
    NicFamily(
        re.compile(r"Slingshot(?!-10)|Cassini|\bcxi", re.IGNORECASE),
        "cxi_stat -d {}",
        "grep -r . /sys/class/cxi/{}/device/telemetry",
        _HMEM.format(" -p cxi"),
    ),
    NicFamily(
        re.compile(r"\befa|Elastic Fabric|\brdmap\d", re.IGNORECASE),
        "ibv_devinfo -d {}",
        _VERBS_COUNTERS,
        "is efa_nv_peermem loaded, or do kernel and driver have DMA-BUF? " + _HMEM.format(" -p efa"),
    ),
    NicFamily(re.compile(r"Omni-?Path|\bhfi1|\bopx\b", re.IGNORECASE), "opainfo", _VERBS_COUNTERS, _HMEM.format("")),
    NicFamily(re.compile(r"\bmlx|\bib\d|InfiniBand|NET/IB"), "ibstat {}", _VERBS_COUNTERS, _VERBS_MEMORY),
    NicFamily(re.compile(r"RoCE|bnxt_re|irdma|ionic_"), "ibv_devinfo -d {}", _VERBS_COUNTERS, _VERBS_MEMORY),
    NicFamily(re.compile("OFI"), "fi_info", "ethtool -S {}", _HMEM.format("")),
    NicFamily(re.compile(""), "ethtool {}", "ethtool -S {}", _VERBS_MEMORY),
)


def family_of(names: str) -> NicFamily:
    """Of a port or path by its names, model and provider: the first that one of them fits; else that of Ethernet."""
    return next(family for family in FAMILIES if family.pattern.search(names))
