"""Which way the data went, from what the libraries themselves log: NCCL and RCCL, UCX, MPICH, Intel MPI, libfabric.

For tools that, unlike fabricbench, do not look themselves. Paths have the names that fabricbench gives them in the
`proof` of its footer (docs/formats.md), so one list of forbidden and required paths serves for both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabricheck.records.nic_families import family_of
from fabricheck.results.environment import is_recorded, recorded_environment, redacted
from fabricheck.results.printed import Line, read_lines

# Paths over which no fast fabric goes: each is a fall-back wherever there is one.
FALL_BACKS = (
    r"^NET/Socket",
    r"^NET/OFI provider (?:tcp|sockets|udp|net)\b",
    r"\btcp/",
    r"^OFI provider (?:tcp|sockets|udp|net)\b",
)
# Of the OFI plugin.
_PROVIDER = "NET/OFI provider"
# What a library calls a provider of libfabric: by its name, by a domain (EFA: `rdmap0s31-rdm`), or with the layers
# on it, which pass on or stay in the node (`tcp;ofi_rxm`, `shm+cxi:lnx`).
_OFI_NAME = re.compile(r"^((?:NET/)?OFI provider )(\S+)")
_OFI_LAYER = re.compile(r"(?:lnx|shm|sm2|ofi_\w+)$")
_OFI_DOMAINS = (
    (re.compile(r"rdmap\w+|efa[-_]?\d"), "efa"),
    (re.compile(r"cxi\d"), "cxi"),
    (re.compile(r"(?:mlx|bnxt_re|irdma|roce|hns)\w*\d"), "verbs"),
    (re.compile(r"hfi1_\d"), "opx"),
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


def normal_path(path: str) -> str:
    """The path with the core provider of libfabric below it, whatever the library calls it."""
    match = _OFI_NAME.match(path)
    if match is None:
        return path
    providers = []
    for name in re.split("[;+:]", match[2]):
        if not _OFI_LAYER.match(name):
            providers.append(next((provider for domain, provider in _OFI_DOMAINS if domain.match(name)), name))
    # Sockets below another provider are the slower of both.
    providers.sort(key=lambda provider: provider not in ("tcp", "sockets", "udp", "net"))
    return path.replace(match[2], providers[0], 1) if providers else path


def merge_proofs(*proofs: TransportProof) -> TransportProof:
    """What several logs prove together: of the ranks, or of NCCL and the libfabric below it."""
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    for proof in proofs:
        paths.update(proof.paths)
        facts.update(proof.facts)
    evidence = ", ".join(dict.fromkeys(proof.evidence for proof in proofs if proof.evidence is not None))
    return TransportProof(dict(paths), evidence or None, facts)


class _Row(NamedTuple):
    """A line of a log: the path, and the fact with its value, that it says, as templates of the pattern's groups.

    `first`: the first such line counts, and not the last. A fact that is named by the line itself is a variable, and
    kept where variables of that name may be.
    """

    pattern: str
    path: str = ""
    fact: str = ""
    value: str = ""
    first: bool = False


# By library: what makes it write the log, and its lines. Of each line the first row that fits counts.
_LOGS: Mapping[str, tuple[str, Sequence[_Row]]] = {
    # Of channels: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0/GDRDMA`, `NET/Socket/0`. The provider below the OFI
    # plugin is a path too, `NET/OFI provider cxi`, because tcp can hide there. (Subsystems INIT, NET, ENV.)
    "nccl": (
        "NCCL_DEBUG",
        (
            _Row(r"\bChannel .* via (\S.*?)(?: comm 0x.*)?\s*$", r"\1"),
            _Row(r"NET/OFI Selected [Pp]rovider is ([^\s,]+)", rf"{_PROVIDER} \1"),
            _Row(r"NCCL INFO (?:[A-Za-z ]*: )?Using network (\S(?:.*\S)?)", fact="network", value=r"\1"),
            _Row(r"NCCL INFO ((?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to (\S+?)\.?$", fact=r"\1", value=r"\2"),
            _Row(r"NET/(IB|OFI) : No device found", fact=r"NET/\1", value="no device found"),
            _Row(
                r"(?i:(?:GPU Direct RDMA|GDRDMA|DMA-BUF) (?:\(\w+\) )?(Disabled for .*|is not available.*))",
                fact="GPUDirect RDMA",
                value=r"\1",
                first=True,
            ),
            _Row(r"NVLS (multicast support is not available.*?)(?: on dev \d+)?\s*$", fact="NVLS", value=r"\1"),
            # The first is nearest to the cause; others follow from it.
            _Row(r"NCCL WARN (?:\[[^\]]*\] )?(\S.*?)\s*$", fact="warning", value=r"\1", first=True),
            _Row(r"\b([NR]CCL) version ([0-9][0-9.]*)", fact="library", value=r"\1 \2"),
        ),
    ),
    # What oneCCL says with CCL_LOG_LEVEL=info (2021.17), which names no link; `read_log` makes paths of it.
    "oneccl": (
        "CCL_LOG_LEVEL",
        (
            _Row(r"\|CCL_INFO\| atl-(mpi|ofi):", fact="over", value=r"\1"),
            _Row(r"\|CCL_INFO\| ((?:CCL|FI|I_MPI)_[A-Z0-9_]+): (?!<)(\S.*?)\s*$", fact=r"\1", value=r"\2"),
            _Row(r"\|CCL_INFO\| library version: \S*?([0-9]+(?:\.[0-9]+)+)", fact="library", value=r"oneCCL \1"),
            _Row(r"\|CCL_INFO\| stream: \{ type: (\w+),", fact="stream", value=r"\1"),
            _Row(r"^\s*(p2p_access|single_node): ([01])\s*$", r"\1: \2"),
        ),
    ),
    # The variables in effect, set by the user or not (MPICH_ENV_DISPLAY=1 of Cray MPICH).
    "cray-mpich": (
        "MPICH_ENV_DISPLAY",
        (
            _Row(r"^(?:PE [0-9]+: )?\s*(MPICH_OFI_USE_PROVIDER)\s*=\s*(\S.*?)\s*$", r"OFI provider \2", r"\1", r"\2"),
            _Row(r"^(?:PE [0-9]+: )?\s*((?:MPICH|FI)_[A-Z0-9_]+)\s*=\s*(\S.*?)\s*$", fact=r"\1", value=r"\2"),
            _Row(
                r"^\s*MPI VERSION\s*: (CRAY MPICH|MPICH) version ([0-9][0-9A-Za-z.]*)", fact="library", value=r"\1 \2"
            ),
        ),
    ),
    # Whether the provider takes device memory, and over how many NICs (Aurora's MPICH is one; 5.0.2).
    "mpich": (
        "MPIR_CVAR_DEBUG_SUMMARY",
        (
            _Row(r"^\s*libfabric provider: (\S+) - ", r"OFI provider \1"),
            _Row(r"^\s*(MPIDI_OFI_ENABLE_HMEM): (\d+)\s*$", fact="MPIDI_OFI_ENABLE_HMEM", value=r"\2"),
            _Row(r"^\s*num_nics: (\d+)\s*$", fact="num_nics", value=r"\1"),
            _Row(r"^\s*MPICH ([0-9][0-9A-Za-z.]*) -", fact="library", value=r"MPICH \1"),
        ),
    ),
    "intel-mpi": (
        "I_MPI_DEBUG",
        (
            _Row(r"^\s*MPI startup\(\): libfabric provider: (\S+)\s*$", r"OFI provider \1"),
            _Row(r"^\s*MPI startup\(\): shm segment size ", "shm"),
            _Row(r"^\s*MPI startup\(\): Intel\(R\) MPI Library, Version (\S+)", fact="library", value=r"Intel MPI \1"),
            _Row(r"^\s*MPI startup\(\): ([A-Z][A-Z0-9_]+)=(\S*)\s*$", fact=r"\1", value=r"\2"),
        ),
    ),
    # Of Open MPI 4 and 5: bml_r2.c, mtl_ofi_component.c, pml_base_select.c, btl_tcp_component.c. What a rank sends to
    # itself is no path. Lanes of UCX below it are in UCX's own log. Of Spectrum MPI there is pami, and nothing else.
    "openmpi": (
        "OMPI_MCA_btl_base_verbose",
        (
            _Row(r"mca: bml: Using (?!self )(\w+) btl for send to \S+ on node \S+", r"btl \1"),
            _Row(r"mtl:ofi:prov(?:ider)?: (?!none\b)(\S+)", r"OFI provider \1"),
            _Row(r"select: component (pami) selected", r"pml \1", "pml", r"\1"),
            _Row(r"select: component (\w+) selected", fact="pml", value=r"\1"),
            _Row(r"btl: tcp: Using interface: (\S+)", fact="interface", value=r"\1"),
        ),
    ),
    # The provider that was opened (src/fabric.c), and the one that `fi_pingpong -v` says it uses.
    "libfabric": (
        "FI_LOG_LEVEL",
        (
            _Row(r"Using ([A-Za-z0-9_;]+) provider [0-9][0-9.]*, path:", r"OFI provider \1"),
            _Row(r"^\s*prov_name: (\S+)\s*$", r"OFI provider \1"),
            _Row(r"<info> Opened fabric: (\S+)", fact="fabric", value=r"\1"),
        ),
    ),
    # What perftest prints before its table: verbs by this device, as UCX would call it.
    "perftest": ("perftest", (_Row(r"\bDevice\s+: (\S+)", r"rc_verbs/\1"),)),
    # Versions before 1.14 have no tables, but the lanes that messages between two ranks take.
    "ucx": (
        "UCX_PROTO_INFO",
        (_Row(r"UCX\s+INFO\s+Version ([0-9][0-9.]*)", fact="library", value=r"UCX \1"),),
    ),
}
_LONGEST_VALUE = 300


def read_log(library: str, text: str) -> TransportProof:
    """What a log of `library`, one of `_LOGS`, proves: its paths, and in `facts` what else the library says."""
    evidence, rows = _LOGS[library]
    known = [(re.compile(row.pattern), row) for row in rows]
    paths: Counter[str] = Counter()
    facts: dict[str, str] = {}
    lines = read_lines(text)
    for line in lines:
        match, row = next(((match, row) for how, row in known if (match := how.search(line.text))), (None, None))
        if match is None or row is None:
            continue
        if row.path:
            paths[match.expand(row.path)] += 1
        name = match.expand(row.fact) if row.fact else ""
        if name and (row.fact != r"\1" or is_recorded(name)) and not (row.first and name in facts):
            facts[name] = redacted(match.expand(row.value))[:_LONGEST_VALUE]
    if library == "nccl" and any(not path.startswith("NET/") for path in paths):
        # The plugin opens its provider inside a node as well: it counts only where a channel goes over a network.
        over = any(path.startswith("NET/") and not path.startswith(_PROVIDER) for path in paths)
        paths = Counter({path: n for path, n in paths.items() if over or not path.startswith(_PROVIDER)})
    if library == "oneccl":
        paths = _paths_of_oneccl(paths, facts.pop("over", "").upper())
    if library == "ucx":
        _read_lanes(lines, paths, facts)
    return TransportProof(dict(sorted(paths.items())), evidence if paths else None, facts)


def _paths_of_oneccl(said: Counter[str], over: str) -> Counter[str]:
    """`P2P/LevelZero` where the devices of the node reach each other's memory, `SHM/MPI` where they do not; between
    nodes `NET/MPI` or `NET/OFI`, what it exchanges over."""
    names = {"single_node: 0": f"NET/{over}", "p2p_access: 1": "P2P/LevelZero", "p2p_access: 0": f"SHM/{over}"}
    return Counter({name: said[fact] for fact, name in names.items() if over and said[fact]})


_UCX_LANE = re.compile(r"\b([a-z][a-z0-9_]*/[A-Za-z0-9_.:-]+)")
_UCX_VARIABLES = re.compile(r"UCX_\* env variables?: (.*)")
_UCX_ENDPOINT = re.compile(r"\bep_cfg\[\d+\]: tag\(([^)]*)\)")


def _read_lanes(lines: Sequence[Line], paths: Counter[str], facts: dict[str, str]) -> None:
    """Lanes in UCX's tables, `host: sysv/memory`, `cuda: cuda_ipc/cuda`, and the variables that were set.

    Before the colon is the memory that the table is about. A protocol that splits a message over lanes names each.
    """
    memory = "host"
    for line in lines:
        if (match := _UCX_VARIABLES.search(line.text)) is not None:
            facts |= recorded_environment(match[1].split())
        elif (match := _UCX_ENDPOINT.search(line.text)) is not None:
            paths.update(f"host: {lane}" for lane in _UCX_LANE.findall(match[1]))
        _, bar, table = line.text.partition("|")
        cells = [cell.strip() for cell in table.split("|")]
        if bar and len(cells) in (2, 3) and not cells[-1]:
            title = cells[-2]
            memory = next((each for each in ("cuda", "rocm", "ze") if re.search(rf"\b{each}", title)), "host")
        elif bar and len(cells) == 4 and not cells[3]:
            paths.update(f"{memory}: {lane}" for lane in _UCX_LANE.findall(cells[2]))


# What a library only prints more by.
_TALK = re.compile(r"LOG|INFO|DEBUG|VERBOSE|WARN", re.IGNORECASE)
_OF_CCL = frozenset({"P2P", "MNNVL", "NET"})
# A line names no more.
_MOST_VARIABLES = 4


def may_have_chosen(name: str, value: str, words: Collection[str]) -> bool:
    """Whether a variable may be why a library did not take the path that has these `words`.

    NCCL's names say which paths they are about; MPI has one way to the network, which any of its layers may choose.
    """
    library, _, subject = name.partition("_")
    parts = subject.split("_")
    if _TALK.search(name) or ("DISABLE" in parts and value == "0") or ("ENABLE" in parts and value != "0"):
        return False
    if library in ("NCCL", "RCCL"):
        return any(part and word.startswith(part) for part in parts for word in words)
    if library == "FI":
        return "P2P" not in words
    return library in ("UCX", "OMPI", "MPICH", "I") and _OF_CCL.isdisjoint(words)


def reasons_of(facts: Mapping[str, str], described: str, taken: Collection[str]) -> tuple[str, ...]:
    """Why a library may have gone by the paths `taken` and not by the one that is `described`, the surest first.

    `facts`: what it said of itself, and variables in effect.
    """
    words = set(re.split(r"[/ ]", described)) | {described}
    reasons = [f"{name}={value} is set" for name, value in facts.items() if may_have_chosen(name, value, words)]
    del reasons[_MOST_VARIABLES:]
    network = [path for path in taken if path.startswith("NET/")]
    others = ("NET/Socket", _PROVIDER)
    lost = "GDRDMA" in words and any("GDRDMA" not in path and not path.startswith(others) for path in network)
    if "GPUDirect RDMA" in facts and "GDRDMA" in words:
        reasons.append(f"the library reports: GPUDirect RDMA {facts['GPUDirect RDMA']}")
    if lost and "distance" not in facts.get("GPUDirect RDMA", ""):
        reasons.append(family_of(" ".join((described, *taken))).gpu_memory)
    if any(path.startswith("NET/Socket") for path in network) and "NET/IB" in facts:
        reasons.append(
            f"the library reports: NET/IB: {facts['NET/IB']}. Check ibv_devinfo, and /dev/infiniband in the container"
        )
    if "warning" in facts:
        reasons.append(f"the library reports: {facts['warning']}")
    return tuple(dict.fromkeys(reasons))


def facts_of_remarks(proof: Mapping[str, Any]) -> Mapping[str, str]:
    """What NCCL or RCCL said of itself by the remarks that fabricbench keeps in the footer's `proof`."""
    log = (f"NCCL {'WARN' if each['warning'] else 'INFO'} {each['text']}" for each in proof.get("remarks", ()))
    return read_log("nccl", "\n".join(log)).facts
