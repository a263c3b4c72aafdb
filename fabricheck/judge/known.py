"""What is known of a measurement from elsewhere: of the same part on other machines, and of the system in papers.

reference_values/parts/<part>.yaml has a part's values, reference_values/published/<system>.yaml those of papers, of
which those with `judges` judge (docs/reference-formats.md). Both say by the same fields which metrics they are about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.expectation.placement import ends_of_ranks, gpu_of_ranks
from fabricheck.judge.policy import Policy, Scope, host_memory_of, scope_of
from fabricheck.records.judgement import Expectation, Yardstick
from fabricheck.records.metrics import BETTER, UNITS, Metric
from fabricheck.records.operations import (
    MEMORY_PATHS,
    PAIRS,
    HostKind,
    Operation,
    Schedule,
    Transport,
    uses_host_memory,
)
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Device, Run, Samples
from fabricheck.topology.graph import node_graph
from fabricheck.topology.host import host_links
from fabricheck.topology.model import Topology
from fabricheck.topology.network import node_of
from fabricheck.units import parse_size
from fabricheck.yamlfile import read_yaml

_Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
Unit = Literal["Gb/s", "GB/s", "us", "share of nominal"]
# Between machines of a part, beyond this many standard deviations.
_SPREADS = 6.0


class Where(BaseModel):
    """Which metrics a value is about; what is left out may be anything, but for `ccl_mode`: NCCL as it is by default.

    `bytes`: sizes. `links`: those on the way from a GPU, as `links_on_the_way` writes them. `library`: the beginning of
    name and version of the library that moves the data. `environment`: variables that have to be in effect.
    """

    model_config = _STRICT

    operations: Annotated[list[Operation], Field(min_length=1)]
    transports: Annotated[list[Transport], Field(min_length=1)]
    quantity: Literal["goodput", "latency"] = "goodput"
    scope: Scope = "node"
    schedule: Schedule = "uncontended"
    bytes: list[_Text] | None = None
    least: _Text | None = None
    most: _Text | None = None
    ranks: int | None = None
    links: _Text | None = None
    access: Literal["write", "read"] | None = None
    host_memory: HostKind | None = None
    ccl_mode: _Text | None = None
    library: _Text | None = None
    distance: Literal["same-switch", "same-group", "other-groups"] | None = None
    environment: dict[str, str] = {}


class PartValue(BaseModel):
    """A value of a part: centre, relative spread between machines (0: not known), and of how many machines.

    `range`: the least and the most that the source found, which are the bounds then.
    """

    model_config = _STRICT

    where: Where
    value: Annotated[float, Field(gt=0)]
    unit: Unit
    range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    spread: Annotated[float, Field(ge=0)] = 0.0
    machines: Annotated[int, Field(gt=0)]
    source: _Text


class PartSource(BaseModel):
    """Where values come from. `kind`: measured by Fabricheck, or published."""

    model_config = _STRICT

    kind: Literal["measured", "published"]
    source: _Text
    date: _Text | None = None
    software: _Text | None = None


class Part(BaseModel):
    """A GPU model by the names that drivers give it (shell patterns) and its memory, and what it gave elsewhere."""

    model_config = _STRICT

    part: _Text
    names: Annotated[list[_Text], Field(min_length=1)]
    memory_gib: Annotated[list[float], Field(min_length=2, max_length=2)]
    sources: dict[str, PartSource]
    values: Annotated[list[PartValue], Field(min_length=1)]

    def is_of(self, device: Device) -> bool:
        """Whether a GPU is this part, by its name and memory."""
        low, high = self.memory_gib
        return low <= device.memory_bytes / 2**30 <= high and any(fnmatchcase(device.name, one) for one in self.names)


@dataclass(frozen=True)
class Facts:
    """What a run says of itself that values are told by."""

    run: Run
    topology: Topology | None

    @cached_property
    def devices(self) -> Mapping[int, Device]:
        return {each.rank: each.device for each in self.run.ranks if each.device is not None}

    @cached_property
    def gpus(self) -> Mapping[int, int]:
        return gpu_of_ranks(self.run)

    @cached_property
    def ends(self) -> Mapping[int, str]:
        return ends_of_ranks(self.run, self.topology) if self.topology is not None else {}

    @property
    def library(self) -> str:
        """Name and version of what moves the data: NCCL, RCCL or the MPI library; empty for copies and kernels."""
        name = {"ccl": "ccl", "mpi": "mpi"}.get(self.run.header["transport"], "")
        found = self.run.header.get("libraries", {}).get(name) or {}
        return " ".join(str(found[each]) for each in ("name", "version") if found.get(each))

    def distance(self, samples: Samples) -> str | None:
        network = self.topology.network if self.topology is not None else None
        nodes = [node_of(self.ends[rank]) for rank in samples.ranks if rank in self.ends]
        return network.distance(*nodes) if network is not None and len(nodes) == 2 else None


def links_on_the_way(facts: Facts, samples: Samples) -> str:
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
    return bool(run.header) and not is_rehearsal(run) and not plan.get("shared_devices") and not plan.get("buffers")


def matches(where: Where, metric: Metric, facts: Facts) -> bool:
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
        and where.ccl_mode == plan.get("ccl_mode")
        and (where.library is None or _begins(facts.library, where.library))
        and all(environment.get(name) == value for name, value in where.environment.items())
        and where.links in (None, links_on_the_way(facts, samples))
        and where.distance in (None, facts.distance(samples))
    )


def _begins(library: str, wanted: str) -> bool:
    """Whether a version begins so: `NCCL 2.2` is not the beginning of `NCCL 2.28`."""
    return library == wanted or library.startswith(f"{wanted}.")


def in_unit(value: float, unit: str, metric: Metric, expectation: Expectation) -> float | None:
    """A value in the unit of a metric; None for a share of a nominal value that nobody knows, and for other units."""
    if unit == "share of nominal":
        return value * expectation.nominal if expectation.nominal is not None else None
    if unit == "GB/s":
        value, unit = 8 * value, "Gb/s"
    return value if unit == UNITS[metric.quantity] else None


def yardsticks_of_parts(
    parts: Iterable[Part], metric: Metric, expectation: Expectation, facts: Facts, policy: Policy
) -> Iterator[Yardstick]:
    """What the parts that a metric was measured on gave elsewhere. Of values that match alike, the most machines'."""
    devices = [facts.devices[rank] for rank in metric.samples.ranks if rank in facts.devices]
    if not devices or len(devices) < len(metric.samples.ranks):
        return
    for part in parts:
        if not all(part.is_of(each) for each in devices):
            continue
        for one in sorted(part.values, key=lambda each: -each.machines):
            value = in_unit(one.value, one.unit, metric, expectation)
            if value is not None and matches(one.where, metric, facts):
                yield _of_part(part, one, metric, value, policy)


def _of_part(part: Part, one: PartValue, metric: Metric, value: float, policy: Policy) -> Yardstick:
    kind = part.sources[one.source].kind
    near = policy.part_margin_of_host_memory if one.where.host_memory is not None else policy.part_margin
    least = near if kind == "measured" else policy.published_margin
    if metric.quantity == "latency":
        least = max(least, policy.part_margin_of_latencies)
    if one.machines == 1 and kind == "measured":  # of which nobody knows how far it is from others
        least *= 2
    margin = max(least, _SPREADS * one.spread)
    higher = BETTER[metric.quantity] == "higher"
    worse, tolerance = 1 - margin if higher else 1 + margin, f"margin {margin:.0%}"
    if one.range is not None:
        worse, tolerance = one.range[0 if higher else 1] / one.value, "its range"
    machines = f"{one.machines} machine{'s' if one.machines > 1 else ''}"
    return Yardstick("part", value, value * worse, f"{part.part}, {machines}, {one.source}; {tolerance}")


def load_part(path: Path) -> Part:
    """The values of a part. Raises UserError that names file, line and field."""
    file = read_yaml(path)
    try:
        part = Part.model_validate(file.content)
    except pydantic.ValidationError as error:
        raise file.rejection(error) from None
    if part.memory_gib[0] > part.memory_gib[1]:
        file.fail(("memory_gib",), "goes from the least to the most")
    for position, one in enumerate(part.values):
        if one.range is not None and not one.range[0] <= one.value <= one.range[1]:
            file.fail(("values", position, "range"), "goes from the least to the most, with the value in between")
        if one.source not in part.sources:
            file.fail(("values", position, "source"), f"{one.source!r} is not among sources")
        check_where(file, ("values", position, "where"), one.where)
    return part


def check_where(file: Any, place: tuple[Any, ...], where: Where) -> None:
    """UserError for a size that is none."""
    for name, texts in (("bytes", where.bytes or []), ("least", [where.least]), ("most", [where.most])):
        for text in texts:
            try:
                parse_size(text) if text is not None else None
            except Exception as error:
                file.fail((*place, name), str(error))


def load_parts(folder: Path) -> tuple[Part, ...]:
    """All parts of a folder, in the order of their files; none where it does not exist."""
    return tuple(load_part(path) for path in sorted(folder.glob("*.yaml")))
