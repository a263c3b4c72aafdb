"""How tests have a text read: as the output of one tool, of which the caller knows some things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabricheck.records.vendor_output import VendorOutput
from fabricheck.suites.outputs import joined
from fabricheck.vendor.block import Asked
from fabricheck.vendor.nccl_json import read_nccl_json
from fabricheck.vendor.paste import read_paste


def read_one(
    text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None, sizes: Sequence[int] | None = None
) -> VendorOutput:
    """The one output in a text, as a job of the suite has it."""
    return joined(read_paste(text, path, Asked(ranks, tool, sizes)), tool or "", path)


def read_calls(text: str, path: str = "", *, tool: str, sizes: Sequence[int] | None = None) -> VendorOutput:
    """The output of the clients of a program, a call for each size."""
    return joined(read_paste(text, path, Asked(None, tool)), tool, path, sizes or ())


def read_report(text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None) -> VendorOutput:
    """The JSON report of nccl-tests."""
    return read_nccl_json(text, path, Asked(ranks, tool))


def read_all(text: str, path: str = "", **asked: Any) -> tuple[VendorOutput, ...]:
    """Every output in a text."""
    return read_paste(text, path, Asked(**asked))
