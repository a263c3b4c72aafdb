"""What NICs gave below MPI and NCCL, and what owners require of them (reference_values/nics/known.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.judge.part_values import Unmapped
from fabricheck.topology.schema import Rate
from fabricheck.yamlfile import read_yaml

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


class _File(BaseModel):
    model_config = _STRICT

    nics: list[KnownNic]
    unmapped: list[Unmapped]


def load_nics(path: Path) -> tuple[KnownNic, ...]:
    """The NICs of a file, none where it does not exist. Raises UserError that names file, line and field."""
    if not path.exists():
        return ()
    file = read_yaml(path)
    try:
        return tuple(_File.model_validate(file.content).nics)
    except pydantic.ValidationError as error:
        raise file.rejection(error) from None
