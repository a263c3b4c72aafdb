"""What compare and watch see at what noise: false alarms and power, on ten shapes and on recorded launches.

    nice -n 19 python -m benchmarks.regression --output output/history.md

Every row has a seed of its own and is kept in OUTPUT.rows.json when it is done, so that a run that was stopped goes on
where it was; another seed or size begins anew. An oracle knows the distribution of the noise: a CUSUM of the
log likelihood ratio of this very loss, with the same rate of false alarms (Moustakides, Annals of Statistics 14, 1986:
no other is quicker in the mean where sessions are independent). A month is 30,000 values: 1,000 metrics, one session
a day.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, chi2

from benchmarks.noise import ALL, SHAPES, Shape, beneath, jumps
from fabricheck.statistics.monitor import Monitored, monitor
from fabricheck.statistics.shift_test import BASE, CANDIDATE, EARLIER, CompareOptions, shift_test

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

MONTH = 30_000
VARIATION = 0.02
BEFORE = 200  # sessions before a loss
# What an oracle knows of shapes whose sessions or metrics have something in common: the correlation of neighbours, and
# the share of the variance that is the day's of the week or the session's.
CORRELATIONS = {"AR 0.5": 0.5, "AR 0.98": 0.98}
COMMON = {"weekly": 0.5, "common factor 70%": 0.7}


@dataclass(frozen=True)
class Sizes:
    seed: int
    metrics: int
    sessions: int
    comparisons: int
    systems: int


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    head: tuple[str, ...]
    rows: dict[str, Callable[[Generator, Sizes], list[str]]]


class Report:
    """Markdown; what rows gave lies beside it, as JSON, by table and row."""

    def __init__(self, output: Path, sizes: Sizes) -> None:
        self.output, self.sizes = output, sizes
        self.kept = output.with_name(output.name + ".rows.json")
        known = json.loads(self.kept.read_text(encoding="utf-8")) if self.kept.exists() else {}
        self.rows: dict[str, list[str]] = known.get("rows", {}) if known.get("sizes") == vars(sizes) else {}

    def run(self, tables: Sequence[Table], chosen: Sequence[str], only: str) -> None:
        for table in tables:
            for name, measure in table.rows.items():
                key = f"{table.title}: {name}"
                if key not in self.rows and (not chosen or table.title in chosen) and only in name:
                    rng = np.random.default_rng([self.sizes.seed, crc32(key.encode())])
                    self.rows[key] = measure(rng, self.sizes)
                    print(key, *self.rows[key], sep=" | ", file=sys.stderr, flush=True)
                    self._write(tables)
        self._write(tables)

    def _write(self, tables: Sequence[Table]) -> None:
        self.kept.write_text(json.dumps({"sizes": vars(self.sizes), "rows": self.rows}, indent=1), encoding="utf-8")
        given = " ".join(f"--{name} {value}" for name, value in vars(self.sizes).items())
        machine = f"{datetime.now(timezone.utc):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()})"
        lines = ["# Benchmark of the regression statistics", "", f"`python -m benchmarks.regression {given}`", ""]
        lines += [f"{machine}; Python {platform.python_version()}, NumPy {np.__version__}.", ""]
        for table in tables:
            done = {name: self.rows.get(f"{table.title}: {name}") for name in table.rows}
            if not any(done.values()):
                continue
            lines += [f"## {table.title}", "", table.note, "", f"| {' | '.join(table.head)} |"]
            lines += ["|" + "---|" * len(table.head)]
            lines += [f"| {' | '.join([name, *cells])} |" for name, cells in done.items() if cells]
            lines.append("")
        self.output.write_text("\n".join(lines), encoding="utf-8")


def rate(nights: Sequence[int], exposure: float) -> str:
    """A rate with its 95% interval: exact for a Poisson process of nights (Garwood, 1936), of which some have several
    incidents, whose variance is the sum of the squares of those of a night (compound Poisson)."""
    count = sum(nights)
    alike = sum(number**2 for number in nights) / count if count else 1.0
    low = chi2.ppf(0.025, 2 * count / alike) / 2 * alike if count else 0.0
    high = chi2.ppf(0.975, 2 * count / alike + 2) / 2 * alike
    return f"{count / exposure:.2f} ({low / exposure:.2f}-{high / exposure:.2f})"


def share(count: int, number: int, digits: int = 0) -> str:
    low, high = binomtest(count, number).proportion_ci(0.95, method="exact")
    return f"{count / number:.{digits}%} ({low:.{digits}%}-{high:.{digits}%})"


# watch


def missing_nights(make: Callable[[Generator, int, int], Floats]) -> Callable[[Generator, int, int], Floats]:
    def made(rng: Generator, metrics: int, sessions: int) -> Floats:
        noise = make(rng, metrics, sessions)
        noise[rng.random(noise.shape) < 0.3] = np.nan
        return noise

    return made


def random_nodes(rng: Generator, metrics: int, sessions: int) -> Floats:
    """Each session on one of eight nodes, which differ by as much as the sessions of one do."""
    nodes = rng.standard_normal((metrics, 8))
    noise = rng.standard_normal((metrics, sessions))
    noise += np.take_along_axis(nodes, rng.integers(8, size=noise.shape), axis=1)
    return np.asarray(noise / np.sqrt(2))


def maintenance(rng: Generator, metrics: int, sessions: int) -> Floats:
    """On 2% of the nights everything is slower, by 5 to 30 spreads."""
    slow = (rng.random((1, sessions)) < 0.02) * rng.uniform(5, 30, (1, sessions))
    return np.asarray(rng.standard_normal((metrics, sessions)) + slow)


GAUSSIAN = SHAPES[0]
WATCHED = (
    *ALL,
    Shape("Gaussian, 30% of the nights missing", missing_nights(GAUSSIAN.make)),
    Shape("Gaussian, random nodes", random_nodes),
    Shape("Gaussian, 2% of the nights slow as a whole", maintenance),
)


def first_alerts(monitored: Monitored, metrics: int, onset: int) -> Floats:
    """Sessions from the onset to the first alert of each of the first `metrics`; endless where none came, NaN where
    one came before."""
    sessions = np.full(metrics, np.inf)
    for alert in monitored.alerts:
        if alert.metric < metrics:
            sessions[alert.metric] = np.fmin(sessions[alert.metric], alert.session - onset + 1)
    return np.where(sessions <= 0, np.nan, sessions)


def watched(shape: Shape) -> Callable[[Generator, Sizes], list[str]]:
    def row(rng: Generator, sizes: Sizes) -> list[str]:
        months, whole, nights = 0.0, 0, Counter[tuple[int, int]]()
        for system in range(sizes.systems):
            quiet = monitor(VARIATION * shape.make(rng, sizes.metrics, sizes.sessions))
            months += int(quiet.watched_sessions.sum()) / MONTH
            single = [(system, each.session) for each in quiet.alerts if each.metric < sizes.metrics]
            nights.update(single)
            whole += len(quiet.alerts) - len(single)
        cells = [rate(list(nights.values()), months), str(len(nights)), str(whole)]
        lossy = sizes.metrics // 5
        for spreads in (3.5, 5.0):
            firsts = []
            for _ in range(max(sizes.systems // 4, 1)):
                values = shape.make(rng, sizes.metrics, BEFORE + 15)
                values[:lossy, BEFORE:] += spreads
                firsts.append(first_alerts(monitor(VARIATION * values), lossy, BEFORE))
            sessions = np.concatenate(firsts)
            sessions = sessions[~np.isnan(sessions)]
            cells.append(share(int((sessions <= 3).sum()), sessions.size))
            cells.append(f"{np.median(sessions):.0f}" if np.median(sessions) < np.inf else "none in 15")
        return cells

    return row


def foreseen(shape: Shape) -> Callable[[Generator, Sizes], list[str]]:
    def row(rng: Generator, sizes: Sizes) -> list[str]:
        del sizes
        known = COMMON.get(shape.name)
        if known is None:
            return [f"{oracle(shape, rng, loss):.0%}" for loss in (3.5, 5.0)]
        return [f"{oracle(GAUSSIAN, rng, loss / np.sqrt(1 - known)):.0%}" for loss in (3.5, 5.0)]

    return row


def oracle(shape: Shape, rng: Generator, loss: float, metrics: int = 142) -> float:
    """How often a CUSUM that knows the noise finds a loss within three sessions, at one false alarm in 30,000.

    Of a loss that begins in a session its log likelihood ratio is that of the first session and those of the next ones,
    which differ where neighbours are correlated.
    """
    sessions = 4000
    correlation = CORRELATIONS.get(shape.name)
    steps = steps_of_innovations(correlation, loss) if correlation else steps_of_values(shape, rng, loss, metrics)

    def alerts(first: Floats, later: Floats, threshold: float) -> npt.NDArray[np.bool_]:
        sums, alerted = np.full(len(first), -np.inf), np.zeros(first.shape, dtype=np.bool_)
        for session in range(first.shape[1]):
            sums = np.maximum(first[:, session], sums + later[:, session])
            alerted[:, session] = sums > threshold
            sums[alerted[:, session]] = -np.inf
        return alerted

    quiet = steps(shape.make(rng, metrics, sessions))
    low, high = 0.0, 40.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if alerts(*quiet, middle).sum() > quiet[0].size / MONTH else (low, middle)
    shares = []
    for _ in range(10):
        values = shape.make(rng, metrics, 33)
        values[:, 30:] += loss
        shares.append(alerts(*steps(values), high)[:, 30:].any(axis=1).mean())
    return float(np.mean(shares))


Steps = Callable[[Floats], tuple[Floats, Floats]]


def steps_of_values(shape: Shape, rng: Generator, loss: float, metrics: int, width: float = 0.1) -> Steps:
    """Log likelihood ratio of a loss over none by the distribution of all metrics together; 0 of what is missing."""
    drawn = shape.make(rng, metrics, 4000)
    first, bins, moved = int(-15 / width), int(60 / width), round(loss / width)

    def places(values: Floats) -> npt.NDArray[np.int64]:
        return np.clip(np.floor(values / width).astype(np.int64) - first, 0, bins - 1)

    density = np.bincount(places(drawn[~np.isnan(drawn)]), minlength=bins) + 0.5
    table = np.log(np.concatenate([np.full(moved, 0.5), density[:-moved]]) / density)

    def steps(values: Floats) -> tuple[Floats, Floats]:
        ratio = np.where(np.isnan(values), 0.0, table[places(np.nan_to_num(values))])
        return ratio, ratio

    return steps


def steps_of_innovations(correlation: float, loss: float) -> Steps:
    """The same of a normal process of first order, which the first session of a loss departs from by all of it and each
    next one by what the process does not expect of its neighbour."""

    def steps(values: Floats) -> tuple[Floats, Floats]:
        innovations = np.zeros_like(values)
        innovations[:, 1:] = values[:, 1:] - correlation * values[:, :-1]
        first, later = loss, loss * (1 - correlation)
        variance = 1 - correlation**2
        return first * (innovations - first / 2) / variance, later * (innovations - later / 2) / variance

    return steps


def events(name: str) -> Callable[[Generator, Sizes], list[str]]:
    """What happens once, on 20 systems of 200 metrics."""

    def row(rng: Generator, sizes: Sizes) -> list[str]:
        del sizes
        alerts, others, nights, told = 0, 0, [], 0
        for _ in range(20):
            values = VARIATION * rng.standard_normal((200, 290))
            lossy: Sequence[int] = (0,)
            if name.startswith("whole system"):
                values[:20] *= 0.1  # some are quiet
                values[:, 230:232] += 0.03
                lossy = (200,)
            elif name.startswith("a quiet metric"):
                values *= 0.0003 / VARIATION
                values[0, 230:] += 0.02
            elif name.startswith("+8%"):
                values[0, 230:] -= 0.08
                values[0, 270:] += 0.08
            else:
                values[0, 230:] += 0.25
                values[0, 260:] += 0.4
            monitored = monitor(values)
            late = [each for each in monitored.alerts if each.session >= 230]
            mine = [each for each in late if each.metric in lossy]
            alerts += len(mine)
            others += len(late) - len(mine)
            nights += [each.session - 229 for each in mine[:1]]
            told += sum(each.metric in lossy for each in monitored.improvements)
        return [f"{alerts / 20:.2f}", f"{others / 20:.2f}", f"{np.median(nights):.0f}" if nights else "none",
                f"{told / 20:.2f}"]  # fmt: skip

    return row


# compare

COMPARED = (
    *ALL,
    Shape("AR 0.7 that jumps (t3)", jumps),
    *(Shape(f"AR {each}, 50% white", beneath(each, 0.5)) for each in (0.9, 0.98)),
)
CASES = ((1, 1, 60), (3, 3, 60), (5, 5, 60), (20, 20, 60), (20, 3, 60), (20, 1, 60), (3, 3, 0), (5, 5, 0), (20, 20, 0))


def compared(shape: Shape) -> Callable[[Generator, Sizes], list[str]]:
    def row(rng: Generator, sizes: Sizes) -> list[str]:
        cells, wrong = [], 0
        for base, candidate, earlier in CASES:
            side = np.repeat([EARLIER, BASE, CANDIDATE], [earlier, base, candidate])
            called = 0
            for _ in range(sizes.comparisons):
                values = VARIATION * shape.make(rng, 100, side.size)
                tested = shift_test(values, side, CompareOptions())
                called += bool(tested.worse.any() or tested.better.any())
            cells.append(f"{called / sizes.comparisons:.1%}")
            wrong += called
        number = sizes.comparisons * len(CASES)
        return [*cells, share(wrong, number)]

    return row


def found_by_compare(shape: Shape) -> Callable[[Generator, Sizes], list[str]]:
    def row(rng: Generator, sizes: Sizes) -> list[str]:
        cells = []
        for base, candidate, earlier in CASES[1:5]:
            side = np.repeat([EARLIER, BASE, CANDIDATE], [earlier, base, candidate])
            shares, known, covered = [], [], []
            for _ in range(max(sizes.comparisons // 5, 2)):
                values = VARIATION * shape.make(rng, 100, side.size)
                values[:10, side == CANDIDATE] += 2.5 * VARIATION
                tested = shift_test(values, side, CompareOptions())
                shares.append(tested.worse[:10].mean())
                known.append(np.median(tested.smallest[10:]))
                covered.append(np.mean(np.abs(tested.shift[10:]) <= 2 * tested.error[10:]))
            cells.append(f"{np.mean(shares):.0%}; {np.median(known):.1%}")
        return cells

    return row


EVENTS = (
    "whole system 3% slower for two nights",
    "a quiet metric (0.03%) loses 2%",
    "+8% that stays, and is lost 40 nights later",
    "-22%, and another 33% while that is open",
)


def tables() -> tuple[Table, ...]:
    sides = tuple(f"{base} against {candidate}, {earlier} before" for base, candidate, earlier in CASES)
    return (
        Table(
            "watch",
            "Healthy metrics from their first session on; none shares a component with another, so each alert is an "
            "incident; those of the whole system, which is one metric more, are counted apart. Then a fifth of the "
            "metrics loses that many standard deviations after 200 sessions.",
            ("noise", "incidents a month and 1,000 metrics (95% interval)", "nights with one", "of the whole system",
             "3.5: found in 3 nights", "median nights", "5: found in 3 nights", "median nights"),
            {each.name: watched(each) for each in WATCHED},
        ),
        Table(
            "watch: events",
            "20 systems of 200 Gaussian metrics each, with a standard deviation of 2% where nothing else is said; the "
            "event after 230 nights. Alerts of what it happened to (the whole system as one metric, or one of 200), "
            "alerts of all others in the 60 nights from then on, nights to the first, and improvements announced.",
            ("event", "alerts", "of others", "median nights", "improvements announced"),
            {each: events(each) for each in EVENTS},
        ),
        Table(
            "compare: false calls",
            "Comparisons of 100 healthy metrics in which anything is called regressed or improved, at 1% false "
            "discovery each; sessions follow each other.",
            ("noise", *sides, "together (95% interval)"),
            {each.name: compared(each) for each in COMPARED},
        ),
        Table(
            "compare: power",
            "A tenth of 100 metrics loses 5%, two and a half standard deviations: how many are called regressed, and "
            "the smallest loss that compare says it would have shown.",
            ("noise", *sides[1:5]),
            {each.name: found_by_compare(each) for each in COMPARED},
        ),
        Table(
            "watch: an oracle",
            "How often a loss of so many standard deviations is found within three nights by a test that knows the "
            "distribution of the noise (of recorded launches: that of all metrics together), the correlation of "
            "neighbours, the days of the week and what is common to all, at one false alarm a month and 1,000 metrics.",
            ("noise", "3.5: found in 3 nights", "5: found in 3 nights"),
            {each.name: foreseen(each) for each in WATCHED if "slow as a whole" not in each.name},
        ),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="Markdown file to write")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--metrics", type=int, default=500, help="that are watched")
    parser.add_argument("--sessions", type=int, default=430, help="that they are watched for")
    parser.add_argument("--comparisons", type=int, default=60, help="of each noise and case")
    parser.add_argument("--systems", type=int, default=1, help="that are watched, of each noise")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TITLE", help="only these tables")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name holds this")
    arguments = parser.parse_args()
    known = tables()
    unknown = [each for each in arguments.tables if each not in {table.title for table in known}]
    if unknown:
        parser.error(f"no table {unknown[0]!r}: give {', '.join(repr(each.title) for each in known)}")
    sizes = Sizes(arguments.seed, arguments.metrics, arguments.sessions, arguments.comparisons, arguments.systems)
    Report(arguments.output, sizes).run(known, arguments.tables, arguments.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
