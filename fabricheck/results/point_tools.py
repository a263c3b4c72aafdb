"""Bandwidths that nvbandwidth, p2pBandwidthLatencyTest, TransferBench, perftest and Slingshot's tools (cxi_write_bw and
the like) print, one for a kind of transfer.

They say nothing that proves where they ran, so that they are never a result of the suite; `fabricheck judge --part`
says whether the number is normal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Samples

#: The tools, as they are called.
TOOLS = ("nvbandwidth", "p2pBandwidthLatencyTest", "TransferBench", "perftest", "cxi")


@dataclass(frozen=True)
class ToolValue:
    """The lowest of `count` numbers of one kind, in Gb/s, or us of a latency.

    `operation` and `transport`: as of fabricbench, or `nic` where the data crossed a network alone; `bytes` is 0 where
    the tool does not state it; `memory`: of a NIC, `host` or `gpu`.
    """

    tool: str
    what: str
    operation: str
    transport: str
    bytes: int
    value: float
    count: int
    access: str = "write"
    memory: str = ""
    unit: str = "Gb/s"


# Less and more than any link or memory has, in Gb/s or us.
_LEAST, _MOST = 1e-3, 1e9
_NVBANDWIDTH = re.compile(r"Running (\w+_(?:ce|sm))\.?$")
_P2P = re.compile(r"(?:(Uni|Bi)directional P2P=Enabled |P2P|Uni|Bi).* Matrix\b")
# Their default buffers (--bufferSize; numElems of CUDA's samples).
_BUFFER, _P2P_BUFFER = 512 << 20, 160_000_000
_CELLS = re.compile(r"^\s*(\d+)((?:\s+(?:N/A|[0-9]+(?:\.[0-9]+)?))+)\s*$")
_KINDS = {
    "host_to_device_memcpy": ("host_to_device", "write", 1),
    "device_to_host_memcpy": ("device_to_host", "write", 1),
    "device_to_device_memcpy_read": ("unidirectional", "read", 1),
    "device_to_device_memcpy_write": ("unidirectional", "write", 1),
    # Both directions together.
    "device_to_device_bidirectional_memcpy_read": ("bidirectional", "read", 2),
    "device_to_device_bidirectional_memcpy_write": ("bidirectional", "write", 2),
    "device_local_copy": ("local_copy", "write", 1),
    "p2p_Uni": ("unidirectional", "write", 1),
    "p2p_Bi": ("bidirectional", "write", 2),
}
_TRANSFER = re.compile(
    r"Transfer +\d+ *\| *([0-9]+(?:\.[0-9]+)?) GB/s *\|.*?\| *(\d+) bytes *\| *"
    r"\(?([CGHFBMN])(\d+)\)? *-> *(GFX|DMA|CPU|G|D|C):?\d*[^>]*-> *\(?([CGHFBMN])(\d+)\)?"
)
_PERFTEST = re.compile(r"^ *(RDMA_Write|RDMA_Read|Send)\b.* (BW|Latency) Test", re.MULTILINE)
_PERFTEST_NAMES = {"RDMA_Write": "ib_write", "RDMA_Read": "ib_read", "Send": "ib_send"}
_UNITS = {"Gb/sec": 1.0, "MB/sec": 8 * (1 << 20) / 1e9, "MiB/sec": 8 * (1 << 20) / 1e9}
# Slingshot's tools for a NIC: how an output begins, and a row of it; the server of a pair prints `-` for its writes.
_CXI = re.compile(r"^ *CXI (?:RDMA )?(Loopback|Write|Read|Send) Bandwidth Test *$", re.MULTILINE)
_CXI_ROW = re.compile(r"^ *([0-9]+) +(?:[0-9]+|-) +([0-9]+\.[0-9]+) +[0-9]+\.[0-9]+ *$", re.MULTILINE)
_CXI_NAMES = {"Loopback": "cxi_gpu_loopback_bw", "Write": "cxi_write_bw", "Read": "cxi_read_bw", "Send": "cxi_send_bw"}
_ROW = re.compile(
    r"^ *(\d+) +(\d+) +([0-9]+(?:\.[0-9]+)?) +([0-9]+(?:\.[0-9]+)?)(?:[ \t]+[0-9]+(?:\.[0-9]+)?)*[ \t]*$", re.MULTILINE
)


def read_points(text: str) -> tuple[ToolValue, ...]:
    """What the tools printed in a text; none where it is of another one, and no number that is none."""
    points = (*_nvbandwidth(text), *_transferbench(text), *_perftest(text), *_cxi(text))
    return tuple(each for each in points if _LEAST <= each.value < _MOST and 0 <= each.bytes <= 1 << 50)


def _nvbandwidth(text: str) -> Iterator[ToolValue]:
    for test, cells in (*_matrices(text), *_matrices_of_json(text)):
        name, _, mover = test.rpartition("_")
        if name in _KINDS and cells:
            operation, access, directions = _KINDS[name]
            values = _of([8 * each / directions for each in cells])
            by = "kernel" if mover == "sm" else "copy"
            if name.startswith("p2p"):
                yield ToolValue(TOOLS[1], operation, operation, by, _P2P_BUFFER, *values, access=access)
            else:
                yield ToolValue(TOOLS[0], test, operation, by, _BUFFER, *values, access=access)


def _matrices(text: str) -> Iterator[tuple[str, list[float]]]:
    """The tests of nvbandwidth and p2pBandwidthLatencyTest in a text, and their numbers in GB/s."""
    name = ""
    cells: list[float] = []
    for line in (*text.splitlines(), "Running end_ce."):
        title, p2p = _NVBANDWIDTH.match(line.strip()), _P2P.match(line.strip())
        if title or p2p:
            yield name, cells
            name, cells = title[1] if title else f"p2p_{p2p[1]}_ce" if p2p else "", []
        elif match := _CELLS.match(line):
            words = match[2].split()
            if name.startswith("p2p"):
                del words[int(match[1]) : int(match[1]) + 1]  # to the GPU itself
            # The first line of a matrix has the numbers of GPUs.
            cells += [float(each) for each in words if "." in each]


def _matrices_of_json(text: str) -> Iterator[tuple[str, list[float]]]:
    """The same of `nvbandwidth --json`."""
    if not text.lstrip().startswith("{") or '"nvbandwidth"' not in text:
        return
    try:
        for test in json.loads(text)["nvbandwidth"]["testcases"]:
            cells = [float(each) for row in test.get("bandwidth_matrix", ()) for each in row if each != "N/A"]
            yield str(test["name"]), cells
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return


def samples_of(point: ToolValue) -> Samples:
    """The number as one mean of a run."""
    ranks = (0, 1) if point.operation in PAIRS else (0,)
    size = point.bytes or 1 << 30
    value = 1000 * point.value if point.unit == "us" else 8 * size / point.value
    times = np.array([max(1, round(value))], dtype=np.int64)
    where = (point.operation, "transfers", "uncontended", -1, ranks, size, 0, "fixed", 0, times)
    return Samples(*where, statistic="mean")


def _transferbench(text: str) -> Iterator[ToolValue]:
    if "TransferBench" not in text[:4096] and not re.search(r"^Test \d+:", text, re.MULTILINE):
        return
    rates: dict[tuple[str, str, int], list[float]] = {}
    for rate, size, source, from_, mover, target, to in _TRANSFER.findall(text):
        ends = ("G" in source or "F" in source, "G" in target or "F" in target)
        operation = {(True, True): "unidirectional", (True, False): "device_to_host", (False, True): "host_to_device"}
        if ends not in operation or (ends == (True, True) and from_ == to):
            continue
        by = "copy" if mover.startswith("D") else "kernel"
        rates.setdefault((operation[ends], by, int(size)), []).append(8 * float(rate))
    for (operation_, by, bytes_), values in rates.items():
        yield ToolValue("TransferBench", f"{operation_} by {by}", operation_, by, bytes_, *_of(values))


def _perftest(text: str) -> Iterator[ToolValue]:
    title = _PERFTEST.search(text)
    rows = [match.groups() for match in _ROW.finditer(text)]
    if title is None or not rows:
        return
    latency = title[2] == "Latency"
    name = f"{_PERFTEST_NAMES[title[1]]}_{'lat' if latency else 'bw'}"
    memory = "gpu" if re.search(r"use_cuda|use_rocm|cuda|CUDA device|ROCm device|hip", text) else "host"
    unit = re.search(r"BW average\[([^\]]+)\]", text)
    size, _, _, average = (min if latency else max)(rows, key=lambda row: int(row[0]))
    if latency:
        typical = re.search(
            rf"^ *{size} +\d+ +[0-9]+(?:\.[0-9]+)? +[0-9]+(?:\.[0-9]+)? +([0-9]+(?:\.[0-9]+)?)", text, re.MULTILINE
        )
        value = float(typical[1]) if typical else float(average)
        yield ToolValue("perftest", name, "nic", "nic", int(size), *_of([value]), memory=memory, unit="us")
    elif unit is not None and unit[1] in _UNITS:
        value = float(average) * _UNITS[unit[1]]
        yield ToolValue("perftest", name, "nic", "nic", int(size), *_of([value]), memory=memory)


def _cxi(text: str) -> Iterator[ToolValue]:
    """Of the largest size; MB are 10^6 B, and `Bidirectional` rates add both directions (libcxi's manual pages)."""
    _, *outputs = _CXI.split(text)  # in turn the word of a title, and what follows it
    rates: dict[tuple[str, str, int], list[float]] = {}
    for word, part in zip(outputs[::2], outputs[1::2], strict=True):
        rows = [(int(size), float(rate)) for size, rate in _CXI_ROW.findall(part)]
        unit = re.search(r"BW\[(Gb|MB)/s\]", part)
        if not rows or unit is None:
            continue
        size, rate = max(rows)
        both_ways = re.search(r"^ *Bidirectional *: Enabled", part, re.MULTILINE) is not None
        memory = "gpu" if re.search(r"[TR]X Mem *: GPU", part) else "host"
        gbps = rate * (1.0 if unit[1] == "Gb" else 8e-3) / (2 if both_ways else 1)
        rates.setdefault((_CXI_NAMES[word], memory, size), []).append(gbps)
    for (name, memory, size), values in rates.items():
        yield ToolValue("cxi", name, "nic", "nic", size, *_of(values), memory=memory)


def _of(values: list[float]) -> tuple[float, int]:
    return min(values), len(values)
