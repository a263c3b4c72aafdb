"""Figures of papers: which measurements each shows, the paper's points beside what was measured here, and whether what
the paper concluded holds here. It reads, draws and compares; nothing is judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.published import Published, load_published
from fabricheck.judge.statistics import median_interval, ratio_interval
from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, Quantity
from fabricheck.records.operations import PAIRS, kernel_settings
from fabricheck.records.run import Run, Samples
from fabricheck.topology.network import DISTANCES, Network
from fabricheck.units import format_size, parse_size
from fabricheck.yamlfile import read_yaml

Floats = npt.NDArray[np.float64]
#: What the y axis shows: `time` is that of an operation of any size, `latency` that of small messages.
Shown = Literal["goodput", "latency", "time"]
UNITS: Mapping[Shown, str] = {"goodput": "Gb/s", "latency": "us", "time": "us"}
# Settings of a plan with which an operation is another measurement: a figure shows them if and only if it names them.
_SPECIAL = ("buffers", "shared_devices", "train", "in_place", "split")
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
    least: float | None = None
    most: float | None = None
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
    """why no machine at hand can measure it"""
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
    values: dict[str, dict[str, Published]] = {}
    for path in sorted((published / "figures").glob("*.yaml")):
        file = read_yaml(path)
        entries = file.validated(_File.model_validate)
        for position, figure in enumerate(entries.figures):
            cited = []
            for point in figure.points:
                if point.system not in values:
                    system = load_published(published / f"{point.system}.yaml")
                    # The first: what papers say stands before what owners do.
                    values[point.system] = {value.what: value for value in reversed(system)}
                if point.what not in values[point.system]:
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

    def shares(self, of: str, *, higher: bool) -> list[tuple[float, float]]:
        """The interval of each pair's or group's speed, as a share of what the model calls `of`."""
        shares = []
        for group, values in self.values.items():
            whole = getattr(self.models.get(group), of, None)
            if whole:
                low, high = median_interval(values)
                shares.append((low / whole, high / whole) if higher else (whole / high, whole / low))
        return shares


def measured(figure: PaperFigure, shown: Shown, runs: Iterable[Run], judge: SystemJudge) -> list[Measured]:
    """Return what complete runs measured of a figure, by series and place.

    Raises UserError for devices and hosts that the topology does not have.
    """
    complete = [run for run in runs if run.footer is not None and not run.problems]
    libraries = {_mpi_of(run) for run in complete if run.header["transport"] == "mpi"}
    size = _size_of(figure, shown, complete)
    rows: dict[tuple[str, float, str], Measured] = {}
    for run in complete:
        expect = expect_from_topology(run, judge.topology, judge.policy) if judge.topology is not None else None
        for samples in run.samples:
            if not _is_shown(figure, run, samples) or not _has_size(shown, samples, size):
                continue
            name = _name(figure, run, samples, several=len(libraries) > 1)
            place, at = _place(figure, run, samples, judge.topology.network if judge.topology is not None else None)
            series = name
            if (
                figure.over == "way"
            ):  # operations stand beside each other, each with its ways; or the ways of the one that there is
                at, _, series = name.partition(", ") if len(figure.operations) > 1 else (name, "", name)
            row = rows.setdefault((name, place, at), Measured(name, series, at, place))
            row.values[samples.ranks] = samples.goodput_gbps if shown == "goodput" else samples.latency_us
            quantity: Quantity = "goodput" if shown == "goodput" else "latency"
            if expect is not None:
                row.models[samples.ranks] = expect(samples, quantity)
    return [rows[key] for key in sorted(rows)]


def _is_shown(figure: PaperFigure, run: Run, samples: Samples) -> bool:
    plan = run.header["plan"]
    if kernel_settings(plan):
        return False
    for name in _SPECIAL:
        # A figure of ways has the plain one beside the special.
        if bool(plan.get(name)) != (name in figure.settings) and (plan.get(name) or figure.over != "way"):
            return False
    members = [rank for rank in run.ranks if rank.rank in samples.ranks]
    is_far = len({rank.host for rank in members}) > 1
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
    if figure.between == "sockets" and len({rank.numa_node for rank in members}) < 2:
        return False
    return not figure.from_first or samples.ranks[0] == 0


def _size_of(figure: PaperFigure, shown: Shown, runs: Sequence[Run]) -> int | None:
    """The one size that a figure shows, which all its series have if any is; None where it is over sizes."""
    if figure.over == "size":
        return None
    if figure.bytes is not None:
        return parse_size(figure.bytes)
    sizes: dict[str, set[int]] = defaultdict(set)
    for run in runs:
        for samples in run.samples:
            if _is_shown(figure, run, samples):
                sizes[_name(figure, run, samples, several=False)].add(samples.bytes)
    common = set.intersection(*sizes.values()) if sizes else set()
    return (min if shown == "latency" else max)(common or set().union(*sizes.values()), default=None)


def _has_size(shown: Shown, samples: Samples, size: int | None) -> bool:
    if size is not None:
        return samples.bytes == size
    return shown == "time" or (samples.bytes >= SMALLEST_GOODPUT_BYTES) == (shown == "goodput")


def _name(figure: PaperFigure, run: Run, samples: Samples, *, several: bool) -> str:
    transport = str(run.header["transport"])
    if several and transport == "mpi":
        transport = f"mpi ({_mpi_of(run)})"
    plan = run.header["plan"]
    settings = [plan[name] for name in figure.settings if plan.get(name) and plan[name] is not True]
    words = ["-".join(value) if isinstance(value, list) else str(value) for value in settings]
    operation = [samples.operation] if len(figure.operations) > 1 else []
    words += [samples.schedule] if figure.both_schedules else []
    return ", ".join([*operation, transport, *words])


def _mpi_of(run: Run) -> str:
    library = run.header.get("libraries", {}).get("mpi", {})
    return f"{library.get('name', 'unknown')} {library.get('version', '')}".strip()


def _place(figure: PaperFigure, run: Run, samples: Samples, network: Network | None) -> tuple[float, str]:
    """Where on the x axis it stands, and what that place is called."""
    if figure.over == "size":
        return float(samples.bytes), format_size(samples.bytes)
    if figure.over == "ranks":
        return float(len(samples.ranks)), str(len(samples.ranks))
    if figure.over == "active":
        active = samples.groups.active if samples.groups is not None else len(samples.ranks)
        return float(active), str(active)
    if figure.over == "pair":
        return 0.0, "-".join(map(str, samples.ranks))
    if figure.over == "distance":
        hosts = {rank.rank: rank.host for rank in run.ranks}
        if network is None:
            return float(len(DISTANCES)), "unknown"
        distance = network.distance(*(network.node_of_host(hosts[rank]) for rank in samples.ranks[:2]))
        return float(DISTANCES.index(distance)), distance
    return 0.0, ""


def conclusion(cited: Cited, measured: Mapping[Shown, Sequence[Measured]]) -> str:
    """Return what the paper concluded, and whether that holds here: certainly, certainly not, or open (95%). A claim is
    of the quantity that the paper shows first."""
    claim, concluded = cited.figure.holds, cited.figure.concluded
    if claim is None:
        return f"The paper: {concluded}."
    shown = cited.figure.quantities[0]
    ratios = list(_ratios(claim, measured[shown], higher=shown == "goodput", are_ways=cited.figure.over == "way"))
    if not ratios:
        return f"The paper: {concluded}. Nothing was measured here that could tell."
    least, most = claim.least or 0.0, claim.most or float("inf")
    if all(low >= least and high <= most for low, high in ratios):
        answer = "holds here"
    elif any(high < least or low > most for low, high in ratios):
        answer = "does not hold here"
    else:
        answer = "is open here"
    ends = f"{min(low for low, _ in ratios):.2f} to {max(high for _, high in ratios):.2f}"
    return f"The paper: {concluded}. That {answer}: {claim.series} is at {ends} of {claim.than}."


def _ratios(claim: Claim, rows: Sequence[Measured], *, higher: bool, are_ways: bool) -> Iterator[tuple[float, float]]:
    """Yield the 95% interval of each ratio of speeds that a claim is about."""
    least = parse_size(claim.from_size) if claim.from_size else 0
    first: dict[str, Measured] = {}
    for row in rows:
        rest = _parts_beside(row.name, claim.series)
        if rest is None or row.place < least:
            continue
        if claim.than in ("nominal", "expected", "achievable"):
            yield from row.shares(claim.than, higher=higher)
        elif claim.than == "first":
            before = first.setdefault(row.name, row)
            if before is not row:
                yield _ratio(row, before, higher=higher)
        else:
            for other in rows:
                beside = _parts_beside(other.name, claim.than)
                is_beside = are_ways or other.at == row.at
                if beside is not None and (rest <= beside or beside <= rest) and is_beside:
                    yield _ratio(row, other, higher=higher)


def _parts_beside(name: str, named: str) -> frozenset[str] | None:
    """The words of a name, such as `alltoall, mpi`, beside those that a claim names; None: it is not meant."""
    parts = frozenset(part.partition(" (")[0] for part in name.split(", "))
    wanted = frozenset(named.split(", "))
    return parts - wanted if wanted <= parts else None


def _ratio(row: Measured, other: Measured, *, higher: bool) -> tuple[float, float]:
    """Within what the ratio of speeds lies for all pairs or groups that both have; of all together where they have
    none in common."""
    common = row.values.keys() & other.values.keys()
    if common:
        pairs = [(row.values[group], other.values[group]) for group in common]
    else:
        pairs = [(np.concatenate([*row.values.values()]), np.concatenate([*other.values.values()]))]
    bounds = [ratio_interval([own], [its]) if higher else ratio_interval([its], [own]) for own, its in pairs]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def points_by_place(cited: Cited, shown: Shown) -> dict[str, list[str]]:
    """Return a figure's points by the name of their place: the values with their unit and source."""
    texts: dict[str, list[str]] = defaultdict(list)
    for point, value, _ in cited.points(shown):
        number = " to ".join(f"{end:g}" for end in dict.fromkeys(value.ends))
        relation = "" if value.relation in ("is", "from_to") else f"{value.relation.replace('_', ' ')} "
        text = f"{point.system}, {value.what}: {relation}{number} {value.unit} ({value.source})"
        texts[str(point.at)].append(text)
    return texts
