"""How often the bounds of `fabricheck calibrate` call a healthy session DEGRADED, and how wide they are.

    python -m benchmarks.calibration                 # simulated sessions of 1,000 metrics
    python -m benchmarks.calibration ARCHIVE ...     # recorded launches: some calibrate, the others are held to it
    python -m benchmarks.calibration --levels        # which levels are said to wander

Simulated metrics are in kinds of ten that vary alike, as the pairs of a node do, by 0.1% to 5% from run to run. A run
is beyond its bound where its median is; the judge, which excuses noise inside a run, is less often red.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.launch_noise import launches
from benchmarks.noise import SHAPES, autocorrelated, beneath
from fabricheck.history.calibrate import ALONE, MANY_METRICS
from fabricheck.records.metrics import metrics_of
from fabricheck.results.fabricbench import read_run
from fabricheck.statistics.constants import FALSE_ALARM, FEWEST, YEAR
from fabricheck.statistics.levels import persistence_of
from fabricheck.statistics.robust import LOST_FREEDOM, centre_and_spread
from fabricheck.statistics.spread import moderate
from fabricheck.statistics.tails import deviations_of, joined_tail

_LEAST_SPREAD, _WIDEST = 0.001, np.log(2)
KINDS = ("normal", "heavy-tailed", "with dips", "autocorrelated", "common")
Floats = np.ndarray


def runs_of(kind: str, rng: np.random.Generator, metrics: int, runs: int) -> Floats:
    """Healthy runs, shape (metrics, runs), in spreads; more is worse."""
    if kind == "heavy-tailed":
        return rng.standard_t(4, (metrics, runs))
    values = rng.standard_normal((metrics, runs))
    if kind == "with dips":  # one value in 500 is far worse
        values += 8 * (rng.random((metrics, runs)) < 0.002)
    if kind == "autocorrelated":
        for place in range(1, runs):
            values[:, place] = 0.5 * values[:, place - 1] + np.sqrt(0.75) * values[:, place]
    if kind == "common":  # 70% of the variance is that of the run
        values = np.sqrt(0.7) * rng.standard_normal((1, runs)) + np.sqrt(0.3) * values
    return values


@dataclass(frozen=True, eq=False)
class Bounds:
    """References as `calibrate` makes them: `centre` and `reach` of each metric, logarithms, a reach NaN where it
    refuses; `deviations` of each run from the others, in spreads, shape (metrics, runs); `factors`: by unit, spreads to
    a bound."""

    centre: Floats
    reach: Floats
    deviations: Floats
    factors: Mapping[str, float]


def bounds(values: Floats, kinds: Floats, units: Floats, false_alarms: float) -> Bounds:
    """Those of `values`, shape (metrics, runs), logarithms, more is worse; `kinds` and `units`: those of each metric.

    ALONE of the false alarms are for metrics alone.
    """
    runs = values.shape[1]
    levels = centre_and_spread(values)
    own = np.maximum(levels.spread, _LEAST_SPREAD)
    wider, lasting = np.ones(len(values)), np.zeros(len(values), dtype=bool)
    for kind in np.unique(kinds):
        noise = persistence_of(values[kinds == kind])
        wider[kinds == kind] = np.nan if noise.wanders else noise.widening
        lasting[kinds == kind] = noise.lasts
    freedom = np.full(len(values), runs - LOST_FREEDOM)
    known = moderate(freedom * own**2, freedom, kinds, independent=runs - 1.0)
    deviations = np.array([deviations_of(row, known.prior, number) for number, row in enumerate(values)])
    factors = {}
    reach, number = np.full(len(values), np.nan), np.full(len(values), runs)
    for unit in np.unique(units):
        chosen = units == unit
        rows = deviations[chosen & np.isfinite(wider)]
        tail = joined_tail(list(rows), [np.arange(runs)] * len(rows))
        share = ALONE / max(MANY_METRICS, len(values))
        once = factor = tail.factor(share * min(false_alarms, FALSE_ALARM), number, known.freedom)
        if false_alarms > FALSE_ALARM:
            factor = tail.factor_of_voted(share * false_alarms, ALONE * false_alarms, number, known.freedom)
        factors[str(unit)] = float(np.median(factor[chosen]))
        reach[chosen] = (np.where(lasting, once, factor) * np.sqrt(known.variance) * wider)[chosen]
    return Bounds(levels.centre, np.where(reach > _WIDEST, np.nan, reach), deviations, factors)


def print_simulated(false_alarms: float, systems: int, sessions: int) -> None:
    print("| noise | runs | sessions DEGRADED | bound, in spreads |\n|---|---|---|---|")
    kinds = np.repeat(np.arange(MANY_METRICS // 10), 10)
    units = kinds % 2
    for kind in KINDS:
        for runs in (FEWEST, 11, 20, 40):
            red, widths = [], []
            for seed in range(systems):
                rng = np.random.default_rng(seed)
                scale = np.exp(rng.uniform(np.log(0.001), np.log(0.05), kinds.max() + 1))[kinds][:, None]
                values = scale * runs_of(kind, rng, MANY_METRICS, runs + sessions)
                limits = bounds(values[:, :runs], kinds, units, false_alarms)
                red.append(np.mean((values[:, runs:] > (limits.centre + limits.reach)[:, None]).any(axis=0)))
                widths.append(float(np.nanmedian(limits.reach / scale[:, 0])))
            print(
                f"| {kind} | {runs} | {np.mean(red):.2%} of {systems * sessions:,} | {np.mean(widths):.1f} |",
                flush=True,
            )


def print_levels(calibrations: int) -> None:
    """How often a kind of metrics is said to wander, by how it does; and of the sessions up to the hundredth after
    those that calibrate, and of the last ones of a year, how many are beyond a bound."""
    sizes = [(metrics, runs) for metrics in (12, 56) for runs in (FEWEST, 20, 40)]
    print("| level | " + " | ".join(f"{metrics} metrics, {runs} runs" for metrics, runs in sizes) + " |")
    print("|---" * (len(sizes) + 1) + "|")
    noise = SHAPES[0].make

    def walk(step: float) -> Callable[[np.random.Generator, int, int], Floats]:
        return lambda *given: step * np.cumsum(noise(*given), axis=1) + noise(*given)

    makers: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
        **{shape.name: shape.make for shape in SHAPES if not shape.name.startswith("AR")},
        **{f"AR {each}": autocorrelated(each) for each in (0.5, 0.7, 0.9, 0.98)},
        **{
            f"AR {each}, {share:.0%} white": beneath(each, share) for each in (0.9, 0.97, 0.995) for share in (0.2, 0.5)
        },
        "random walk": lambda rng, metrics, runs: np.cumsum(rng.standard_normal((metrics, runs)), axis=1),
        **{f"random walk by {step} of the white noise": walk(step) for step in (0.1, 0.2, 0.5, 1.0)},
    }
    for name, make in makers.items():
        cells = []
        for metrics, runs in sizes:
            outcomes = []
            for seed in range(calibrations):
                values = 0.01 * make(np.random.default_rng([seed, metrics, runs]), metrics, runs + YEAR)
                same = np.zeros(metrics, dtype=np.int64)
                limits = bounds(values[:, :runs], same, same, FALSE_ALARM)
                red = (values[:, runs:] > (limits.centre + limits.reach)[:, None]).any(axis=0)
                outcomes.append([np.isnan(limits.reach).mean(), red[:100].mean(), red[-30:].mean()])
            cells.append(", ".join(f"{each:.0%}" for each in np.mean(outcomes, axis=0)))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def recorded(archive: Path) -> tuple[Floats, Floats, Floats]:
    """Values, shape (metrics, launches), with kinds and units, of metrics that every launch has."""
    logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for command, file in launches(archive):
        run = read_run(file)
        for metric in metrics_of(run):
            kind = (command, metric.samples.operation, str(metric.samples.bytes), metric.quantity)
            sign = -1 if metric.quantity == "goodput" else 1
            key = (*kind, str(metric.samples.ranks))
            logs[key].append(sign * float(np.log(metric.value)))
    most = max(map(len, logs.values()))
    kept = {key: values for key, values in logs.items() if len(values) == most}
    names = ["/".join(key[:4]) for key in kept]
    return np.array(list(kept.values())), np.unique(names, return_inverse=True)[1], np.array([key[3] for key in kept])


def print_recorded(archive: Path, false_alarms: float, splits: int) -> Iterator[str]:
    values, kinds, units = recorded(archive)
    for runs in (FEWEST, 11, 20):
        if runs + 3 > values.shape[1]:
            continue
        red, refused = [], []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(values.shape[1])
            limits = bounds(values[:, order[:runs]], kinds, units, false_alarms)
            red.append(np.mean((values[:, order[runs:]] > (limits.centre + limits.reach)[:, None]).any(axis=0)))
            refused.append(int(np.isnan(limits.reach).sum()))
        sizes = f"{len(values)} | {runs} of {values.shape[1]}"
        yield f"| {archive.name} | {sizes} | {np.mean(red):.2%} | {np.mean(refused):.0f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", type=Path)
    parser.add_argument("--false-alarms", type=float, default=0.01)
    parser.add_argument("--systems", type=int, default=20, help="how many simulated systems are calibrated")
    parser.add_argument("--sessions", type=int, default=200, help="simulated sessions of each that are judged")
    parser.add_argument("--levels", action="store_true", help="which levels are said to wander")
    given = parser.parse_args(arguments)
    if given.levels:
        print_levels(given.sessions)
        return 0
    if not given.archives:
        print_simulated(given.false_alarms, given.systems, given.sessions)
        return 0
    print("| launches | metrics | to calibrate | the others DEGRADED | metrics refused |\n|---|---|---|---|---|")
    for archive in given.archives:
        for line in print_recorded(archive, given.false_alarms, given.systems):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
