"""Writes docs/metrics.md, what each metric and each check measures: `make docs` calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabricheck.records.metrics import BETTER, UNITS, Quantity
from fabricheck.records.operations import OPERATIONS

PAGE = Path("docs/metrics.md")
CHECKS = Path("checks")
_HEAD = """# Metrics

Made by `make docs` from the operations of `fabricheck/records/operations.py` and the checks of `checks/`.

A metric is the median of one operation, between one pair or group of ranks, at one size. The name contains all of them:

```
unidirectional_contended_0_1_1gib_goodput     OPERATION_SCHEDULE_RANKS_SIZE[_train]_QUANTITY
allreduce_uncontended_all4_16b_latency        all4: a group of all 4 ranks
allreduce_contended_1_2x4_1gib_goodput        1_2x4: a group of 2 ranks, 4 apart, from rank 1 on
rail_unidirectional_uncontended_2x4x4_512kib_goodput     2x4x4: 2 groups of 4 ranks, 4 active ranks in each
```

- *uncontended*: this pair or group alone. *contended*: all pairs or groups of a round (no rank twice) at the same time.
- *train*: many operations back to back, as nccl-tests, nvbandwidth and osu_bw time them; otherwise one operation on an
  idle device.
- One time per iteration: the maximum over the ranks, in ns ([how it is measured](methodology.md#an-iteration)).
- Bandwidths count one direction. 1 Gb/s = 10⁹ bit/s, 1 GB/s = 10⁹ byte/s.

| quantity | unit | better | formula |
|---|---|---|---|
"""
_FORMULA: Mapping[Quantity, str] = {
    "goodput": "8 · bytes ÷ time in ns; of sizes from 64 KiB up. *bytes* is below",
    "latency": "time ÷ 1,000; of sizes below 64 KiB",
}
#: Tags of checks that other pages describe.
_ELSEWHERE = {"vendor", "vendor-mixed", "cross-check"}
#: Where a check comes from: "(De Sensi et al., SC24, section III)".
_CITED = re.compile(r" \([^()]*(?:section|figure|et al|paper)[^()]*(?:\([^()]*\)[^()]*)*\)")
#: By an operation's name, or how the names of several begin: what is measured, and what `bytes` are.
_MEASURES = {
    "pingpong": ("a message there and back between two ranks; the time is half of the round trip", "one message"),
    "unidirectional": ("a message from one rank to another", "one message"),
    "bidirectional": ("both directions of a pair at once", "one message in one direction"),
    "alltoall": ("each rank sends a different part to each other rank", "the buffer of a rank, its own part included"),
    "allreduce": ("all ranks receive the sum of all buffers", "the buffer of a rank"),
    "allgather": ("all ranks receive the parts of all ranks", "the receive buffer"),
    "reduce_scatter": ("each rank receives a part of the sum of all buffers", "the send buffer"),
    "broadcast": ("all ranks receive the buffer of the first rank", "the buffer of a rank"),
    "reduce": ("the first rank receives the sum of all buffers", "the buffer of a rank"),
    "rail_": ("member i of a group sends to member i of the others", "sum of the bytes sent by the first group"),
    "asymmetric_": (
        "k members of the first group send to all of the second",
        "sum of the bytes sent by the first group",
    ),
    "symmetric_": ("k members of a group send to k members of the others", "sum of the bytes sent by the first group"),
    "striping": ("a message split over k ranks, sent, and assembled again, or one step of that", "the whole message"),
    "training_step": (
        "an allreduce of each group, and at the same time a reduce-scatter and an allgather across groups",
        "the three buffers of a rank",
    ),
    "sparse": (
        "the messages of matrices, one step after another: all of them, inside groups, or between groups",
        "the sum of the messages",
    ),
    "victim_": (
        "a ping-pong or alltoall, alone and with an alltoall or incast of other ranks",
        "message or buffer of the victim",
    ),
    "host_to_device": ("host memory to the memory of a GPU", "sum over all active GPUs"),
    "device_to_host": ("the memory of a GPU to host memory", "sum over all active GPUs"),
    "host_bidirectional": ("both directions at once", "sum over all active GPUs, one direction"),
    "host_read": ("all cores of a NUMA node read a buffer in host memory", "each byte that is read, once"),
    "host_stream": (
        "a kernel, or all cores of a NUMA node, copies a buffer in host memory to another",
        "each byte that is copied, once",
    ),
    "host_triad": (
        "all cores of a NUMA node add two buffers in host memory and write a third (STREAM's triad, of bytes)",
        "each byte that is written, once",
    ),
    "local_copy": ("a copy inside the memory of a GPU", "each byte that is copied, once"),
}


def render() -> str:
    """The page, as Markdown."""
    lines = [f"| {name} | {UNITS[name]} | {BETTER[name]} | {formula} |" for name, formula in _FORMULA.items()]
    return _HEAD + "\n".join([*lines, "", *_operations(), *_checks()]) + "\n"


def _operations() -> Iterator[str]:
    yield "## Operations\n"
    yield "[Results](formats.md#results) has patterns and pairs, with the sections of the papers.\n"
    yield "| operation | measures | bytes |"
    yield "|---|---|---|"
    for start, (measures, size) in _MEASURES.items():
        group = start.endswith("_") or start in ("striping", "sparse")
        names = [name for name in OPERATIONS if name == start or (group and name.startswith(start))]
        yield f"| {', '.join(f'`{name}`' for name in names)} | {measures} | {size} |"
    yield ""


def _checks() -> Iterator[str]:
    yield "## Checks\n"
    yield "`fabricheck run --list` prints those that apply to a system; `--name` and `--tag` choose among them."
    yield "The docstring of a check names the section of the paper that it follows. Those of"
    yield "[vendors' tools](vendor-tools.md) are left out here.\n"
    for file in sorted(CHECKS.glob("*.py")):
        for check in ast.parse(file.read_text(encoding="utf-8")).body:
            tags = sorted(_attribute(check, "tags")) if isinstance(check, ast.ClassDef) else []
            if isinstance(check, ast.ClassDef) and not _ELSEWHERE & {*tags}:
                summary = " ".join((ast.get_docstring(check) or "").split("\n\n")[0].split()).replace("*CCL", r"\*CCL")
                sentence = _CITED.sub("", re.split(r"(?<=[.]) (?=[A-Z])", summary)[0]).replace("?.", "?")
                yield f"- `{check.name}` ({', '.join(tags)}): {sentence}"


def _attribute(check: ast.ClassDef, name: str) -> set[str]:
    values: set[str] = set()
    for line in check.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
            values = ast.literal_eval(line.value)
    return values


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
