"""What ReFrame's reports say of the yardstick that judged, against the judge itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reframe.utility.sanity import assert_reference, evaluate

from fabricheck.records.judgement import Expectation, Judgement, Yardstick
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


REFERENCE = Yardstick("reference", 100.0, 97.0, "measured", gain=105.0)


def test_the_reference_that_judged() -> None:
    slow = replace(judged(90.0, verdict=Verdict.DEGRADED), yardstick=REFERENCE)
    assert bounds_of(slow) == pytest.approx((100.0, -0.03, 0.05))
    assert not accepted(slow)
    met = replace(slow, value=98.0, verdict=Verdict.PASS)
    assert bounds_of(met) == pytest.approx((100.0, -0.03, 0.05))
    assert bounds_of(replace(slow, value=99.0))[1] == pytest.approx(-0.03)
    late = replace(slow, better="lower", yardstick=Yardstick("floor", 4.0, 4.0, "1/50% of the expected 2 us"))
    assert bounds_of(replace(late, value=5.0)) == (4.0, None, 0.0)


def test_nothing_is_made_up() -> None:
    assert bounds_of(judged(60.0, verdict=Verdict.INCOMPLETE)) == NO_BOUNDS


@given(
    value=st.floats(1e-3, 1e6),
    reference=st.floats(1e-3, 1e6),
    bound=st.floats(0.01, 1),
    gain=st.floats(1, 10) | st.none(),
    better=st.sampled_from(["higher", "lower"]),
)
def test_what_passed_passes_there_too(
    value: float, reference: float, bound: float, gain: float | None, better: str
) -> None:
    """Noise may carry a value beyond its bound, and it passes: a dashboard must not alert."""
    worse, surprise = (bound, gain) if better == "higher" else (1 / bound, None if gain is None else 1 / gain)
    found = None if surprise is None else reference * surprise
    one = replace(judged(value, better=better), yardstick=Yardstick("part", reference, reference * worse, "", found))
    assert bounds_of(one)[0] == reference
    assert accepted(one)
