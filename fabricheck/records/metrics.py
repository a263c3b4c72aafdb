"""The metrics of a run: which there must be, what they are called, and their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fabricheck.errors import UserError
from fabricheck.records.operations import COLLECTIVES, LISTED, LOADS, MEMORY_PATHS, PAIRS, SHAPED
from fabricheck.records.pair_rule import planned_groups
from fabricheck.records.run import Groups, Run, Samples
from fabricheck.records.split import Split
from fabricheck.units import parse_size, size_label

Quantity = Literal["goodput", "latency"]

UNITS: Mapping[Quantity, str] = {"goodput": "Gb/s", "latency": "us"}
BETTER: Mapping[Quantity, str] = {"goodput": "higher", "latency": "lower"}

# A goodput is a metric of sizes from here up, a latency of sizes below: neither of the two says anything about 8 B in
# Gb/s or 1 GiB in microseconds that the other does not say better. The small transfers of the SC24 paper (De Sensi et
# al., figures 3, 5 and 7) lie below.
SMALLEST_GOODPUT_BYTES = 64 << 10
# From here up a message is large: links decide, and hardly what a transfer costs to start, some microseconds.
LARGE_BYTES = 16 << 20


@dataclass(frozen=True)
class Metric:
    """One number of a run: the median of `values`.

    `values`: float64, shape (iterations,), in `unit`, in the order in which they were measured.
    """

    name: str
    quantity: Quantity
    samples: Samples

    @property
    def unit(self) -> str:
        """The unit of `values`: Gb/s for a goodput, us for a latency."""
        return UNITS[self.quantity]

    @property
    def better(self) -> str:
        """Which direction is an improvement: `higher` for a goodput, `lower` for a latency."""
        return BETTER[self.quantity]

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Goodput in Gb/s or latency in µs: float64, shape (iterations,), in the order of measurement."""
        return self.samples.goodput_gbps if self.quantity == "goodput" else self.samples.latency_us

    @property
    def value(self) -> float:
        """The median of `values`, in `unit`."""
        return float(np.median(self.values))


@dataclass(frozen=True)
class PlannedSeries:
    """What a plan measures at several sizes. `round`: where it has the same in several rounds, else -1; `train`: of
    one of many operations without a wait in between."""

    operation: str
    schedule: str
    ranks: tuple[int, ...]
    groups: Groups | None = None
    round: int = -1
    train: bool = False

    def names(self, sizes: Iterable[int], world: int) -> dict[tuple[int, Quantity], str]:
        """The metrics of this series by size and quantity: goodput at its largest size, latency at its smallest."""
        smallest, largest = min(sizes), max(sizes)
        wanted: list[tuple[int, Quantity]] = []
        if largest >= SMALLEST_GOODPUT_BYTES:
            wanted.append((largest, "goodput"))
        if smallest < SMALLEST_GOODPUT_BYTES:
            wanted.append((smallest, "latency"))
        return {(size, quantity): self.name(world, size, quantity) for size, quantity in wanted}

    def name(self, world: int, size: int, quantity: Quantity) -> str:
        """Name of a metric in [a-z0-9_], such as `pingpong_uncontended_0_1_8b_latency`; of a run of `world` ranks,
        `size` in bytes.

        A group of all ranks in order is `all` and their number; that of a collective otherwise its first rank, how many
        they are and how far apart, as in `allreduce_contended_0_64x8_1gib_goodput`; any other group is told by its
        ranks, so that two groups never share a name; a pattern between groups by its (n, g, k), as in
        `rail_bidirectional_uncontended_2x4x1_64mib_goodput`. With a train, as in
        `unidirectional_uncontended_0_1_2mib_train_goodput`.
        """
        who = "_".join(map(str, self.ranks))
        if self.operation not in PAIRS and len(self.ranks) > 1 and self.ranks == tuple(range(world)):
            who = f"all{world}"
        elif self.operation in COLLECTIVES and (split := Split.of(self.ranks)) is not None:
            who = f"{self.ranks[0]}_{split}"
        if self.groups is not None:
            who = str(self.groups)
        if self.round >= 0:
            who += f"_round{self.round}"
        train = "train_" if self.train else ""
        return f"{self.operation}_{self.schedule}_{who}_{size_label(size)}_{train}{quantity}"


def expected_metric_names(header: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics that a complete run with this header has, in the order of its plan, from the plan alone.

    `header` is that of a `Run`, which is empty where it was not valid: then there are none.
    """
    return tuple(name for _, names in _planned(header) for name in names.values())


def metrics_of(run: Run) -> tuple[Metric, ...]:
    """The metrics that `run` holds of those that its plan promises, in the order of the plan."""
    if not run.header:
        return ()
    repeated = _repeated(run.header)
    # The first of two lines about the same thing: a file with two has a problem already.
    measured: dict[tuple[PlannedSeries, int], Samples] = {}
    for measured_samples in run.samples:
        own_series = PlannedSeries(
            measured_samples.operation,
            measured_samples.schedule,
            measured_samples.ranks,
            measured_samples.groups,
            train=_is_train(run.header),
        )
        series = _single(own_series, measured_samples.round, repeated)
        measured.setdefault((series, measured_samples.bytes), measured_samples)
    metrics = []
    for series, names in _planned(run.header):
        for (size, quantity), name in names.items():
            if (samples := measured.get((series, size))) is not None:
                metrics.append(Metric(name, quantity, samples))
    return tuple(metrics)


def _planned(header: Mapping[str, Any]) -> Iterable[tuple[PlannedSeries, dict[tuple[int, Quantity], str]]]:
    if not header:
        return
    repeated = _repeated(header)
    sizes: dict[PlannedSeries, list[int]] = {}
    for group in planned_groups(header):
        series = _single(_planned_series(header, group), group["round"], repeated)
        sizes.setdefault(series, []).extend(group["bytes"])
    world = len(header["ranks"])
    for series, each_size in sizes.items():
        yield series, series.names(each_size, world)


def _is_train(header: Mapping[str, Any]) -> bool:
    return header["plan"].get("train") is not None


def _planned_series(header: Mapping[str, Any], planned: Mapping[str, Any]) -> PlannedSeries:
    groups = Groups(*planned["groups"]) if planned.get("groups") else None
    return PlannedSeries(
        planned["operation"], planned["schedule"], tuple(planned["ranks"]), groups, train=_is_train(header)
    )


def _single(series: PlannedSeries, round: int, repeated: frozenset[PlannedSeries]) -> PlannedSeries:
    return replace(series, round=round) if series in repeated else series


def _repeated(header: Mapping[str, Any]) -> frozenset[PlannedSeries]:
    """What the plan has in several rounds, which only a plan with rounds of the user's own can."""
    rounds: dict[PlannedSeries, set[int]] = {}
    for group in planned_groups(header):
        rounds.setdefault(_planned_series(header, group), set()).add(group["round"])
    return frozenset(series for series, found in rounds.items() if len(found) > 1)


_OPERATIONS = sorted((*PAIRS, *COLLECTIVES, *LISTED, *MEMORY_PATHS, *LOADS), reverse=True)
_METRIC = re.compile(
    rf"({'|'.join(_OPERATIONS)})_(uncontended|contended)"
    r"_(all\d+|\d+x\d+x\d+|\d+_\d+x\d+|\d+(?:_\d+)*)(?:_round\d+)?_(\d+)(b|kib|mib|gib)(_train)?_(goodput|latency)",
    re.ASCII,
)


#: More ranks than that no rule for pairs has either.
MOST_RANKS = 1 << 21

_SUFFIXES = {"b": "B", "kib": "KiB", "mib": "MiB", "gib": "GiB"}


@dataclass(frozen=True)
class MetricName:
    """A metric's name, taken apart. `ranks` is empty for a group of all `world` ranks, which is 0 for others.

    `groups` are those of a pattern between groups, whose ranks are the first of the run. `train` as in `PlannedSeries`.
    """

    operation: str
    schedule: str
    ranks: tuple[int, ...]
    world: int
    bytes: int
    quantity: str
    groups: Groups | None = None
    train: bool = False


def parse_metric_name(name: str) -> MetricName:
    """The parts of `pingpong_uncontended_0_1_1gib_goodput`. Raises UserError where no metric is called so."""
    match = _METRIC.fullmatch(name)
    if match is None:
        raise UserError(
            f"no metric is called {name!r}: names are OPERATION_SCHEDULE_RANKS_SIZE_QUANTITY, "
            "such as pingpong_uncontended_0_1_1gib_goodput"
        )
    operation, schedule, who, number, suffix, train, quantity = match.groups()
    numbers = [int(digits) for digits in re.findall(r"\d+", who)]
    everyone = who.startswith("all")
    groups = Groups(*numbers) if who.count("x") == 2 else None
    split = Split(*numbers[1:]) if who.count("x") == 1 else None
    if (groups is not None) != (operation in SHAPED):
        raise UserError(f"no metric is called {name!r}: only patterns between groups have groups, such as 2x4x1")
    # Before they are counted out: a slip of the pen is not to take all memory.
    count = numbers[0] if everyone else 1
    if groups is not None:
        count = groups.count * groups.size
    elif split is not None:
        count = split.count * split.stride
    if not 1 <= count < MOST_RANKS:
        raise UserError(f"no metric is called {name!r}: no run has {count:,} ranks")
    ranks = () if everyone else tuple(range(count)) if groups else split.group(numbers[0]) if split else tuple(numbers)
    if operation in PAIRS and len(ranks) != 2:
        raise UserError(f"no metric is called {name!r}: {operation} is between two ranks")
    size = parse_size(f"{number}{_SUFFIXES[suffix]}")
    world = numbers[0] if everyone else 0
    return MetricName(operation, schedule, ranks, world, size, quantity, groups, train is not None)
