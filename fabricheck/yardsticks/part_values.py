"""What is known of a measurement from elsewhere: of the same part on other machines, and of the system in papers.

reference_values/parts/<part>.yaml has a part's values, reference_values/published/<system>.yaml those of papers, of
which those with `judges` judge (docs/formats.md). Both say by the same fields which metrics they are about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.limits.achievable import TimeOverSize
from fabricheck.limits.question import FLOOR_FRACTION
from fabricheck.records.judgement import Expectation, Yardstick
from fabricheck.records.metrics import BETTER, UNITS, Metric
from fabricheck.records.operations import (
    MEMORY_PATHS,
    PAIRS,
    bus_factor,
    kernel_settings,
    uses_host_memory,
)
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Device, Run, Samples
from fabricheck.statistics.constants import MOST_OF_METRIC
from fabricheck.topology.board import Board
from fabricheck.topology.graph import node_graph
from fabricheck.topology.host import host_links
from fabricheck.topology.model import Topology
from fabricheck.topology.network import node_of
from fabricheck.topology.nic import link_layer
from fabricheck.topology.placement import ends_of_ranks, gpu_of_ranks
from fabricheck.units import parse_size, plural
from fabricheck.yamlfile import read_yaml
from fabricheck.yardsticks.policy import Policy, host_memory_of, scope_of
from fabricheck.yardsticks.where import Unit, Where, check_unit, check_where

_Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PartValue(BaseModel):
    """A value of a part, of how many `machines`.

    `range`: the least and the most that the source found, which are the bounds then. `alarm_of`: the value is none that
    was measured, but the bound that this owner runs machines against; `conditions` say what it is required of.
    """

    model_config = _STRICT

    where: Where
    value: Annotated[float, Field(gt=0)]
    """the median of the machines"""
    unit: Unit
    range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    spread: Annotated[float, Field(ge=0)] = 0.0
    """relative standard deviation between machines, or inside a machine where that is more; 0: not known"""
    machines: Annotated[int, Field(gt=0)] = 1
    source: _Text
    alarm_of: _Text | None = None
    conditions: _Text | None = None


class CurveOfPart(BaseModel):
    """Time over size, as a table has it: of all sizes between the first and the last of its points.

    `python -m tools.fit_curves` fits the numbers to the points, in us by size, and prints the largest relative error.
    """

    model_config = _STRICT

    where: Where
    latency_us: Annotated[float, Field(gt=0)]
    pipeline: Annotated[float, Field(ge=0)]
    """how much of sqrt(latency x bytes / rate) a transfer takes beside latency and bytes / rate"""
    gbps: Annotated[float, Field(gt=0)]
    """bytes over time of large messages, Gb/s"""
    within: Annotated[float, Field(gt=0, lt=1)]
    """largest relative error"""
    points: Annotated[list[Annotated[tuple[_Text, float], Field(strict=False)]], Field(min_length=3)]
    conditions: _Text
    source: _Text

    def yardstick(self, part: Part, metric: Metric, policy: Policy) -> Yardstick | None:
        """What it says of a metric; None beyond its points."""
        sizes = [parse_size(size) for size, _ in self.points]
        if not sizes[0] <= metric.samples.bytes <= sizes[-1]:
            return None
        value = TimeOverSize(self.latency_us, self.gbps, self.pipeline).value(metric.quantity, metric.samples.bytes)
        margin = self.within + policy.published_margin
        bound = value * (1 - margin) if metric.better == "higher" else value / (1 - margin)
        source = f"curve of {part.part}, {self.conditions} ({part.sources[self.source].source}); margin {margin:.0%}"
        return Yardstick("part", value, bound, source)


class Unmapped(BaseModel):
    """A published value that no metric is about: what it is of, as its source says it, and `why` it judges nothing."""

    model_config = _STRICT

    what: _Text
    value: _Text
    conditions: _Text
    source: _Text
    why: _Text


class PartSource(BaseModel):
    """Where values come from. `kind`: measured by Fabricheck, or published."""

    model_config = _STRICT

    kind: Literal["measured", "published"]
    source: _Text
    date: _Text | None = None
    software: _Text | None = None


class ProductOfPart(BaseModel):
    """Dense matrix products in Tflop/s."""

    model_config = _STRICT

    type: _Text
    """of the numbers that are multiplied"""
    peak: Annotated[float, Field(gt=0)]
    """of the data sheet"""
    reached: Annotated[float, Field(gt=0)]
    """by the vendor's library at its best shape"""
    source: _Text


class Part(BaseModel):
    """A GPU model by the names that drivers give it (shell patterns) and its memory, and what it gave elsewhere."""

    model_config = _STRICT

    part: _Text
    names: Annotated[list[_Text], Field(min_length=1)]
    """as the driver has them, shell patterns"""
    memory_gib: Annotated[list[float], Field(min_length=2, max_length=2)]
    """from, to"""
    sources: dict[str, PartSource]
    values: list[PartValue]
    curves: list[CurveOfPart] = []
    unmapped: list[Unmapped] = []
    products: list[ProductOfPart] = []
    board: Board | None = None
    system: _Text | None = None
    """of which a description draws the node, where pairs differ"""

    def is_of(self, device: Device) -> bool:
        """Whether a GPU is this part, by its name and memory."""
        low, high = self.memory_gib
        return low <= device.memory_bytes / 2**30 <= high and any(fnmatchcase(device.name, one) for one in self.names)


@dataclass(frozen=True)
class RunContext:
    """What a run reports that values are told by."""

    run: Run
    topology: Topology | None

    @cached_property
    def devices(self) -> Mapping[int, Device]:
        """The device of each rank that has one, by rank."""
        return {each.rank: each.device for each in self.run.ranks if each.device is not None}

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        """The index of the GPU that each rank drove, by rank."""
        return gpu_of_ranks(self.run)

    @cached_property
    def ends(self) -> Mapping[int, str]:
        """The node of the link graph that each rank ran on, by rank; empty without a topology."""
        return ends_of_ranks(self.run, self.topology) if self.topology is not None else {}

    def library_of(self, samples: Samples) -> str:
        """The library of a measurement: of a product what multiplies, else what moves the data."""
        product = self.run.product if samples.operation == "product" else None
        return product.by[samples.ranks[0]] if product is not None else self.library

    @property
    def library(self) -> str:
        """Name and version of what moves the data: NCCL, RCCL or the MPI library; empty for copies and kernels."""
        name = {"ccl": "ccl", "mpi": "mpi"}.get(self.run.header["transport"], "")
        library = self.run.header.get("libraries", {}).get(name) or {}
        return " ".join(str(library[each]) for each in ("name", "version") if library.get(each))

    @cached_property
    def nics_of_a_node(self) -> str:
        """Those that the topology has, such as `4 x 200 Gb/s`; empty where it has none."""
        rates = Counter(f"{one.rate_gbps:g} Gb/s" for one in self.topology.nics) if self.topology is not None else {}
        return " + ".join(f"{count} x {rate}" for rate, count in rates.items())

    @cached_property
    def layer(self) -> str | None:
        """The link layer of the NICs; None where they have several, or it is unknown."""
        layers = {link_layer(nic.model) for nic in self.topology.nics} if self.topology is not None else set()
        return layers.pop() if len(layers) == 1 else None

    @cached_property
    def in_switch(self) -> bool:
        """Whether the switch between the GPUs can reduce, and no variable keeps NCCL from having it do that."""
        able = self.topology is not None and any(each.in_network_reduction for each in self.topology.switches)
        return able and not switch_is_left_out(self.run.header.get("environment", {}))

    def nodes(self, samples: Samples) -> int:
        """On how many nodes the ranks of a measurement ran."""
        return len({each.host for each in self.run.ranks if each.rank in samples.ranks})

    def in_domain(self, samples: Samples) -> bool:
        """Whether NVLink joins the nodes of a measurement."""
        return self.topology is not None and 1 < self.nodes(samples) <= self.topology.nvlink_domain_nodes

    def distance(self, samples: Samples) -> str | None:
        """The class of distance between the two nodes of a measurement; None for another number of nodes or without a
        network."""
        network = self.topology.network if self.topology is not None else None
        nodes = [node_of(self.ends[rank]) for rank in samples.ranks if rank in self.ends]
        return network.distance(*nodes) if network is not None and len(nodes) == 2 else None


def switch_is_left_out(environment: Mapping[str, str]) -> str:
    """The variable that keeps NCCL from reducing in the switch, as `NAME=VALUE`; empty where there is none.

    NCCL_ALGO has a list for all functions and lists for some (`ring;allreduce:nvls,tree`); `^` leaves out its list.
    """
    if environment.get("NCCL_NVLS_ENABLE") == "0":
        return "NCCL_NVLS_ENABLE=0"
    value = environment.get("NCCL_ALGO", "")
    of_all = [one for one in value.lower().split(";") if one and ":" not in one]
    of_allreduce = [one.partition(":")[2] for one in value.lower().split(";") if one.startswith("allreduce:")]
    names = next(iter((*of_allreduce, *of_all)), "")
    if not names or ("nvls" in names.removeprefix("^").split(",")) != names.startswith("^"):
        return ""
    return f"NCCL_ALGO={value}"


def links_on_the_way(facts: RunContext, samples: Samples) -> str:
    """The links that limit a measurement inside a node, such as `18 x NVLink4`; empty where there are none.

    Of a pair those of its widest path, of the host those of the GPU to CPUs, of a collective those that join GPUs.
    """
    topology = facts.topology
    if topology is None or samples.operation == "local_copy" or not all(rank in facts.gpus for rank in samples.ranks):
        return ""
    gpus = [topology.gpu(facts.gpus[rank]) for rank in samples.ranks]
    graph = node_graph(topology)
    if uses_host_memory(samples.operation, None):
        links = [*host_links(topology, gpus)]
    elif samples.operation in PAIRS:
        links = [one for edge in graph.widest_path(*gpus).edges for one in graph.links_of(edge)]
    else:
        links = [one for one in topology.links if graph.graph.has_edge(*one.ends)]
    return " + ".join(sorted({f"{one.count} x {one.technology}" for one in links}))


def is_comparable(run: Run) -> bool:
    """Whether a run's values can be held against those of elsewhere: real GPUs, each with one rank, buffers on them."""
    plan = run.header.get("plan", {})
    real = bool(run.header) and run.on_gpus and not is_rehearsal(run)
    return real and not plan.get("shared_devices") and not plan.get("buffers")


def matches(where: Where, metric: Metric, facts: RunContext) -> bool:
    """Whether a value is about a metric."""
    samples, header = metric.samples, facts.run.header
    plan, environment = header.get("plan", {}), header.get("environment", {})
    if metric.quantity != where.quantity or samples.operation not in where.operations:
        return False
    if header["transport"] not in where.transports or samples.schedule != where.schedule:
        return False
    if where.bytes is not None and samples.bytes not in map(parse_size, where.bytes):
        return False
    if (where.least and samples.bytes < parse_size(where.least)) or (
        where.most and samples.bytes > parse_size(where.most)
    ):
        return False
    # A memory path moves the bytes of all its ranks.
    if (where.ranks or (1 if samples.operation in MEMORY_PATHS else len(samples.ranks))) != len(samples.ranks):
        return False
    return (
        scope_of(facts.run, samples) == where.scope
        and where.access in (None, plan.get("access") or "write")
        and where.host_memory in (None, host_memory_of(facts.run, samples))
        and kernel_settings(plan) == ({"ccl_mode": where.ccl_mode} if where.ccl_mode else {})
        and (where.library is None or _begins(facts.library_of(samples), where.library))
        and where.product in (None, facts.run.product.type if facts.run.product is not None else None)
        and all(environment.get(name) == value for name, value in where.environment.items())
        and where.links in (None, links_on_the_way(facts, samples))
        and where.distance in (None, facts.distance(samples))
        and where.nodes in (None, facts.nodes(samples))
        and where.nics in (None, facts.nics_of_a_node)
        and where.layer in (None, facts.layer)
        and where.in_switch in (None, facts.in_switch)
        and where.nvlink_domain in (None, facts.in_domain(samples))
    )


def _begins(library: str, wanted: str) -> bool:
    """Whether name or version begin so: `NCCL 2.2` is not the beginning of `NCCL 2.28`."""
    return library == wanted or library.startswith((f"{wanted}.", f"{wanted} "))


def in_unit(value: float, unit: str, metric: Metric, expectation: Expectation, run: Run) -> float | None:
    """A value in the unit of a metric of `run`; None for a share of an unknown nominal value, and for other units."""
    if unit == "Tflop/s" and run.product is not None:
        value, unit = value * run.product.gbps_of_tflops, "Gb/s"
    if unit == "share of nominal":
        return value * expectation.nominal if expectation.nominal is not None else None
    if unit == "GB/s busbw":
        value, unit = value / bus_factor(metric.samples.operation, len(metric.samples.ranks)), "GB/s"
    if unit == "GB/s":
        value, unit = 8 * value, "Gb/s"
    return value if unit == UNITS[metric.quantity] else None


def yardsticks_of_parts(
    parts: Iterable[Part], metric: Metric, expectation: Expectation, facts: RunContext, policy: Policy
) -> Iterator[Yardstick]:
    """What the parts that a metric was measured on gave elsewhere. Of equal matches, that of most machines."""
    devices = [facts.devices[rank] for rank in metric.samples.ranks if rank in facts.devices]
    if not devices or len(devices) < len(metric.samples.ranks):
        return
    for part in parts:
        if not all(part.is_of(each) for each in devices):
            continue
        for known in sorted(part.values, key=lambda each: -each.machines):
            value = in_unit(known.value, known.unit, metric, expectation, facts.run)
            if value is None or not matches(known.where, metric, facts):
                continue
            if known.alarm_of is not None:
                required = f"{known.value:g} {known.unit} that {known.alarm_of} requires of {known.conditions}"
                source = f"{required} ({part.sources[known.source].source})"
                yield Yardstick("part", value, value, source, alarm=True)
            else:
                yield _of_part(part, known, metric, value, policy)
        for curve in part.curves:
            where = curve.where.model_copy(update={"quantity": metric.quantity})
            yardstick = curve.yardstick(part, metric, policy) if matches(where, metric, facts) else None
            if yardstick is not None:
                yield yardstick


def _of_part(part: Part, known: PartValue, metric: Metric, value: float, policy: Policy) -> Yardstick:
    kind = part.sources[known.source].kind
    near = policy.part_margin_of_host_memory if known.where.host_memory is not None else policy.part_margin
    least = near if kind == "measured" else policy.published_margin
    if metric.quantity == "latency":
        least = max(least, policy.part_margin_of_latencies)
    if known.machines == 1 and kind == "measured":  # of which nobody knows how far it is from others
        least *= 2
    margin = max(least, MOST_OF_METRIC * known.spread)
    higher = BETTER[metric.quantity] == "higher"
    worse, tolerance = 1 - margin if higher else 1 + margin, f"margin {margin:.0%}"
    if known.range is not None:
        worse, tolerance = known.range[0 if higher else 1] / known.value, "its range"
    machines = plural(known.machines, "machine")
    return Yardstick("part", value, value * worse, f"{part.part}, {machines}, {known.source}; {tolerance}")


def expectation_of_product(parts: Iterable[Part], run: Run, samples: Samples) -> Expectation | None:
    """What a GPU multiplies by itself, in Gb/s: at most the peak of its data sheet, and as a library is published to
    reach. None of anything else, by a kernel of our own, which no tensor core's rate is held against, and where
    nothing is published."""
    product = run.product
    if product is None or (samples.operation, samples.schedule) != ("product", "uncontended") or not is_comparable(run):
        return None
    rank = samples.ranks[0]
    device = next((each.device for each in run.ranks if each.rank == rank), None)
    if device is None or product.by[rank] == "kernel":
        return None
    for part in parts:
        for known in part.products:
            if part.is_of(device) and known.type == product.type:
                peak, reached = (value * product.gbps_of_tflops for value in (known.peak, known.reached))
                return Expectation(peak, reached, peak, FLOOR_FRACTION, f"{part.part}: {known.source}")
    return None


def load_part(path: Path) -> Part:
    """The values of a part. Raises UserError that names file, line and field.

    A file that did not change is read once: a run judges each of its checks, by all parts.
    """
    status = path.stat() if path.exists() else None
    return _load_part(path, (status.st_ino, status.st_mtime_ns, status.st_size) if status else None)


@lru_cache(maxsize=128)
def _load_part(path: Path, _: object) -> Part:
    file = read_yaml(path)
    part = file.validated(Part.model_validate)
    if part.memory_gib[0] > part.memory_gib[1]:
        file.fail(("memory_gib",), "has to be lowest, then highest")
    for position, stated in enumerate(part.values):
        if stated.range is not None and not stated.range[0] <= stated.value <= stated.range[1]:
            file.fail(("values", position, "range"), "has to be lowest, value, highest, in this order")
        if stated.source not in part.sources:
            file.fail(("values", position, "source"), f"{stated.source!r} is not among sources")
        check_where(file, ("values", position, "where"), stated.where)
        if stated.conditions is None and (
            stated.alarm_of is not None or part.sources[stated.source].kind == "published"
        ):
            file.fail(("values", position), "has no conditions: state of what, how and at which size")
        check_unit(file, ("values", position, "unit"), stated.unit, stated.where)
    return part


def load_parts(folder: Path) -> tuple[Part, ...]:
    """All parts of a folder, in the order of their files; none where it does not exist."""
    return tuple(load_part(path) for path in sorted(folder.glob("*.yaml")))
