"""Simulated sessions, healthy and with a slow part, judged by references and by equals, for `benchmarks.drawn`.

A session has nodes of eight GPUs with 56 pairs each, a metric a pair and a launch a node. References are those of
`calibrate`, and metrics are judged by them alone and together with those of the same GPU, link, node and session, as
the judge does; so are equals. What the first launch shows is launched again as often as `fabricheck run` does.

    nice -n 19 python -m benchmarks.sessions --sessions 100  # by equals: metrics that dip by 8% in 1 of 50 launches
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from benchmarks.calibration import bounds
from benchmarks.many_groups import may_be_outliers
from benchmarks.noise import SHAPES, Floats, Shape
from fabricheck.history.calibrate import ALONE
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import (
    MOST_LAUNCHES,
    Chance,
    Launch,
    Sign,
    beyond_chance,
    deciding_launch,
    is_open,
    is_outvoted,
)
from fabricheck.statistics.constants import FALSE_ALARMS, LEAST_LOSS, MOST_OF_METRIC
from fabricheck.statistics.outliers import CrossedParts, Outlier, outliers
from fabricheck.statistics.parts import LAUNCH, PartMetrics, parts_of, scores_of, standardised
from fabricheck.statistics.together import Drawn, together_of
from fabricheck.suite import suite_root
from fabricheck.yardsticks.policy import load_policy

GPUS, RUNS = 8, 20
PAIRS = tuple(itertools.permutations(range(GPUS), 2))
PARTS = [CrossedParts((f"gpu{a}", f"gpu{b}"), (f"gpu{min(a, b)}--gpu{max(a, b)}",)) for a, b in PAIRS]
Flags = npt.NDArray[np.bool_]
#: By test, what is slow, how many metrics that has, and what chance may not explain.
Slow = Mapping[int, tuple[frozenset[str], int, tuple[Sign, ...]]]
#: What is slow, and which pairs have it.
FAULTS = {
    "a GPU, in its 14 pairs": [place for place, pair in enumerate(PAIRS) if 0 in pair],
    "a link, both ways": [place for place, pair in enumerate(PAIRS) if set(pair) == {0, 1}],
    "a link, one way": [PAIRS.index((0, 1))],
}


@dataclass(frozen=True)
class Made:
    """What a session is made of; `slow`: the metrics that lose `loss`."""

    shape: Shape
    metrics: int
    spread: float
    loss: float = 0.0
    slow: tuple[int, ...] = ()


def parts_of_metrics(metrics: int) -> tuple[tuple[PartMetrics, ...], npt.NDArray[np.int64]]:
    """What the metrics cross (node, two GPUs and the link between them), and the launch of each."""
    launch = np.arange(metrics) // len(PAIRS)
    crossed = [
        (f"n{node}", f"n{node}:gpu{a}", f"n{node}:gpu{b}", f"n{node}:gpu{min(a, b)}-gpu{max(a, b)}")
        for node in range(-(-metrics // len(PAIRS)))
        for a, b in PAIRS
    ]
    return parts_of(crossed[:metrics], launch), launch


def launched_again(
    first: Mapping[int, Launch],
    again: Callable[[Sequence[int]], Mapping[int, Launch]],
    metrics: int,
    *,
    most: int = MOST_LAUNCHES,
) -> Mapping[int, Launch]:
    """The launch that counts of each test that is DEGRADED in the `first`, by number, of a session of so many metrics;
    or one that does not and that chance does not explain. `again` launches some once more, `most` times in all, and has
    those that are DEGRADED then."""
    launches = {test: [launch] for test, launch in first.items()}
    for _ in range(1, most):
        chance = Chance.of(metrics, launches.values())
        left = [test for test, each in launches.items() if is_open(each, most, chance)]
        relaunched = again(left) if left else {}
        for test in left:
            launches[test].append(relaunched.get(test, Launch(Verdict.PASS)))
    chance = Chance.of(metrics, launches.values())
    beyond = {test: signs[0][0] - 1 for test, each in launches.items() if (signs := beyond_chance(each, chance))}
    return {
        test: Launch(Verdict.PASS)
        if test not in beyond and is_outvoted(each, chance)
        else each[beyond.get(test, deciding_launch(each))]
        for test, each in launches.items()
    }


def red_in_the_end(sessions: int, metrics: int, slow_in: Callable[[int, Sequence[int] | None], Slow]) -> Flags:
    """By session whether anything stays DEGRADED. `slow_in`: what some tests, or all, show in a launch, by number."""

    def launch(number: int, tests: Sequence[int] | None = None) -> dict[int, Launch]:
        slow = slow_in(number, tests)
        return {
            test: Launch(Verdict.DEGRADED, names, broad, signs, len(PAIRS))
            for test, (names, broad, signs) in slow.items()
        }

    def is_red(numbers: Iterator[int]) -> bool:
        decided = launched_again(launch(next(numbers)), lambda left: launch(next(numbers), left), metrics)
        return any(each.slow for each in decided.values())

    return np.array([is_red(itertools.count(session * MOST_LAUNCHES)) for session in range(sessions)])


def red_by_references(made: Made, values: Floats) -> Iterator[Flags]:
    """By session whether references say DEGRADED, of what is slow where something is: the metrics alone, and with those
    of each part together; of these the first launch, and as often as a run launches. `values` has shape
    (metrics, RUNS + sessions * MOST_LAUNCHES)."""
    parts, launch = parts_of_metrics(made.metrics)
    units = np.zeros(made.metrics, dtype=np.int64)
    limits = bounds(values[:, :RUNS], launch, units, FALSE_ALARMS)
    drawn = [Drawn(one, launch, units, parts) for one in limits.deviations.T]
    together = together_of(drawn, limits.factors, (1 - ALONE) * FALSE_ALARMS, RUNS)
    assert together is not None
    bound, centre = together.bounds["0"], limits.centre
    with np.errstate(invalid="ignore"):
        shares = (values[:, RUNS:] - limits.centre[:, None]) / limits.reach[:, None]
        alone = shares > 1
    meant = np.isin(np.arange(made.metrics), made.slow) if made.slow else np.ones(made.metrics, dtype=bool)
    wanted = np.array([meant[part.metrics].any() for part in parts])
    nodes = int(launch.max()) + 1
    alone &= meant[:, None]

    @cache
    def slow_of(place: int) -> dict[int, tuple[set[str], set[int], list[Sign]]]:
        """Of one launch of all, by node and of what only all nodes show: names, which metrics, and signs."""
        slow: dict[int, tuple[set[str], set[int], list[Sign]]] = {}

        def add(node: int, name: str, metrics: Iterable[int], *signs: Sign) -> None:
            names, own, own_signs = slow.setdefault(node, (set(), set(), []))
            names.add(name)
            own.update(metrics)
            own_signs.extend(signs)

        for metric in np.flatnonzero(alone[:, place]).tolist():
            add(int(launch[metric]), str(metric), [metric])
        launch_values = np.clip(np.clip(shares[:, place], -1, 1) * bound, -MOST_OF_METRIC, MOST_OF_METRIC)
        scores = standardised(*scores_of(launch_values, launch, parts, together.launch), parts, together.parts)
        lost = values[:, RUNS + place] - centre
        for number in np.flatnonzero((scores > together.limit) & wanted).tolist():
            if np.median(lost[parts[number].metrics]) < LEAST_LOSS / 2:
                continue
            of = np.unique(launch[parts[number].metrics])
            name, members = str(parts[number].names), parts[number].metrics
            p = min(1.0, len(parts) * float(ndtr(-scores[number])))
            stands_alone = of.size == 1 and LAUNCH not in parts[number].kinds
            breadth = int((launch_values[members] > np.nanmean(launch_values[members]) / 2).sum())
            signs = [_sign_of([name], p, breadth)] if stands_alone else []
            add(int(of[0]) if of.size == 1 else nodes, name, members.tolist(), *signs)
        return slow

    def slow_in(place: int, tests: Sequence[int] | None) -> Slow:
        slow = slow_of(place)
        return {
            test: (frozenset(names), len(own), tuple(signs))
            for test, (names, own, signs) in slow.items()
            if tests is None or test in tests
        }

    sessions = shares.shape[1] // MOST_LAUNCHES
    yield np.asarray(alone.any(axis=0)[::MOST_LAUNCHES])
    yield np.array([bool(slow_of(session * MOST_LAUNCHES)) for session in range(sessions)])
    yield red_in_the_end(sessions, made.metrics, slow_in)


def red_by_equals(made: Made, values: Floats) -> Iterator[Flags]:
    """The same by equals."""
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    least = policy.spread_of_equals("goodput", "node", True, "one", host_memory=False)
    error = policy.equals_error / max(policy.equals_metrics, made.metrics) / 2 * len(PAIRS)
    nodes = 1 if made.slow else made.metrics // len(PAIRS)
    by_node = values[: nodes * len(PAIRS), RUNS:].reshape(nodes, len(PAIRS), -1)

    def slow_in(place: int, tests: Sequence[int] | None) -> Slow:
        own = by_node[..., place]
        may_be = may_be_outliers(own, np.zeros_like(own), PARTS, least, error)
        slow_nodes = {}
        for node in range(nodes) if tests is None else tests:
            slow = outliers(own[node], np.zeros(len(PAIRS)), PARTS, least, error) if may_be[node] else ()
            members = {member for each in slow for member in each.members}
            if members := members & set(made.slow or members):
                slow_nodes[node] = frozenset(map(str, members)), len(members), tuple(map(_sign, slow))
        return slow_nodes

    sessions = by_node.shape[-1] // MOST_LAUNCHES
    yield np.array([bool(slow_in(session * MOST_LAUNCHES, None)) for session in range(sessions)])
    yield red_in_the_end(sessions, made.metrics, slow_in)


def _sign(outlier: Outlier) -> Sign:
    parts = set[str].intersection(*({*PARTS[member].all} for member in outlier.members))
    return _sign_of(sorted(parts), outlier.p, len(outlier.members))


def _sign_of(parts: Iterable[str], p: float, breadth: int) -> Sign:
    at_fault = tuple(Component(Kind.DEVICE, each) for each in parts)
    return Sign(Finding("slow-part", Verdict.DEGRADED, "", at_fault, p=p), breadth)


Judge = Callable[[Made, Floats], Iterator[Flags]]
JUDGES: Mapping[str, Judge] = {"references": red_by_references, "equals": red_by_equals}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100, help="of each row")
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    print("| metrics | healthy sessions red at first | in the end |", *(f"{name}, 5% |" for name in FAULTS))
    print("|---" * (3 + len(FAULTS)) + "|")
    rng, spread = np.random.default_rng(given.seed), 0.003
    for metrics in (112, 224, 896):
        shares = []
        for slow in ((), *FAULTS.values()):
            shape = (metrics, RUNS + given.sessions * MOST_LAUNCHES)
            values = spread * rng.standard_normal(shape) + 0.08 * (rng.random(shape) < 0.02)
            values[list(slow), RUNS:] += 0.05
            made = Made(SHAPES[0], metrics, spread, 0.05 if slow else 0.0, tuple(slow))
            red = [float(each.mean()) for each in red_by_equals(made, values)]
            shares += red[-1:] if slow else red
        print(f"| {metrics} |", " | ".join(f"{share:.1%}" for share in shares), "|", flush=True)


if __name__ == "__main__":
    main()
