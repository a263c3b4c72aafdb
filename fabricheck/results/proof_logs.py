"""Which way the data went, from what the libraries themselves log: NCCL and RCCL, UCX, MPICH, Intel MPI, libfabric.

For tools that, unlike fabricbench, do not look themselves. Paths have the names that fabricbench gives them in the
`proof` of its footer (docs/results-format.md), so one list of forbidden and required paths serves for both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabricheck.results.environment import is_recorded, redacted
from fabricheck.results.vendor_text import read_lines

# Paths over which no fast fabric goes: each is a fall-back wherever there is one.
FALL_BACKS = (
    r"^NET/Socket",
    r"^NET/OFI provider (?:tcp|sockets|udp|net)\b",
    r"\btcp/",
    r"^OFI provider (?:tcp|sockets|udp|net)\b",
)
# Inside a node whose GPUs see each other: the data must not go through the host's memory.
HOST_STAGING = (r"^SHM", r"^NET/", r"^(?:cuda|rocm): .*\b(?:cuda_copy|rocm_copy|cma|sysv|posix|tcp)/")


@dataclass(frozen=True)
class TransportProof:
    """What a log proves. `paths`: name to how often it was named; `evidence`: whose log it was, None without a path.

    `facts`: allow-listed variables in effect and other things that the library said of itself.
    """

    paths: Mapping[str, int] = field(default_factory=dict)
    evidence: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def merge_proofs(*proofs: TransportProof) -> TransportProof:
    """What several logs prove together: of the ranks, or of NCCL and the libfabric below it."""
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for proof in proofs:
        paths.update(proof.paths)
        facts.update(proof.facts)
    evidence = ", ".join(dict.fromkeys(proof.evidence for proof in proofs if proof.evidence is not None))
    return TransportProof(dict(paths), evidence or None, facts)


def _proof(paths: Counter[str], evidence: str, facts: Mapping[str, str]) -> TransportProof:
    return TransportProof(dict(sorted(paths.items())), evidence if paths else None, dict(facts))


# NCCL, RCCL -----------------------------------------------------------------------------------------------------------

_CHANNEL = re.compile(r"\bChannel .* via (\S.*?)(?: comm 0x.*)?\s*$")
_OFI_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,]+)")
_NETWORK = re.compile(r"NCCL INFO (?:[A-Za-z ]*: )?Using network (\S(?:.*\S)?)")
_NCCL_VARIABLE = re.compile(r"NCCL INFO ((?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to (\S+?)\.?$")
_NCCL_VERSION = re.compile(r"\b([NR]CCL) version ([0-9][0-9.]*)")
_NO_DEVICE = re.compile(r"NET/(IB|OFI) : No device found")
_NO_GPUDIRECT = re.compile(
    r"(?:GPU Direct RDMA|GDRDMA|DMA-BUF) (?:\(\w+\) )?(Disabled for .*|is not available.*)", re.IGNORECASE
)
_NO_MULTICAST = re.compile(r"NVLS (multicast support is not available.*?)(?: on dev \d+)?\s*$")
_WARNING = re.compile(r"NCCL WARN (?:\[[^\]]*\] )?(\S.*?)\s*$")
# Variables with which a user or a module turns a path off, or chooses another, and the paths that they are about.
_CHOOSERS = (
    ("NCCL_P2P_DISABLE", r"(?!0$)", "P2P"),
    ("NCCL_P2P_LEVEL", r"", "P2P"),
    ("NCCL_MNNVL_ENABLE", r"0$", "MNNVL"),
    ("NCCL_CUMEM_ENABLE", r"0$", "MNNVL"),
    ("NCCL_IB_DISABLE", r"(?!0$)", "NET"),
    ("NCCL_IB_HCA", r"", "NET"),
    ("NCCL_NET", r"", "NET"),
    ("NCCL_NET_PLUGIN", r"", "NET"),
    ("FI_PROVIDER", r"", "NET"),
    ("NCCL_NET_GDR_LEVEL", r"", "GDRDMA"),
    ("NCCL_NET_GDR_READ", r"0$", "GDRDMA"),
    ("NCCL_NET_GDR_C2C", r"0$", "GDRDMA"),
    ("NCCL_DMABUF_ENABLE", r"0$", "GDRDMA"),
    ("UCX_TLS", r"", "InfiniBand RoCE IPC"),
    ("UCX_NET_DEVICES", r"", "InfiniBand RoCE"),
    ("OMPI_MCA_pml", r"", "InfiniBand RoCE OFI/cxi OFI/efa IPC"),
    ("OMPI_MCA_btl", r"", "InfiniBand RoCE OFI/cxi OFI/efa IPC"),
    ("FI_PROVIDER", r"", "OFI/cxi OFI/efa"),
)
_NO_GPUDIRECT_STEP = "is nvidia_peermem loaded (lsmod | grep peermem), or do kernel and driver have DMA-BUF?"


def reasons_of(facts: Mapping[str, str], described: str, taken: Collection[str]) -> tuple[str, ...]:
    """Why a library may have gone by the paths `taken` and not by the one that is `described`, the surest first.

    `facts`: what it said of itself, and variables in effect.
    """
    words = set(re.split(r"[/ ]", described)) | {described}
    reasons = [
        f"{name}={facts[name]} is set"
        for name, values, paths in _CHOOSERS
        if name in facts and re.match(values, facts[name]) and words & set(paths.split())
    ]
    network = [path for path in taken if path.startswith("NET/")]
    others = ("NET/Socket", "NET/OFI provider")
    lost = "GDRDMA" in words and any("GDRDMA" not in path and not path.startswith(others) for path in network)
    if "GPUDirect RDMA" in facts and "GDRDMA" in words:
        reasons.append(f"the library: GPUDirect RDMA {facts['GPUDirect RDMA']}")
    if lost and "distance" not in facts.get("GPUDirect RDMA", ""):
        reasons.append(_NO_GPUDIRECT_STEP)
    if any(path.startswith("NET/Socket") for path in network) and "NET/IB" in facts:
        reasons.append(f"the library: NET/IB: {facts['NET/IB']}: ibv_devinfo, and /dev/infiniband in the container")
    if "warning" in facts:
        reasons.append(f"the library: {facts['warning']}")
    return tuple(dict.fromkeys(reasons))


def facts_of_remarks(proof: Mapping[str, Any]) -> Mapping[str, str]:
    """What NCCL or RCCL said of itself by the remarks that fabricbench keeps in the footer's `proof`."""
    log = (f"NCCL {'WARN' if each['warning'] else 'INFO'} {each['text']}" for each in proof.get("remarks", ()))
    return read_nccl_log("\n".join(log)).facts


def read_nccl_log(text: str) -> TransportProof:
    """Paths of the channels in a log of `NCCL_DEBUG=INFO` (subsystems INIT, NET, ENV), of NCCL or RCCL.

    `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0/GDRDMA`, `NET/Socket/0`, `NET/AWS Libfabric/0/GDRDMA`; the provider
    below the OFI plugin is a path too, `NET/OFI provider cxi`, because tcp can hide there. The plugin opens it inside a
    node as well: it counts only where a channel goes over a network, or the log names no channel.
    """
    paths: Counter[str] = Counter()
    providers: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in read_lines(text):
        if (match := _CHANNEL.search(line.text)) is not None:
            paths[match[1]] += 1
        elif (match := _OFI_PROVIDER.search(line.text)) is not None:
            providers[f"NET/OFI provider {match[1]}"] += 1
        elif (match := _NETWORK.search(line.text)) is not None:
            facts["network"] = match[1]
        elif (match := _NCCL_VARIABLE.search(line.text)) is not None:
            if is_recorded(match[1]):
                facts[match[1]] = redacted(match[2])
        elif (match := _NO_DEVICE.search(line.text)) is not None:
            facts[f"NET/{match[1]}"] = "no device found"
        elif (match := _NO_GPUDIRECT.search(line.text)) is not None:
            facts.setdefault("GPUDirect RDMA", match[1])
        elif (match := _NO_MULTICAST.search(line.text)) is not None:
            facts["NVLS"] = match[1]
        elif (match := _WARNING.search(line.text)) is not None:
            # The first is nearest to the cause; others follow from it.
            facts.setdefault("warning", redacted(match[1])[:300])
        elif (match := _NCCL_VERSION.search(line.text)) is not None:
            facts["library"] = f"{match[1]} {match[2]}"
    if not paths or any(path.startswith("NET/") for path in paths):
        paths.update(providers)
    return _proof(paths, "NCCL_DEBUG", facts)


# UCX ------------------------------------------------------------------------------------------------------------------

_UCX_LANE = re.compile(r"\b([a-z][a-z0-9_]*/[A-Za-z0-9_.:-]+)")
_UCX_VARIABLES = re.compile(r"UCX_\* env variables?: (.*)")
_UCX_ENDPOINT = re.compile(r"\bep_cfg\[\d+\]: tag\(([^)]*)\)")
_UCX_VERSION = re.compile(r"UCX\s+INFO\s+Version ([0-9][0-9.]*)")


def read_ucx_log(text: str) -> TransportProof:
    """Lanes in the tables of `UCX_PROTO_INFO=y` with `UCX_LOG_LEVEL=info`: `host: sysv/memory`, `cuda: cuda_ipc/cuda`.

    Before the colon is the memory that the table is about. A protocol that splits a message over lanes names each.
    """
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    memory = "host"
    for line in read_lines(text):
        if (match := _UCX_VARIABLES.search(line.text)) is not None:
            pairs = (each.partition("=") for each in match[1].split())
            facts |= {name: redacted(value) for name, _, value in pairs if is_recorded(name)}
        elif (match := _UCX_VERSION.search(line.text)) is not None:
            facts["library"] = f"UCX {match[1]}"
        elif (match := _UCX_ENDPOINT.search(line.text)) is not None:
            # Versions before 1.14 have no tables, but the lanes that messages between two ranks take.
            for lane in _UCX_LANE.findall(match[1]):
                paths[f"host: {lane}"] += 1
        _, bar, table = line.text.partition("|")
        cells = [cell.strip() for cell in table.split("|")]
        if not bar:
            continue
        if len(cells) in (2, 3) and not cells[-1]:
            title = cells[-2]
            memory = next((each for each in ("cuda", "rocm", "ze") if re.search(rf"\b{each}", title)), "host")
        elif len(cells) == 4 and not cells[3]:
            for lane in _UCX_LANE.findall(cells[2]):
                paths[f"{memory}: {lane}"] += 1
    return _proof(paths, "UCX_PROTO_INFO", facts)


# oneCCL ---------------------------------------------------------------------------------------------------------------

_ONECCL_VARIABLE = re.compile(r"\|CCL_INFO\| ((?:CCL|FI|I_MPI)_[A-Z0-9_]+): (?!<)(\S.*?)\s*$")
_ONECCL_VERSION = re.compile(r"\|CCL_INFO\| library version: \S*?([0-9]+(?:\.[0-9]+)+)")
_ONECCL_TRANSPORT = re.compile(r"\|CCL_INFO\| atl-(mpi|ofi):")
_ONECCL_FACT = re.compile(r"\s*(?:p2p_access|single_node): [01]\s*")
_ONECCL_STREAM = re.compile(r"\|CCL_INFO\| stream: \{ type: (\w+),")


def read_oneccl_log(text: str) -> TransportProof:
    """What oneCCL says with `CCL_LOG_LEVEL=info` (2021.17), which names no link.

    Paths: `P2P/LevelZero` where the devices of the node reach each other's memory, `SHM/MPI` where they do not; between
    nodes `NET/MPI` or `NET/OFI`, what it exchanges over. In `facts`: its variables in effect, and `stream`: `gpu` or
    `cpu`.
    """
    counted: Counter[str] = Counter()
    facts: dict[str, str] = {}
    over = ""
    for line in read_lines(text):
        if (match := _ONECCL_TRANSPORT.search(line.text)) is not None:
            over = match[1].upper()
        elif (match := _ONECCL_VARIABLE.search(line.text)) is not None:
            if is_recorded(match[1]):
                facts[match[1]] = redacted(match[2])
        elif (match := _ONECCL_VERSION.search(line.text)) is not None:
            facts["library"] = f"oneCCL {match[1]}"
        elif (match := _ONECCL_STREAM.search(line.text)) is not None:
            facts["stream"] = match[1]
        elif (match := _ONECCL_FACT.fullmatch(line.text)) is not None:
            counted[match[0].strip()] += 1
    names = {"single_node: 0": f"NET/{over}", "p2p_access: 1": "P2P/LevelZero", "p2p_access: 0": f"SHM/{over}"}
    paths = Counter({name: counted[fact] for fact, name in names.items() if over and counted[fact]})
    return _proof(paths, "CCL_LOG_LEVEL", facts)


# MPICH, Intel MPI, libfabric ------------------------------------------------------------------------------------------

_MPICH_VARIABLE = re.compile(r"(?:PE [0-9]+: )?\s*((?:MPICH|FI)_[A-Z0-9_]+)\s*=\s*(\S.*?)\s*")
_MPICH_VERSION = re.compile(r"MPI VERSION\s*: (CRAY MPICH|MPICH) version ([0-9][0-9A-Za-z.]*).*")


def read_mpich_environment(text: str) -> TransportProof:
    """The variables in effect that `MPICH_ENV_DISPLAY=1` of Cray MPICH prints, set by the user or not, in `facts`.

    The provider that MPICH says it uses (MPICH_OFI_USE_PROVIDER) is the path: `OFI provider cxi`.
    """
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in read_lines(text):
        stripped = line.text.strip()
        if (match := _MPICH_VARIABLE.fullmatch(stripped)) is not None:
            if is_recorded(match[1]):
                facts[match[1]] = redacted(match[2])
            if match[1] == "MPICH_OFI_USE_PROVIDER":
                paths[f"OFI provider {match[2]}"] += 1
        elif (match := _MPICH_VERSION.fullmatch(stripped)) is not None:
            facts["library"] = f"{match[1]} {match[2]}"
    return _proof(paths, "MPICH_ENV_DISPLAY", facts)


_SUMMARY_PROVIDER = re.compile(r"libfabric provider: (\S+) - .*")
_SUMMARY_FACT = re.compile(r"(MPIDI_OFI_ENABLE_HMEM|num_nics): (\d+)")
_SUMMARY_VERSION = re.compile(r"MPICH ([0-9][0-9A-Za-z.]*) -.*")


def read_mpich_summary(text: str) -> TransportProof:
    """What MPICH itself prints with `MPIR_CVAR_DEBUG_SUMMARY=1` (Aurora's is one; 5.0.2): path `OFI provider cxi`.

    In `facts`: whether the provider takes device memory (`MPIDI_OFI_ENABLE_HMEM`), and over how many NICs.
    """
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in read_lines(text):
        stripped = line.text.strip()
        if (match := _SUMMARY_PROVIDER.fullmatch(stripped)) is not None:
            paths[f"OFI provider {match[1]}"] += 1
        elif (match := _SUMMARY_FACT.fullmatch(stripped)) is not None:
            facts[match[1]] = match[2]
        elif (match := _SUMMARY_VERSION.fullmatch(stripped)) is not None:
            facts["library"] = f"MPICH {match[1]}"
    return _proof(paths, "MPIR_CVAR_DEBUG_SUMMARY", facts)


_IMPI_LINE = re.compile(r"(?:\[[0-9]+\] )?MPI startup\(\): (.*?)\s*")
_IMPI_VERSION = re.compile(r"Intel\(R\) MPI Library, Version (\S+).*")
_IMPI_SHARED = re.compile(r"shm segment size .*")
_IMPI_PROVIDER = re.compile(r"libfabric provider: (\S+)")
_VARIABLE = re.compile(r"([A-Z][A-Z0-9_]+)=(\S*)")


def read_intel_mpi_log(text: str) -> TransportProof:
    """What Intel MPI says with `I_MPI_DEBUG=10`: paths `shm` and `OFI provider mlx`, its variables in `facts`."""
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in text.split("\n"):
        outer = _IMPI_LINE.fullmatch(line.strip())
        if outer is None:
            continue
        if (match := _IMPI_PROVIDER.fullmatch(outer[1])) is not None:
            paths[f"OFI provider {match[1]}"] += 1
        elif _IMPI_SHARED.fullmatch(outer[1]) is not None:
            paths["shm"] += 1
        elif (match := _IMPI_VERSION.fullmatch(outer[1])) is not None:
            facts["library"] = f"Intel MPI {match[1]}"
        elif (match := _VARIABLE.fullmatch(outer[1])) is not None and is_recorded(match[1]):
            facts[match[1]] = redacted(match[2])
    return _proof(paths, "I_MPI_DEBUG", facts)


# Of Open MPI 4 and 5: bml_r2.c, mtl_ofi_component.c, pml_base_select.c, btl_tcp_component.c.
_OMPI_BTL = re.compile(r"mca: bml: Using (\w+) btl for send to \S+ on node (\S+)")
_OMPI_PROVIDER = re.compile(r"mtl:ofi:prov(?:ider)?: (\S+)")
_OMPI_PML = re.compile(r"select: component (\w+) selected")
_OMPI_INTERFACE = re.compile(r"btl: tcp: Using interface: (\S+)")


def read_open_mpi_log(text: str) -> TransportProof:
    """What Open MPI says with `btl_base_verbose` and `mtl_base_verbose`: `btl tcp` of each peer, `OFI provider cxi`.

    What a rank sends to itself is no path. UCX below Open MPI says its lanes itself (`read_ucx_log`).
    """
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in read_lines(text):
        if (match := _OMPI_BTL.search(line.text)) is not None:
            if match[1] != "self":
                paths[f"btl {match[1]}"] += 1
        elif (match := _OMPI_PROVIDER.search(line.text)) is not None and match[1] != "none":
            paths[f"OFI provider {match[1]}"] += 1
        elif (match := _OMPI_PML.search(line.text)) is not None:
            facts["pml"] = match[1]
            if match[1] == "pami":  # of Spectrum MPI, which says nothing else
                paths["pml pami"] += 1
        elif (match := _OMPI_INTERFACE.search(line.text)) is not None:
            facts["interface"] = match[1]
    return _proof(paths, "OMPI_MCA_btl_base_verbose", facts)


_FABRIC_PROVIDER = re.compile(r"Using ([A-Za-z0-9_;]+) provider [0-9][0-9.]*, path:")
_FABRIC = re.compile(r"<info> Opened fabric: (\S+)")


def read_libfabric_log(text: str) -> TransportProof:
    """The provider that `FI_LOG_LEVEL=info` says was opened (libfabric, src/fabric.c), as `OFI provider cxi`."""
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for line in read_lines(text):
        if (match := _FABRIC_PROVIDER.search(line.text)) is not None:
            paths[f"OFI provider {match[1]}"] += 1
        elif (match := _FABRIC.search(line.text)) is not None:
            facts["fabric"] = match[1]
    return _proof(paths, "FI_LOG_LEVEL", facts)
