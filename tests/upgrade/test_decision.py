"""What new software changes: the statistics against known truths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fabricheck.errors import UserError
from fabricheck.records.run import Run, Samples
from fabricheck.upgrade.decision import Answer, Changes, UpgradeChange, change_of, changes_of, rounds_needed
from tests.support.effort import effort
from tests.support.made_runs import made_ranks

SIZES = {"small": 8, "large": 1 << 30}
TESTS = 6


def run_of(seconds: float, size: int) -> Run:
    times = np.full(9, round(1e9 * seconds), dtype=np.int64)
    samples = Samples("allreduce", "library", "uncontended", -1, (0, 1), size, 5, "fixed", 0, times)
    return Run("made.jsonl", {"transport": "ccl"}, made_ranks(["a", "a"]), (samples,), None)


def of_sizes(logarithms: npt.NDArray[np.float64]) -> Run:
    """A run of as many sizes, from 8 bytes on."""
    runs = [run_of(math.exp(value), 8 << number) for number, value in enumerate(logarithms)]
    return replace(runs[0], samples=tuple(run.samples[0] for run in runs))


def with_operation(run: Run, name: str) -> Run:
    return replace(run, samples=tuple(replace(each, operation=name) for each in run.samples))


def changes(slower: float, noise: npt.NDArray[np.float64], sizes: Sequence[int]) -> Changes:
    """Of a test for each size: the new side takes `slower` times as long, each launch with its noise, shape (tests,
    rounds, sides), and all of a round drift together."""
    tests = {
        f"T{number}": [
            (run_of((1 + drift) * math.exp(old), size), run_of((1 + drift) * math.exp(new) * slower, size))
            for drift, (old, new) in enumerate(noise[number])
        ]
        for number, size in enumerate(sizes)
    }
    return changes_of(tests, smallest_effect=0.02, margin=0.05)


def noise_of(spread: float, rounds: int = 8, seed: int = 1, tests: int = TESTS) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, spread, (tests, rounds, 2))


@pytest.mark.parametrize(
    ("slower", "spread", "answer"),
    [
        (1.0, 0.002, Answer.SAME),
        (1.03, 0.002, Answer.WORSE),
        (0.9, 0.002, Answer.BETTER),
        (1.01, 0.002, Answer.SAME),  # surely slower, and surely by less than anybody minds
        (1.0, 0.2, Answer.CANNOT_SAY),
    ],
)
def test_a_known_change_has_its_answer(slower: float, spread: float, answer: Answer) -> None:
    found = changes(slower, noise_of(spread), [SIZES["large"]] * TESTS)
    assert found.answer is answer
    (whole,) = found.classes
    low, high = whole.interval
    assert low <= 1 / slower <= high and whole.metrics == len(found.metrics) == TESTS


def test_a_class_shows_what_no_metric_of_it_shows() -> None:
    found = changes(1.03, noise_of(0.04, tests=40), [SIZES["small"]] * 40)
    assert all(each.answer is not Answer.WORSE for each in found.metrics)
    assert found.answer is Answer.WORSE


def test_one_operation_shows_what_its_class_does_not() -> None:
    """Of five operations one is slower, in metrics of which none shows it alone."""
    names = ["allreduce", *["allgather", "alltoall", "broadcast", "reduce"] * 9]
    tests = {}
    for number, (name, noise) in enumerate(zip(names * 8, noise_of(0.03, tests=len(names) * 8), strict=True)):
        made = [(run_of(math.exp(old), 8), run_of(math.exp(new), 8)) for old, new in noise]
        if name == "allreduce":
            made = [(old, run_of(1.03 * float(new.samples[0].times_ns[0]) / 1e9, 8)) for old, new in made]
        tests[f"T{number}"] = [(with_operation(old, name), with_operation(new, name)) for old, new in made]
    found = changes_of(tests, smallest_effect=0.02, margin=0.05)
    assert [each.name for each in found.all if each.answer is Answer.WORSE] == ["allreduce"]


def test_what_varies_little_is_not_taken_for_noisy() -> None:
    """Each size has its own noise, as launches have: a tenth of 8 bytes, a thousandth of 1 GiB, which loses 1%."""
    sizes = [8 * 16 ** (number // 4) for number in range(32)]
    spread = np.geomspace(0.1, 0.001, 8).repeat(4)[:, None, None]
    noise = spread * noise_of(1, tests=32)
    noise[-1, :, 1] += 0.02
    tests = {
        f"T{number}": [
            (run_of(math.exp(old) * size / 1e9, size), run_of(math.exp(new) * size / 1e9, size))
            for old, new in noise[number]
        ]
        for number, size in enumerate(sizes)
    }
    found = changes_of(tests, smallest_effect=0.02, margin=0.05)
    assert [each.test for each in found.metrics if each.answer is Answer.WORSE] == ["T31"]
    errors = [each.error for each in found.metrics]
    assert errors[0] < 0.001 and max(errors) > 0.01


def test_small_and_large_messages_are_two_classes() -> None:
    noise = noise_of(0.002)
    noise[0, :, 1] += 0.2
    found = changes(1.0, noise, [SIZES["small"], *[SIZES["large"]] * (TESTS - 1)])
    assert [(each.quantity, each.answer) for each in found.classes] == [
        ("latency", Answer.WORSE),
        ("goodput", Answer.SAME),
    ]
    assert found.metrics[0].test == "T0"


def made(times: Sequence[float], size: int = 8, ranks: tuple[int, ...] = (0, 1)) -> Run:
    run = run_of(1e-6, size)
    samples = replace(run.samples[0], ranks=ranks, times_ns=np.array(times, dtype=np.int64))
    return replace(run, samples=(samples,))


def test_the_tail_is_compared_by_itself() -> None:
    calm, noisy = [1e6] * 90 + [1.1e6] * 10, [1e6] * 90 + [9e6] * 10
    rounds = {"T": [(made([time + k for time in noisy]), made(calm)) for k in range(8)]}
    answers = [
        changes_of(rounds, smallest_effect=0.02, margin=0.05, percentile=percentile).answer for percentile in (50, 99)
    ]
    assert answers == [Answer.SAME, Answer.BETTER]


def test_a_loss_of_one_pair_of_two_is_half_of_the_logarithm() -> None:
    one, other = made([1e6] * 9), made([1e6] * 9, ranks=(1, 0))
    slow = made([2e6] * 9, ranks=(1, 0))
    both, lost = (replace(one, samples=(*one.samples, *each.samples)) for each in (other, slow))
    (change,) = changes_of({"T": [(both, lost)] * 4}, smallest_effect=0.02, margin=0.05).metrics
    assert change.gain == pytest.approx(math.sqrt(0.5))
    assert change_of(change.gain, change.quantity) == pytest.approx(math.sqrt(2) - 1)  # of a latency


@pytest.mark.parametrize("other", [made([1e6] * 9, ranks=(1, 0)), made([1e6] * 9, size=16), made([0] * 9)])
def test_sides_of_different_measurements_are_refused(other: Run) -> None:
    with pytest.raises(UserError):
        changes_of({"T": [(made([1e6] * 9), other)] * 4}, smallest_effect=0.02, margin=0.05)


def test_nothing_compared_says_nothing() -> None:
    assert changes_of({}, smallest_effect=0.02, margin=0.05).answer is Answer.CANNOT_SAY


@pytest.mark.parametrize(("error", "rounds"), [(0.01, 6), (0.02, 18), (0.05, 110)])
def test_the_rounds_that_are_asked_for_are_those_that_a_stack_as_fast_as_ever_needs(error: float, rounds: int) -> None:
    """Also where it happens to look slower by nearly the margin: (2.5 + 1.28) errors have to be 5.1%."""
    gain = 0.96
    change = UpgradeChange(
        "class", "", "", "latency", 9, gain, (gain * math.exp(-2.5 * error), 1), error, 7, (0.0,) * 8, Answer.CANNOT_SAY
    )
    assert rounds_needed(Changes((change,), (), ()), 0.05) == max(rounds, 10)


@pytest.mark.parametrize("wild", [False, True])
def test_a_stack_is_seldom_worse_than_itself(wild: bool) -> None:
    """Also where one launch in ten is disturbed by up to half of its time."""
    count, worse = effort(100), 0
    for seed in range(count):
        noise = noise_of(0.01, seed=seed)
        if wild:
            generator = np.random.default_rng(seed)
            noise += np.where(generator.random(noise.shape) < 0.1, generator.random(noise.shape) / 2, 0)
        worse += changes(1.0, noise, [8, 8, 8, 1 << 30, 1 << 30, 1 << 30]).answer is Answer.WORSE
    assert worse <= _allowed(count)


def test_two_rounds_of_launches_that_vary_as_a_whole_are_no_proof() -> None:
    """A test of many metrics is still one launch a round."""
    count, worse = effort(300), 0
    for seed in range(count):
        generator = np.random.default_rng(seed)
        logarithms = generator.normal(0, 0.001, (2, 2, 12)) + generator.normal(0, 0.03, (2, 2, 1))
        rounds = [(of_sizes(old), of_sizes(new)) for old, new in logarithms]
        worse += changes_of({"T": rounds}, smallest_effect=0.02, margin=0.05).answer is Answer.WORSE
    assert worse <= _allowed(count)


def _allowed(count: int) -> float:
    return 0.01 * count + 3 * math.sqrt(0.01 * count)
