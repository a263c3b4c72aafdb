"""Reads the file that nccl-tests writes with `-J` (docs/vendor-formats.md), and makes a copy that may be stored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import recorded_environment
from fabricheck.results.printed import Line
from fabricheck.results.strict_json import BadLineError, load
from fabricheck.vendor.block import LARGEST_RANKS, LARGEST_SIZE, NUMBER, WHOLE, Asked, Table, TableRow, quote, value_of
from fabricheck.vendor.nccl import COLUMNS, HALVES, TESTS, NcclTests, program_of

# The JSON file of `-J`.
_CONFIG = {
    "threads": "nthreads",
    "gpus": "ngpus",
    "minimum": "minimum_bytes",
    "maximum": "maximum_bytes",
    "iterations": "iterations",
    "aggregated_iterations": "aggregated_iterations",
    "validated": "validation",
    "graph_launches": "graph",
}


def read_nccl_json(text: str, path: str, asked: Asked) -> VendorOutput:
    """The measurements in the file that nccl-tests writes with `-J`, since 2.17.3; with `-I 1` each iteration.

    Of the environment that the file holds only allow-listed variables get into `facts`. Nothing is raised.
    """
    block = NcclTests(path, asked)
    try:
        fill(block, load(text))
    except json.JSONDecodeError as error:
        # Nothing of the file is quoted: it holds the whole environment.
        where = f"line {error.lineno}, column {error.colno} is not JSON ({error.msg})"
        cut = not text.rstrip().endswith("}") or error.pos >= len(text.rstrip())
        block.add(Verdict.INCOMPLETE if cut else Verdict.INVALID, None, f"the file is damaged or cut off: {where}")
    except (BadLineError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        block.invalid(None, "the file is not as nccl-tests writes it: fields are missing or of another type")
    if block.problems:
        block.tables.clear()
    output = block.output()
    return output


def fill(block: NcclTests, content: Any) -> None:
    """Reads all fields. Raises LookupError, TypeError or ValueError for what is not as the tool writes it."""
    config = content["config"]
    block.name = program_of(content["args"][0])
    block.said = {name: str(whole(config[key])) for name, key in _CONFIG.items()}
    by = "factor" if "step_factor" in config else "bytes"
    block.said |= {"step": str(whole(config[f"step_{by}"])), "by": by, "bounds": "0"}
    block.said["nccl_library"] = block.said["nccl_headers"] = str(whole(content["nccl_version"]))
    per_process = config["nthreads"] * config["ngpus"]
    if per_process * len(config["devices"]) > LARGEST_RANKS:
        raise ValueError("more ranks than a job has")
    # Which processes share a host counts, and its name may be nobody's business.
    numbers: dict[str, int] = {}
    for index, device in enumerate(config["devices"]):
        if device["rank"] != index * per_process:
            raise ValueError("the devices are not one for each process, in order")
        # Each process names its first device only.
        block.groups += [device.get("group", 0)] * per_process
        host = str(device.get("hostname", ""))
        name = f"node{numbers.setdefault(host, len(numbers))}" if host else ""
        block.hosts += [name] * per_process
        block.devices += [str(device["device_info"])] * per_process
    block.facts |= recorded_environment(content.get("env", ()))
    block.facts["blocking"] = str(config["blocking_collectives"])
    if any(content.get("errors", ())):
        block.incomplete(None, f"the library reported an error: {quote(' '.join(content['errors']))}")
    columns = ["size", "count", "type", "redop", "root"]
    block.tables.append(Table(Line(1, "results"), dict.fromkeys((*columns, "time"), NUMBER)))
    block.units = ["(B)", "(elements)", "(us)"]
    for index, result in enumerate(content["results"]):
        fill_row(block, index, result, per_iteration=truth(config.get("per_iter_timing", "false")))
    if "end_time" not in content or "out_of_bounds" not in content or "average_bus_bandwidth" not in content:
        block.incomplete(None, "the file has no end: the run did not end")
        return
    bounds = content["out_of_bounds"]
    block.said["average"] = repr(number(content["average_bus_bandwidth"]["bandwidth"]))
    if (whole(bounds["count"]) == 0) != truth(bounds["okay"]):
        raise ValueError("out_of_bounds contradicts itself")
    if bounds["count"] or content["average_bus_bandwidth"]["okay"] == "false":
        block.add(Verdict.FAIL, None, "data were wrong, or slower than NCCL_TESTS_MIN_BW")


def fill_row(block: NcclTests, index: int, result: Mapping[str, Any], *, per_iteration: bool) -> None:
    """Adds a row of the table. Raises LookupError, TypeError or ValueError."""
    line = Line(index + 1, f"results[{index}] of {whole(result['size'])} B")
    tokens = {name: str(result[name]).strip() for name in ("size", "count", "type", "redop", "root")}
    for (mark, _), name in zip(HALVES, ("out_of_place", "in_place"), strict=True):
        if name not in result:
            continue
        half = result[name]
        cells = {"time": "time", "algbw": "alg_bw", "busbw": "bus_bw"}
        tokens |= {f"{column}{mark}": f"{number(half[key]):.6f}" for column, key in cells.items()}
        wrong = half["nwrong"]
        tokens[f"#wrong{mark}"] = "N/A" if wrong is None else str(int(number(wrong)))
        if (f"{name}_per_iter" in result) != per_iteration:
            raise ValueError("iterations are missing, or were not requested")
        if per_iteration:
            block.iterations[line.number, mark] = iterations_of(result[f"{name}_per_iter"], result["actual_iterations"])
    if any(
        (f"time{mark}" in tokens) != (f"time{mark}" in row.tokens)
        for row in block.tables[0].rows[:1]
        for mark in ("", "'")
    ):
        raise ValueError("a placement is missing")
    if not WHOLE.fullmatch(tokens["count"]) or not COLUMNS["root"].fullmatch(tokens["root"]):
        raise ValueError("no count or root")
    block.tables[0].rows.append(TableRow(line, tokens, {name: value_of(cell) for name, cell in tokens.items()}))


def iterations_of(content: Mapping[str, Any], count: int) -> list[float]:
    """The times of the iterations. Raises ValueError unless they fit their summary (nccl-tests, computeIterStats)."""
    every = [number(time) for time in content["times_us"]]
    times = every[whole(content.get("skipped_iterations", 0)) :]
    for row in content.get("per_process_max_times_us") or [every]:
        if len(row) != count:
            raise ValueError("some processes have another number of iterations")
    ordered, n = sorted(times), len(times)
    mean = sum(times) / n
    deviation = math.sqrt(sum((time - mean) ** 2 for time in times) / n)
    percentiles = {percent: ordered[min(n - 1, (n * percent + 99) // 100 - 1)] for percent in (95, 99)}
    summary = {
        **{"min_us": ordered[0], "max_us": ordered[-1], "avg_us": mean, "p50_us": ordered[n // 2]},
        **{"p95_us": percentiles[95], "p99_us": percentiles[99], "stdev_us": deviation},
    }
    # Each printed number is off by half a millionth at most.
    slack = 2e-6 + 1e-8 * mean
    if any(abs(number(content[name]) - value) > slack + 1e-6 * value for name, value in summary.items()):
        raise ValueError("the times of the iterations and their summary differ")
    return times


def number(value: Any) -> float:
    """A number that JSON has. Raises TypeError for another type, ValueError for what is impossible."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(value)
    if not 0 <= value <= 1e15:
        raise ValueError(value)
    return float(value)


def truth(value: Any) -> bool:
    """What the tool writes as true or false. Raises ValueError for anything else."""
    if value not in ("true", "false"):
        raise ValueError(value)
    return bool(value == "true")


def whole(value: Any) -> int:
    """A whole number that JSON has. Raises TypeError for another type, ValueError below zero."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    if not 0 <= value <= LARGEST_SIZE:
        raise ValueError(value)
    return value


# The fields that are kept of a file, and what texts may be in them.
_KEPT = frozenset(
    (
        *("version", "start_time", "end_time", "nccl_version", "config", "nthreads", "ngpus", "minimum_bytes"),
        *("maximum_bytes", "step_factor", "step_bytes", "warmup_iters", "iterations", "aggregated_iterations"),
        *(
            "validation",
            "graph",
            "blocking_collectives",
            "parallel_init",
            "per_iter_timing",
            "devices",
            "rank",
            "group",
        ),
        *("device_info", "results", "size", "count", "type", "redop", "root", "out_of_place", "in_place", "time"),
        *("out_of_place_per_iter", "in_place_per_iter", "alg_bw", "bus_bw", "nwrong", "actual_iterations"),
        *("skipped_iterations", "min_us", "max_us", "avg_us", "p50_us", "p95_us", "p99_us", "stdev_us", "cv_pct"),
        *("times_us", "per_process_max_times_us", "out_of_bounds", "okay", "average_bus_bandwidth", "bandwidth"),
    )
)
_KEPT_TEXT = re.compile(r"[a-z0-9_]{0,20}|[-0-9: ]{0,32}|(?:NVIDIA|AMD|Tesla)[A-Za-z0-9 ._()/+-]{1,60}", re.ASCII)


def clean_nccl_json(text: str) -> str | None:
    """A copy of the file of `-J` that is fit to be stored, or None where it is not one (then store nothing of it).

    It keeps the numbers and short words of the fields that are read, the name of the test, and of `env` the variables
    that may be recorded.
    """
    try:
        content = load(text)
        fill(NcclTests("", Asked()), content)
        program, environment = program_of(content["args"][0]), recorded_environment(content.get("env", ()))
    except (BadLineError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        return None
    kept = _without_texts(content)
    kept["args"] = [program if program in TESTS else "…"]
    kept["env"] = [f"{name}={value}" for name, value in environment.items()]
    kept["errors"] = ["left out" if error else "" for error in content.get("errors", ())]
    return json.dumps(kept)


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_texts(inner) for name, inner in value.items() if name in _KEPT}
    if isinstance(value, list):
        return [_without_texts(inner) for inner in value]
    return value if not isinstance(value, str) or _KEPT_TEXT.fullmatch(value) else "…"
