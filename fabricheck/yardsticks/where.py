"""Which metrics a value from elsewhere is about, as the fields of its file say it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.records.operations import HostKind, PlannedOperation, Schedule, Transport
from fabricheck.units import parse_size
from fabricheck.yardsticks.policy import Scope

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
