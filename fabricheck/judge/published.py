"""What papers published about a system: shown beside the model, never judged by (reference_values/published/)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from fabricheck.yamlfile import read_yaml

_Text = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    what: _Text
    relation: Literal["is", "about", "at_least", "at_most", "from_to"] = "is"
    value: float | Annotated[list[float], Field(min_length=2, max_length=2)]
    unit: _Text
    statistic: _Text | None = None
    conditions: _Text
    source: _Text
    software: _Text | None = None
    date: _Text | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    system: _Text
    values: Annotated[list[_Entry], Field(min_length=1)]


@dataclass(frozen=True)
class Published:
    """One published value. `low` and `high` are equal unless `relation` is `from_to`; None where nothing was said."""

    what: str
    relation: str
    low: float
    high: float
    unit: str
    statistic: str | None
    conditions: str
    source: str
    software: str | None
    date: str | None


def load_published(path: Path) -> tuple[Published, ...]:
    """Read the published values of a system. Raises UserError that names file, line and field."""
    file = read_yaml(path)
    try:
        entries = _File.model_validate(file.content)
    except pydantic.ValidationError as error:
        raise file.rejection(error) from None
    if entries.system != path.stem:
        file.fail(("system",), f"is {entries.system!r}, but the file is that of {path.stem!r}")
    found = []
    for position, one in enumerate(entries.values):
        pair = isinstance(one.value, list)
        if pair != (one.relation == "from_to"):
            file.fail(("values", position, "value"), "is a pair for the relation from_to, and only for that")
        low, high = one.value if isinstance(one.value, list) else (one.value, one.value)
        if low > high:
            file.fail(("values", position, "value"), f"goes from {low:g} down to {high:g}")
        found.append(
            Published(
                one.what,
                one.relation,
                low,
                high,
                one.unit,
                one.statistic,
                one.conditions,
                one.source,
                one.software,
                one.date,
            )
        )
    return tuple(found)
