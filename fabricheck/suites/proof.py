"""What proves the transport of a vendor tool: the logs that its libraries write, when they are asked to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fabricheck.results.proof_logs import TransportProof, merge_proofs, read_nccl_log, read_ucx_log

LOGS = "transport-logs"

# Set for the vendor tool alone, after the run that tells the place.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "ccl": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": f"$PWD/{LOGS}/%h-%p"},
    "mpi": {"UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": f"$PWD/{LOGS}/%h-%p"},
}


def proof_of(transport: str, folder: Path) -> TransportProof:
    """What the logs of all ranks in `folder` prove; nothing where there are none."""
    read = read_nccl_log if transport == "ccl" else read_ucx_log
    logs = sorted(folder.glob("*")) if folder.is_dir() else []
    return merge_proofs(*(read(log.read_text(errors="replace")) for log in logs))
