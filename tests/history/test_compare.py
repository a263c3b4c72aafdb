from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from benchmarks.noise import autocorrelated, beneath, gaussian, jumps, skewed
from fabricheck.errors import UserError
from fabricheck.history.compare import ChangeVerdict, Comparison, compare
from fabricheck.history.text import comparison_lines, to_json
from fabricheck.statistics.shift_test import BASE, CANDIDATE, EARLIER, CompareOptions, discoveries, shift_test
from tests.support.effort import effort
from tests.support.histories import NOW, SYSTEM, Made, history, normal

Floats = npt.NDArray[np.float64]


def compared(
    metrics: list[Made], base: str = "..2026-01-05", candidate: str = "2026-01-06..", **more: object
) -> Comparison:
    return compare(history(metrics, **more), SYSTEM, base, candidate, now=NOW)  # type: ignore[arg-type]


def fleet(count: int, **changed: object) -> list[Made]:
    return [Made(f"m{each:02}", normal(each, 10, spread=0.004)) for each in range(count)]


def test_a_planted_loss_is_found_and_nothing_else() -> None:
    lost = Made("lost", normal(99, 10, spread=0.005, drop=0.05, onset=5))
    slower = Made("slower", [1 / each for each in normal(98, 10, spread=0.005, drop=0.05, onset=5)], better="lower")
    faster = Made("faster", normal(97, 10, spread=0.005, drop=-0.05, onset=5))
    found = compared([*fleet(20), lost, slower, faster])
    verdicts = {each.key.metric: each.verdict for each in found.metrics}
    assert verdicts.pop("lost") is verdicts.pop("slower") is ChangeVerdict.REGRESSED
    assert verdicts.pop("faster") is ChangeVerdict.IMPROVED
    assert set(verdicts.values()) == {ChangeVerdict.SAME}
    assert found.exit_status == 1
    one = next(each for each in found.metrics if each.key.metric == "lost")
    assert one.change == pytest.approx(-0.05, abs=0.01)
    assert one.interval[0] < one.change < one.interval[1] < 0
    assert (one.base_sessions, one.candidate_sessions) == (5, 5)
    two = next(each for each in found.metrics if each.key.metric == "slower")
    assert two.change == pytest.approx(0.0526, abs=0.01)


def test_what_regressed_metrics_share_is_named() -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    metrics = [
        Made(
            f"{a}_{b}",
            normal(10 * a + b, 10, spread=0.005, drop=0.05 if 2 in (a, b) else 0.0, onset=5),
            components=[f"n{a}", f"n{a}:nic0", f"n{b}", f"n{b}:nic0"],
        )
        for a, b in pairs
    ]
    found = compared(metrics)
    (suspect,) = found.findings
    assert [each.key for each in suspect.components] == ["n2:nic0", "n2"]
    assert len(suspect.metrics) == 6
    assert "suspect: n2:nic0 or n2: 6 of 6 metrics" in "\n".join(comparison_lines(found))
    assert compared(fleet(10)).findings == ()


@settings(max_examples=effort(30), deadline=None)
@given(
    sides=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    spread=st.sampled_from((0.0, 0.005, 0.02, 0.2)),
    missing=st.sampled_from((0.0, 0.3, 0.8)),
    seed=st.integers(0, 99),
)
def test_whoever_gets_no_answer_is_told_what_to_run(
    sides: tuple[int, int], spread: float, missing: float, seed: int
) -> None:
    rng, number = np.random.default_rng(seed), sum(sides)
    made = []
    for place in range(8):
        there = (rng.random(number) >= missing) | (np.arange(number) == rng.integers(number))
        values = normal(seed + place, number, spread=spread)
        made.append(
            Made(f"m{place}", [value if is_there else None for value, is_there in zip(values, there, strict=True)])
        )
    made.append(Made("always", normal(seed, number, spread=spread)))
    found = compared(made, f"..2026-01-{sides[0]:02}", f"2026-01-{sides[0] + 1:02}..")
    assert found.exit_status != 4 or found.advice


@pytest.mark.parametrize(("first", "sessions"), [(41, 1), (40, 2), (39, 3)])
def test_fewer_than_three_sessions_are_no_regression(first: int, sessions: int) -> None:
    """However well the history knows the variation: one session is one draw of the launch and the hour."""
    metrics = [Made(f"m{each:02}", normal(each, 42, spread=0.01)) for each in range(5)]
    lost = Made("lost", normal(9, 42, spread=0.01, drop=0.1, onset=first))
    base, candidate = f"2026-01-20..2026-02-{first - 31:02}", f"2026-02-{first - 30:02}.."
    found = compare(history([*metrics, lost]), SYSTEM, base, candidate, now=NOW)
    assert len(found.candidate.sessions) == sessions
    regressed = [each.key.metric for each in found.metrics if each.verdict is ChangeVerdict.REGRESSED]
    if sessions < 3:
        assert (regressed, found.exit_status, len(found.advice)) == ([], 4, 1)
    else:
        assert (regressed, found.exit_status, found.advice) == (["lost"], 1, ())


def test_runs_of_one_session_are_one_value() -> None:
    """Five runs of one bad session are no five sessions."""
    values = [*normal(1, 40, spread=0.01), *[90.0 + each for each in range(5)]]
    frame = history([Made(f"m{each:02}", normal(each, 45, spread=0.01)) for each in range(5)] + [Made("one", values)])
    late = pl.col("session") >= "s040"
    frame = frame.with_columns(pl.when(late).then(pl.lit("s040")).otherwise(pl.col("session")).alias("session"))
    found = compare(frame, SYSTEM, "2026-01-20..2026-02-09", "2026-02-10..", now=NOW)
    one = next(each for each in found.metrics if each.key.metric == "one")
    assert (one.candidate_sessions, one.verdict) == (1, ChangeVerdict.CANNOT_SAY)


def test_one_bad_run_is_no_regression() -> None:
    values = normal(5, 70, spread=0.01)
    values[67] *= 0.7
    metrics = [Made(f"m{each:02}", normal(each, 70, spread=0.01)) for each in range(5)]
    found = compare(history([*metrics, Made("dip", values)]), SYSTEM, "2026-03-02..2026-03-06", "2026-03-07..", now=NOW)
    assert ChangeVerdict.REGRESSED not in {each.verdict for each in found.metrics}


def test_vanished_and_new_tests_are_named() -> None:
    gone = Made("gone", [*normal(1, 5), *[None] * 5])
    new = Made("new", [*[None] * 5, *normal(1, 5)])
    invalid = Made("broken", normal(2, 5))
    broken = history([Made("broken", [*[None] * 5, *normal(3, 5)], verdict="INVALID")])
    frame = history([*fleet(10), gone, new, invalid]).vstack(broken).sort("started", maintain_order=True)
    found = compare(frame, SYSTEM, "..2026-01-05", "2026-01-06..", now=NOW)
    assert [each.metric for each in found.vanished] == ["broken", "gone"]
    assert [each.metric for each in found.new] == ["new"]
    assert found.exit_status == 4
    assert found.candidate.not_measured == 5


def test_unequal_conditions_are_flagged() -> None:
    moved = [Made("m", [*normal(1, 5), *[None] * 5]), Made("m", [*[None] * 5, *normal(2, 5)], nodes=("n7",))]
    metrics = [*fleet(10), *moved]
    found = compared(metrics, software={5: {"nccl": "2.29.1"}}, tuning={5: {"profile": "fast"}})
    unequal = next(each.unequal for each in found.metrics if each.key.metric == "m")
    assert any("n0 -> n7" in each for each in unequal)
    assert any("fast" in each for each in unequal)
    assert found.software_changes == ("nccl: 2.28.3 -> 2.29.1",)
    assert any("(11 metrics)" in each for each in found.unequal)
    assert any(line.startswith("  UNEQUAL") for line in comparison_lines(found))


def test_the_same_input_gives_the_same_bytes_in_any_order_of_metrics() -> None:
    metrics = [*fleet(12), Made("lost", normal(99, 10, drop=0.1, onset=5))]
    one, two = compared(metrics), compared(metrics[::-1])
    assert to_json(one) == to_json(two)
    assert list(comparison_lines(one)) == list(comparison_lines(two))


def test_values_that_are_all_equal_say_nothing_of_neighbours() -> None:
    found = compared([Made("same", [400.0] * 10), Made("lost", [400.0] * 5 + [380.0] * 5)])
    assert {each.key.metric: each.verdict for each in found.metrics} == {
        "same": ChangeVerdict.SAME,
        "lost": ChangeVerdict.REGRESSED,
    }


def test_sides_that_share_runs_are_refused() -> None:
    with pytest.raises(UserError, match="share 1 runs, such as r002"):
        compared(fleet(3), "..2026-01-03", "2026-01-03..")
    with pytest.raises(UserError, match="false discovery is a share between 0 and 1"):
        CompareOptions(false_discovery=0)


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    chosen, threshold = discoveries(np.asarray([0.001, 0.9, 0.02, 0.06]), 0.05)
    assert chosen.tolist() == [True, False, True, False]
    assert threshold == pytest.approx(0.05 * 3 / 4)
    assert not discoveries(np.asarray([0.5, 0.9, 0.02]), 0.05)[0].any()
    assert discoveries(np.zeros(0), 0.05)[0].size == 0


@pytest.mark.parametrize(
    ("make", "sessions"),
    [
        (skewed, (60, 3, 3)),
        (jumps, (60, 3, 3)),
        (jumps, (60, 5, 5)),
        (autocorrelated(0.5), (0, 5, 5)),
        (autocorrelated(0.98), (0, 5, 5)),
        (jumps, (0, 3, 3)),
        (jumps, (0, 5, 5)),
        (autocorrelated(0.98), (60, 20, 20)),
        (beneath(0.9, 0.5), (60, 20, 20)),
    ],
)
def test_noise_of_any_shape_is_no_regression(make: Callable[..., Floats], sessions: tuple[int, int, int]) -> None:
    """2% of comparisons are meant; four of forty have a chance of 1%. With Student's t alone levels that jump are
    called in a third; if sessions were taken to be independent, 20 of AR 0.98 in all."""
    rng, side = np.random.default_rng(3), np.repeat([EARLIER, BASE, CANDIDATE], sessions)
    wrong, number = 0, effort(40)
    for _ in range(number):
        tested = shift_test(0.02 * make(rng, 50, side.size), side, CompareOptions())
        wrong += bool(tested.worse.any() or tested.better.any())
    assert wrong <= 1 + number // 20


def test_metrics_of_another_kind_say_nothing_of_a_spread() -> None:
    """Goodputs that vary by 0.1% among latencies that vary by 6%: three sessions a side show a loss of 1%."""
    ways = [f"{a}_{b}" for a in range(4) for b in range(4) if a != b]
    made = [
        Made(f"pingpong_uncontended_{way}_1gib_goodput", normal(each, 6, spread=0.001, drop=0.01 * (each < 2), onset=3))
        for each, way in enumerate(ways)
    ]
    made += [
        Made(f"pingpong_uncontended_{way}_8b_latency", normal(99 + each, 6, spread=0.06), better="lower", unit="us")
        for each, way in enumerate(ways)
    ]
    found = compared(made, "..2026-01-03", "2026-01-04..")
    regressed = [each.key.metric for each in found.metrics if each.verdict is ChangeVerdict.REGRESSED]
    assert sorted(regressed) == sorted(each.metric for each in made[:2])
    assert all(each.smallest_change < 0.01 for each in found.metrics if each.unit == "Gb/s")


@pytest.mark.full
@pytest.mark.parametrize("make", [gaussian, autocorrelated(0.9), autocorrelated(0.98), beneath(0.9, 0.5)])
@pytest.mark.parametrize("sessions", [(0, 3, 3), (40, 5, 5)])
def test_intervals_and_the_smallest_loss_keep_their_word_also_where_levels_move(
    make: Callable[..., Floats], sessions: tuple[int, int, int]
) -> None:
    rng, side = np.random.default_rng(1), np.repeat([EARLIER, BASE, CANDIDATE], sessions)
    covered, shown = [], []
    for _ in range(60):
        spread = 0.02 * np.exp(0.5 * rng.standard_normal((50, 1)))
        values = spread * make(rng, 50, side.size)
        healthy = shift_test(values, side, CompareOptions())
        covered.append(np.mean(np.abs(healthy.shift) <= t.ppf(0.975, healthy.freedom) * healthy.error))
        values[:5, side == CANDIDATE] += healthy.smallest[:5, None]
        shown.append(shift_test(values, side, CompareOptions()).worse[:5].mean())
    assert np.mean(covered) > 0.94
    assert np.mean(shown) > 0.95
