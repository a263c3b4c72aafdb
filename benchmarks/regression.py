"""Measures calibrate, compare and watch on simulated metrics whose truth is known, beside other rules on the same data.

The others: a change of 10% from a perfect reference; the interquartile rule (worse than the third quartile of the last
60 sessions by 1.5 interquartile ranges); and Apache Otava at its defaults (p = 0.001, window 50), in an environment of
its own, which is made in a temporary folder unless --otava names its Python.

    python -m benchmarks.regression --output table.md                         # some minutes
    python -m benchmarks.regression --full --output docs/regression-benchmark.md

One session of one metric is a metric-session; 30,000 of them are a month of 1,000 metrics. With --full each kind of
noise has more than 10^6 metric-sessions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.signal import lfilter
from scipy.stats import binomtest, chi2, norm, t

from fabricheck.history.monitor import Monitored, monitor
from fabricheck.history.robust import centre_and_spread, prediction_factor
from fabricheck.history.series import COLUMNS
from fabricheck.history.shift_test import CompareOptions, discoveries, moderated_test
from fabricheck.history.watch import watch

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

MONTH = 30_000  # metric-sessions of 1,000 metrics
VARIATION = 0.02  # from session to session, relative, where a row does not say otherwise
BASELINE = 60  # sessions that the other rules look back
OTAVA = "apache-otava==0.8.0"

# Runs in Otava's own environment: a matrix of series in, for each the indices of its change points out.
_OTAVA_PROGRAM = """
import json, sys
import numpy as np
from otava.analysis import compute_change_points
series = np.load(sys.argv[1])
found = []
for row in series:
    points, _ = compute_change_points(list(map(float, row)), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    found.append([int(point.index) for point in points])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Null:
    """Noise of a healthy metric: `make(generator, metrics, sessions)` in units of its session-to-session variation."""

    name: str
    make: Callable[[Generator, int, int], Floats]
    asked: bool = True  # one of the kinds that the target names


def gaussian(rng: Generator, metrics: int, sessions: int) -> Floats:
    return rng.standard_normal((metrics, sessions))


def bimodal(share: float, distance: float) -> Callable[[Generator, int, int], Floats]:
    """A share of the sessions in a mode that is worse by `distance` spreads of a mode; scaled to a variance of 1."""

    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        values = rng.standard_normal((metrics, sessions)) + distance * (rng.random((metrics, sessions)) < share)
        return np.asarray(values / np.sqrt(1 + distance**2 * share * (1 - share)))

    return make


def sticky(switch: float, distance: float) -> Callable[[Generator, int, int], Floats]:
    """Two modes of equal weight, of which one lasts for 1/switch sessions on average."""

    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        changes = rng.random((metrics, sessions)) < switch
        mode = (np.cumsum(changes, axis=1) + rng.integers(0, 2, (metrics, 1))) % 2
        return np.asarray((rng.standard_normal((metrics, sessions)) + distance * mode) / np.sqrt(1 + distance**2 / 4))

    return make


def autocorrelated(correlation: float) -> Callable[[Generator, int, int], Floats]:
    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        noise = rng.standard_normal((metrics, sessions + 100)) * np.sqrt(1 - correlation**2)
        return np.asarray(lfilter([1], [1, -correlation], noise, axis=1)[:, 100:])

    return make


def dips(rate: float) -> Callable[[Generator, int, int], Floats]:
    """Single sessions that are worse by 3 to 10 spreads."""

    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        values = rng.standard_normal((metrics, sessions))
        return values + (rng.random(values.shape) < rate) * rng.uniform(3, 10, values.shape)

    return make


def heavy_tailed(freedom: float) -> Callable[[Generator, int, int], Floats]:
    def make(rng: Generator, metrics: int, sessions: int) -> Floats:
        return np.asarray(rng.standard_t(freedom, (metrics, sessions)) / np.sqrt(freedom / (freedom - 2)))

    return make


SIMPLE = (
    Null("Gaussian", gaussian),
    Null("bimodal, worse mode 30% of sessions, 4 spreads away", bimodal(0.3, 4)),
    Null("bimodal, worse mode 15% of sessions, 6 spreads away", bimodal(0.15, 6)),
    Null("autocorrelated, 0.3", autocorrelated(0.3)),
    Null("autocorrelated, 0.6", autocorrelated(0.6)),
    Null("dips on 1% of sessions", dips(0.01)),
    Null("dips on 5% of sessions", dips(0.05)),
    Null("heavy tails, t with 5 degrees of freedom", heavy_tailed(5), asked=False),
)


def mixture(rng: Generator, metrics: int, sessions: int) -> Floats:
    """The same number of metrics of each simple kind."""
    each = metrics // len(SIMPLE)
    return np.concatenate([kind.make(rng, each, sessions) for kind in SIMPLE])


NULLS = (
    *SIMPLE,
    Null("a mixture of all above", mixture),
    Null("two lasting modes, ten sessions on average, 3 spreads apart", sticky(0.1, 3), asked=False),
)


class Report:
    """Markdown, written after each table so that a run that is ended early leaves what it has measured."""

    def __init__(self, output: Path, command: str) -> None:
        self.output = output
        machine = f"{datetime.now(timezone.utc):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()})"
        software = f"Python {platform.python_version()}, NumPy {np.__version__}, {OTAVA.replace('==', ' ')}"
        self.lines = ["# Benchmark of the regression statistics", "", f"`{command}`", "", f"{machine}; {software}.", ""]

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
        self.lines += [f"## {title}", ""]
        if note:
            self.lines += [note, ""]
        self.lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for row in rows:
            self.lines.append(f"| {' | '.join(row)} |")
            print(self.lines[-1], file=sys.stderr, flush=True)
            self.output.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        self.lines.append("")


def otava(python: str, series: Floats) -> list[list[int]]:
    """The change points that Otava finds in each row of `series`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "series.npy"
        np.save(file, series)
        command = [python, "-c", _OTAVA_PROGRAM, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[list[int]] = json.loads(done.stdout)
    return found


def make_otava(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", OTAVA], check=True)
    return python


def interquartile(values: Floats) -> npt.NDArray[np.bool_]:
    """Which sessions after the first BASELINE the interquartile rule flags; shape (metrics, sessions - BASELINE)."""
    flags = []
    for session in range(BASELINE, values.shape[1]):
        low, high = np.quantile(values[:, session - BASELINE : session], [0.25, 0.75], axis=1)
        flags.append(values[:, session] > high + 1.5 * (high - low))
    return np.stack(flags, axis=1)


def poisson(count: int, exposure: float) -> str:
    """A rate with its exact 95% interval (Garwood, 1936)."""
    low = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    high = chi2.ppf(0.975, 2 * count + 2) / 2
    return f"{count / exposure:.2f} ({low / exposure:.2f}-{high / exposure:.2f})"


def false_alarms(report: Report, arguments: argparse.Namespace, python: str) -> None:
    def row(number: int, null: Null) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 1, number])
        values = VARIATION * null.make(rng, arguments.metrics, arguments.sessions)
        found = monitor(values)
        watched = int(found.watched_sessions.sum())
        flagged = interquartile(values[:, : BASELINE + 200])
        ten = 0.05 / VARIATION * values > -np.log(0.9)
        clean = values[: arguments.series, :BASELINE]
        otava_series = sum(bool(points) for points in otava(python, -clean))
        return [
            null.name + ("" if null.asked else " (not asked for)"),
            f"{watched:,}",
            str(len(found.alerts)),
            poisson(len(found.alerts), watched / MONTH),
            f"{ten.mean() * MONTH:,.0f}",
            f"{flagged.mean() * MONTH:,.0f}",
            f"{otava_series / len(clean):.1%}",
        ]

    report.table(
        "False alarms",
        ("null series", "metric-sessions watched", "alerts", "a month and 1,000 metrics (95% interval)",
         "±10% at 5% variation", "interquartile rule", "Otava: clean 60-session series with a change"),
        (row(number, null) for number, null in enumerate(NULLS)),
        f"{arguments.metrics} metrics from their first session on, none shares a component with another, so each alert "
        "is an incident of its own. The other rules: flagged sessions a month and 1,000 metrics.",
    )  # fmt: skip


def first_alerts(found: Monitored, metrics: int, onset: int) -> Floats:
    """Sessions from the onset to the first alert of each metric that had none before it; infinite where none came."""
    sessions = np.full(metrics, np.inf)
    before = np.zeros(metrics, dtype=np.bool_)
    for each in found.alerts:
        if each.session < onset:
            before[each.metric] = True
        else:
            sessions[each.metric] = min(sessions[each.metric], each.session - onset + 1)
    return sessions[~before]


def dropped(rng: Generator, null: Null, metrics: int, onset: int, drop: float) -> Floats:
    values = VARIATION * null.make(rng, metrics, onset + 15)
    values[:, onset:] += drop * VARIATION
    return values


def say_sessions(sessions: Floats) -> str:
    middle = float(np.median(sessions))
    return f"{middle:.0f}" if np.isfinite(middle) else "none"


def power(report: Report, arguments: argparse.Namespace, _: str) -> None:
    cases = [(SIMPLE[0], onset) for onset in (30, 60, 100, 150, 200, 300)]
    cases += [(null, 200) for null in NULLS if null is not SIMPLE[0]]

    def row(number: int, null: Null, onset: int) -> list[str]:
        found = []
        for drop in (3.5, 5.0):
            rng = np.random.default_rng([arguments.seed, 2, number])
            sessions = np.concatenate(
                [
                    first_alerts(monitor(dropped(rng, null, arguments.metrics, onset, drop)), arguments.metrics, onset)
                    for _ in range(arguments.systems if null is SIMPLE[0] else 1)
                ]
            )
            within = int((sessions <= 3).sum())
            interval = binomtest(within, sessions.size).proportion_ci(method="exact")
            share = f"{within / sessions.size:.1%} ({100 * interval.low:.1f}-{100 * interval.high:.1f})"
            found += [share, say_sessions(sessions)]
        return [null.name, str(onset), *found]

    report.table(
        "Power and latency of watch",
        ("noise", "sessions before the drop", "3.5 variations: found in 3 sessions", "median sessions",
         "5 variations: found in 3 sessions", "median sessions"),
        (row(number, *case) for number, case in enumerate(cases)),
        f"{arguments.metrics} metrics drop at once and for good, by that many times their variation between sessions; "
        f"Gaussian ones of {arguments.systems} systems. With the 95% interval.",
    )  # fmt: skip


def power_of_others(report: Report, arguments: argparse.Namespace, python: str) -> None:
    def row(number: int, variation: float, drop: float) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 3, number])
        values = variation * rng.standard_normal((arguments.series, 200 + 15))
        values[:, 200:] -= np.log1p(-drop)
        ours = first_alerts(monitor(values), arguments.series, 200)
        ten = _first(values[:, 200:] > -np.log(0.9))
        quartile = _first(interquartile(values[:, 200 - BASELINE :]))
        theirs = np.full(arguments.series, np.inf)
        for session in range(1, 16):
            open_ = np.flatnonzero(np.isinf(theirs))
            points = otava(python, -values[open_, 200 - BASELINE : 200 + session])
            hit = [any(point >= BASELINE - 5 for point in each) for each in points]
            theirs[open_[np.asarray(hit, dtype=np.bool_)]] = session
        cells = [f"{np.mean(each <= 3):.0%}, {say_sessions(each)}" for each in (ours, ten, quartile, theirs)]
        return [f"{drop:.0%} at {variation:.0%} variation", *cells]

    report.table(
        "The same drops by the other rules",
        ("drop", "watch", "±10%", "interquartile rule", "Otava"),
        (row(number, *each) for number, each in enumerate(((0.02, 0.07), (0.02, 0.08), (0.03, 0.05), (0.02, 0.10)))),
        f"Found within 3 sessions, and the median session of the first finding within 15. {arguments.series} Gaussian "
        f"metrics, 200 sessions before the drop for watch, {BASELINE} for the interquartile rule and Otava, whose "
        "finding counts from 5 sessions before the drop on. ±10% compares with the true value.",
    )


def _first(flags: npt.NDArray[np.bool_]) -> Floats:
    return np.where(flags.any(axis=1), np.argmax(flags, axis=1) + 1.0, np.inf)


def drift(report: Report, arguments: argparse.Namespace, _: str) -> None:
    def row(number: int, variation: float, onset: int) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 4, number])
        values = variation * rng.standard_normal((arguments.metrics, onset + 60))
        values[:, onset:] -= np.log1p(-0.002 * np.arange(1, 61))
        sessions = first_alerts(monitor(values), arguments.metrics, onset)
        return [f"{variation:.0%}", str(onset), f"{np.mean(sessions <= 25):.1%}", f"-{0.2 * np.median(sessions):.1f}%"]

    cases = [(variation, onset) for variation in (0.01, 0.02, 0.03) for onset in (60, 200)]
    report.table(
        "A drift of 0.2% a session",
        ("variation", "sessions before", "found before -5%", "median loss when found"),
        (row(number, *each) for number, each in enumerate(cases)),
    )


def comparisons(report: Report, arguments: argparse.Namespace, _: str) -> None:
    options = CompareOptions()

    def row(number: int, share: float, runs: int, earlier: int, uneven: float) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 5, number])
        shifted = max(1, round(share * arguments.metrics)) if share else 0
        found, known, false, covered = [], [], [], []
        # Without a shift a comparison has false discoveries or has not: that takes more of them.
        for _ in range(arguments.series * (1 if shifted else 5)):
            spread = VARIATION * np.exp(uneven * rng.standard_normal((arguments.metrics, 1)))
            base, candidate, before = (
                spread * rng.standard_normal((arguments.metrics, number)) for number in (runs, runs, earlier)
            )
            truth = np.zeros(arguments.metrics)
            # The shift is 2.5 variations for each metric: 5% where the variation is 2%.
            truth[:shifted] = -np.log(0.95) * spread[:shifted, 0] / VARIATION
            tested = moderated_test(base, candidate + truth[:, None], before, options)
            called = int(tested.worse.sum() + tested.better.sum())
            found.append(tested.worse[:shifted].mean() if shifted else np.nan)
            z = ((candidate.mean(axis=1) - base.mean(axis=1) + truth) / spread[:, 0]) * np.sqrt(runs / 2)
            known.append(discoveries(norm.sf(z), options.false_discovery)[0][:shifted].mean() if shifted else np.nan)
            false.append((called - int(tested.worse[:shifted].sum())) / max(called, 1))
            reach = t.ppf(0.975, tested.freedom) * tested.error
            covered.append(np.mean(np.abs(tested.shift - truth) <= reach))
        return [
            f"{shifted}", str(runs), str(earlier), "equal" if uneven == 0 else "uneven",
            f"{np.mean(found):.1%}" if shifted else "",
            f"{np.mean(known):.1%}" if shifted else "",
            f"{np.mean(false):.2%}", f"{np.mean(covered):.2%}",
        ]  # fmt: skip

    cases = [(0.0, 5, 60, 0.0), (0.0, 5, 60, 1.0)]
    cases += [(share, runs, 60, 0.0) for share in (0.001, 0.1, 0.5, 1.0) for runs in (5, 7, 8)]
    cases += [(share, runs, earlier, 1.0) for share in (0.1, 0.5, 1.0) for runs in (5, 8) for earlier in (0, 60)]
    report.table(
        "Compare: a shift of 5% at 2% between-run variation",
        ("metrics shifted of " + str(arguments.metrics), "runs a side", "earlier runs", "variation of the metrics",
         "power", "power, variation known", "false discoveries", "coverage of the 95% interval"),
        (row(number, *each) for number, each in enumerate(cases)),
        f"At 1% false discovery for losses and 1% for gains, over {arguments.series} comparisons each, without a shift "
        f"{5 * arguments.series}. Uneven: the variation differs between metrics by a factor of e (one standard "
        "deviation), and the shift with it. Variation known: the same decision by a test that is told the "
        "variation of every metric, which no test can be.",
    )  # fmt: skip


def coverage(report: Report, arguments: argparse.Namespace, _: str) -> None:
    nulls = (SIMPLE[0], SIMPLE[1], SIMPLE[6], SIMPLE[7])

    def row(number: int, null: Null, runs: int) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 6, number])
        cells = []
        values = null.make(rng, 100_000, runs + 1)
        found = centre_and_spread(values[:, :-1])
        for rate in (0.05, 0.01, 0.001):
            reach = prediction_factor(runs, rate) * found.spread
            cells.append(f"{np.mean(values[:, -1] <= found.centre + reach):.3%}")
        return [null.name, str(runs), *cells]

    report.table(
        "Coverage of calibrate's bounds",
        ("between-run variation", "runs", "claimed 95%", "claimed 99%", "claimed 99.9%"),
        (row(number, *each) for number, each in enumerate((null, runs) for null in nulls for runs in (8, 12, 20, 50))),
        "How often one more healthy run keeps the bound on its worse side; 100,000 calibrations each.",
    )


def history(values: Floats) -> pl.DataFrame:
    """A history of metrics with these logarithms, a session a session."""
    metrics, sessions = values.shape
    start = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)
    session, metric = np.divmod(np.arange(sessions * metrics), metrics)
    starts = [start + timedelta(days=each) for each in range(sessions)]
    size = sessions * metrics
    frame = pl.DataFrame(
        {
            "session": [f"s{each:04}" for each in session],
            "run_id": [f"r{each:04}" for each in session],
            "started": [starts[each] for each in session],
            "metric": [f"metric_{each:04}" for each in metric],
            "value": np.exp(-values[metric, session]) * 100,
            "components": [[f"link{each % 100}", f"node{each % 10}"] for each in metric],
        },
        schema_overrides={"started": pl.Datetime("us", "UTC")},
    )
    constant = {"system": "sim", "partition": "p", "environment": "e", "test": "T", "unit": "Gb/s", "better": "higher",
                "low": 0.0, "high": 0.0, "count": 100, "deviation": 1.0, "verdict": "PASS", "software": "{}",
                "tuning": "{}", "rehearsal": False}  # fmt: skip
    frame = frame.with_columns(
        *(pl.lit(value).alias(name) for name, value in constant.items()),
        pl.Series("nodes", [["n0"]] * size),
        pl.Series("tags", [[]] * size, dtype=pl.List(pl.String)),
    )
    return frame.select(COLUMNS)


def speed(report: Report, arguments: argparse.Namespace, python: str) -> None:
    def row(sessions: int) -> list[str]:
        rng = np.random.default_rng([arguments.seed, 7])
        values = VARIATION * rng.standard_normal((1000, sessions))
        frame = history(values)
        begin = time.perf_counter()
        watch(frame, "sim", now=frame["started"][-1])
        ours = time.perf_counter() - begin
        begin = time.perf_counter()
        otava(python, -values)
        return [f"1,000 x {sessions}", f"{ours:.1f} s", f"{time.perf_counter() - begin:.1f} s"]

    report.table("Speed", ("metrics x sessions", "watch", "Otava, once at the end"), map(row, (365, 1000)))


TABLES = ["false-alarms", "power", "drift", "other-rules", "compare", "coverage", "speed"]
MEASURES = (false_alarms, power, drift, power_of_others, comparisons, coverage, speed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="Markdown file to write")
    parser.add_argument("--otava", help="a Python that has apache-otava; without it one is made")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--metrics", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=300, help="of each null series")
    parser.add_argument("--series", type=int, default=100, help="for the rules that are slow, and comparisons")
    parser.add_argument("--systems", type=int, default=1, help="with as many metrics each, for the power")
    parser.add_argument("--full", action="store_true", help="the same as --sessions 1100 --series 300 --systems 5")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, metavar="TABLE", help=", ".join(TABLES))
    arguments = parser.parse_args()
    if arguments.full:
        arguments.sessions, arguments.series, arguments.systems = 1100, 300, 5
    names = ("seed", "metrics", "sessions", "series", "systems")
    given = [f"--{name} {getattr(arguments, name)}" for name in names]
    if arguments.tables != TABLES:
        given.append(f"--tables {' '.join(arguments.tables)}")
    report = Report(arguments.output, f"python -m benchmarks.regression {' '.join(given)}")
    with tempfile.TemporaryDirectory() as folder:
        python = arguments.otava or make_otava(Path(folder))
        for name, table in zip(TABLES, MEASURES, strict=True):
            if name in arguments.tables:
                table(report, arguments, python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
