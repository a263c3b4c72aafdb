"""What a tool prints of any numbers is what is read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import effort
from tests.vendor import render
from tests.vendor.reading import read_one, read_report

times = st.floats(min_value=0.5, max_value=5e5)
tables = st.builds(
    render.NcclTable,
    st.sampled_from(sorted(render.BUSBW)),
    st.integers(2, 16),
    st.sampled_from([1024, 65536]),
    st.sampled_from([2, 4]),
    st.lists(st.tuples(times, times), min_size=1, max_size=5),
)


def _close(found: float, wanted: float, printed: float) -> bool:
    return abs(found - wanted) <= printed + 0.5


@settings(max_examples=effort(150), deadline=None)
@given(table=tables, style=st.sampled_from(["nccl-tests", "classic", "rccl-tests", "2.9"]), stamps=st.booleans())
def test_nccl_tests_in_every_style(table: render.NcclTable, style: str, stamps: bool) -> None:
    output = read_one(table.text(style, stamps), ranks=table.ranks, tool=table.tool)
    assert output.problems == ()
    wanted = [(size, time) for _, size, _, times in table.rows() for time in times if size > 0]
    assert [each.bytes for each in output.samples] == [size for size, _ in wanted]
    for each, (_, time) in zip(output.samples, wanted, strict=True):
        printed = 500.0 if time >= 10000 else 50.0 if time >= 100 else 5.0
        assert _close(each.times_ns[0], 1e3 * time, printed)


@settings(max_examples=effort(100), deadline=None)
@given(table=tables, iterations=st.integers(0, 30))
def test_the_file_of_nccl_tests(table: render.NcclTable, iterations: int) -> None:
    output = read_report(table.json(iterations), ranks=table.ranks, tool=table.tool)
    assert output.problems == ()
    wanted = [time for _, size, _, times in table.rows() for time in times if size > 0]
    for each, time in zip(output.samples, wanted, strict=True):
        assert each.statistic == ("iterations" if iterations else "mean")
        assert len(each.times_ns) == max(iterations, 1)
        assert _close(each.times_ns[0], 1e3 * time, 1e-3)
        assert _close(each.times_ns[-1], 1e3 * time * (1 + max(iterations - 1, 0) / 1000), 1e-3)


@settings(max_examples=effort(100), deadline=None)
@given(
    values=st.lists(st.floats(min_value=0.01, max_value=5e5), min_size=1, max_size=20),
    validated=st.booleans(),
)
def test_osu(values: list[float], validated: bool) -> None:
    check = ["Pass"] if validated else []
    rows = [(1 << power, [f"{value:.2f}", *check]) for power, value in enumerate(values)]
    sizes = [size for size, _ in rows]
    tail = "        Validation" if validated else ""
    latency = render.osu("OSU MPI-ROCM Latency Test", "# Size       Avg Latency(us)" + tail, rows)
    output = read_one(latency, sizes=sizes, tool="osu_latency")
    assert output.problems == ()
    assert output.facts["accelerator"] == "ROCM"
    for each, value in zip(output.samples, values, strict=True):
        assert _close(each.times_ns[0], 2e3 * value, 10.0)
        assert each.wrong_bytes == (0 if validated else -1)
    bandwidth = render.osu("OSU NCCL-CUDA Bandwidth Test", "# Size      Bandwidth (MB/s)" + tail, rows)
    output = read_one(bandwidth, sizes=sizes, tool="osu_bw")
    assert output.problems == ()
    for each, (size, cells) in zip(output.samples, rows, strict=True):
        assert _close(each.times_ns[0], 1e3 * size / float(cells[0]), 1.0)


@settings(max_examples=effort(100), deadline=None)
@given(values=st.lists(st.floats(min_value=0.01, max_value=5e5), min_size=2, max_size=20))
def test_imb(values: list[float]) -> None:
    sizes = [0] + [1 << power for power in range(len(values) - 1)]
    rows = [
        (str(size), "100", f"{value:.2f}", f"{size / value:.2f}") for size, value in zip(sizes, values, strict=True)
    ]
    columns = ("#bytes", "#repetitions", "t[usec]", "Mbytes/sec")
    output = read_one(render.imb("PingPong", columns, rows, (0, len(values) - 2)), ranks=2)
    assert output.problems == ()
    for each, value in zip(output.samples, values[1:], strict=True):
        assert _close(each.times_ns[0], 2e3 * value, 10.0)


@settings(max_examples=effort(300), deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    for parse in (read_one, read_report):
        output = parse(text, "out.txt")
        assert output.problems
        assert all(len(each.message.splitlines()) == 1 for each in output.problems)


@pytest.mark.parametrize("number", ["9e+99", "99999999999999999999999.00", "999999999999999.00"])
def test_absurd_numbers_are_invalid(number: str) -> None:
    table = render.NcclTable("all_reduce_perf", 4, 1024, 4, [(20.0, 21.0)])
    text = table.text().replace("  20.00", f"  {number}")
    assert read_one(text).problems
    assert read_report(table.json(3).replace("20.0,", f"{number}, ")).problems
    rows = [(1 << 62, [number])]
    for title, header in (("Latency Test", "Avg Latency(us)"), ("Bandwidth Test", "Bandwidth (MB/s)")):
        output = read_one(render.osu(f"OSU MPI {title}", f"# Size      {header}", rows))
        assert output.problems or output.samples[0].times_ns[0] > 0


@pytest.mark.parametrize("count", ["0", "999999999"])
def test_absurd_numbers_of_ranks_are_invalid(count: str) -> None:
    pairs = f"# [ pairs: {count} ] [ window size: 64 ]"
    title = "OSU MPI Multiple Bandwidth / Message Rate Test"
    text = render.osu(
        title, "# Size                  MB/s        Messages/s", [(8, ["8.00", "1000000.00"])], extra=pairs
    )
    assert read_one(text).problems
    columns = ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
    rows = [("0", "9", "1.00", "1.00", "1.00"), ("4", "9", "1.00", "1.00", "1.00")]
    assert read_one(render.imb("Allreduce", columns, rows, (2, 2), processes=int(count))).problems
    file = render.NcclTable("reduce_perf", 4, 1024, 4, [(20.0, 21.0)]).json()
    assert read_report(file.replace('"ngpus": 1', f'"ngpus": {count}')).problems
