"""What is acceptable before anything was measured, and how much noise is excused: the site's rules for judging."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.records.operations import (
    MEMORY_PATHS,
    PAIRS,
    Backend,
    HostKind,
    Operation,
    Schedule,
    Transport,
    uses_host_memory,
)
from fabricheck.records.run import Run, Samples
from fabricheck.yamlfile import read_yaml

Scope = Literal["node", "network"]

_Source = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Axes:
    """A rule for measurements that have something on each axis."""

    def matches(self, **axes: object) -> bool:
        """Whether the rule is about a measurement: each of its fields that is named is None, which is all, or what the
        measurement has, or a tuple with that."""
        own = ((getattr(self, name), has) for name, has in axes.items())
        return all(rule in (None, has) or (isinstance(rule, tuple) and has in rule) for rule, has in own)


@dataclass(frozen=True)
class FloorRule(_Axes):
    """A share of the expected goodput under which a run fails, for the measurements that it matches.

    An axis that is `None` matches everything; `scope` is whether the ranks share a node or not, `devices` whether they
    drove devices (the host backend does not). `host_memory`: kinds of host memory that the data come from or go to.
    """

    __pydantic_config__ = _STRICT

    fraction: Annotated[float, Field(ge=0, le=1)]
    """share of the expected goodput"""
    source: _Source
    transport: Transport | None = None
    operations: tuple[Operation, ...] | None = None
    scope: Scope | None = None
    devices: bool | None = None
    """null: with and without GPUs"""
    host_memory: tuple[HostKind, ...] | None = None
    schedule: Schedule | None = None


@dataclass(frozen=True)
class LatencyRule(_Axes):
    """What one small transfer takes at most (else FAIL) and at least (else INVALID), in microseconds."""

    __pydantic_config__ = _STRICT

    limit_us: Annotated[float, Field(gt=0)]
    """above it: FAIL, in microseconds"""
    minimum_us: Annotated[float, Field(gt=0)]
    """below it: INVALID, in microseconds"""
    source: _Source
    transport: Transport | None = None
    backend: Backend | None = None
    shared_devices: bool | None = None
    """whether ranks share a GPU"""

    def limit_for(self, operation: str, ranks: int) -> float:
        """The limit in µs for an operation over `ranks` ranks.

        A collective is allowed the 2(n - 1) transfers one after the other of a ring allreduce, the longest schedule
        that libraries use.
        """
        return self.limit_us * (1 if operation in (*PAIRS, *MEMORY_PATHS) else 2 * (ranks - 1))


@dataclass(frozen=True)
class StragglerRule:
    """From when on a rank that holds up the others is told, in milliseconds; `models`: words in the name of a GPU."""

    __pydantic_config__ = _STRICT

    alarm_ms: Annotated[float, Field(gt=0)]
    """alert limit of an owner of such machines, in milliseconds"""
    source: _Source
    models: tuple[_Source, ...] = ()
    """words of which one is in the names of all GPUs; empty: any"""

    def matches(self, names: Collection[str]) -> bool:
        """Whether the rule is about a run on GPUs of these names."""
        return not self.models or (bool(names) and all(any(word in name for word in self.models) for name in names))


@dataclass(frozen=True)
class SpreadRule(_Axes):
    """How much healthy peers differ, as a relative standard deviation, whatever the iterations of one series say.

    `launches`: whether the peers are of one launch (`one`) or of several (`several`). `host_memory`: whether the data
    come from host memory or go there.
    """

    __pydantic_config__ = _STRICT

    spread: Annotated[float, Field(gt=0, lt=1)]
    """relative standard deviation between peers"""
    source: _Source
    quantity: Literal["goodput", "latency"] | None = None
    scope: Scope | None = None
    """in one node, or between nodes"""
    devices: bool | None = None
    """whether the ranks drove GPUs"""
    host_memory: bool | None = None
    launches: Literal["one", "several"] | None = None


@dataclass(frozen=True)
class Policy:
    """The rules that `judge_run` follows; by default without floors: then only the model and the references judge.

    - `confidence` of the interval of the median.
    - `excusable_half_width`: half the interval over the median. A median under the bound of its reference is excused
      as noise only where the interval reaches the bound and is not wider than this: a run too noisy to tell did not
      pass.
    - `implausible_factor`: where the model knows no ceiling, a goodput more than this many times above every yardstick
      (a latency as many times below) is implausible.
    - `verification_required`: data that were not verified make a run INVALID.
    - `unverifiable`: programs that cannot check their data; their runs are not INVALID for that.
    - `smallest_loss`: a part of the network that loses less is not named (the lower end of the 95% interval counts);
      `smallest_loss_of_distance`: the same where all pairs over more than one switch lose, and no others, or where
      fewer pairs are healthy than parts would be slow.
    - `smallest_effect`: a setting that surely changes less than this share, either way, does nothing that matters.
    - `achievable_margin`, and that `_of_collectives`: how far under what links carry of data a goodput is DEGRADED;
      `_of_best`: the best of equal pairs of hosts without GPUs.
    - `part_margin`, and those `_of_host_memory` and `_of_latencies`: how far from the same part elsewhere, at least;
      `published_margin`: from a paper's value that has no range of its own.
    - `equals`: how much peers differ at least from each other while nothing is wrong; the first rule that matches
      counts. `equals_error`: how often a healthy session of `equals_metrics` metrics may be called DEGRADED by them.
    - `tails_of_equals`: whether a part that is slow now and then or at first, unlike its peers, is told.
    - `floors`, `latencies`: the first rule that matches counts. Floors are for those who make the expectations
      (`expect_from_topology`): the model lowers them where a size is small; the judge takes what the expectation says.
    - `stragglers`: alert limits of a rank that holds up the others; the first rule that matches counts.
    - `hide_names`: whether `fabricheck bundle` hides the names of nodes and users; `hide`: further names that it hides.
    - `most_drained`: ci/drain.py takes no larger share of a partition out of service, but always one node.
    - `source`: where the policy was read.
    """

    __pydantic_config__ = _STRICT

    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    excusable_half_width: Annotated[float, Field(ge=0, lt=1)] = 0.05
    implausible_factor: Annotated[float, Field(gt=1)] = 10.0
    verification_required: bool = True
    unverifiable: tuple[_Source, ...] = ()
    smallest_loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    smallest_loss_of_distance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    smallest_effect: Annotated[float, Field(gt=0, lt=1)] = 0.02
    achievable_margin: Annotated[float, Field(gt=0, lt=1)] = 0.12
    """how far below what the links carry as data a goodput is DEGRADED"""
    achievable_margin_of_collectives: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """the same of collectives"""
    achievable_margin_of_small: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """the same of messages below 64 MiB, and of latencies"""
    achievable_margin_of_best: Annotated[float, Field(gt=0, lt=1)] = 0.06
    """the same of the best of equal pairs of hosts without GPUs"""
    part_margin: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """how far from the same part elsewhere a metric may be, at least"""
    part_margin_of_host_memory: Annotated[float, Field(gt=0, lt=1)] = 0.10
    """the same of paths to host memory"""
    part_margin_of_latencies: Annotated[float, Field(gt=0)] = 1.0
    """the same of latencies"""
    published_margin: Annotated[float, Field(gt=0, lt=1)] = 0.1
    equals_error: Annotated[float, Field(gt=0, lt=1)] = 0.001
    equals_metrics: Annotated[int, Field(gt=0)] = 1000
    """metrics of the session that `equals_error` is about"""
    equals: tuple[SpreadRule, ...] = ()
    tails_of_equals: bool = True
    floors: tuple[FloorRule, ...] = ()
    latencies: tuple[LatencyRule, ...] = ()
    """what small transfers take at most and at least; the first rule that matches counts"""
    stragglers: tuple[StragglerRule, ...] = ()
    """from when on a rank that holds up the others is told; the first rule that matches counts"""
    hide_names: bool = False
    hide: tuple[_Source, ...] = ()
    most_drained: Annotated[float, Field(ge=0, le=1)] = 0.05
    source: str = "built in"
    """written by the reader: where the policy was read"""

    def floor(self, run: Run, samples: Samples) -> FloorRule | None:
        """The floor of a measurement; None where no rule is about it."""
        transport = str(run.header["transport"])
        scope = scope_of(run, samples)
        kind = host_memory_of(run, samples)
        return self.floor_for(transport, samples.operation, scope, run.on_gpus, kind, schedule=samples.schedule)

    def floor_for(
        self,
        transport: str,
        operation: str,
        scope: Scope,
        devices: bool,
        host_memory: str | None = None,
        *,
        schedule: str | None = None,
    ) -> FloorRule | None:
        """The first rule of `floors` that matches a measurement, given by its axes; `floor` takes them of a run."""
        axes = {"transport": transport, "operations": operation, "scope": scope, "devices": devices}
        axes |= {"host_memory": host_memory, "schedule": schedule}
        return next((rule for rule in self.floors if rule.matches(**axes)), None)

    def spread_of_equals(
        self, quantity: str, scope: Scope, devices: bool, launches: str, *, host_memory: bool
    ) -> float:
        """What peers differ by at least, as a relative standard deviation; 2% where no rule is about them."""
        axes = {"quantity": quantity, "scope": scope, "devices": devices, "launches": launches}
        return next((one.spread for one in self.equals if one.matches(**axes, host_memory=host_memory)), 0.02)

    def latency(self, run: Run) -> LatencyRule | None:
        """The limits of a small transfer of a run; None where no rule is about it."""
        axes = {name: str(run.header[name]) for name in ("transport", "backend")}
        shared = bool(run.header["plan"].get("shared_devices"))
        return next((rule for rule in self.latencies if rule.matches(**axes, shared_devices=shared)), None)


def host_memory_of(run: Run, samples: Samples) -> str | None:
    """The kind of host memory that `samples` came from or went to; None where it was between devices alone."""
    plan = run.header["plan"]
    kind: str | None = plan.get("host_memory")
    return kind if uses_host_memory(samples.operation, plan.get("buffers")) else None


def scope_of(run: Run, samples: Samples) -> Scope:
    """Whether the ranks of `samples` share a node."""
    hosts = {each.host for each in run.ranks if each.rank in samples.ranks}
    return "node" if len(hosts) <= 1 else "network"


def load_policy(path: str | PathLike[str]) -> Policy:
    """The policy in a YAML file such as config/policy.yaml. UserError names the line of a mistake."""
    file = read_yaml(Path(path))
    if not isinstance(file.content, dict):
        file.fail((), "a policy is a map with fields such as floors and latencies")
    if "source" in file.content:
        file.fail(("source",), "is this file: remove the field")
    whole = replace(file, content={**file.content, "source": str(path)})
    return whole.validated(_adapter().validate_json, whole.as_json)


@cache
def _adapter() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)
