"""oneCCL's own benchmark: outputs that real runs left, what it prints of any numbers, and what went wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.records.verdict import Verdict
from tests.support.effort import effort
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_all, read_one

HEADING = """
options:
  processes:       {ranks}
  backend:         sycl
  iters:           16
  warmup_iters:    3
  iter_policy:     {policy}
  buf_count:       1
  elem_counts:     [{counts}]
  check:           {check}
  cache:           1
  inplace:         0
  collectives:     {name}{space}

datatype: float32
reduction: sum

#------------------------------------------------------------
# Benchmarking: {name}{space}
# #processes: {ranks}
#------------------------------------------------------------

        #bytes   #elem_count  #repetitions   t_min[usec]   t_max[usec]   t_avg[usec]  stddev[%]{more}
"""


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
    (pasted,) = read_all(recorded(name))
    assert pasted.samples[0].times_ns.tolist() == one.times_ns.tolist()


times = st.floats(min_value=0.01, max_value=5e6)


@settings(max_examples=effort(100), deadline=None)
@given(
    rows=st.lists(st.tuples(times, times, times), min_size=1, max_size=8), ranks=st.integers(2, 12), more=st.booleans()
)
def test_what_it_prints_is_what_is_read(rows: list[tuple[float, float, float]], ranks: int, more: bool) -> None:
    counts = [ranks * 4**power for power in range(len(rows))]
    text = HEADING.format(
        ranks=ranks,
        policy="off",
        counts=" ".join(map(str, counts)),
        check="last",
        name="reduce_scatter",
        space=" ",
        more="  wait_t_avg[usec]" if more else "",
    )
    for count, row in zip(counts, rows, strict=True):
        low, middle, high = sorted(row)
        text += f"{4 * count:14}{count:14}{16:14}{low:14.2f}{high:14.2f}{middle:14.2f}{0.5:11.2f}"
        text += f"{low:17.2f}\n" if more else "\n"
    output = read_one(text + "\n# All done\n\n", ranks=ranks, sizes=tuple(4 * each for each in counts))
    assert output.problems == ()
    assert [each.bytes for each in output.samples] == [4 * each for each in counts]
    for each, row in zip(output.samples, rows, strict=True):
        assert abs(each.times_ns[0] - 1e3 * max(row)) <= 5.5


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("# All done\n", "", Verdict.INCOMPLETE),
        ("# All done\n", "FAILED\n", Verdict.FAIL),
        ("[1 4 16", "[1 4 8 16", Verdict.INCOMPLETE),
        ("  buf_count:       1", "  buf_count:       2", Verdict.INVALID),
        ("  inplace:         0", "  inplace:         1", Verdict.INVALID),
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


def test_what_nobody_asked_for_is_invalid() -> None:
    text = recorded("host_allreduce")
    assert read_one(text, ranks=3).problems != ()
    assert read_one(text, ranks=2, sizes=(4, 16)).problems != ()
    unchecked = read_one(text.replace("check:           all", "check:           off"))
    assert {each.wrong_bytes for each in unchecked.samples} == {-1}
