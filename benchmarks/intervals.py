"""How often the interval of a median covers it, or that of the next launch; and what the stopping rule costs.

    nice -n 19 python -m benchmarks.intervals [--series 300]

Shapes of noise stand for the iterations of a launch (all but those that are about sessions) or for the medians of
sessions; the launches recorded on H200 (docs/results) are real. Halves of a recorded series are two measurements of the
same launch; put in a random order they are two of independent iterations, so that what is lost between the two rows is
what iterations have in common. The interval of one half covers the median of the other in about 83% of the cases where
it covers the true one in 95%, as that median has an error of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.launch_noise import values
from benchmarks.noise import RESULTS, SHAPES, Shape, autocorrelated
from fabricheck.statistics.constants import BATCHES
from fabricheck.statistics.iterations import correlation_time, median_interval
from fabricheck.statistics.robust import centre_and_spread, prediction_factor

Floats = npt.NDArray[np.float64]

RECORDED = ("launches-4-gpus", "launches-4-gpus-b", "launches-1-gpu")
OF_SESSIONS = ("weekly", "common factor 70%")
AR_09 = Shape("AR 0.9", autocorrelated(0.9))
STRETCHES = ((5, 0.3), (20, 0.3), (50, 0.4))  # iterations of a slow stretch on the average, and the share of slow ones


def slow_stretches(length: int, share: float) -> Shape:
    """A second mode eight spreads away, which lasts; fast stretches last so long that this share of all is slow."""

    def make(rng: np.random.Generator, metrics: int, sessions: int) -> Floats:
        ends, begins = 1 / length, share / (1 - share) / length
        slow, values = rng.random(metrics) < share, rng.standard_normal((metrics, sessions))
        for session in range(sessions):
            slow = rng.random(metrics) < np.where(slow, 1 - ends, begins)
            values[:, session] += 8 * slow
        return values

    return Shape(f"slow stretches of {length}, {share:.0%}", make)


WITHIN = (
    *(each for each in SHAPES if each.name not in OF_SESSIONS),
    AR_09,
    *(slow_stretches(*each) for each in STRETCHES),
)
LENGTHS = (40, 100, 400, 1000)
KNOWN = (8, 20)  # launches
# As in src/fabricbench/measure.cpp: half the interval over the median, iterations first, and at most.
WANTED, FIRST, MOST = 0.01, 100, 1000
LEAST_CORRELATION_TIMES = 50  # as in src/fabricbench/statistics.cpp


def covers(series: Iterable[Floats], truths: Iterable[float], *, in_order: bool) -> float:
    """How often the 95% interval of each series holds the truth of it."""
    bounds = (median_interval(each, in_order=in_order) for each in series)
    return float(np.mean([low <= truth <= high for (low, high), truth in zip(bounds, truths, strict=True)]))


def print_shapes(number: int) -> None:
    print("| noise of iterations |", *(f"{length}, independent | {length}, batches |" for length in LENGTHS))
    print("|---|" + "---|---|" * len(LENGTHS))
    for shape in WITHIN:
        rng = np.random.default_rng(1)
        truth = float(np.median(shape.make(rng, 2000, 700)))
        cells = []
        for length in LENGTHS:
            series = list(shape.make(rng, number, length))
            cells += [f"{covers(series, [truth] * number, in_order=batches):.0%}" for batches in (False, True)]
        print("|", shape.name, "|", " | ".join(cells), "|", flush=True)


def recorded(archive: str) -> list[tuple[float, list[Floats]]]:
    """Bytes and the launches of each metric that every launch has; values in the unit of the metric, in order."""
    count, values_by_key = values(RESULTS / "h200-2026-11-22" / f"{archive}.tar.xz")
    chosen = [(key[2], launches) for key, metrics in values_by_key.items() for launches in metrics.values()]
    return [(size, launches) for size, launches in chosen if len(launches) == count]


def print_halves(archive: str, number: int) -> None:
    rng = np.random.default_rng(2)
    series = [each for _, launches in recorded(archive) for each in launches if each.size >= 4 * BATCHES]
    series = [series[place] for place in rng.permutation(len(series))[:number]]
    for order, told in ((lambda each: each, "as recorded"), (rng.permutation, "in a random order")):
        halves = [np.array_split(order(each), 2) for each in series]
        both = [*halves, *([other, one] for one, other in halves)]
        medians = [float(np.median(other)) for _, other in both]
        cells = [f"{covers([one for one, _ in both], medians, in_order=batches):.0%}" for batches in (False, True)]
        print("|", " | ".join([f"{archive}, {told}", str(len(series)), *cells]), "|", flush=True)


def share_predicted(medians: Floats, known: int) -> float:
    """How often the prediction interval of the medians of `known` launches holds each of the others'; medians are
    logarithms, shape (metrics, launches)."""
    levels = centre_and_spread(medians[:, :known])
    away = np.abs(medians[:, known:] - levels.centre[:, None])
    return float(np.mean(away <= prediction_factor(known, 0.025) * levels.spread[:, None]))


def print_next_launch(archive: str) -> None:
    """Of one launch's interval, and of the prediction interval of several launches' medians, for one launch more."""
    chosen = [launches for _, launches in recorded(archive)]
    medians = np.log([[np.median(each) for each in launches] for launches in chosen])
    cells = []
    for batches in (False, True):
        held = []
        for launches in chosen:
            middles = [float(np.median(each)) for each in launches]
            held += [covers([one] * len(launches), middles, in_order=batches) for one in launches[:10]]
        cells.append(f"{np.mean(held):.0%}")
    orders = [np.random.default_rng(seed).permutation(medians.shape[1]) for seed in range(10)]
    for known in KNOWN:
        cells.append(f"{np.mean([share_predicted(medians[:, order], known) for order in orders]):.0%}")
    print("|", " | ".join([archive, str(len(chosen)), *cells]), "|", flush=True)


def print_next_session(shape: Shape, number: int) -> None:
    """As for launches, of a metric that varies so from session to session: the next ten after those that are known."""
    medians = 0.02 * shape.make(np.random.default_rng(4), number, KNOWN[-1] + 10)
    cells = [f"{share_predicted(medians[:, KNOWN[-1] - known :], known):.0%}" for known in KNOWN]
    print("|", " | ".join([shape.name, str(number), "", "", *cells]), "|", flush=True)


def is_known(series: Floats, *, in_order: bool, long_enough: bool = True) -> bool:
    """Whether the stopping rule takes the median for known to ±1%; `long_enough`: with the rule for the length."""
    low, high = median_interval(series, in_order=in_order)
    if (high - low) / 2 > WANTED * np.median(series):
        return False
    return not long_enough or series.size >= LEAST_CORRELATION_TIMES * correlation_time(series)


def iterations(series: Floats, *, in_order: bool, long_enough: bool = True) -> int:
    """After how many iterations the median is known to ±1%, asked each time that there are twice as many."""
    count = FIRST
    while count < MOST and not is_known(series[:count], in_order=in_order, long_enough=long_enough):
        count *= 2
    return min(count, MOST)


def stopped(series: Sequence[Floats]) -> list[str]:
    """Iterations on the average, by the rule for independent ones and by batches."""
    counts = [[iterations(each, in_order=batches) for each in series] for batches in (False, True)]
    known = [
        np.mean(
            [
                abs(np.median(each[:count]) / np.median(each) - 1) <= WANTED
                for each, count in zip(series, of, strict=True)
            ]
        )
        for of in counts
    ]
    return [str(len(series)), *(f"{np.mean(of):.0f}" for of in counts), *(f"{share:.0%}" for share in known)]


def print_stopping(archive: str, number: int) -> None:
    """Series that are long enough: launches of a metric one after the other, with equal medians."""
    rng = np.random.default_rng(3)
    series = []
    for _, launches in recorded(archive):
        if min(each.size for each in launches) < FIRST:
            continue  # those stop when their time is spent
        for _ in range(max(number // 100, 1)):
            order = rng.permutation(len(launches))
            series.append(np.concatenate([launches[place] / np.median(launches[place]) for place in order])[:MOST])
    print("|", " | ".join([archive, *stopped(series)[:3], "", ""]), "|", flush=True)


def print_stopping_of_shape(shape: Shape, number: int) -> None:
    """Of iterations with a spread of 2%, whose median is 1."""
    series = shape.make(np.random.default_rng(5), number, 20 * MOST)
    series -= np.median(series, axis=1, keepdims=True)
    print("|", " | ".join([f"{shape.name}, spread 2%", *stopped(list(1 + 0.02 * series))]), "|", flush=True)


def print_converged(shape: Shape, number: int) -> None:
    """Of iterations with a spread of 2%, whose median is 1: how often a series ends as converged, and how often its
    interval then holds the median."""
    series = shape.make(np.random.default_rng(7), number, 20 * MOST)
    series -= np.median(series, axis=1, keepdims=True)
    cells = []
    for long_enough in (False, True):
        ended = [each[: iterations(each, in_order=True, long_enough=long_enough)] for each in 1 + 0.02 * series]
        known = [each for each in ended if is_known(each, in_order=True, long_enough=long_enough)]
        held = covers(known, [1.0] * len(known), in_order=True) if known else float("nan")
        cells += [f"{len(known) / number:.0%}", f"{np.mean([each.size for each in ended]):.0f}", f"{held:.0%}"]
    print("|", shape.name, "|", " | ".join(cells), "|", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=300, help="of each kind")
    number = parser.parse_args().series
    print("## The median of the same launch: 95% is promised\n")
    print_shapes(number)
    print("\n## Halves of recorded launches: 83% where iterations are independent\n")
    print("| launches | series | independent | batches |\n|---|---|---|---|")
    for archive in RECORDED:
        print_halves(archive, number)
    print("\n## The median of another launch\n")
    head = (
        "launches",
        "metrics",
        "one launch, independent",
        "one launch, batches",
        "prediction of 8 launches",
        "of 20",
    )
    print("|", " | ".join(head), "|\n" + "|---" * len(head) + "|")
    for archive in RECORDED:
        print_next_launch(archive)
    for shape in SHAPES:
        print_next_session(shape, number)
    print("\n## Iterations until the median is known to 1%, and how often it then is\n")
    head = ("launches", "series", "independent", "batches", "known, independent", "known, batches")
    print("|", " | ".join(head), "|\n" + "|---" * len(head) + "|")
    for archive in RECORDED:
        print_stopping(archive, number)
    for shape in (SHAPES[0], SHAPES[6], AR_09, SHAPES[7]):
        print_stopping_of_shape(shape, min(number, 100))
    print("\n## Converged: how often, after how many iterations, and whether the interval holds the median\n")
    columns = ("iterations", "converged", "iterations", "holds", "with 50 correlation times", "iterations", "holds")
    print("|", " | ".join(columns), "|\n" + "|---" * len(columns) + "|")
    for correlation in (0.0, 0.5, 0.9, 0.98):
        print_converged(Shape(f"AR {correlation}", autocorrelated(correlation)), number)
    for stretches in STRETCHES:
        print_converged(slow_stretches(*stretches), number)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
