"""How often a CUSUM of a healthy metric crosses its threshold, by the kind of noise that the metric has.

A chart adds up, session by session, how far the metric was on its worse side, S = max(0, S + min(z, CLIP) - k), and
raises an alert where S > h (Page, Biometrika 41, 1954). What h costs in false alarms depends on the noise: normal
values, some of which are bad by `BadSessions`: dips, or the worse of two modes. The rate of false alarms of each is
calculated on a grid of S as a Markov chain (Brook and Evans, Biometrika 59, 1972), and lies in hazard.json, which
`python -m fabricheck.history.hazard` writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Floats = npt.NDArray[np.float64]

# A single session counts for no more than this many spreads, so that it alone cannot raise an alert.
CLIP = 4.0
_STEP = 0.2
_LOWEST = -4.0
# A worse mode may be more common than the sessions of the baseline happened to show.
_MORE_OFTEN = 1.35
_LEAST_RATE = 1e-8  # thresholds beyond this rate are of no use
_FILE = Path(__file__).with_name("hazard.json")


@dataclass(frozen=True)
class Chart:
    """One CUSUM: `allowance` is k, in spreads; `false_alarms_per_session` is the rate of false alarms it may have.

    k is half the drop that the chart is quickest for (Moustakides, Annals of Statistics 14, 1986).
    """

    name: str
    allowance: float
    false_alarms_per_session: float
    thresholds: tuple[float, ...]  # those of the table


def _grid(low: float, high: float) -> tuple[float, ...]:
    return tuple(sorted({round(round(float(each) / _STEP) * _STEP, 1) for each in np.geomspace(low, high, 32)}))


# Together, with RUN_FALSE_ALARMS, less than one in 30,000: a month of 1,000 metrics.
CHARTS = (
    Chart("drop", 1.4, 1 / 85_000, _grid(2.0, 40.0)),
    Chart("drift", 0.8, 1 / 500_000, _grid(4.0, 60.0)),
)


@dataclass(frozen=True)
class BadSessions:
    """A share of the sessions that lie around `depth`, in spreads, with a standard deviation of `width`.

    Those of a second mode belong to the spread: with them the mean is 0. Dips (`width` 0) do not: without them mean and
    variance are 0 and 1.
    """

    rate: float
    depth: float
    width: float = 0.0

    @property
    def others(self) -> tuple[float, float]:
        """Mean and standard deviation of the other sessions."""
        if self.width == 0:
            return 0.0, 1.0
        return -self.rate * self.depth / (1 - self.rate), self.width


def _mode(rate: float, width: float) -> BadSessions:
    """Two modes of equal width, the worse one with a share `rate` of the sessions."""
    return BadSessions(rate, round(float(np.sqrt((1 - width**2) * (1 - rate) / rate)), 3), width)


BAD_SESSIONS = (
    *(BadSessions(rate, CLIP) for rate in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15)),
    *(_mode(rate, width) for rate, width in ((0.07, 0.6), (0.1, 0.55), (0.15, 0.5), (0.2, 0.5), (0.3, 0.5))),
)


def false_alarm_rate(chart: Chart, bad: BadSessions, threshold: float) -> float:
    """False alarms a session of a chart that has run for long, for one kind of noise; threshold in multiples of 0.2.

    That is what the largest eigenvalue of the chain without its alerts is short of 1.
    """
    u = np.arange(round(_LOWEST / _STEP), round(-_LOWEST / _STEP) + 1) * _STEP
    edges = np.concatenate([[-np.inf], (u[:-1] + u[1:]) / 2, [np.inf]])
    mass = np.diff(ndtr(edges))
    mean, width = bad.others
    rate = min(bad.rate * _MORE_OFTEN, 0.5) if bad.width else bad.rate
    states = round(threshold / _STEP) + 1  # S = 0 … threshold
    chain = np.zeros((states, states))
    for share, z in ((1 - rate, mean + width * u), (rate, bad.depth + bad.width * u)):
        moves = np.round((np.minimum(z, CLIP) - chart.allowance) / _STEP).astype(np.int64)
        for move, chance in zip(moves.tolist(), (share * mass).tolist(), strict=True):
            after = np.maximum(np.arange(states) + move, 0)
            stays = np.flatnonzero(after < states)
            np.add.at(chain, (stays, after[stays]), chance)
    return float(max(1 - np.abs(np.linalg.eigvals(chain)).max(), 0.0))


@lru_cache(maxsize=1)
def log_rates() -> tuple[Floats, ...]:
    """For each chart the logarithm of the false alarms a session, shape (kinds, thresholds), from hazard.json."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(np.asarray(content[chart.name], dtype=np.float64) for chart in CHARTS)


def thresholds(chart: int, weights: Floats) -> Floats:
    """The threshold h of each metric in chart number `chart`, shape (metrics,).

    `weights`, shape (metrics, kinds), is how probable it is that the metric's noise is of a kind. The threshold is the
    least at which the false alarms that this leads one to expect are as rare as the chart has to have them; infinite
    where no threshold of the table is.
    """
    table = log_rates()[chart]
    grid = np.asarray(CHARTS[chart].thresholds)
    with np.errstate(divide="ignore"):
        expected = np.log(weights @ np.exp(table))  # (metrics, thresholds)
    wanted = np.log(CHARTS[chart].false_alarms_per_session)
    enough = expected <= wanted
    first = np.argmax(enough, axis=1)
    before = np.maximum(first - 1, 0)
    rows = np.arange(len(weights))
    high, low = expected[rows, before], expected[rows, first]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(first > before, (high - wanted) / (high - low), 1.0)
    # The chain counts in steps, and its threshold lies between two of them.
    limits = grid[before] + share * (grid[first] - grid[before]) + _STEP / 2
    # One session alone is never enough.
    limits = np.maximum(limits, CLIP - CHARTS[chart].allowance)
    return np.where(enough.any(axis=1), limits, np.inf)


def _rates(chart: Chart, kind: BadSessions) -> list[float]:
    """The rate at each threshold of the chart, from the lowest up to where it is as good as none."""
    rates: list[float] = []
    for threshold in chart.thresholds:
        useless = bool(rates) and rates[-1] <= _LEAST_RATE
        rates.append(_LEAST_RATE if useless else max(false_alarm_rate(chart, kind, threshold), _LEAST_RATE))
    return rates


def _write() -> None:
    content = {
        chart.name: [[round(float(np.log(each)), 4) for each in _rates(chart, kind)] for kind in BAD_SESSIONS]
        for chart in CHARTS
    }
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in content.items()]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
