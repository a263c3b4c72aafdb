"""What ReFrame's reports say of the yardstick that judged, against the judge itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reframe.utility.sanity import assert_reference, evaluate

from fabricheck.records.judgement import Expectation, Judgement, Reference
from fabricheck.records.verdict import Verdict
from fabricheck.rfm.bounds import NO_BOUNDS, bounds_of
from tests.support.synthetic import samples

NOTHING = Expectation(None, None, None, 0.0, "no model")


def judged(value: float, *, better: str = "higher", verdict: Verdict = Verdict.PASS) -> Judgement:
    return Judgement(
        name="pingpong",
        unit="Gb/s" if better == "higher" else "us",
        better=better,
        value=value,
        interval=(value, value),
        verdict=verdict,
        reason="",
        calibrated=False,
        expectation=NOTHING,
        reference=None,
        samples=samples([0, 1], 1 << 20),
    )


def accepted(one: Judgement) -> bool:
    """Whether ReFrame, or a dashboard, would accept the value by these bounds."""
    try:
        evaluate(assert_reference(one.value, *bounds_of(one)))
    except Exception:
        return False
    return True


def test_the_reference_that_judged() -> None:
    reference = Reference(100.0, -0.03, 0.05, "Gb/s", "measured")
    slow = replace(judged(90.0, verdict=Verdict.DEGRADED), reference=reference)
    assert bounds_of(slow) == (100.0, -0.03, 0.05)
    assert not accepted(slow)
    assert accepted(replace(slow, value=98.0, verdict=Verdict.PASS))


def test_the_floor_where_there_is_no_reference() -> None:
    half = Expectation(100.0, 80.0, None, 0.5, "model")
    assert bounds_of(replace(judged(60.0), expectation=half)) == (80.0, -0.5, None)
    latency = replace(judged(3.0, better="lower"), expectation=replace(half, expected=2.0))
    assert bounds_of(latency) == (2.0, None, 1.0)
    assert not accepted(replace(latency, value=5.0, verdict=Verdict.FAIL))


def test_nothing_is_made_up() -> None:
    assert bounds_of(judged(60.0)) == NO_BOUNDS


@given(
    value=st.floats(1e-3, 1e6),
    reference=st.floats(1e-3, 1e6),
    lower=st.floats(-0.99, 0) | st.none(),
    upper=st.floats(0, 10) | st.none(),
)
def test_what_passed_passes_there_too(value: float, reference: float, lower: float | None, upper: float | None) -> None:
    """Noise may carry a value beyond its bound, and it passes: a dashboard must not alert."""
    one = replace(judged(value), reference=Reference(reference, lower, upper, "Gb/s", "measured"))
    assert bounds_of(one)[0] == reference
    assert accepted(one)


@given(st.floats(0.98, 1.04))
def test_bounds_that_are_met_stay(share: float) -> None:
    one = replace(judged(100 * share), reference=Reference(100.0, -0.03, 0.05, "Gb/s", "measured"))
    assert bounds_of(one) == (100.0, -0.03, 0.05)


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.INVALID])
def test_bounds_of_what_did_not_pass_stay(verdict: Verdict) -> None:
    """Wrong data at a good speed: the bounds are those of the speed."""
    one = replace(judged(99.0, verdict=verdict), reference=Reference(100.0, -0.03, None, "Gb/s", "measured"))
    assert bounds_of(one) == (100.0, -0.03, None)
