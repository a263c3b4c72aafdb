"""Relative changes in words."""

from __future__ import annotations

import math


def percent(value: float) -> str:
    """`+3.1%`, with as many places as small changes need; `any` for an endless one."""
    if not math.isfinite(value):
        return "any"
    return f"{value:+.2%}" if abs(value) < 0.01 else f"{value:+.1%}"


def size(value: float) -> str:
    """A share without its sign."""
    return percent(abs(value)).lstrip("+")
