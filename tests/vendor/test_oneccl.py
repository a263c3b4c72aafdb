"""oneCCL's own benchmark: outputs that real runs left, what it prints of any numbers, and what went wrong."""

from __future__ import annotations

import pytest

from fabricheck.records.verdict import Verdict
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_one


def recorded(name: str) -> str:
    return (DATA / "oneccl" / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "operation", "ranks", "first", "time"),
    [
        ("host_allreduce", "allreduce", 2, 4, "t_max"),
        ("host_alltoall", "alltoall", 2, 8, "t_max"),
        ("host_allgather_3", "allgather", 3, 12, "t_max"),
        ("host_reduce_scatter", "reduce_scatter", 2, 16, "t_max"),
    ],
)
def test_recorded_outputs_are_read(name: str, operation: str, ranks: int, first: int, time: str) -> None:
    output = read_one(recorded(name), ranks=ranks)
    assert output.problems == ()
    assert (output.tool, output.ranks) == (f"benchmark {operation}", ranks)
    assert output.facts == {"datatype": "float32", "redop": "sum", "validation": "passed"}
    one = output.samples[0]
    assert (one.operation, one.bytes, one.ranks, one.wrong_bytes) == (operation, first, tuple(range(ranks)), 0)
    rows = [line.split() for line in recorded(name).splitlines() if line.strip()[:1].isdigit() and "|" not in line]
    assert {round(1e3 * float(row[4])) for row in rows} >= {int(each.times_ns[0]) for each in output.samples}


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("# All done\n", "", Verdict.INCOMPLETE),
        ("# All done\n", "FAILED\n", Verdict.FAIL),
        ("[1 4 16", "[1 4 8 16", Verdict.INCOMPLETE),
        ("# #processes: 2", "# #processes: 4", Verdict.INVALID),
        ("# Benchmarking: allreduce ", "# Benchmarking: allreduce bcast ", Verdict.INVALID),
        ("datatype: float32", "datatype: float64", Verdict.INVALID),
        ("# Benchmarking: allreduce \n", "", Verdict.INCOMPLETE),
    ],
)
def test_what_went_wrong_is_told(old: str, new: str, verdict: Verdict) -> None:
    text = recorded("host_allreduce")
    assert text.count(old) == 1
    problems = read_one(text.replace(old, new), "out").problems
    assert verdict in {each.verdict for each in problems}
