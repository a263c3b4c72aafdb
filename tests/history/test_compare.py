from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import t

from fabricheck.errors import UserError
from fabricheck.history.compare import Change, Comparison, compare
from fabricheck.history.shift_test import CompareOptions, discoveries, moderated_test
from fabricheck.history.text import comparison_lines, to_json
from tests.support.histories import NOW, SYSTEM, Made, history, normal


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
    assert verdicts.pop("lost") is verdicts.pop("slower") is Change.REGRESSED
    assert verdicts.pop("faster") is Change.IMPROVED
    assert set(verdicts.values()) == {Change.SAME}
    assert found.exit_status == 1
    one = next(each for each in found.metrics if each.key.metric == "lost")
    assert one.change == pytest.approx(-0.05, abs=0.01)
    assert one.interval[0] < one.change < one.interval[1] < 0
    assert (one.base_runs, one.candidate_runs) == (5, 5)
    two = next(each for each in found.metrics if each.key.metric == "slower")
    assert two.change == pytest.approx(0.0526, abs=0.01)
    assert two.effect < -3


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
    (suspect,) = found.suspects
    assert (suspect.component, suspect.others) == ("n2:nic0", ("n2",))
    assert (suspect.affected, suspect.measured) == (6, 6)
    assert "suspect: n2:nic0 (or n2): 6 of 6 metrics" in "\n".join(comparison_lines(found))
    assert compared(fleet(10)).suspects == ()


def test_nothing_changed() -> None:
    found = compared(fleet(20))
    assert {each.verdict for each in found.metrics} == {Change.SAME}
    assert found.exit_status == 0


def test_too_noisy_to_say_is_not_green() -> None:
    found = compared([Made(f"m{each}", normal(each, 10, spread=0.2)) for each in range(20)])
    assert {each.verdict for each in found.metrics} == {Change.CANNOT_SAY}
    assert found.exit_status == 4
    assert all(each.smallest_change > 0.05 for each in found.metrics)


def test_one_run_a_side_of_an_unknown_metric_says_nothing() -> None:
    found = compare(history([Made("a", [100.0, 50.0])]), SYSTEM, "s000", "s001", now=NOW)
    assert found.metrics[0].verdict is Change.CANNOT_SAY
    assert found.metrics[0].smallest_change == np.inf
    assert json.loads(to_json(found))["metrics"][0]["smallest_change"] is None
    (line,) = [each for each in comparison_lines(found) if "cannot say" in each and " -> " in each]
    assert "-50.0% (too few runs for an interval)" in line


def test_one_run_a_side_is_enough_where_the_history_knows_the_variation() -> None:
    metrics = [Made(f"m{each:02}", normal(each, 42, spread=0.01)) for each in range(5)]
    lost = Made("lost", normal(9, 42, spread=0.01, drop=0.1, onset=41))
    found = compare(history([*metrics, lost]), SYSTEM, "s040", "s041", now=NOW)
    assert [each.key.metric for each in found.metrics if each.verdict is Change.REGRESSED] == ["lost"]


def test_one_bad_run_is_no_regression() -> None:
    values = normal(5, 70, spread=0.01)
    values[67] *= 0.7
    metrics = [Made(f"m{each:02}", normal(each, 70, spread=0.01)) for each in range(5)]
    found = compare(history([*metrics, Made("dip", values)]), SYSTEM, "2026-03-02..2026-03-06", "2026-03-07..", now=NOW)
    assert Change.REGRESSED not in {each.verdict for each in found.metrics}


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


def test_false_discoveries_and_intervals_keep_their_word() -> None:
    """400 comparisons of 50 metrics without a change: any discovery is false, so at most 2% of the comparisons have
    one (1% a direction); 4 standard deviations of chance are allowed."""
    rng = np.random.default_rng(1)
    wrong, covered = 0, []
    for _ in range(400):
        spread = 0.02 * np.exp(rng.standard_normal((50, 1)))
        base, candidate, earlier = (spread * rng.standard_normal((50, runs)) for runs in (5, 5, 40))
        tested = moderated_test(base, candidate, earlier, CompareOptions())
        wrong += bool(tested.worse.any() or tested.better.any())
        covered.append(np.mean(np.abs(tested.shift) <= t.ppf(0.975, tested.freedom) * tested.error))
    assert wrong <= 400 * 0.02 + 4 * np.sqrt(400 * 0.02)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)


def test_the_smallest_change_is_found_as_often_as_promised() -> None:
    rng = np.random.default_rng(2)
    options = CompareOptions()
    found, expected = [], []
    for _ in range(300):
        base, candidate, earlier = (0.02 * rng.standard_normal((40, runs)) for runs in (5, 5, 40))
        none = moderated_test(base, candidate, earlier, options)
        candidate[0] += none.smallest[0]
        found.append(moderated_test(base, candidate, earlier, options).worse[0])
        expected.append(none.smallest[0])
    assert np.mean(found) == pytest.approx(0.95, abs=0.04)
    assert 0.04 < np.median(expected) < 0.09


def test_correlated_sessions_are_not_taken_for_independent_ones() -> None:
    """With a correlation of 0.6 two neighbouring weeks differ by chance more than independent ones do."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(100):
        noise = rng.standard_normal((50, 170)) * 0.8
        for session in range(1, 170):
            noise[:, session] += 0.6 * noise[:, session - 1]
        values = 0.02 * noise[:, -70:]
        tested = moderated_test(values[:, 60:65], values[:, 65:], values[:, :60], CompareOptions())
        wrong += bool(tested.worse.any() or tested.better.any())
    assert wrong <= 8
