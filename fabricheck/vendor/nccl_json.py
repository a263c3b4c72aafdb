"""Reads the file that nccl-tests writes with `-J` (docs/vendor-tools.md), and makes a copy that may be stored."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import recorded_environment
from fabricheck.results.printed import Line
from fabricheck.results.strict_json import BadLineError, load
from fabricheck.vendor.block import Asked, quote
from fabricheck.vendor.nccl import TESTS, NcclTests, program_of
from fabricheck.vendor.printed_tables import LARGEST_RANKS, LARGEST_SIZE, Column, Table, TableRow, value_of

# What texts may be stored: short words, times, and names of GPUs.
_KEPT = re.compile(r"[a-z0-9_]{0,20}|[-0-9: ]{0,32}|(?:NVIDIA|AMD|Tesla)[A-Za-z0-9 ._()/+-]{1,60}", re.ASCII)

_Whole = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
_Number = Annotated[float, Field(ge=0, le=1e15)]
_Text = Annotated[str, AfterValidator(lambda text: text if _KEPT.fullmatch(text) else "…")]
_Root = Annotated[str, BeforeValidator(lambda root: str(root).strip()), Field(pattern="^(-1|[0-9]{1,9})$")]
_Truth = Literal["true", "false"]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, populate_by_name=True)


class _Half(_Model):
    time: _Number
    alg_bw: _Number
    bus_bw: _Number
    nwrong: _Number | None


class _Iterations(_Model):
    """The times of the iterations with their mean and standard deviation (nccl-tests, computeIterStats)."""

    skipped_iterations: _Whole = 0
    avg_us: _Number
    stdev_us: _Number
    times_us: list[_Number]
    per_process_max_times_us: list[list[_Number]] = []

    def times(self, count: int) -> list[float]:
        """Those that count, in us. Raises ValueError unless they are `count` and fit what is said of them."""
        times = self.times_us[self.skipped_iterations :]
        if not times or any(len(every) != count for every in self.per_process_max_times_us or [self.times_us]):
            raise ValueError("some processes have another number of iterations")
        measured = (np.mean(times), np.std(times))
        # Each printed number is off by half a millionth at most.
        if not np.allclose((self.avg_us, self.stdev_us), measured, rtol=1e-6, atol=2e-6 + 1e-8 * self.avg_us):
            raise ValueError("the times of the iterations, their mean and their deviation differ")
        return times


class _Result(_Model):
    size: _Whole
    count: _Whole
    type: _Text
    redop: _Text
    root: _Root
    out_of_place: _Half | None = None
    in_place: _Half | None = None
    out_of_place_per_iter: _Iterations | None = None
    in_place_per_iter: _Iterations | None = None
    actual_iterations: _Whole = 0


class _Device(_Model):
    rank: _Whole
    group: _Whole = 0
    hostname: str = Field("", exclude=True)
    device_info: _Text


class _Options(_Model):
    """Those that the text has too have its names."""

    threads: _Whole = Field(alias="nthreads")
    gpus: _Whole = Field(alias="ngpus")
    minimum: _Whole = Field(alias="minimum_bytes")
    maximum: _Whole = Field(alias="maximum_bytes")
    step_factor: _Whole | None = None
    step_bytes: _Whole | None = None
    iterations: _Whole
    aggregated_iterations: _Whole
    validated: _Whole = Field(alias="validation")
    graph_launches: _Whole = Field(alias="graph")
    blocking_collectives: _Text
    per_iter_timing: _Truth = "false"
    devices: list[_Device]


class _Bounds(_Model):
    count: _Whole
    okay: _Truth


class _Average(_Model):
    """Until 2.17.8 it was misspelt."""

    bandwidth: _Number = Field(validation_alias=AliasChoices("bandwidth", "bandwidith"))
    okay: _Text = ""


class _Report(_Model):
    args: list[str] = Field(min_length=1)
    env: list[str] = []
    nccl_version: _Whole
    config: _Options
    results: list[_Result]
    out_of_bounds: _Bounds | None = None
    average_bus_bandwidth: _Average | None = Field(
        None, validation_alias=AliasChoices("average_bus_bandwidth", "average_bus_bandwidith")
    )
    errors: list[str] = []
    end_time: _Text | None = None


def read_nccl_json(text: str, path: str, asked: Asked) -> VendorOutput:
    """The measurements in the file that nccl-tests writes with `-J`, since 2.17.3; with `-I 1` each iteration.

    Of the environment that the file holds only allow-listed variables get into `facts`. Nothing is raised.
    """
    block = NcclTests(path, asked)
    try:
        fill(block, _Report.model_validate(load(text)))
    except json.JSONDecodeError as error:
        # Nothing of the file is quoted: it holds the whole environment.
        where = f"line {error.lineno}, column {error.colno} is not JSON ({error.msg})"
        cut = not text.rstrip().endswith("}") or error.pos >= len(text.rstrip())
        block.add(Verdict.INCOMPLETE if cut else Verdict.INVALID, None, f"the file is damaged or cut off: {where}")
    except (BadLineError, ValueError, RecursionError):
        block.invalid(None, "the file is not as nccl-tests writes it: fields are missing or of another type")
    if block.problems:
        block.tables.clear()
    return block.output()


def fill(block: NcclTests, report: _Report) -> None:
    """Reads all fields. Raises ValueError for what contradicts itself."""
    config = report.config
    block.name = program_of(report.args[0])
    block.said = {name: str(value) for name, value in config.model_dump().items() if isinstance(value, int)}
    block.said |= {
        "bounds": "0",
        "units": "(B)",
        "nccl_library": str(report.nccl_version),
        "nccl_headers": str(report.nccl_version),
    }
    per_process = config.threads * config.gpus
    if per_process * len(config.devices) > LARGEST_RANKS:
        raise ValueError("more ranks than a job has")
    # Which processes share a host counts, and its name may be nobody's business.
    numbers: dict[str, str] = {"": ""}
    for index, device in enumerate(config.devices):
        if device.rank != index * per_process:
            raise ValueError("the devices are not one for each process, in order")
        # Each process names its first device only.
        name = numbers.setdefault(device.hostname, f"node{len(numbers) - 1}")
        block.groups += [device.group] * per_process
        block.hosts += [name] * per_process
        block.devices += [device.device_info] * per_process
    block.facts |= recorded_environment(report.env)
    block.facts["blocking"] = config.blocking_collectives
    if any(report.errors):
        block.incomplete(None, f"the library reported an error: {quote(' '.join(report.errors))}")
    columns = ("bytes", "count", "type", "redop", "root", "time")
    block.tables.append(Table(Line(1, "results"), {name: Column(name) for name in columns}))
    for index, result in enumerate(report.results):
        line = Line(index + 1, f"results[{index}] of {result.size} B")
        block.tables[0].rows.append(row_of(block, line, result, per_iteration=config.per_iter_timing == "true"))
    if len({"time'" in row.tokens for row in block.tables[0].rows}) > 1:
        raise ValueError("a placement is missing")
    bounds, average = report.out_of_bounds, report.average_bus_bandwidth
    if report.end_time is None or bounds is None or average is None:
        block.incomplete(None, "the file has no end: the run did not end")
        return
    block.said["average"] = repr(average.bandwidth)
    if (bounds.count == 0) != (bounds.okay == "true"):
        raise ValueError("out_of_bounds contradicts itself")
    if bounds.count or average.okay == "false":
        block.add(Verdict.FAIL, None, "data were wrong, or slower than NCCL_TESTS_MIN_BW")


def row_of(block: NcclTests, line: Line, result: _Result, *, per_iteration: bool) -> TableRow:
    """A row of the table; its iterations go to the block. Raises ValueError where those are missing."""
    tokens = {"bytes": str(result.size), "count": str(result.count), "root": result.root}
    tokens |= {"type": result.type, "redop": result.redop}
    halves = (("", result.out_of_place, result.out_of_place_per_iter),
              ("'", result.in_place, result.in_place_per_iter))  # fmt: skip
    for mark, half, iterations in halves:
        if half is None:
            continue
        for column, value in (("time", half.time), ("algbw", half.alg_bw), ("busbw", half.bus_bw)):
            tokens[f"{column}{mark}"] = f"{value:.6f}"
        tokens[f"#wrong{mark}"] = "N/A" if half.nwrong is None else str(int(half.nwrong))
        if (iterations is not None) != per_iteration:
            raise ValueError("iterations are missing, or were not requested")
        if iterations is not None:
            block.iterations[line.number, mark] = iterations.times(result.actual_iterations)
    return TableRow(line, tokens, {name: value_of(cell) for name, cell in tokens.items()})


def clean_nccl_json(text: str) -> str | None:
    """A copy of the file of `-J` that is fit to be stored, or None where it is not one (then store nothing of it).

    It keeps the numbers and short words of the fields that are read, the name of the test, and of `env` the variables
    that may be recorded.
    """
    try:
        report = _Report.model_validate(load(text))
        fill(NcclTests("", Asked()), report)
    except (BadLineError, ValueError, RecursionError):
        return None
    kept = report.model_dump(by_alias=True, exclude_unset=True)
    program = program_of(report.args[0])
    kept["args"] = [program if program in TESTS else "…"]
    kept["env"] = [f"{name}={value}" for name, value in recorded_environment(report.env).items()]
    kept["errors"] = ["left out" if error else "" for error in report.errors]
    return json.dumps(kept)
