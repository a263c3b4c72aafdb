"""The output of a vendor tool, read by its parser, and what proves its transport: the logs of its libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fabricheck.results.imb import parse_imb
from fabricheck.results.nccl_tests import parse_nccl_tests
from fabricheck.results.oneccl_benchmark import parse_oneccl_benchmark
from fabricheck.results.osu import parse_osu
from fabricheck.results.proof_logs import (
    TransportProof,
    merge_proofs,
    read_log,
)
from fabricheck.results.server_client import parse_server_client
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.suites.benchmarks import BenchmarkRequest


def parse(asked: BenchmarkRequest, text: str, path: str) -> VendorOutput:
    """What a tool printed, against what was requested; whatever the text holds, this returns."""
    if asked.benchmark.tool == "osu":
        return parse_osu(text, path, ranks=asked.ranks, sizes=asked.sizes, tool=asked.benchmark.program)
    if asked.benchmark.tool == "imb":
        return parse_imb(text, path, ranks=asked.ranks)
    if asked.benchmark.tool == "oneccl":
        return parse_oneccl_benchmark(text, path, ranks=asked.ranks, sizes=asked.sizes)
    if asked.benchmark.has_server:
        return parse_server_client(text, path, tool=asked.benchmark.program, sizes=asked.sizes)
    return parse_nccl_tests(text, path, ranks=asked.ranks, tool=asked.benchmark.program)


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
