"""The output of a vendor tool, read by its parser, and what proves its transport: the logs of its libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fabricheck.records.finding import Finding
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.proof_logs import (
    TransportProof,
    merge_proofs,
    read_log,
)
from fabricheck.suites.benchmarks import BenchmarkRequest
from fabricheck.vendor.block import Asked
from fabricheck.vendor.nccl_json import read_nccl_json
from fabricheck.vendor.paste import read_paste


def parse(asked: BenchmarkRequest, text: str, path: str) -> VendorOutput:
    """What a tool printed, against what was requested; whatever the text holds, this returns."""
    benchmark, server = asked.benchmark, asked.benchmark.has_server
    named = benchmark.tool in ("osu", "nccl-tests") or server
    # nccl-tests and IMB say their sizes themselves; a program with a server has a run for each.
    sized = benchmark.tool in ("osu", "oneccl")
    tool, sizes = benchmark.program if named else None, asked.sizes if sized else None
    outputs = read_paste(text, path, Asked(None if server else asked.ranks, tool, sizes))
    return joined(outputs, tool or benchmark.program, path, asked.sizes if server else None)


def parse_report(text: str, path: str, asked: BenchmarkRequest) -> VendorOutput:
    """The JSON report of nccl-tests against what was requested."""
    return read_nccl_json(text, path, Asked(asked.ranks, asked.benchmark.program))


def joined(outputs: Sequence[VendorOutput], tool: str, path: str, sizes: Sequence[int] | None = None) -> VendorOutput:
    """The one output of a run; of a program with a server, those of its calls, one for each of `sizes`."""
    samples = tuple(sample for output in outputs for sample in output.samples)
    problems = [problem for output in outputs for problem in output.problems]
    if not outputs or (sizes is not None and {sample.bytes for sample in samples} < set(sizes)):
        missing = f"{path}: {tool} did not print all of its results: it did not start, or failed"
        problems.append(Finding("output-damaged", Verdict.INCOMPLETE, missing))
    if (sizes is None and len(outputs) > 1) or [sample.bytes for sample in samples if sizes] != sorted(
        {sample.bytes for sample in samples if sizes} & set(sizes or ())
    ):
        message = f"{path}: several outputs are in one text, or rows that were not requested"
        problems.append(Finding("output-damaged", Verdict.INVALID, message))
    if not outputs:
        return VendorOutput(tool, None, path, None, {}, (), tuple(problems))
    return replace(outputs[0], samples=samples, problems=tuple(problems))


LOGS = "transport-logs"

_NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": f"$PWD/{LOGS}/%h-%p"}
_UCX = {"UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": f"$PWD/{LOGS}/%h-%p"}
# By tool; set for it alone, after the run that tells the place. oneCCL writes its log to the standard output.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "osu": _UCX,
    "imb": _UCX,
    "nccl-tests": _NCCL,
    "rccl-tests": _NCCL,
    "oneccl": {"CCL_LOG_LEVEL": "info"},
    "ucx": _UCX,
    "libfabric": {},  # fi_pingpong tells its provider with -v
    "perftest": {},  # it tells its device
}


def proof_of(tool: str, folder: Path, output: str) -> TransportProof:
    """What the logs of all ranks in `folder`, or the `output` of tool and job, prove; nothing where there are none."""
    if tool in ("oneccl", "libfabric", "perftest"):
        return read_log(tool, output)
    library = "nccl" if VARIABLES[tool] is _NCCL else "ucx"
    logs = sorted(folder.glob("*")) if folder.is_dir() else []
    return merge_proofs(*(read_log(library, log.read_text(errors="replace")) for log in logs))
