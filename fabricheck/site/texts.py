"""Texts of tools that a user put into a folder by hand, under any name: known by what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.state import capture

NVIDIA_SMI_TOPO = "nvidia-smi topo -m"
LSCPU = "lscpu"
IBSTAT = "ibstat"
SINFO = "sinfo"
SRUN_MPI = "srun --mpi=list"
SCONTROL_CONFIG = "scontrol show config"
# By the tool, what only its output has.
_MARKS = {
    NVIDIA_SMI_TOPO: re.compile(r"^[ \t\x1b\[\dm]*GPU0[ \t].*\n[ \t\x1b\[\dm]*GPU0\b", re.MULTILINE),
    LSCPU: re.compile(r"^ *NUMA node\(s\): ", re.MULTILINE),
    IBSTAT: re.compile(r"^CA '\S+'$", re.MULTILINE),
    SINFO: re.compile(r"^(?=.*\bPARTITION\b)(?=.*\bNODELIST\b)|^[^|\s]+\|\d+(?:\|[^|\s]+){4}$", re.MULTILINE),
    SRUN_MPI: re.compile(r"^MPI plugin types are", re.MULTILINE),
    SCONTROL_CONFIG: re.compile(r"^Configuration data as of ", re.MULTILINE),
}
TOOLS = ", ".join(f"`{tool}`" for tool in _MARKS)
# Outputs of hundreds of nodes are smaller; logs and archives beside them are not looked at.
_MOST_BYTES = 1 << 20


def pasted_texts(directory: Path) -> dict[str, Path]:
    """By the tool, the file with its output. Raises UserError where two files have the output of one tool."""
    texts: dict[str, Path] = {}
    for file in sorted(directory.iterdir()):
        if file.name in capture.FILES or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        text = _text(file)
        for tool, mark in _MARKS.items():
            if not mark.search(text):
                continue
            if tool in texts:
                both = f"{texts[tool].name} and {file.name}"
                raise UserError(f"{directory}: {both} both have the output of `{tool}`: keep that of one node")
            texts[tool] = file
    return texts


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _fields(text: str) -> dict[str, str]:
    """The values of lines such as `Rate: 400` by their names."""
    return {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }


def numa_of_lscpu(file: Path) -> dict[str, Any]:
    """As `fabricheck.state.capture.numa_facts`."""
    fields = _fields(_text(file))
    nodes = [
        {"index": int(match[1]), "cpus": cpus}
        for name, cpus in fields.items()
        if (match := re.fullmatch(r"NUMA node(\d+) CPU\(s\)", name)) and cpus
    ]
    sockets = int(fields.get("Socket(s)", 1))
    return {"nodes": nodes, "cores": int(fields.get("Core(s) per socket", 0)) * sockets, "sockets": sockets}


def nics_of_ibstat(file: Path) -> list[dict[str, Any]]:
    """As `fabricheck.state.capture.nic_facts`, of the active ports; ibstat names no NUMA node and no PCI address."""
    nics = []
    _, *cards = re.split(r"^CA '(\S+)'$", _text(file), flags=re.MULTILINE)
    for name, card in zip(cards[::2], cards[1::2], strict=True):
        about, *ports = re.split(r"^[ \t]+Port (\d+):$", card, flags=re.MULTILINE)
        for number, text in zip(ports[::2], ports[1::2], strict=True):
            port = _fields(text)
            if port.get("State") == "Active":
                nics.append(
                    {
                        "name": name if number == "1" else f"{name}_{number}",
                        "kind": port.get("Link layer", "InfiniBand"),
                        "rate": f"{port['Rate']} Gb/sec" if "Rate" in port else None,
                        "numa_node": None,
                        "card": "".join(re.findall(r"CA type: (\S+)", about)),
                    }
                )
    return nics


def slurm_of_texts(texts: Mapping[str, Path]) -> dict[str, str]:
    """As `fabricheck.state.capture.ask_slurm`."""
    outputs = {"mpi": SRUN_MPI, "config": SCONTROL_CONFIG}
    captured = {name: _text(texts[tool]) for name, tool in outputs.items() if tool in texts}
    return {**captured, "sinfo": _rows_of_sinfo(_text(texts[SINFO]))} if SINFO in texts else captured


def _rows_of_sinfo(text: str) -> str:
    """`partition|nodes|gres|names||state` of a table whose header names its columns; without a header, the text."""
    header, *rows = [line.replace("|", " ").split() for line in text.splitlines() if line.strip()] or [[]]
    if "NODELIST" not in header:
        return text
    cells = [dict(zip(header, row, strict=False)) for row in rows]
    return "\n".join(
        "|".join([row["PARTITION"].rstrip("*"), row.get("NODES", ""), row.get("GRES", ""), row["NODELIST"], "", ""])
        for row in cells
        if {"PARTITION", "NODELIST"} <= row.keys()
    )
