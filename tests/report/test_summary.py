"""The numbers of the head of a report, and what to do after a PASS."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.records.verdict import Verdict
from fabricheck.report.summary import next_of_pass, numbers
from tests.support.synthetic import pair_run


def test_every_pass_has_a_next_step_and_nothing_else_has_one() -> None:
    without = pair_run()
    calibrated = replace(without, judgements=tuple(replace(each, calibrated=True) for each in without.judgements))
    assert "calibrate --system alps" in next_of_pass(Verdict.PASS, [without], "alps")
    assert "watch --system alps" in next_of_pass(Verdict.PASS, [calibrated], "alps")
    assert next_of_pass(Verdict.FAIL, [calibrated], "alps") == ""


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_the_numbers_have_both_units_and_microseconds_their_sign_also_when_it_is_red(verdict: Verdict) -> None:
    bad = {(a, b): verdict for a in range(4) for b in range(4) if a != b}
    by_kind = {each.of: each for each in numbers([pair_run(bad=bad)])}
    link, latency = by_kind["pingpong in a node, 1GiB"], by_kind["pingpong in a node, 8B"]
    value = float(link.value.split()[0].replace(",", ""))
    assert link.value.endswith(" Gb/s")
    assert float(link.remark.split()[0]) == pytest.approx(value / 8, rel=1e-3) and link.remark.split()[1] == "GB/s,"
    assert latency.value.endswith(" µs")
