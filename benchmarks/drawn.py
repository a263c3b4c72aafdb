"""Noise that nobody can be tuned to: shapes drawn at random, other ones each run, and what the worst of them cost.

    nice -n 19 python -m benchmarks.drawn                        # a new seed, which is printed
    nice -n 19 python -m benchmarks.drawn --only watch --shapes 30 --seed 7

A shape has a tail, a skew, modes, dips of metrics or of whole launches, a level that stands, is correlated, wanders,
drifts, waves or has days of the week, white noise of launches beside it, and factors that all of a session, a launch or
a GPU have in common; and a size. Each row is judged as `fabricheck` judges. The tables have the median of the shapes
and the worst decile, and name the worst shape. `--recorded` has the recorded launches as shapes instead.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.signal import lfilter

from benchmarks.noise import RECORDED, Floats, Generator, Shape
from benchmarks.sessions import FAULTS, GPUS, JUDGES, PAIRS, RUNS, Made
from fabricheck.diagnosis.network.pair_findings import counted_suspects
from fabricheck.history.slow_nodes import slow_parts
from fabricheck.session.launches import MOST_LAUNCHES
from fabricheck.statistics.monitor import monitor
from fabricheck.statistics.node_effects import without_node_effects
from fabricheck.statistics.shift_test import BASE, CANDIDATE, EARLIER, CompareOptions, shift_test
from fabricheck.suite import suite_root
from fabricheck.yardsticks.policy import load_policy
from fabricheck_lab.simulated_network import Bench, Case, fat_tree

Ints = npt.NDArray[np.int64]
MONTH = 30_000
LEVELS = ("stands", "correlated", "wanders", "drifts", "waves", "weekly")


@dataclass(frozen=True)
class Drawn:
    """A shape of noise with a standard deviation of 1, but for dips. `tail`: degrees of freedom of a t distribution;
    `skew`: of a lognormal, to the worse side; `modes`: share of the worse mode, and how many widths of a mode away it
    is; `dips`: their share and depth, `whole`: they are of launches and not of metrics. `level`: how it goes from
    session to session, with `alike` (the correlation of neighbours, or a part of all sessions) and the `white` share
    that is each launch's own. `common`: shares of the variance that a session, a launch and the GPUs have in common."""

    tail: float
    skew: float
    modes: tuple[float, float]
    dips: tuple[float, float]
    whole: bool
    level: str
    alike: float
    white: float
    common: tuple[float, float, float]

    @classmethod
    def draw(cls, rng: Generator) -> Drawn:
        """Most shapes have one kind of trouble or two."""

        def sometimes(one_in: int, value: float) -> float:
            return value if rng.random() * one_in < 1 else 0.0

        common = rng.dirichlet(np.ones(4))[:3] * (rng.random(3) < 0.4)
        return cls(
            tail=sometimes(2, float(rng.uniform(2.5, 8))),
            skew=sometimes(3, float(rng.uniform(0.2, 0.9))),
            modes=(sometimes(4, float(rng.uniform(0.05, 0.5))), float(rng.uniform(2, 6))),
            dips=(sometimes(3, float(np.exp(rng.uniform(np.log(0.002), np.log(0.03))))), float(rng.uniform(3, 30))),
            whole=bool(rng.random() < 0.3),
            level=str(rng.choice(LEVELS, p=[0.45, 0.2, 0.1, 0.05, 0.1, 0.1])),
            alike=float(1 - np.exp(rng.uniform(np.log(0.02), np.log(0.6)))),
            white=float(rng.uniform(0.1, 0.9)),
            common=tuple(common.tolist()),
        )

    @property
    def name(self) -> str:
        told = {
            f"t {self.tail:.1f}": self.tail,
            f"skew {self.skew:.1f}": self.skew,
            f"modes {self.modes[0]:.0%} at {self.modes[1]:.1f}": self.modes[0],
            f"dips of {'launches' if self.whole else 'metrics'} {self.dips[0]:.1%} at {self.dips[1]:.0f}": self.dips[0],
            f"{self.level} {self.alike:.2f}, white {self.white:.0%}": self.level != "stands",
            "common " + ", ".join(f"{each:.0%}" for each in self.common): any(self.common),
        }
        return "; ".join(text for text, there in told.items() if there) or "normal"

    def make(self, rng: Generator, metrics: int, sessions: int) -> Floats:
        """Of one launch a session."""
        return self.launches(rng, metrics, np.arange(sessions))

    def launches(self, rng: Generator, metrics: int, session: Ints) -> Floats:
        """Shape (metrics, launches), of launches in these sessions; metrics are those of `PAIRS`, node after node."""
        white = self._own(rng, (metrics, session.size))
        if self.level != "stands":
            level = self._level(rng, metrics, int(session.max()) + 1)[:, session]
            white = np.sqrt(1 - self.white) * level + np.sqrt(self.white) * white
        pair, node = np.arange(metrics) % len(PAIRS), np.arange(metrics) // len(PAIRS)
        gpus = rng.standard_normal((int(node.max()) + 1, GPUS, int(session.max()) + 1))
        ends = np.asarray(PAIRS)[pair]
        of_gpus = sum(gpus[node, ends[:, each]][:, session] for each in (0, 1)) / np.sqrt(2)
        of_session = rng.standard_normal(int(session.max()) + 1)[None, session]
        of_launch = rng.standard_normal((int(node.max()) + 1, session.size))[node]
        noise = np.sqrt(1 - sum(self.common)) * white
        for share, factor in zip(self.common, (of_session, of_launch, of_gpus), strict=True):
            noise = noise + np.sqrt(share) * factor
        rate, depth = self.dips
        where = rng.random((1 if self.whole else metrics, session.size)) < rate
        return np.asarray(noise + where * depth * rng.uniform(0.5, 1.5, where.shape))

    def _own(self, rng: Generator, shape: tuple[int, int]) -> Floats:
        noise = rng.standard_normal(shape)
        if self.tail:
            noise = rng.standard_t(self.tail, shape) / np.sqrt(self.tail / (self.tail - 2))
        if self.skew:
            noise = (np.exp(self.skew * noise.clip(-8, 8)) - 1) / self.skew
        share, gap = self.modes
        if share:
            noise = noise / max(noise.std(), 1e-9) + gap * (rng.random(shape) < share)
        return np.asarray((noise - noise.mean()) / noise.std())

    def _level(self, rng: Generator, metrics: int, sessions: int) -> Floats:
        time = np.arange(sessions)
        if self.level == "weekly":
            level = rng.standard_normal((metrics, 7))[:, time % 7]
        elif self.level == "waves":
            period = 10 + 300 * (1 - self.alike)
            level = np.sqrt(2) * np.sin(2 * np.pi * (time / period + rng.random((metrics, 1))))
        elif self.level == "drifts":  # by a spread in so many sessions
            level = rng.choice([-1.0, 1.0], (metrics, 1)) * time / (30 + 300 * self.alike)
        else:
            alike = self.alike if self.level == "correlated" else 0.9 + 0.09 * self.alike
            noise = rng.standard_normal((metrics, sessions))
            noise[:, 0] /= np.sqrt(1 - alike**2)
            level = np.sqrt(1 - alike**2) * lfilter([1], [1, -alike], noise, axis=1)
        return np.asarray(level)


def shape_of(drawn: Drawn) -> Shape:
    return Shape(drawn.name, drawn.make)


@dataclass(frozen=True)
class Effort:
    """`loss`: of what sessions have slow, in place of eight spreads."""

    sessions: int
    systems: int
    loss: float | None = None


Row = Callable[[Generator, "Drawn | Shape", Effort], Sequence[float]]


def _columns(sessions: int) -> Ints:
    """The session of each launch: those that calibrate, one each, and then as often as a run launches."""
    return np.concatenate([np.arange(RUNS), RUNS + np.repeat(np.arange(sessions), MOST_LAUNCHES)])


def _values(rng: Generator, shape: Drawn | Shape, metrics: int, sessions: int) -> Floats:
    of = _columns(sessions)
    return shape.launches(rng, metrics, of) if isinstance(shape, Drawn) else shape.make(rng, metrics, of.size)


def sessions_by(judge: str) -> Row:
    """Healthy sessions red at first and in the end, then losses found in the end; and of 10% in the
    first launch and a fifth of the others."""

    def row(rng: Generator, shape: Drawn | Shape, effort: Effort) -> list[float]:
        metrics = len(PAIRS) * int(rng.integers(2, 19))
        spread = float(np.exp(rng.uniform(np.log(0.001), np.log(0.02))))
        averages = []
        faults = [(effort.loss or 8 * spread, tuple(each), 1.0) for each in FAULTS.values()]
        faults.append((0.1, faults[0][1], FLAKY))
        for loss, slow, share in ((0.0, (), 1.0), *faults):
            made = Made(shape_of(shape) if isinstance(shape, Drawn) else shape, metrics, spread, loss, slow)
            shares = []
            for _ in range(effort.systems):
                values = spread * _values(rng, shape, metrics, effort.sessions)
                again = np.arange(effort.sessions * MOST_LAUNCHES) % MOST_LAUNCHES > 0
                values[list(slow), RUNS:] += loss * ((rng.random(again.size) < share) | ~again)
                shares.append([float(each.mean()) for each in JUDGES[judge](made, values)])
            mean = np.mean(shares, axis=0)
            averages += [mean[-2], mean[-1]] if not slow else [mean[-1]]
        return averages

    return row


def watched(rng: Generator, shape: Drawn | Shape, effort: Effort) -> list[float]:
    """Incidents a month and 1,000 metrics; a loss of 3.5 spreads found in seven nights, and one of all on the night
    after the warm-up."""
    metrics, sessions = 280, 240
    quiet = monitor(0.01 * shape.make(rng, metrics, sessions))
    rate = len(quiet.alerts) / (int(quiet.watched_sessions.sum()) / MONTH)
    values = 0.01 * shape.make(rng, metrics, 215)
    lossy = metrics // 5
    values[:lossy, 200:] += 0.035
    first = np.full(lossy, 99)
    for alert in monitor(values).alerts:
        if alert.metric < lossy and alert.session >= 200:
            first[alert.metric] = min(first[alert.metric], alert.session - 199)
    everything = 0.01 * shape.make(rng, metrics, 40)
    everything[:, 26:] += 0.08
    alerts = {each.session for each in monitor(everything).alerts if each.session >= 26}
    return [rate, float((first <= 7).mean()), float(bool(alerts) and min(alerts) <= 28)]


def compared(rng: Generator, shape: Drawn | Shape, effort: Effort) -> list[float]:
    """Comparisons with any false call; losses of 2.5 spreads and the smallest loss shown, of goodputs that vary by 0.1%
    among latencies that vary by 6%, three sessions against three."""
    false, shares, least, number = 0, [], [], 4 * effort.systems
    for _ in range(number):
        side = np.repeat([EARLIER, BASE, CANDIDATE], [0, 3, 3])
        spread = np.repeat([0.001, 0.06], 50)[:, None]
        kind = np.repeat(np.arange(10), 10)
        for loss in (0.0, 0.01):
            values = spread * shape.make(rng, 100, side.size)
            values[:10, side == CANDIDATE] += loss
            tested = shift_test(values, side, CompareOptions(), kind=kind)
            if loss:
                shares.append(float(tested.worse[:10].mean()))
                least.append(float(np.median(tested.smallest[10:50])))
            else:
                false += bool(tested.worse.any() or tested.better.any())
    return [false / number, float(np.mean(shares)), float(np.median(least))]


#: The share of its launches in which a flaky GPU is slow.
FLAKY = 0.2
NETWORKS = ((64, 8, 4), (64, 4, 2), (128, 16, 8), (32, 4, 2))


def networks(rng: Generator, shape: Drawn | Shape, effort: Effort) -> list[float]:
    """Healthy networks in which anything is named by the policy, and nodes that lost 8 spreads, by the noise of one
    pair; routes as a run has them, which are not known."""
    network = fat_tree(*NETWORKS[rng.integers(len(NETWORKS))], trunk_gbps=float(rng.choice([400.0, 1600.0])))
    case = Case("", network, network.nodes, "unknown", (8,))

    def noise(random: Generator, number: int) -> Floats:
        if isinstance(shape, Drawn):
            drawn = Drawn(**{each.name: getattr(shape, each.name) for each in fields(shape)} | {"common": (0, 0, 0)})
            return -drawn.launches(random, number, np.zeros(1, dtype=np.int64))[:, 0]
        return -shape.make(random, number, 1)[:, 0]

    bench = Bench(case, 0.01, int(rng.integers(1 << 30)), noise)
    number = 5 * effort.systems
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    named = sum(bool(counted_suspects(bench.trial([])[1], bench.design, policy)) for _ in range(number))
    right = sum(bench.trial([bench.draw("node", 0.08, 0.08)])[0] for _ in range(number // 2))
    return [named / number, right / (number // 2)]


NODES, VISITS = 40, 5


def turns(rng: Generator, shape: Drawn | Shape, effort: Effort) -> list[float]:
    """Sessions after which a healthy node of 40 is named, of which one or four take turns and that differ by a spread;
    and nodes that lost 8 spreads, named after two visits more."""
    named, right, looks, number = 0, 0, 0, 2 * effort.systems
    for _ in range(number):
        at_once, spread = int(rng.choice([1, 4])), float(np.exp(rng.uniform(np.log(0.002), np.log(0.02))))
        rounds = NODES // at_once
        order = np.concatenate([rng.permutation(NODES) for _ in range(VISITS)]).reshape(VISITS * rounds, at_once)
        row, slot, place = np.indices((len(PAIRS), at_once, len(order))).reshape(3, -1)
        node = order[place, slot]
        noise = shape.make(rng, len(PAIRS) * at_once, len(order)).reshape(at_once, len(PAIRS), len(order))
        worse = spread * (noise[slot, row, place] + rng.standard_normal((len(PAIRS), NODES))[row, node])
        slow = worse + 8 * spread * ((node == 7) & (place >= (VISITS - 2) * rounds))
        ends = np.asarray(PAIRS)[row]
        visits = pl.DataFrame(
            {
                "row": row,
                "place": place,
                "nodes": [[f"n{each}"] for each in node.tolist()],
                "components": [
                    [f"n{each}", f"n{each}:gpu{a}", f"n{each}:gpu{b}", f"n{each}:gpu{min(a, b)}-gpu{max(a, b)}"]
                    for each, a, b in zip(node.tolist(), *ends.T.tolist(), strict=True)
                ],
                "kind": np.zeros(row.size, dtype=np.int64),
            }
        )
        for lost in (worse, slow):
            told = without_node_effects(visits.with_columns(value=pl.Series(np.exp(lost))))
            told = told.with_columns(worse="away", where=pl.col("nodes").list.first())
            if lost is slow:
                right += [[one.key for one in each.components] for each in slow_parts(told)] == [["n7"]]
                continue
            for end in range(2 * rounds, len(order) + 1, rounds // 2):
                named += bool(slow_parts(told.filter(pl.col("place") < end)))
                looks += 1
    return [named / looks, right / number]


@dataclass(frozen=True)
class Table:
    row: Row
    heads: tuple[str, ...]
    worse: tuple[int, ...]  # +1 where more is worse


TABLES: Mapping[str, Table] = {
    "references": Table(
        sessions_by("references"),
        ("healthy sessions red at first", "in the end", *FAULTS, "a flaky GPU"),
        (1, 1, -1, -1, -1, -1),
    ),
    "equals": Table(
        sessions_by("equals"),
        ("healthy sessions red at first", "in the end", *FAULTS, "a flaky GPU"),
        (1, 1, -1, -1, -1, -1),
    ),
    "watch": Table(watched, ("incidents a month", "3.5 spreads in 7 nights", "loss of all after warm-up"), (1, -1, -1)),
    "compare": Table(compared, ("comparisons with a false call", "-1% found", "smallest loss shown"), (1, -1, 1)),
    "turns": Table(turns, ("sessions that name a healthy node", "a node that lost 8 spreads named"), (1, -1)),
    "networks": Table(networks, ("healthy networks red", "a node that lost 8 spreads named"), (1, -1)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the shapes and of all that is drawn from them; a new one each run")
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--only", choices=tuple(TABLES), nargs="+", default=tuple(TABLES))
    parser.add_argument("--sessions", type=int, default=25, help="that are judged, of each system")
    parser.add_argument("--systems", type=int, default=2, help="of each shape")
    parser.add_argument("--loss", type=float, help="that sessions have, such as 0.015, in place of eight spreads")
    parser.add_argument("--recorded", action="store_true", help="the recorded launches in place of drawn shapes")
    parser.add_argument("--each", action="store_true", help="a line for each shape, too")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if given.seed is None else given.seed
    number = len(RECORDED) if given.recorded else given.shapes
    print(f"seed {seed}, {number} {'recorded' if given.recorded else 'drawn'} shapes\n")
    rng = np.random.default_rng(seed)
    shapes: Sequence[Drawn | Shape] = RECORDED if given.recorded else [Drawn.draw(rng) for _ in range(number)]
    effort = Effort(given.sessions, given.systems, given.loss)
    for name in given.only:
        table = TABLES[name]
        rows = []
        for place, shape in enumerate(shapes):
            rows.append(table.row(np.random.default_rng([seed, place]), shape, effort))
            if given.each:
                print(f"{name}: {' | '.join(f'{one:.3g}' for one in rows[-1])} | {shape.name}", flush=True)
        print(f"\n| {name} | median shape | worst decile | the worst shape |\n|---|---|---|---|")
        for column, (head, worse) in enumerate(zip(table.heads, table.worse, strict=True)):
            values = np.array([each[column] for each in rows])
            decile = np.quantile(values, 0.9 if worse > 0 else 0.1)
            worst = int((worse * values).argmax())
            cells = f"{np.median(values):.3g} | {decile:.3g} | {values[worst]:.3g}: {shapes[worst].name}"
            print(f"| {head} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
