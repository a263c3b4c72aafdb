"""What proves the transport of a vendor tool: the logs that its libraries write, when they are asked to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fabricheck.results.proof_logs import (
    TransportProof,
    merge_proofs,
    read_nccl_log,
    read_oneccl_log,
    read_ucx_log,
)

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
}


def proof_of(tool: str, folder: Path, output: str) -> TransportProof:
    """What the logs of all ranks in `folder`, or the tool's `output`, prove; nothing where there are none."""
    if tool == "oneccl":
        return read_oneccl_log(output)
    read = read_nccl_log if VARIABLES[tool] is _NCCL else read_ucx_log
    logs = sorted(folder.glob("*")) if folder.is_dir() else []
    return merge_proofs(*(read(log.read_text(errors="replace")) for log in logs))
