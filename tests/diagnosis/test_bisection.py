"""Which differences a bisection names, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fabricheck.diagnosis.bisection import Bisection, BisectionOutcome, Exchange, SearchEnded, bisect
from fabricheck.diagnosis.upgrade import Answer, UpgradeChange

LOSS, ERROR = 0.8, 0.01


def change_of(gain: float, error: float = ERROR) -> UpgradeChange:
    return UpgradeChange(
        "class", "", "allreduce", "latency", 9, gain, (gain, gain), error, 20, (0.0,) * 8, Answer.CANNOT_SAY
    )


def bisected(differences: int, costs: Callable[[set[int]], bool], error: float = ERROR) -> Bisection:
    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        return [change_of(LOSS if costs(set(exchange)) else 1.0, error) for exchange in exchanges]

    return bisect(differences, measure, loss=0.2, smallest_effect=0.02)


@pytest.mark.parametrize("differences", [1, 2, 3, 6, 7, 20, 50])
def test_the_one_that_costs_is_found(differences: int) -> None:
    guilty = differences // 2
    result = bisected(differences, lambda exchanged: guilty in exchanged)
    assert (result.outcome, result.guilty) == (BisectionOutcome.FOUND, (guilty,))


@pytest.mark.parametrize("differences", [2, 3, 6, 20])
def test_two_that_cost_only_together_are_found(differences: int) -> None:
    guilty = {0, differences - 1}
    result = bisected(differences, lambda exchanged: guilty <= exchanged)
    assert (result.outcome, set(result.guilty)) == (BisectionOutcome.TOGETHER, guilty)


@pytest.mark.parametrize("differences", [2, 6, 20])
def test_two_of_which_each_costs_are_both_found(differences: int) -> None:
    guilty = {0, differences - 1}
    result = bisected(differences, lambda exchanged: bool(guilty & exchanged))
    assert (result.outcome, set(result.guilty)) == (BisectionOutcome.FOUND, guilty)


def test_what_none_of_them_costs_is_elsewhere() -> None:
    result = bisected(4, lambda _: False)
    assert (result.outcome, result.guilty) == (BisectionOutcome.ELSEWHERE, ())


@pytest.mark.parametrize("ended", [BisectionOutcome.NO_TIME, BisectionOutcome.INTERRUPTED])
def test_what_was_measured_stays_where_a_search_ends(ended: BisectionOutcome) -> None:
    jobs: list[Sequence[Exchange]] = []

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        if jobs:
            raise SearchEnded(ended)
        jobs.append(exchanges)
        return [change_of(LOSS if 7 in exchange else 1.0) for exchange in exchanges]

    result = bisect(20, measure, loss=0.2, smallest_effect=0.02)
    assert (result.outcome, result.guilty, len(result.steps)) == (ended, (), len(jobs[0]))
    # The group of the guilty one is left, of those of the first job.
    assert result.to_try == next(exchange for exchange in jobs[0][1:] if 7 in exchange)


@pytest.mark.parametrize("error", [0.05, 0.2])
def test_noise_names_nobody(error: float) -> None:
    result = bisected(4, lambda exchanged: 1 in exchanged, error)
    assert (result.outcome, result.guilty) in [(BisectionOutcome.CANNOT_SAY, ()), (BisectionOutcome.FOUND, (1,))]
    assert error < 0.1 or result.outcome is BisectionOutcome.CANNOT_SAY


def test_exchanges_that_do_not_run_name_nobody() -> None:
    result = bisect(3, lambda exchanges: [None] * len(exchanges), loss=0.2, smallest_effect=0.02)
    assert (result.outcome, result.guilty) == (BisectionOutcome.CANNOT_SAY, ())


@pytest.mark.parametrize("guilty", [{1}, {0, 1}])
def test_one_that_cannot_be_exchanged_hides_no_other(guilty: set[int]) -> None:
    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange | None]:
        return [
            None if 2 in exchange else change_of(LOSS if guilty <= set(exchange) else 1.0) for exchange in exchanges
        ]

    assert set(bisect(3, measure, loss=0.2, smallest_effect=0.02).guilty) == guilty


def test_many_that_cost_only_all_together_end() -> None:
    assert len(bisected(20, lambda exchanged: len(exchanged) == 20).guilty) == 20


def test_what_has_little_of_the_loss_is_not_named() -> None:
    """The first costs 3% surely, the third all the rest of 20%."""

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        return [change_of((0.97 if 0 in of else 1.0) * (0.82 if 2 in of else 1.0), 0.001) for of in exchanges]

    assert bisect(3, measure, loss=0.2, smallest_effect=0.02).guilty == (2,)


def test_one_that_costs_a_little_alone_is_not_named_for_what_two_cost_together() -> None:
    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        gains = [0.82 if {1, 2} <= set(of) else 0.93 if 2 in of else 1.0 for of in exchanges]
        return [change_of(gain, 0.002) for gain in gains]

    result = bisect(4, measure, loss=0.2, smallest_effect=0.02)
    assert (result.outcome, result.guilty) == (BisectionOutcome.TOGETHER, (1, 2))


def test_one_that_has_less_than_half_of_the_loss_is_not_named_alone() -> None:
    """What is left without the second may be half of the loss: too noisy to clear, so that only the third is needed."""

    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        gains = [0.82 if {1, 2} <= set(of) else 0.92 if 2 in of else 1.0 for of in exchanges]
        return [change_of(gain, 0.02) for gain in gains]

    assert bisect(4, measure, loss=0.2, smallest_effect=0.02).guilty in [(), (1, 2)]
