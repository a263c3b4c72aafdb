"""Which differences a bisection names, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.upgrade.bisection import Bisection, BisectionOutcome, Exchange, SearchEnded, bisect
from fabricheck.upgrade.decision import Answer, UpgradeChange

LOSS, ERROR = 0.8, 0.01
# What exchanged differences give, of 1.
Gain = Callable[[set[int]], float]


def change_of(gain: float, error: float = ERROR) -> UpgradeChange:
    return UpgradeChange(
        "class", "", "allreduce", "latency", 9, gain, (gain, gain), error, 20, (0.0,) * 8, Answer.CANNOT_SAY
    )


def bisected(differences: int, gain: Gain, error: float = ERROR) -> Bisection:
    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange]:
        return [change_of(gain(set(exchange)), error) for exchange in exchanges]

    return bisect(differences, measure, loss=0.2, smallest_effect=0.02)


@given(st.integers(1, 50), st.data())
def test_those_that_cost_are_found_whether_alone_or_only_together(differences: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, differences - 1), min_size=1, max_size=2))
    alone = data.draw(st.booleans()) or len(guilty) == 1
    result = bisected(differences, lambda of: LOSS if (of & guilty if alone else guilty <= of) else 1.0)
    assert result.outcome is (BisectionOutcome.FOUND if alone else BisectionOutcome.TOGETHER)
    assert set(result.guilty) == guilty


@pytest.mark.parametrize(
    ("gain", "error", "guilty"),
    [
        # The first costs 3% surely, the third all the rest of 20%.
        (lambda of: (0.97 if 0 in of else 1.0) * (0.82 if 2 in of else 1.0), 0.001, (2,)),
        # The third costs a little alone.
        (lambda of: 0.82 if {1, 2} <= of else 0.93 if 2 in of else 1.0, 0.002, (1, 2)),
    ],
    ids=["little of the loss", "a little alone"],
)
def test_what_has_little_of_the_loss_is_not_named_alone(gain: Gain, error: float, guilty: Exchange) -> None:
    assert bisected(4, gain, error).guilty == guilty


@pytest.mark.parametrize(
    ("gain", "error"),
    [
        (lambda of: LOSS if 1 in of else 1.0, 0.2),
        # What is left without the second may be half of the loss: too noisy to clear.
        (lambda of: 0.82 if {1, 2} <= of else 0.92 if 2 in of else 1.0, 0.02),
    ],
    ids=["all", "half of the loss"],
)
def test_noise_names_no_part_of_what_costs(gain: Gain, error: float) -> None:
    assert bisected(4, gain, error).guilty in [(), (1, 2)]


def test_what_none_of_them_costs_is_elsewhere() -> None:
    assert bisected(4, lambda _: 1.0).outcome is BisectionOutcome.ELSEWHERE


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


@pytest.mark.parametrize(("lost", "guilty"), [({0, 1, 2}, set()), ({2}, {1}), ({2}, {0, 1})])
def test_exchanges_that_do_not_run_name_none_and_hide_no_other(lost: set[int], guilty: set[int]) -> None:
    def measure(exchanges: Sequence[Exchange]) -> list[UpgradeChange | None]:
        return [None if lost & {*of} else change_of(LOSS if guilty <= {*of} else 1.0) for of in exchanges]

    result = bisect(3, measure, loss=0.2, smallest_effect=0.02)
    assert set(result.guilty) == guilty
    assert (result.outcome is BisectionOutcome.CANNOT_SAY) == (not guilty)
