from __future__ import annotations

import json
import re

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.stats import t

from benchmarks.noise import SHAPES, beneath
from fabricheck.errors import UserError
from fabricheck.history import shift_test as module
from fabricheck.history.compare import ChangeVerdict, Comparison, compare
from fabricheck.history.shift_test import BASE, CANDIDATE, EARLIER, CompareOptions, discoveries, shift_test
from fabricheck.history.text import comparison_lines, to_json
from tests.support.histories import NOW, SYSTEM, Made, history, normal

Floats = npt.NDArray[np.float64]


def compared(
    metrics: list[Made], base: str = "..2026-01-05", candidate: str = "2026-01-06..", **more: object
) -> Comparison:
    return compare(history(metrics, **more), SYSTEM, base, candidate, now=NOW)  # type: ignore[arg-type]


def fleet(count: int, **changed: object) -> list[Made]:
    return [Made(f"m{each:02}", normal(each, 10, spread=0.005)) for each in range(count)]


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


def test_too_noisy_to_say_is_not_green() -> None:
    found = compared([Made(f"m{each}", normal(each, 10, spread=0.2)) for each in range(20)])
    assert {each.verdict for each in found.metrics} == {ChangeVerdict.CANNOT_SAY}
    assert found.exit_status == 4
    assert all(each.smallest_change > 0.05 for each in found.metrics)
    assert len(found.advice) == 1  # there is always something to do


def test_one_run_a_side_of_an_unknown_metric_says_nothing() -> None:
    found = compare(history([Made("a", [100.0, 50.0])]), SYSTEM, "s000", "s001", now=NOW)
    assert found.metrics[0].verdict is ChangeVerdict.CANNOT_SAY
    assert found.metrics[0].smallest_change == np.inf
    assert json.loads(to_json(found))["metrics"][0]["smallest_change"] is None
    (line,) = [each for each in comparison_lines(found) if "cannot say" in each and " -> " in each]
    assert "-50.0% (too few sessions for an interval)" in line


def test_no_interval_beside_a_change_contradicts_it() -> None:
    """Where all metrics lost the same, together they are sure of what each by itself is not."""
    found = compared([Made(f"m{each}", normal(each, 10, spread=0.02, drop=0.06, onset=5)) for each in range(40)])
    lines = [each for each in comparison_lines(found) if each.startswith("  regressed")]
    unsure = [each for each in found.metrics if each.verdict is ChangeVerdict.REGRESSED and each.interval[1] > 0]
    assert unsure and len([each for each in lines if "p = " in each]) == len(unsure)
    assert not any(re.search(r"interval -.* to \+", each) for each in lines)


@pytest.mark.parametrize(("first", "sessions", "again"), [(41, 1, "twice"), (40, 2, "once"), (39, 3, "")])
def test_fewer_than_three_sessions_are_no_regression(first: int, sessions: int, again: str) -> None:
    """However well the history knows the variation: one session is one draw of the launch and the hour."""
    metrics = [Made(f"m{each:02}", normal(each, 42, spread=0.01)) for each in range(5)]
    lost = Made("lost", normal(9, 42, spread=0.01, drop=0.1, onset=first))
    base, candidate = f"2026-01-20..2026-02-{first - 31:02}", f"2026-02-{first - 30:02}.."
    found = compare(history([*metrics, lost]), SYSTEM, base, candidate, now=NOW)
    assert len(found.candidate.sessions) == sessions
    regressed = [each.key.metric for each in found.metrics if each.verdict is ChangeVerdict.REGRESSED]
    said = "\n".join(comparison_lines(found))
    if sessions < 3:
        assert (regressed, found.exit_status) == ([], 4)
        assert f"run {again} more with the same" in said
    else:
        assert (regressed, found.exit_status, found.advice) == (["lost"], 1, ())


@pytest.mark.parametrize(("spread", "changed", "told"), [(0.2, True, True), (0.2, False, False), (0.001, True, False)])
def test_what_sessions_cannot_say_one_job_can(spread: float, changed: bool, told: bool) -> None:
    """Where software differs, which can be measured interleaved."""
    software = {36: {"nccl": "2.29.1"}} if changed else {}
    stored = history([Made("a", normal(1, 42, spread=spread))], software=software)
    found = compare(stored, SYSTEM, "2026-01-20..2026-02-05", "2026-02-06..", now=NOW)
    assert bool(found.count(ChangeVerdict.CANNOT_SAY)) is (spread > 0.1)
    assert any("fabricheck upgrade" in line for line in comparison_lines(found)) is told


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


def test_discoveries_are_those_of_benjamini_and_hochberg_in_two_stages() -> None:
    # Calculated by hand: at 0.05/1.05 = 0.0476 the first stage finds 2 of 4, the second has 0.0476 / 2 a rank.
    chosen, _ = discoveries(np.asarray([0.001, 0.9, 0.02, 0.06]), 0.05)
    assert chosen.tolist() == [True, False, True, True]
    chosen, threshold = discoveries(np.asarray([0.5, 0.9, 0.02]), 0.05)
    assert chosen.tolist() == [False, False, False]
    assert threshold == pytest.approx(0.05 / 1.05 / 3)
    assert discoveries(np.zeros(0), 0.05)[0].size == 0


def shifts(base: Floats, candidate: Floats, earlier: Floats) -> module.Tested:
    """The test of three sets of sessions that follow each other."""
    values = np.concatenate([earlier, base, candidate], axis=1)
    side = np.repeat([EARLIER, BASE, CANDIDATE], [earlier.shape[1], base.shape[1], candidate.shape[1]])
    return shift_test(values, side, CompareOptions())


@pytest.mark.full
def test_intervals_keep_their_word() -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(60):
        spread = 0.02 * np.exp(rng.standard_normal((50, 1)))
        base, candidate, earlier = (spread * rng.standard_normal((50, sessions)) for sessions in (5, 5, 40))
        tested = shifts(base, candidate, earlier)
        covered.append(np.mean(np.abs(tested.shift) <= t.ppf(0.975, tested.freedom) * tested.error))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


@pytest.mark.full
@pytest.mark.parametrize(("shape", "sessions"), [("skewed", (60, 3, 3)), ("AR 0.5", (0, 5, 5)), ("AR 0.98", (0, 5, 5))])
def test_noise_of_any_shape_is_no_regression(shape: str, sessions: tuple[int, int, int]) -> None:
    """A test that took sessions for independent and normal calls something in 22%, 91% and 100% of such comparisons;
    2% are meant, and four of forty have a chance of 1%."""
    make = next(each.make for each in SHAPES if each.name == shape)
    rng, side = np.random.default_rng(3), np.repeat([EARLIER, BASE, CANDIDATE], sessions)
    wrong = 0
    for _ in range(40):
        tested = shift_test(0.02 * make(rng, 50, side.size), side, CompareOptions())
        wrong += bool(tested.worse.any() or tested.better.any())
    assert wrong < 4


def test_noise_of_launches_does_not_hide_what_sessions_have_in_common() -> None:
    """A level that is correlated by 0.9, and as much white noise. With a correlation that falls as fast as neighbours
    say, 34 of 40 such comparisons call something."""
    make, side, wrong = beneath(0.9, 0.5), np.repeat([EARLIER, BASE, CANDIDATE], [60, 20, 20]), 0
    for seed in range(5):
        values = 0.02 * make(np.random.default_rng(seed), 50, side.size)
        tested = shift_test(values, side, CompareOptions())
        wrong += bool(tested.worse.any() or tested.better.any())
    assert wrong <= 1


@pytest.mark.full
def test_the_smallest_change_is_found_as_often_as_promised() -> None:
    rng = np.random.default_rng(2)
    found, expected = [], []
    for _ in range(50):
        base, candidate, earlier = (0.02 * rng.standard_normal((40, runs)) for runs in (5, 5, 40))
        none = shifts(base, candidate, earlier)
        candidate[0] += none.smallest[0]
        found.append(shifts(base, candidate, earlier).worse[0])
        expected.append(none.smallest[0])
    assert np.mean(found) == pytest.approx(0.95, abs=0.06)
    assert 0.04 < np.median(expected) < 0.09


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
