"""Figures of papers: which measurements each shows, the paper's points beside what was measured here, and whether what
the paper concluded holds here. It reads, draws and compares; nothing is judged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, Quantity
from fabricheck.records.operations import PAIRS, kernel_settings
from fabricheck.records.run import Run, Samples
from fabricheck.statistics.iterations import median_interval, ratio_interval
from fabricheck.topology.network import DISTANCES, Network
from fabricheck.units import format_size, parse_size
from fabricheck.yamlfile import read_yaml
from fabricheck.yardsticks.published import Published, load_published

Floats = npt.NDArray[np.float64]
#: What the y axis shows: `time` is that of an operation of any size, `latency` that of small messages; `loss` is what a
#: paper says that others' jobs cost, which nothing here measures.
Shown = Literal["goodput", "latency", "time", "loss"]
UNITS: Mapping[Shown, str] = {"goodput": "Gb/s", "latency": "us", "time": "us", "loss": "share of goodput"}
# Settings of a plan with which an operation is another measurement: a figure shows them if and only if it names them.
_SPECIAL = ("buffers", "shared_devices", "train", "in_place", "split")
# Of what is one row: its name, its place and what that is called.
_Key = tuple[str, float, str]
_Text = Annotated[str, Field(min_length=1)]
_MODEL = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Point(BaseModel):
    """A published value as a point of the figure."""

    model_config = _MODEL

    system: _Text
    what: _Text
    """that of the value in reference_values/published/SYSTEM.yaml"""
    at: str | int
    """its place on the x axis"""
    of: float | None = None
    """what the value is a share of, in Gb/s"""


class Claim(BaseModel):
    """What the paper concluded, as a ratio of speeds: of all series that have these words in their name, to `than`."""

    model_config = _MODEL

    series: _Text
    than: _Text
    """such words of another; `nominal`, `expected` or `achievable` of the model; `first`: its own first place"""
    least: float = 0.0
    most: float = math.inf
    from_size: Annotated[str | None, Field(alias="from")] = None
    """from which size on"""


class PaperFigure(BaseModel):
    """A figure or table of a paper."""

    model_config = _MODEL

    number: int | str
    title: _Text
    section: _Text
    concluded: _Text
    holds: Claim | None = None
    not_here: str = ""
    """what of it no machine at hand can measure, and why"""
    tests: list[str] = []
    operations: list[str] = []
    transports: list[str] = []
    """those that it shows; empty: all"""
    settings: list[str] = []
    """of the plan, that tell its series apart"""
    both_schedules: bool = False
    """alone and beside others, as series of their own"""
    between: Literal["gpus", "sockets", "nodes", "any"] = "gpus"
    over: Literal["size", "ranks", "pair", "distance", "active", "way"] = "size"
    bytes: str | None = None
    """the size where the x axis is none; without it the largest, and for latencies the smallest"""
    from_first: bool = False
    """pairs of the first GPU alone"""
    quantities: list[Shown] = []
    points: list[Point] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    paper: _Text
    figures: list[PaperFigure]


@dataclass(frozen=True)
class Cited:
    """A figure with its paper and the values of its points."""

    paper: str
    figure: PaperFigure
    values: tuple[tuple[Point, Published], ...]

    def points(self, shown: Shown) -> Iterator[tuple[Point, Published, float]]:
        """Yield the points that are of a quantity, and their value in its unit."""
        for point, value in self.values:
            middle = (value.low + value.high) / 2
            if shown == "goodput" and point.of is not None:
                yield point, value, middle * point.of
            elif shown == "goodput" and value.unit == "GB/s":
                yield point, value, 8 * middle
            elif value.unit == UNITS[shown]:
                yield point, value, middle


def load_figures(published: Path) -> dict[str, Cited]:
    """Return all figures by name, such as `sc24-3`, from the folder of published values. Raises UserError."""
    figures = {}
    # The first of a name: what papers say stands before what owners do.
    values = {
        path.stem: {value.what: value for value in reversed(load_published(path))} for path in published.glob("*.yaml")
    }
    for path in sorted((published / "figures").glob("*.yaml")):
        file = read_yaml(path)
        entries = file.validated(_File.model_validate)
        for position, figure in enumerate(entries.figures):
            cited = []
            for point in figure.points:
                if point.what not in values.get(point.system, {}):
                    file.fail(("figures", position, "points"), f"{point.system}.yaml has no value {point.what!r}")
                cited.append((point, values[point.system][point.what]))
            figures[f"{path.stem}-{figure.number}"] = Cited(entries.paper, figure, tuple(cited))
    return figures


@dataclass
class Measured:
    """What one series measured at one place of the x axis: the values of each pair or group in the figure's unit, and
    what the model says of it. `name` says what it is in all words, `place` sorts the places."""

    name: str
    series: str
    at: str
    place: float
    values: dict[tuple[int, ...], Floats] = field(default_factory=dict)
    models: dict[tuple[int, ...], Expectation] = field(default_factory=dict)

    @property
    def medians(self) -> list[float]:
        """The median of each pair or group."""
        return [float(np.median(values)) for values in self.values.values()]

    def of_model(self, of: str) -> float | None:
        """The median of what the model calls `of`; None where it does not know."""
        values = [value for model in self.models.values() if (value := getattr(model, of)) is not None]
        return float(np.median(values)) if values else None

    def shares(self, of: str) -> Iterator[tuple[float, float]]:
        """Yield the interval of each pair's or group's median, as a share of what the model calls `of`."""
        for group, values in self.values.items():
            whole = getattr(self.models.get(group), of, None)
            if whole:
                low, high = median_interval(values)
                yield low / whole, high / whole


def measured(figure: PaperFigure, shown: Shown, runs: Iterable[Run], judge: SystemJudge) -> list[Measured]:
    """Return what complete runs measured of a figure, by series and place.

    Raises UserError for devices and hosts that the topology does not have.
    """
    complete = [run for run in runs if run.footer is not None and not run.problems]
    several = len({_mpi_of(run) for run in complete if run.header["transport"] == "mpi"}) > 1
    topology = judge.topology
    network = topology.network if topology else None
    placed = [
        [
            ((_name(figure, run, own, several=several), *_place(figure, run, own, network)), own)
            for own in run.samples
            if _is_shown(figure, shown, run, own)
        ]
        for run in complete
    ]
    sizes = _sizes_of(figure, shown, ((key, samples.bytes) for own in placed for key, samples in own))
    quantity: Quantity = "goodput" if shown == "goodput" else "latency"
    rows: dict[_Key, Measured] = {}
    for run, own in zip(complete, placed, strict=True):
        expect = expect_from_topology(run, topology, judge.policy) if topology else None
        for key, samples in own:
            if samples.bytes not in sizes[key]:
                continue
            name, place, at = key
            series = name
            # Operations stand beside each other, each with its ways; or the ways of the one that there is.
            if figure.over == "way":
                at, _, series = name.partition(", ") if len(figure.operations) > 1 else (name, "", name)
            row = rows.setdefault(key, Measured(name, series, at, place))
            row.values[samples.ranks] = samples.goodput_gbps if shown == "goodput" else samples.latency_us
            if expect:
                row.models[samples.ranks] = expect(samples, quantity)
    return [rows[key] for key in sorted(rows)]


def _is_shown(figure: PaperFigure, shown: Shown, run: Run, samples: Samples) -> bool:
    plan = run.header["plan"]
    if kernel_settings(plan):
        return False
    if shown != "time" and (samples.bytes >= SMALLEST_GOODPUT_BYTES) != (shown == "goodput"):
        return False
    for name in _SPECIAL:
        # A figure of ways has the plain one beside the special.
        if bool(plan.get(name)) != (name in figure.settings) and (plan.get(name) or figure.over != "way"):
            return False
    is_far = len(_hosts(run, samples)) > 1
    is_beside_others = samples.schedule == "contended" and len(samples.ranks) < len(run.ranks)
    # Pairs of nodes go in rounds in which no node takes part twice.
    if is_beside_others and not figure.both_schedules and not (is_far and samples.operation in PAIRS):
        return False
    if samples.wrong_bytes or samples.operation not in figure.operations:
        return False
    if figure.transports and run.header["transport"] not in figure.transports:
        return False
    if figure.between != "any" and is_far != (figure.between == "nodes"):
        return False
    if figure.between == "sockets" and len({rank.numa_node for rank in run.ranks if rank.rank in samples.ranks}) < 2:
        return False
    return not figure.from_first or samples.ranks[0] == 0


def _hosts(run: Run, samples: Samples) -> set[str]:
    return {rank.host for rank in run.ranks if rank.rank in samples.ranks}


def _sizes_of(figure: PaperFigure, shown: Shown, measured: Iterable[tuple[_Key, int]]) -> Mapping[_Key, set[int]]:
    """The size that a figure shows of each series at each place: that of all where there is such a one."""
    sizes: dict[_Key, set[int]] = defaultdict(set)
    for key, size in measured:
        sizes[key].add(size)
    if figure.bytes is not None:
        return {key: {parse_size(figure.bytes)} for key in sizes}
    common = set.intersection(*sizes.values()) if sizes else set()
    return {key: {(min if shown == "latency" else max)(common or own)} for key, own in sizes.items()}


def _name(figure: PaperFigure, run: Run, samples: Samples, *, several: bool) -> str:
    transport = str(run.header["transport"])
    if several and transport == "mpi":
        transport = f"mpi ({_mpi_of(run)})"
    plan = run.header["plan"]
    settings = [plan[name] for name in figure.settings if plan.get(name) and plan[name] is not True]
    words = ["-".join(value) if isinstance(value, list) else str(value) for value in settings]
    operation = [samples.operation] if len(figure.operations) > 1 else []
    words += [samples.schedule] if figure.both_schedules else []
    words += ["between nodes" if len(_hosts(run, samples)) > 1 else "in a node"] if figure.between == "any" else []
    return ", ".join([*operation, transport, *words])


def _mpi_of(run: Run) -> str:
    library = run.header.get("libraries", {}).get("mpi", {})
    return f"{library.get('name', 'unknown')} {library.get('version', '')}".strip()


def _place(figure: PaperFigure, run: Run, samples: Samples, network: Network | None) -> tuple[float, str]:
    """Where on the x axis it stands, and what that place is called."""
    if figure.over == "size":
        return float(samples.bytes), format_size(samples.bytes)
    if figure.over in ("ranks", "active"):
        groups = samples.groups if figure.over == "active" else None
        count = groups.active if groups is not None else len(samples.ranks)
        return float(count), str(count)
    if figure.over == "pair":
        return 0.0, "-".join(map(str, samples.ranks))
    if figure.over == "distance":
        if network is None:
            return float(len(DISTANCES)), "unknown"
        distance = network.distance(*map(network.node_of_host, _hosts(run, samples)))
        return float(DISTANCES.index(distance)), distance
    return 0.0, ""


def answer(figure: PaperFigure, rows: Sequence[Measured]) -> str:
    """Return whether what the paper concluded holds here, does not, or is open (95%); empty where it is not
    a ratio. `rows` are of the quantity that the paper shows first, which a claim is of."""
    claim = figure.holds
    if claim is None:
        return ""
    ratios = list(_ratios(claim, rows, are_ways=figure.over == "way"))
    if figure.quantities[0] != "goodput":  # half the time is twice the speed
        ratios = [(1 / high, 1 / low if low else math.inf) for low, high in ratios]
    if not ratios:
        return "Nothing was measured here that could tell."
    if all(low >= claim.least and high <= claim.most for low, high in ratios):
        text = "holds here"
    elif any(high < claim.least or low > claim.most for low, high in ratios):
        text = "does not hold here"
    else:
        text = "is open here"
    ends = f"{min(low for low, _ in ratios):.2f} to {max(high for _, high in ratios):.2f}"
    return f"That {text}: {claim.series} is at {ends} of {claim.than}."


def _ratios(claim: Claim, rows: Sequence[Measured], *, are_ways: bool) -> Iterator[tuple[float, float]]:
    """Yield the 95% interval of each ratio that a claim is about."""
    least = parse_size(claim.from_size) if claim.from_size else 0
    first: dict[str, Measured] = {}
    for row in rows:
        rest = _parts_beside(row.name, claim.series)
        if rest is None or row.place < least:
            continue
        if claim.than in ("nominal", "expected", "achievable"):
            yield from row.shares(claim.than)
        elif claim.than == "first":
            before = first.setdefault(row.name, row)
            if before is not row:
                yield _ratio(row, before)
        else:
            for other in rows:
                beside = _parts_beside(other.name, claim.than)
                if (are_ways or other.at == row.at) and beside is not None and (rest <= beside or beside <= rest):
                    yield _ratio(row, other)


def _parts_beside(name: str, named: str) -> frozenset[str] | None:
    """The words of a name, such as `alltoall, mpi`, beside those that a claim names; None: it is not meant."""
    parts = frozenset(part.partition(" (")[0] for part in name.split(", "))
    wanted = frozenset(named.split(", "))
    return parts - wanted if wanted <= parts else None


def _ratio(row: Measured, other: Measured) -> tuple[float, float]:
    """Within what the ratio lies for all pairs or groups that both have; of all together where they have none in
    common."""
    common = row.values.keys() & other.values.keys()
    if common:
        pairs = [(row.values[group], other.values[group]) for group in common]
    else:
        pairs = [(np.concatenate([*row.values.values()]), np.concatenate([*other.values.values()]))]
    bounds = [ratio_interval([own], [its]) for own, its in pairs]
    return min(low for low, _ in bounds), max(high for _, high in bounds)
