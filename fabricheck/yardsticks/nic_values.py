"""What NICs gave below MPI and NCCL, and what owners require of them (reference_values/nics/known.yaml)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.limits.of_metric import MARGIN
from fabricheck.records.judgement import Yardstick
from fabricheck.records.metrics import Metric
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FILLS_A_NIC
from fabricheck.topology.nic import link_layer
from fabricheck.topology.schema import Rate
from fabricheck.units import parse_rate
from fabricheck.yamlfile import read_yaml
from fabricheck.yardsticks.part_values import RunContext, Unmapped

#: Perftest's size is 2 B; up to this size NICs take a message with its descriptor, and the time is the same.
INLINE_BYTES = 64

_Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NicValue(BaseModel):
    """What a NIC gave by a tool, with its data in host memory or on a GPU; `alarm_of`: the bound of that owner."""

    model_config = _STRICT

    tool: _Text
    """the program that measured"""
    memory: Literal["host", "gpu"]
    """where the data lay"""
    value: Annotated[float, Field(gt=0)]
    unit: Literal["Gb/s", "us"]
    alarm_of: _Text | None = None
    layer: Literal["InfiniBand", "Ethernet", "EFA", "Slingshot"] | None = None
    """the link layer, where the model has several"""
    conditions: _Text
    """under which it was measured"""
    source: _Text


class KnownNic(BaseModel):
    """A model of NIC: the rate of a port, and which share of it is data, as text with its source."""

    model_config = _STRICT

    nic: _Text
    """the model"""
    rate: Rate
    source: _Text
    payload: _Text
    """share of the rate that is data"""
    values: list[NicValue]

    def alarms(self, tool: str, memory: str, unit: str, layer: str | None) -> Iterator[Yardstick]:
        """What owners require of it by a tool with its data in host memory or on a GPU; `layer`: None where that is not
        known."""
        for value in self.values:
            if value.alarm_of is None or (layer is not None and value.layer not in (None, layer)):
                continue
            if (value.tool, value.memory, value.unit) == (tool, memory, unit):
                text = f"{value.value:g} {value.unit} that {value.alarm_of} requires of {self.nic}: {value.conditions}"
                yield Yardstick("part", value.value, value.value, f"{text} ({value.source})", alarm=True)


class _File(BaseModel):
    model_config = _STRICT

    nics: list[KnownNic]
    unmapped: list[Unmapped]


def load_nics(path: Path) -> tuple[KnownNic, ...]:
    """The NICs of a file, none where it does not exist. Raises UserError that names file, line and field."""
    if not path.exists():
        return ()
    file = read_yaml(path)
    return tuple(file.validated(_File.model_validate).nics)


def yardsticks_of_nics(nics: Sequence[KnownNic], metric: Metric, context: RunContext) -> Iterator[Yardstick]:
    """What owners require of a NIC of this model and rate, by libfabric between two nodes: of large writes, and of the
    latency of a message between hosts. The NICs of a node are of one model.
    """
    run, samples, topology = context.run, metric.samples, context.topology
    plan = run.header.get("plan", {})
    hosts = {rank.host for rank in run.ranks if rank.rank in samples.ranks}
    if topology is None or run.header["transport"] != "fabric" or len(hosts) != 2:
        return
    models = {(nic.model, nic.rate_gbps) for nic in topology.nics}
    if len(models) != 1 or any(len(rank.nics) != 1 for rank in run.ranks):
        return
    ((model, rate),) = models
    memory = "gpu" if run.on_gpus and plan.get("buffers") in (None, "device-device") else "host"
    measured = (plan.get("access", "write"), samples.operation, metric.quantity)
    if measured == ("write", "unidirectional", "goodput") and samples.bytes >= FILLS_A_NIC:
        tool = "ib_write_bw"
    elif measured == ("send", "pingpong", "latency") and samples.bytes <= INLINE_BYTES:
        tool = "ib_write_lat"
    else:
        return
    for nic in nics:
        if model.startswith(nic.nic) and parse_rate(nic.rate) == rate:
            yield from nic.alarms(tool, memory, metric.unit, link_layer(model))


def judge_nic(
    nic: KnownNic, tool: str, memory: str, layer: str | None, *, value: float, unit: str
) -> tuple[Verdict, list[Yardstick]]:
    """The verdict on a value of a NIC alone, in Gb/s or us, and what owners require of it, the loosest first."""
    sign = 1 if unit == "Gb/s" else -1
    bounds = sorted(nic.alarms(tool, memory, unit, layer), key=lambda bound: sign * bound.value)
    if not math.isfinite(value) or (unit == "Gb/s" and value > MARGIN * parse_rate(nic.rate)):
        return Verdict.INVALID, bounds
    if not bounds:
        return Verdict.INCOMPLETE, bounds
    return (Verdict.DEGRADED if sign * value < sign * bounds[0].value else Verdict.PASS), bounds
