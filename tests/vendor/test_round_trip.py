"""What a tool prints of any numbers is what is read."""

from __future__ import annotations

import pytest

from tests.vendor import render
from tests.vendor.reading import read_one, read_report


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
