"""A paste that tests make, with the values in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Values = dict[tuple[str, int], float]


@dataclass(frozen=True)
class Paste:
    """A text, the values in it, and what the caller knows beside it.

    `refusable`: whether a refusal is right too; `cut`: whether values may be missing.
    """

    tool: str
    text: str
    values: Values
    asked: dict[str, Any] = field(default_factory=dict)
    refusable: bool = False
    cut: bool = False
