"""Writes docs/metrics.md, what each metric and each check measures: `make docs` calls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabricheck.records.metrics import BETTER, UNITS, Quantity
from fabricheck.records.operations import OPERATIONS

PAGE = Path("docs/metrics.md")
CHECKS = Path("checks")
_HEAD = """# Metrics

Made by `make docs` from the operations of `fabricheck/records/operations.py` and the checks of `checks/`.

A metric is the median over the iterations of one operation, pair or group, and size. Its name says which:

```
unidirectional_contended_0_1_1gib_goodput     OPERATION_SCHEDULE_RANKS_SIZE[_train]_QUANTITY
allreduce_uncontended_all4_16b_latency        all4: a group of all 4 ranks
allreduce_contended_1_2x4_1gib_goodput        1_2x4: a group of 2 ranks, 4 apart, from rank 1 on
rail_unidirectional_uncontended_2x4x4_512kib_goodput     2x4x4: 2 groups of 4 ranks, of which 4 take part
```

- *uncontended*: this pair or group alone. *contended*: with the other pairs or groups of its round at the same time.
- *train*: many operations without a wait in between, as nccl-tests, nvbandwidth and osu_bw time them; else a single
  operation from its start to its end on an idle device.
- One time an iteration: the maximum over the ranks, in nanoseconds ([how it is measured](methodology.md#an-iteration)).
- All bandwidths are of one direction. 1 Gb/s = 10⁹ bit/s, 1 GB/s = 10⁹ byte/s.

| quantity | unit | better | formula |
|---|---|---|---|
"""
_FORMULA: Mapping[Quantity, str] = {
    "goodput": "8 · bytes ÷ time in ns; of sizes from 64 KiB up. *bytes* is below",
    "latency": "time ÷ 1,000; of sizes below 64 KiB",
}
#: By an operation's name, or how the names of several begin: what is measured, and what `bytes` are.
_MEASURES = {
    "pingpong": ("a message there and back between two ranks; the time is half of the round trip", "one message"),
    "unidirectional": ("a message from one rank to another", "one message"),
    "bidirectional": ("both directions of a pair at once", "one message in one direction"),
    "alltoall": ("each rank sends a different part to each other rank", "the buffer of a rank, its own part included"),
    "allreduce": ("the sum of all ranks' buffers, at all ranks", "the buffer of a rank"),
    "allgather": ("the parts of all ranks, at all ranks", "the receive buffer"),
    "reduce_scatter": ("the sum of all ranks' buffers, a part at each rank", "the send buffer"),
    "broadcast": ("the first rank's buffer, at all ranks", "the buffer of a rank"),
    "reduce": ("the sum of all ranks' buffers, at the first rank", "the buffer of a rank"),
    "rail_": ("member i of a group sends to member i of the others", "all that the first group sends"),
    "asymmetric_": ("k members of the first group send to all of the second", "all that the first group sends"),
    "symmetric_": ("k members of a group send to k members of the others", "all that the first group sends"),
    "striping": ("a message split over k ranks, sent, and assembled again, or one step of that", "the whole message"),
    "sparse": ("the messages of a matrix: all of them, inside groups, or between groups", "the sum of the messages"),
    "victim_": (
        "a ping-pong or alltoall, alone and beside an alltoall or incast of other ranks",
        "those of the victim",
    ),
    "host_to_device": ("host memory to the memory of a GPU", "all that moves, over all GPUs that take part"),
    "device_to_host": ("the memory of a GPU to host memory", "all that moves, over all GPUs that take part"),
    "host_bidirectional": ("both of these at once", "all that moves in one direction"),
    "host_stream": ("a kernel reads one buffer in host memory and writes another", "each byte that is copied, once"),
    "local_copy": ("a copy inside the memory of a GPU", "each byte that is copied, once"),
}


def render() -> str:
    """The page, as Markdown."""
    lines = [f"| {name} | {UNITS[name]} | {BETTER[name]} | {formula} |" for name, formula in _FORMULA.items()]
    return _HEAD + "\n".join([*lines, "", *_operations(), *_checks()]) + "\n"


def _operations() -> Iterator[str]:
    yield "## Operations\n"
    yield "[Results](results-format.md#samples) has the exact definitions, with the sections of the papers.\n"
    yield "| operation | measures | bytes |"
    yield "|---|---|---|"
    for start, (measures, size) in _MEASURES.items():
        group = start.endswith("_") or start in ("striping", "sparse")
        names = [name for name in OPERATIONS if name == start or (group and name.startswith(start))]
        yield f"| {', '.join(f'`{name}`' for name in names)} | {measures} | {size} |"
    yield ""


def _checks() -> Iterator[str]:
    yield "## Checks\n"
    yield "`fabricheck run --list` prints those that apply to a system; `--name` and `--tag` choose among them.\n"
    yield "| check | measures | tags |"
    yield "|---|---|---|"
    for file in sorted(CHECKS.glob("*.py")):
        for check in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(check, ast.ClassDef):
                tags = ", ".join(f"`{tag}`" for tag in sorted(_attribute(check, "tags")))
                summary = (ast.get_docstring(check) or "").split("\n\n")[0].replace("\n", " ").replace("*CCL", r"\*CCL")
                yield f"| {check.name} | {summary} | {tags} |"


def _attribute(check: ast.ClassDef, name: str) -> set[str]:
    found: set[str] = set()
    for line in check.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) and line.targets[0].id == name:
            found = ast.literal_eval(line.value)
    return found


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
