from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.judge import NO_EXPECTATION, judge_run
from fabricheck.records.judgement import Expectation, Judgement, Reference
from fabricheck.records.metrics import Quantity
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.fabricbench import read_run
from fabricheck.yardsticks.policy import LatencyRule, Policy
from tests.support.findings import bad_finding
from tests.support.made_runs import made_samples
from tests.support.result_files import HOST, lines_of, settle, write

PASS, DEGRADED, FAIL, INCOMPLETE, INVALID = Verdict
GOODPUT = "pingpong_uncontended_0_1_1mib_goodput"
LATENCY = "pingpong_uncontended_0_1_8b_latency"

# The synthetic file has 98.3 Gb/s and 0.412 us.
FINE: dict[str, Expectation] = {
    "goodput": Expectation(110.0, 100.0, 120.0, 0.5, "test"),
    "latency": Expectation(None, 0.4, 0.1, 0.5, "test"),
}
KNOWN = {
    GOODPUT: Reference(98.0, -0.05, 0.05, "Gb/s", "test"),
    LATENCY: Reference(0.41, -0.5, 0.1, "us", "test"),
}


def run_with(goodputs: list[float] | None = None, latencies: list[float] | None = None, **fields: Any) -> Run:
    """The synthetic run with these goodputs (Gb/s) and latencies (us) of its iterations."""
    run = read_run(HOST)
    small, large = run.samples
    if latencies is not None:
        small = replace(small, times_ns=np.array([round(2000 * each) for each in latencies], dtype=np.int64))
    if goodputs is not None:
        times = [round(2 * 8 * large.bytes / each) for each in goodputs]
        large = replace(large, times_ns=np.array(times, dtype=np.int64))
    return replace(run, samples=(replace(small, **fields), replace(large, **fields)))


def judge_all(
    run: Run,
    expected: Mapping[str, Expectation] | None = None,
    references: Mapping[str, Reference] | None = None,
    policy: Policy | None = None,
) -> tuple[Verdict, dict[str, Judgement]]:
    expectations = FINE if expected is None else expected

    def expect(samples: Samples, quantity: Quantity) -> Expectation:
        return expectations.get(quantity, NO_EXPECTATION)

    judged = judge_run(run, expect, KNOWN if references is None else references, policy)
    return judged.verdict, {each.name: each for each in judged.judgements}


def goodput(values: list[float], expected: Expectation | None = None, reference: Reference | None = None) -> Judgement:
    expectations = {**FINE, "goodput": expected if expected is not None else FINE["goodput"]}
    references = KNOWN if reference is None else {**KNOWN, GOODPUT: reference}
    return judge_all(run_with(goodputs=values), expectations, references)[1][GOODPUT]


def latency(values: list[float], expected: Expectation | None = None, reference: Reference | None = None) -> Judgement:
    expectations = {**FINE, "latency": expected if expected is not None else FINE["latency"]}
    references = KNOWN if reference is None else {**KNOWN, LATENCY: reference}
    return judge_all(run_with(latencies=values), expectations, references)[1][LATENCY]


def test_a_good_run_passes() -> None:
    verdict, metrics = judge_all(read_run(HOST))
    assert verdict is PASS
    assert {name: (each.verdict, each.calibrated) for name, each in metrics.items()} == {
        GOODPUT: (PASS, True),
        LATENCY: (PASS, True),
    }
    assert metrics[GOODPUT].value == pytest.approx(98.31, abs=0.01)
    low, high = metrics[GOODPUT].interval
    assert low <= metrics[GOODPUT].value <= high


# Floor and ceiling


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(49.9, FAIL), (92.0, DEGRADED), (93.5, PASS), (98.0, PASS), (119.9, PASS), (120.5, INVALID), (1e7, INVALID)],
)
def test_a_goodput_is_judged_by_floor_reference_and_ceiling(value: float, verdict: Verdict) -> None:
    assert goodput([value] * 20).verdict is verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.81, FAIL), (0.46, DEGRADED), (0.45, PASS), (0.3, PASS), (0.11, PASS), (0.09, INVALID)]
)
def test_a_latency_is_judged_the_other_way_round(value: float, verdict: Verdict) -> None:
    assert latency([value] * 20).verdict is verdict


@pytest.mark.parametrize("times", [[0] * 8, [math.nan] * 8, [math.inf] * 8, [*[824] * 8, 0], [*[824] * 8, -1]])
def test_times_that_cannot_be_are_invalid(times: list[float]) -> None:
    """Also where all others can be."""
    run = read_run(HOST)
    samples = tuple(replace(each, times_ns=np.array(times)) for each in run.samples)
    verdict, metrics = judge_all(replace(run, samples=samples))
    assert verdict is INVALID
    assert {each.verdict for each in metrics.values()} == {INVALID}


@pytest.mark.parametrize(
    ("judged", "plausible", "implausible"), [(goodput, 979.0, 981.0), (latency, 0.05, 0.03)], ids=["goodput", "latency"]
)
def test_beyond_every_yardstick_is_implausible_without_a_ceiling(
    judged: Callable[..., Judgement], plausible: float, implausible: float
) -> None:
    no_ceiling = Expectation(None, None, None, 0.0, "test")
    assert judged([plausible] * 20, no_ceiling).verdict is PASS
    assert judged([implausible] * 20, no_ceiling).verdict is INVALID


def test_implausible_comes_before_wrong_data_and_wrong_data_before_speed() -> None:
    run = run_with(goodputs=[98.0] * 20, wrong_bytes=4)
    verdict, metrics = judge_all(run)
    assert verdict is FAIL
    assert metrics[GOODPUT].verdict is FAIL
    assert metrics[GOODPUT].reason.startswith("4 wrong bytes")
    assert judge_all(run_with(goodputs=[500.0] * 20, wrong_bytes=4))[1][GOODPUT].verdict is INVALID


# Uncalibrated


def test_without_a_reference_the_floor_judges_and_says_so() -> None:
    verdict, metrics = judge_all(run_with(goodputs=[60.0] * 20), references={})
    assert verdict is PASS
    assert not metrics[GOODPUT].calibrated
    assert metrics[GOODPUT].judged_by == "floor"
    assert judge_all(run_with(goodputs=[40.0] * 20), references={})[0] is FAIL


@pytest.mark.parametrize(
    "expected", [NO_EXPECTATION, Expectation(110.0, None, 120.0, 0.5, "t"), Expectation(110.0, 100.0, 120.0, 0.0, "t")]
)
def test_with_nothing_to_judge_against_nothing_passes(expected: Expectation) -> None:
    verdict, metrics = judge_all(read_run(HOST), {"goodput": expected}, {})
    assert verdict is INCOMPLETE
    assert {each.verdict for each in metrics.values()} == {INCOMPLETE}
    assert {each.judged_by for each in metrics.values()} == {"unjudged"}
    assert metrics[GOODPUT].code == "no-baseline"


def test_a_latency_that_no_model_knows_is_judged_by_the_policy() -> None:
    policy = Policy(latencies=(LatencyRule(limit_us=1.0, minimum_us=0.05, source="test"),))
    expected = {"goodput": FINE["goodput"]}

    def verdict_of(value: float) -> Verdict:
        return judge_all(run_with(latencies=[value] * 20), expected, {}, policy)[1][LATENCY].verdict

    assert [verdict_of(each) for each in (0.04, 0.5, 0.99, 1.01)] == [INVALID, PASS, PASS, FAIL]


# Noise. The bound of the reference is 93.1 Gb/s.


def around(median: float, half_width: float, count: int = 21) -> list[float]:
    return [median + half_width * (2 * i / (count - 1) - 1) for i in range(count)]


@pytest.mark.parametrize(
    ("median", "half_width", "verdict"),
    [(91.0, 1.5, DEGRADED), (93.0, 1.5, PASS), (75.0, 40.0, DEGRADED), (93.2, 3.0, PASS)],
)
def test_noise_excuses_a_hair_under_the_bound_and_hides_no_loss(
    median: float, half_width: float, verdict: Verdict
) -> None:
    assert goodput(around(median, half_width)).verdict is verdict


@pytest.mark.parametrize("count", [1, 2, 5])
def test_too_few_iterations_are_no_excuse(count: int) -> None:
    found = goodput([92.9] * (count - 1) + [93.0] if count == 1 else [92.0, *[92.9] * (count - 2), 94.0])
    assert found.verdict is DEGRADED


def test_better_than_the_reference_passes_and_asks_for_a_new_one() -> None:
    found = goodput(around(115.0, 0.5))
    assert found.verdict is PASS
    assert "fabricheck calibrate" in found.reason


@given(st.floats(0.3, 1.19), st.floats(0.0, 0.5), st.integers(1, 40))
def test_a_loss_larger_than_what_is_excused_is_never_green(share: float, spread: float, count: int) -> None:
    """A median further under the bound than the widest excusable interval reaches is red, whatever the noise."""
    middle = 98.0 * share
    found = goodput(around(middle, middle * spread * 0.9, count) if count > 1 else [middle])
    if found.value < 93.1 * (1 - 2 * Policy().excusable_half_width):
        assert found.verdict in (DEGRADED, FAIL)
    if found.value >= 93.2:
        assert found.verdict in (PASS, INVALID)


def test_latency_noise_is_judged_the_other_way_round() -> None:
    # The bound is 0.451 us.
    assert latency(around(0.47, 0.01)).verdict is DEGRADED
    assert latency(around(0.452, 0.008)).verdict is PASS
    assert latency(around(0.6, 0.3)).verdict is DEGRADED


# Broken yardsticks


@pytest.mark.parametrize("number", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("field", ["nominal", "expected", "ceiling"])
def test_a_broken_model_lets_nothing_pass(field: str, number: float) -> None:
    for quantity in ("goodput", "latency"):
        fields: dict[str, Any] = {field: number}
        broken = {**FINE, quantity: replace(FINE[quantity], **fields)}
        assert judge_all(read_run(HOST), broken)[0] is INVALID


@pytest.mark.parametrize("fraction", [math.nan, -0.1, 1.1])
def test_a_broken_floor_lets_nothing_pass(fraction: float) -> None:
    assert goodput([98.0] * 20, replace(FINE["goodput"], floor_fraction=fraction)).verdict is INVALID


@pytest.mark.parametrize(
    "fields",
    [
        {"value": math.nan},
        {"value": 0.0},
        {"value": -98.0},
        {"value": math.inf},
        {"lower": math.nan},
        {"lower": -1.0},
        {"lower": 0.1},
        {"upper": -0.1},
        {"upper": math.inf},
        {"lower": None},
        {"unit": "GB/s"},
    ],
)
def test_a_broken_reference_lets_nothing_pass(fields: dict[str, Any]) -> None:
    assert goodput([98.0] * 20, reference=replace(KNOWN[GOODPUT], **fields)).verdict is INVALID


def test_a_latency_reference_needs_an_upper_bound() -> None:
    assert latency([0.4] * 20, reference=replace(KNOWN[LATENCY], upper=None)).verdict is INVALID
    assert latency([0.4] * 20, reference=replace(KNOWN[LATENCY], lower=None)).verdict is PASS


# The run


def test_a_metric_that_is_missing_is_seen() -> None:
    run = read_run(HOST)
    judged = judge_run(replace(run, samples=run.samples[:1]), lambda samples, quantity: FINE[quantity], KNOWN)
    assert judged.verdict is INCOMPLETE
    assert f"1 of 2 metrics are missing: {GOODPUT}" in judged.problems[0].message


def test_a_run_without_metrics_never_passes(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "cut.jsonl", lines_of(HOST)[1:]))
    judged = judge_run(replace(run, problems=()), lambda samples, quantity: FINE[quantity], KNOWN)
    assert judged.judgements == ()
    assert judged.verdict is INVALID


def test_unverified_data_never_pass(tmp_path: Path) -> None:
    lines = lines_of(HOST)
    lines[0]["plan"]["verify"] = "off"
    for line in lines[1:-1]:
        line["wrong_bytes"] = -1
    settle(lines)
    run = read_run(write(tmp_path / "run.jsonl", lines))
    assert run.problems == ()
    assert judge_all(run)[0] is INVALID
    assert judge_all(run, policy=Policy(verification_required=False))[0] is PASS


@pytest.mark.parametrize("verdict", [DEGRADED, FAIL, INCOMPLETE, INVALID])
def test_a_problem_counts_for_the_run(verdict: Verdict) -> None:
    run = replace(read_run(HOST), problems=(bad_finding(verdict, "planted"),))
    assert judge_all(run)[0] is verdict


def test_the_worst_verdict_wins() -> None:
    order = [PASS, DEGRADED, FAIL, INCOMPLETE, INVALID]
    for some in itertools.product(order, repeat=3):
        assert worst(some) is order[max(order.index(each) for each in some)]
    with pytest.raises(ValueError, match="empty"):
        worst([])


def beside_aggressors_of(gbps: float) -> Judgement:
    """A victim that is as fast beside aggressors that reach `gbps` of an expected 100, with a floor of 50."""
    aggressor = made_samples("alltoall", (1, 2), 1 << 20, gbps)
    return judge_all(run_with(goodputs=[98.0] * 20, aggressor=aggressor))[1][GOODPUT]


def test_a_victim_beside_a_weak_aggressor_is_no_measurement() -> None:
    assert beside_aggressors_of(26.0).verdict is PASS  # a fair share of a link that the victim uses too
    assert beside_aggressors_of(24.0).verdict is INVALID
    aggressor = made_samples("alltoall", (1, 2), 1 << 20, 0.001)
    run = run_with(goodputs=[98.0] * 20, aggressor=aggressor)
    assert GOODPUT in {name for name, judged in judge_all(run, {})[1].items() if judged.verdict is PASS}  # no model
