"""Which of the yardsticks that a metric has decides."""

from __future__ import annotations

import pytest

from fabricheck.judge.judge import strongest_level
from fabricheck.records.judgement import Expectation, Reference, Yardstick
from fabricheck.records.metrics import Metric, Quantity
from fabricheck.yardsticks.policy import Policy
from tests.support.made_runs import GIB, made_samples


@pytest.mark.parametrize(
    ("value", "bound", "decides"),
    [
        (95.0, 76.0, "achievable"),  # 20% below what one machine gave, and 12% below what links carry is 88
        (95.0, 90.0, "part"),
        (87.0, 70.0, "part"),  # it is known not to reach what links could carry
    ],
)
@pytest.mark.parametrize("kind", ["part", "published"])
def test_who_knows_more_is_told_no_less(value: float, bound: float, decides: str, kind: str) -> None:
    metric = Metric("made", "goodput", made_samples("pingpong", (0, 1), GIB, 100.0))
    links = Expectation(None, 110.0, None, 0.0, "made", achievable=100.0, achievable_source="packets")
    level = strongest_level(metric, links, None, [Yardstick(kind, value, bound, "elsewhere")], Policy())
    assert level is not None
    assert level.kind == (kind if decides == "part" else decides)
    assert level.bound == (bound if decides == "part" else 88.0)


def test_links_whose_rate_is_exact_have_a_margin_of_their_own() -> None:
    metric = Metric("made", "goodput", made_samples("pingpong", (0, 1), GIB, 100.0))
    links = Expectation(None, 110.0, None, 0.0, "made", 100.0, "packets", achievable_margin=0.04)
    level = strongest_level(metric, links, None, [], Policy())
    assert level is not None
    assert level.bound == 96.0


@pytest.mark.parametrize(
    ("value", "below", "decides"),
    [
        (100.0, 0.03, "reference"),  # tighter than the part's bound of 95
        (100.0, 0.20, "part"),  # of few runs
        (96.0, 0.20, "part"),
        (90.0, 0.20, "reference"),  # known to give less than the part elsewhere
    ],
)
@pytest.mark.parametrize("quantity", ["goodput", "latency"])
def test_a_wide_reference_hides_nothing_that_the_part_tells(
    value: float, below: float, decides: str, quantity: Quantity
) -> None:
    metric = Metric("made", quantity, made_samples("pingpong", (0, 1), GIB, 100.0))
    if quantity == "goodput":
        reference, bound = Reference(value, -below, None, metric.unit, "made"), 95.0
    else:
        value = 200 - value
        reference, bound = Reference(value, None, below, metric.unit, "made"), 105.0
    part = Yardstick("part", 100.0, bound, "elsewhere")
    nothing = Expectation(None, None, None, 0.0, "made")
    level = strongest_level(metric, nothing, reference, [part], Policy())
    assert level is not None
    assert level.kind == decides


@pytest.mark.parametrize(
    ("measured", "alarms", "bound"),
    [
        (None, (304.0, 314.0), 304.0),  # owners of one fabric differ: the loosest
        (330.0, (304.0, 314.0), 304.0),
        (330.0, (185.0,), 297.0),  # what was measured, where it is stricter
        (280.0, (304.0,), 252.0),  # the same was measured to give less than the owner requires
    ],
)
def test_of_owners_who_differ_the_loosest_counts(
    measured: float | None, alarms: tuple[float, ...], bound: float
) -> None:
    metric = Metric("made", "goodput", made_samples("pingpong", (0, 1), GIB, 100.0))
    links = Expectation(None, 400.0, None, 0.0, "made", achievable=390.0, achievable_source="packets")
    known = [Yardstick("part", one, one, "an owner", alarm=True) for one in alarms]
    known += [Yardstick("part", measured, 0.9 * measured, "elsewhere")] if measured is not None else []
    level = strongest_level(metric, links, None, known, Policy())
    assert level is not None
    assert level.bound == pytest.approx(bound)
