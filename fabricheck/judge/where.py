"""Which metrics a value from elsewhere is about, as the fields of its file say it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.judge.policy import Scope
from fabricheck.records.operations import HostKind, PlannedOperation, Schedule, Transport, bus_factor
from fabricheck.units import parse_size

_Text = Annotated[str, Field(min_length=1)]
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
Unit = Literal["Gb/s", "GB/s", "GB/s busbw", "us", "share of nominal", "Tflop/s"]


class Where(BaseModel):
    """Which metrics a value is about; what is left out may be anything, but for `ccl_mode`: NCCL as it is by default.

    `bytes`: sizes, or those from `least` to `most`; of a product those of its three matrices. `links`: those on the
    way from a GPU, as `links_on_the_way` writes them. `library`: the beginning of name and version of the library that
    moves the data, or multiplies. `environment`: variables that have to be in effect. `in_switch`: whether NCCL may
    reduce in the switch between the GPUs (NVLink SHARP). `nvlink_domain`: whether NVLink joins the nodes.
    """

    model_config = _STRICT

    operations: Annotated[list[PlannedOperation], Field(min_length=1)]
    transports: Annotated[list[Transport], Field(min_length=1)]
    quantity: Literal["goodput", "latency"] = "goodput"
    scope: Scope = "node"
    """in one node, or between nodes"""
    schedule: Schedule = "uncontended"
    bytes: list[_Text] | None = None
    least: _Text | None = None
    most: _Text | None = None
    ranks: int | None = None
    links: _Text | None = None
    access: Literal["write", "read"] | None = None
    """who moves the data"""
    host_memory: HostKind | None = None
    ccl_mode: _Text | None = None
    library: _Text | None = None
    product: _Text | None = None
    """type of the numbers that are multiplied"""
    distance: Literal["same-switch", "same-group", "other-groups"] | None = None
    """between nodes"""
    environment: dict[str, str] = {}
    nodes: Annotated[int, Field(gt=1)] | None = None
    """between nodes: how many"""
    nics: _Text | None = None
    """between nodes: those of each, as `nics_of_a_node` writes them: `8 x 400 Gb/s`"""
    layer: Literal["InfiniBand", "Ethernet", "EFA", "Slingshot", "Omni-Path"] | None = None
    """between nodes: the link layer of the NICs"""
    in_switch: bool | None = None
    nvlink_domain: bool | None = None


@dataclass(frozen=True)
class AlarmedValue:
    """What is said of a value that an alarm may contradict."""

    where: Where
    value: float
    unit: str
    alarm_of: str | None


def check_alarm(file: Any, place: tuple[Any, ...], told: AlarmedValue, others: Iterable[AlarmedValue]) -> None:
    """UserError for an alarm that would be raised for what was measured under the conditions that it is about."""
    lower = told.where.quantity == "latency"
    for measured in others if told.alarm_of is not None else ():
        if measured.alarm_of is not None or not _covers(told.where, measured.where):
            continue
        operation = next(each for each in measured.where.operations if each in told.where.operations)
        was, bound = (_canonical(each, operation, measured.where.ranks) for each in (measured, told))
        if was > bound if lower else was < bound:
            side = "below" if lower else "above"
            text = f"the alarm {told.value:g} is {side} the measured value {measured.value:g} {measured.unit}"
            file.fail(place, text)


def _covers(general: Where, special: Where) -> bool:
    """Whether all that `special` is about is what `general` is about; its operations and transports in part."""
    for name in ("operations", "transports"):
        if not {*getattr(general, name)} & {*getattr(special, name)}:
            return False
    sizes = {"operations", "transports", "bytes", "least", "most", "library", "environment"}
    if any(getattr(general, name) not in (None, getattr(special, name)) for name in Where.model_fields.keys() - sizes):
        return False
    least, most = _sizes(special)
    low, high = _sizes(general)
    return low <= least and most <= high


def _sizes(where: Where) -> tuple[float, float]:
    exact = [parse_size(each) for each in where.bytes or ()]
    least, most = (parse_size(each) if each else None for each in (where.least, where.most))
    return min(exact, default=least or 0), max(exact, default=most or math.inf)


def _canonical(told: AlarmedValue, operation: str, ranks: int | None) -> float:
    """Gb/s or us; NaN of a share of nominal, and of the bus of who knows how many ranks."""
    if told.unit == "GB/s busbw":
        return 8 * told.value / bus_factor(operation, ranks) if ranks else math.nan
    return {"us": 1.0, "Gb/s": 1.0, "GB/s": 8.0}.get(told.unit, math.nan) * told.value


def check_unit(file: Any, place: tuple[Any, ...], unit: str, where: Where) -> None:
    """UserError for a unit that the quantity does not have."""
    if (unit == "us") != (where.quantity == "latency") or (unit == "Tflop/s") != (where.operations == ["product"]):
        file.fail(place, f"{unit!r} is not a unit of a {where.quantity}")


def check_where(file: Any, place: tuple[Any, ...], where: Where) -> None:
    """UserError for a size that is none."""
    for name, texts in (("bytes", where.bytes or []), ("least", [where.least]), ("most", [where.most])):
        for text in texts:
            try:
                parse_size(text) if text is not None else None
            except Exception as error:
                file.fail((*place, name), str(error))
