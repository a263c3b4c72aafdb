"""Result files of a burn-in, made up: healthy, or with what a test plants."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.support.result_files import CUDA, Line, lines_of, settle, write

_PRODUCT_NS, _TRAFFIC_NS, _COPY_NS = 1.6e6, 5.5e6, 1.3e6
# By phase: what goes on, and by how much slower than alone.
_PHASES = {
    "compute": {"products": 1.0},
    "traffic": {"traffic": 1.0},
    "copies": {"copies": 1.0},
    "together": {"products": 1.25, "traffic": 1.4, "copies": 1.1},
}
_USUAL = {"products": _PRODUCT_NS, "traffic": _TRAFFIC_NS, "copies": _COPY_NS}
Change = Callable[[list[Line]], object]


def burn_in_lines(*, nodes: int = 1, gpus: int = 4, alone: int = 6, together: int = 82) -> list[Line]:
    """A healthy one on nodes of H200, with `alone` windows of each of three phases, and then `together`."""
    header, *_, samples, footer = lines_of(CUDA)
    rank = header["ranks"][0]
    count = nodes * gpus
    header["ranks"] = [copy.deepcopy(rank) for _ in range(count)]
    for number, own in enumerate(header["ranks"]):
        place = number % gpus
        own |= {"rank": number, "host": f"nid{number // gpus + 1:03}", "local_rank": place, "pid": 4000 + number}
        own["device"] |= {"index": place, "bus_id": f"00000000:{place + 1:02X}:00.0", "uuid": f"GPU-{number:08x}"}
    everyone = list(range(count))
    samples |= {"index": 0, "bytes": 1 << 30, "ranks": everyone}
    plan = header["plan"]
    series = next(one for one in plan["series"] if one["operation"] == "allreduce")
    plan |= {"operations": ["allreduce"], "schedules": ["uncontended"], "sizes": [1 << 30]}
    plan["series"] = [{**series, "ranks": everyone, "bytes": [1 << 30]}]
    plan["burn_in"] = {
        **{"seconds": 100.0, "alone_seconds": 6.0, "window_seconds": 1.0},
        **{"product": "bfloat16", "order": 8192, "copy_bytes": 1 << 26},
    }
    header["expected_records"] = 1
    random = np.random.default_rng(46)
    lines: list[Line] = [
        header,
        samples,
        {"record": "burn_in", "by": ["cuBLAS 13.0.2"] * count, "wrong_rows": [0] * count},
    ]
    phases = ["compute"] * alone + ["traffic"] * alone + ["copies"] * alone + ["together"] * together
    for number, phase in enumerate(phases):
        window: Line = {"record": "window", "window": number, "phase": phase, "utc": "2026-11-21T05:54:06Z"}
        window |= {"begin_ns": number * 10**9 + 1, "end_ns": (number + 1) * 10**9}
        for name, factor in _PHASES[phase].items():
            window[name] = times(_USUAL[name] * factor * random.normal(1, 0.003, count))
        if "products" in window:
            window["products"] |= {"wrong_words": [0] * count, "first_wrong": [None] * count}
        if "traffic" in window:
            window["traffic"] |= {"wrong_bytes": [0] * count}
        if phase == "together":
            window |= {name: times(random.uniform(1e3, 3e4, count)) for name in ("ring", "allreduce")}
        lines.append(window)
        for host in range(nodes):
            lines.append({"record": "node", "window": number, "host": f"nid{host + 1:03}", "samples": 1, "nics": []})
            lines[-1]["gpus"] = [_gpu(place, phase, random) for place in range(gpus)]
    footer |= {"windows": len(phases), "wrong_words": 0}
    lines.append(footer)
    settle(lines)
    return lines


def times(medians: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Line:
    return {
        "count": [300] * medians.size,
        **{name: [int(f * each) for each in medians] for name, f in (("median_ns", 1), ("p99_ns", 1.1), ("max_ns", 2))},
    }


def _gpu(place: int, phase: str, random: np.random.Generator) -> Line:
    """At the limit of its power while all goes on at the same time, as H200 are."""
    power, heat = (round(float(each), 1) for each in random.normal((640, 62), (4, 1)))
    return {
        **{"bus_id": f"0000:{place + 1:02x}:00.0", "index": place, "clock_mhz": [1700, 1725, 1755]},
        **{"power_w": [power] * 3, "temperature_c": [heat] * 3, "throttle": {"sw_power_cap": int(phase == "together")}},
        "counters": {"ecc_corrected": 0, "ecc_uncorrected": 0, "rows_remapped": 0, "pcie_replays": 0},
    }


def windows_of(lines: list[Line], phase: str = "together", first: int = 0) -> list[Line]:
    """The windows of a phase from its number `first` on."""
    return [line for line in lines if line["record"] == "window" and line["phase"] == phase][first:]


def slower(lines: list[Line], ranks: list[int], factor: float, first: int = 0, phase: str = "together") -> None:
    """The products of some ranks take `factor` times as long, from a window of the phase on."""
    for window in windows_of(lines, phase, first):
        for name in ("median_ns", "p99_ns", "max_ns"):
            for rank in ranks:
                window["products"][name][rank] = int(window["products"][name][rank] * factor)


def gpus_of(lines: list[Line], host: str, place: int, first: int = 0) -> list[Line]:
    """What a node reports of a GPU, by window, from a number on."""
    nodes = [line for line in lines if line["record"] == "node" and line["host"] == host]
    return [line["gpus"][place] for line in nodes if line["window"] >= first]


def write_burn_in(folder: Path, lines: list[Line]) -> Path:
    words = [line["products"]["wrong_words"] for line in lines if line.get("products")]
    lines[-1]["wrong_words"] = sum(map(sum, words)) + sum(lines[2]["wrong_rows"])
    return write(folder / "result.jsonl", lines)
