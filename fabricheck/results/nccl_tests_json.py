"""Reads the file that nccl-tests writes with `-J` (docs/vendor-formats.md), and makes a copy that may be stored."""

from __future__ import annotations

import json
import math
import re
from pathlib import PurePath
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.results.environment import recorded_environment
from fabricheck.results.nccl_table import OWN_ALLTOALL, TESTS, Config, Half, NcclRow, NcclTestsTable
from fabricheck.results.strict_json import BadLineError, load, validate
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.results.vendor_text import LARGEST_SIZE, Complaints, Line, quote

_Count = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
# No number of a run is larger, and their squares stay finite.
_LARGEST = 1e15
_Rate = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]
_Time = Annotated[float, Field(gt=0, le=_LARGEST, allow_inf_nan=False)]
_Word = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,20}$")]
_Moment = Annotated[str, Field(pattern=r"^[0-9: -]{1,32}$")]
# %lf prints six decimals.
_HALF_MICRO = 0.5e-6


class _Model(BaseModel):
    # Later versions add fields.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, defer_build=True)


class _DeviceModel(_Model):
    rank: _Count
    group: _Count = 0
    device_info: Annotated[str, Field(pattern=r"^[A-Za-z0-9 ._()/+-]{1,80}$")]


class _ConfigModel(_Model):
    nthreads: Annotated[int, Field(ge=1)]
    ngpus: Annotated[int, Field(ge=1)]
    minimum_bytes: _Count
    maximum_bytes: _Count
    step_factor: Annotated[int, Field(ge=2)] | None = None
    step_bytes: Annotated[int, Field(ge=1)] | None = None
    warmup_iters: _Count
    iterations: _Count
    aggregated_iterations: _Count
    validation: _Count
    graph: _Count
    blocking_collectives: Literal["true", "false"]
    parallel_init: Literal["true", "false"]
    per_iter_timing: Literal["true", "false"] = "false"
    devices: Annotated[list[_DeviceModel], Field(min_length=1)]


class _HalfModel(_Model):
    time: _Time
    alg_bw: _Rate
    bus_bw: _Rate
    nwrong: _Rate | None


class _IterationsModel(_Model):
    skipped_iterations: _Count = 0
    min_us: _Time
    max_us: _Time
    avg_us: _Time
    p50_us: _Time
    p95_us: _Time
    p99_us: _Time
    stdev_us: _Rate
    cv_pct: _Rate
    times_us: Annotated[list[_Time], Field(min_length=1)]
    per_process_max_times_us: list[list[_Time]] | None = None


class _RowModel(_Model):
    size: _Count
    count: _Count
    type: _Word
    redop: _Word
    root: Annotated[str, Field(pattern=r"^ *(-1|[0-9]{1,9})$")]
    out_of_place: _HalfModel | None = None
    out_of_place_per_iter: _IterationsModel | None = None
    in_place: _HalfModel | None = None
    in_place_per_iter: _IterationsModel | None = None
    actual_iterations: _Count


class _BoundsModel(_Model):
    count: _Count
    okay: Literal["true", "false"]


class _AverageModel(_Model):
    bandwidth: _Rate
    okay: Literal["true", "false", "unchecked"]


class _FileModel(_Model):
    version: Annotated[int, Field(ge=1)]
    start_time: _Moment
    args: Annotated[list[str], Field(min_length=1)]
    env: list[str] = Field(default_factory=list)
    nccl_version: _Count
    config: _ConfigModel
    results: list[_RowModel]
    out_of_bounds: _BoundsModel | None = None
    average_bus_bandwidth: _AverageModel | None = None
    errors: list[str] = Field(default_factory=list)
    end_time: _Moment | None = None


class _BadFileError(Exception):
    """Why a file is not what nccl-tests writes, and whether it was only cut off."""

    def __init__(self, message: str, cut_off: bool = False) -> None:
        super().__init__(message)
        self.cut_off = cut_off


def _read_file(text: str) -> _FileModel:
    if not text.strip():
        raise _BadFileError("the file is empty", cut_off=True)
    try:
        return validate(_FileModel, load(text))
    except BadLineError as error:
        raise _BadFileError(f"it {error}") from None
    except json.JSONDecodeError as error:
        # Nothing of the file is quoted: it holds the whole environment.
        cut_off = not text.rstrip().endswith("}") or error.pos >= len(text.rstrip())
        raise _BadFileError(f"line {error.lineno}, column {error.colno} is not JSON ({error.msg})", cut_off) from None
    except (ValueError, RecursionError):
        raise _BadFileError("the file is not JSON") from None


def parse_nccl_tests_json(
    text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None
) -> VendorOutput:
    """The measurements in the file that nccl-tests writes with `-J`, since 2.17.3.

    With `-I 1` (2.19.2) the iterations are kept, otherwise means. Of the environment that the file holds only
    allow-listed variables get into `facts`, under their own names. Whatever the text holds, this returns.
    """
    table = NcclTestsTable(Complaints(path))
    try:
        content = _read_file(text)
    except _BadFileError as error:
        table.tool = tool
        if error.cut_off:
            table.complaints.incomplete(None, f"the file was cut off: {error}")
        else:
            table.complaints.invalid(None, f"the file is not one of nccl-tests: {error}")
        return VendorOutput(tool or table.suite, None, path, None, {}, (), tuple(table.complaints.problems))
    _fill(table, content, ranks, tool)
    samples = table.check()
    name = table.tool or table.suite
    return VendorOutput(name, None, path, table.ranks, table.facts, samples, tuple(table.complaints.problems))


def _fill(table: NcclTestsTable, content: _FileModel, ranks: int | None, tool: str | None) -> None:
    config, complaints = content.config, table.complaints
    table.tool = PurePath(content.args[0]).name
    if tool not in (None, table.tool):
        complaints.invalid(None, f"this is the output of {quote(table.tool)} instead of {tool}")
    if (config.step_factor is None) == (config.step_bytes is None):
        complaints.invalid(None, "the options have no step, or two")
        return
    per_process = config.nthreads * config.ngpus
    table.config = Config(
        config.minimum_bytes,
        config.maximum_bytes,
        config.step_factor or config.step_bytes or 1,
        config.step_factor is not None,
        config.warmup_iters,
        config.iterations,
        config.validation,
        per_process,
    )
    # Each process names its first device only.
    groups = [device.group for device in config.devices]
    counts = {groups.count(group) for group in groups}
    if [device.rank for device in config.devices] != [per_process * index for index in range(len(groups))]:
        complaints.invalid(None, "the devices are not one for each process, in order")
    if len(counts) != 1:
        complaints.invalid(None, "the groups have different numbers of ranks")
    table.ranks = max(counts) * per_process
    if ranks not in (None, len(groups) * per_process):
        complaints.invalid(None, f"{len(groups) * per_process} ranks took part instead of {ranks}")
    table.own_alltoall = content.nccl_version >= OWN_ALLTOALL
    models = [device.device_info for device in config.devices]
    table.facts |= recorded_environment(content.env) | {
        "nccl_library": str(content.nccl_version),
        "iterations": str(config.iterations),
        "aggregated_iterations": str(config.aggregated_iterations),
        "graph_launches": str(config.graph),
        "blocking": config.blocking_collectives,
        "devices": ", ".join(f"{models.count(name) * per_process} x {name}" for name in dict.fromkeys(models)),
    }
    _fill_footer(table, content)
    for index, result in enumerate(content.results):
        if (row := _row(table, index, result, config)) is not None:
            table.rows.append(row)


def _fill_footer(table: NcclTestsTable, content: _FileModel) -> None:
    complaints = table.complaints
    if any(content.errors):
        complaints.incomplete(None, f"the library reported an error: {quote(' '.join(content.errors))}")
    if content.end_time is None:
        complaints.incomplete(None, "there is no end_time: the run did not end")
    if content.out_of_bounds is not None:
        table.out_of_bounds = content.out_of_bounds.count
        if (content.out_of_bounds.count == 0) != (content.out_of_bounds.okay == "true"):
            complaints.invalid(None, "out_of_bounds contradicts itself")
    if content.average_bus_bandwidth is not None:
        table.average = content.average_bus_bandwidth.bandwidth, _HALF_MICRO
        if content.average_bus_bandwidth.okay == "false":
            complaints.fail(None, "the bandwidth is under NCCL_TESTS_MIN_BW")


def _row(table: NcclTestsTable, index: int, row: _RowModel, config: _ConfigModel) -> NcclRow | None:
    where = Line(1, f"results[{index}] of {row.size} B")
    halves = []
    for placement, half, iterations in (
        ("out-of-place", row.out_of_place, row.out_of_place_per_iter),
        ("in-place", row.in_place, row.in_place_per_iter),
    ):
        if half is None:
            continue
        mistake = None
        if (iterations is not None) != (config.per_iter_timing == "true"):
            mistake = "iterations are missing, or were not requested"
        elif iterations is not None:
            mistake = _iterations_mistake(iterations, row.actual_iterations)
        if half.nwrong is not None and half.nwrong != int(half.nwrong):
            mistake = "nwrong is not a whole number"
        if mistake is not None:
            table.complaints.invalid(where, f"{mistake} ({placement})")
            return None
        halves.append(
            Half(
                "out-of-place" if placement == "out-of-place" else "in-place",
                (half.time, _HALF_MICRO),
                (half.alg_bw, _HALF_MICRO),
                (half.bus_bw, _HALF_MICRO),
                None if half.nwrong is None else int(half.nwrong),
                None if iterations is None else np.array(iterations.times_us),
                0 if iterations is None else iterations.skipped_iterations,
            )
        )
    if not halves:
        table.complaints.incomplete(where, "neither placement was measured")
        return None
    if table.rows and len(halves) != len(table.rows[0].halves):
        table.complaints.invalid(where, "a placement is missing")
    return NcclRow(where, row.size, row.count, row.type, row.redop, int(row.root), tuple(halves))


def _iterations_mistake(placement: _IterationsModel, count: int) -> str | None:
    """What does not fit between the times of the iterations and their summary (nccl-tests, computeIterStats)."""
    if len(placement.times_us) != count or placement.skipped_iterations >= count:
        return (
            f"{len(placement.times_us)} iterations, {placement.skipped_iterations} of them skipped, instead of {count}"
        )
    if placement.per_process_max_times_us is not None:
        rows = placement.per_process_max_times_us
        if not rows or any(len(row) != count for row in rows):
            return "some processes have another number of iterations"
        if [max(column) for column in zip(*rows, strict=True)] != placement.times_us:
            return "the times are not the maxima over the processes"
    times = sorted(placement.times_us[placement.skipped_iterations :])
    n = len(times)
    mean = sum(times) / n
    deviation = math.sqrt(sum((time - mean) ** 2 for time in times) / n)
    percentiles = {percent: times[min(n - 1, (n * percent + 99) // 100 - 1)] for percent in (95, 99)}
    # Each printed number is off by half a millionth at most; the coefficient of variation divides by the mean.
    slack = 2e-6 + 1e-8 * mean
    said_and_found = (
        (placement.min_us, times[0]),
        (placement.max_us, times[-1]),
        (placement.avg_us, mean),
        (placement.p50_us, times[n // 2]),
        (placement.p95_us, percentiles[95]),
        (placement.p99_us, percentiles[99]),
        (placement.stdev_us, deviation),
        (placement.cv_pct * mean / 100, deviation),
    )
    if any(abs(said - found) > slack + 1e-6 * found for said, found in said_and_found):
        return "the times of the iterations and their summary differ"
    return None


_PLAIN_ARGUMENT = re.compile(r"-{1,2}[A-Za-z_]{1,30}|[0-9]{1,19}[KMGkmg]?|all|none", re.ASCII)


def clean_nccl_tests_json(text: str) -> str | None:
    """A copy of the file of `-J` that is fit to be stored, or None where it is not one (then store nothing of it).

    It is built from the fields that are known and not from what was there: `env` keeps allow-listed variables, `args`
    the program's name, options and numbers, and texts from outside that cannot be verified are left out.
    """
    try:
        content = _read_file(text)
    except _BadFileError:
        return None
    known = content.model_dump()
    program = PurePath(content.args[0]).name
    known["args"] = [
        program if program in TESTS else "…",
        *(each if _PLAIN_ARGUMENT.fullmatch(each) else "…" for each in content.args[1:]),
    ]
    known["env"] = [f"{name}={value}" for name, value in recorded_environment(content.env).items()]
    known["errors"] = ["left out" if each else "" for each in content.errors]
    return json.dumps(known)
