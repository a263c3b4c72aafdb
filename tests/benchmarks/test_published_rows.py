"""Values that others published, as `fabricheck judge --part` and a run meet them."""

from __future__ import annotations

import pytest

from benchmarks.published_rows import RED, Row, rows
from fabricheck.records.verdict import Verdict


@pytest.mark.parametrize("row", [*rows()], ids=lambda row: row.name)
def test_a_published_value_is_green_and_what_is_below_its_bound_is_red(row: Row) -> None:
    """A healthy machine gave the value of a measurement, and is above the bound that its owner requires."""
    judged = row.judged(1.01 if row.alarm else 1.0)
    assert judged is not None and judged.yardstick is not None
    assert judged.verdict is not Verdict.FAIL if row.alarm else judged.verdict is Verdict.PASS, judged.reason
    assert judged.is_judged
    bound = judged.yardstick.bound / judged.value * (1.01 if row.alarm else 1.0)
    if row.is_latency:
        bound = 1 / bound
    above, below = row.judged(1.01 * bound), row.judged(0.99 * bound)
    assert above is not None and above.verdict is Verdict.PASS, above
    assert below is not None and below.verdict in RED, below
