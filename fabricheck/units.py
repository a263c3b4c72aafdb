"""Sizes and rates as text: strict both ways, because a size or unit that is guessed is a wrong result."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fabricheck.errors import UserError

_SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]*) ?(B|KiB|MiB|GiB)?", re.ASCII)
_LARGEST_SIZE = (1 << 63) - 1

# Gb/s of one unit: 1 Gb/s = 10^9 bit/s, 1 GB/s = 10^9 byte/s.
_RATE_UNITS = {
    f"{prefix}{symbol}/s": power * bits / 1e9
    for prefix, power in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.items()
    for symbol, bits in {"b": 1.0, "B": 8.0}.items()
}
_LEAST_RATE, _LARGEST_RATE = 1e-9, 1e9
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(\S*)", re.ASCII)


def parse_size(text: str | int) -> int:
    """Bytes of a size such as `1GiB`, `64KiB`, `8B` or a plain whole number of bytes.

    Raises UserError for everything else: fractions, signs, zero, decimal units (KB), sizes of 2^63 B or more.
    """
    mistake = UserError(f"{text!r} is not a size: give a whole number with B, KiB, MiB or GiB, such as 64KiB")
    if isinstance(text, bool):
        raise mistake
    if isinstance(text, int):
        if not 0 < text <= _LARGEST_SIZE:
            raise mistake
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) and len(text) <= 32 else None
    if match is None:
        raise mistake
    size = int(match[1]) * _SIZE_UNITS[match[2] or "B"]
    if size > _LARGEST_SIZE:
        raise mistake
    return size


def format_size(size: int) -> str:
    """The shortest exact form: `64KiB`, `1GiB`, and `1000B` where no larger unit divides the size (bytes).

    Raises ValueError for 0 and below.
    """
    if size <= 0:
        raise ValueError(f"a size is positive, not {size}")
    unit = next(unit for unit, factor in reversed(_SIZE_UNITS.items()) if size % factor == 0)
    return f"{size // _SIZE_UNITS[unit]}{unit}"


def size_label(size: int) -> str:
    """`format_size` for metric names, in [a-z0-9] only: `8b`, `64kib`, `1gib`, `1000b`."""
    return format_size(size).lower()


def bound_sizes(sizes: str, most: int) -> str:
    """Sizes as fabricbench takes them (`8B,1GiB`, or `1B:1GiB:4`) with none above `most` bytes.

    In a list `most` takes the place of what is larger, once. A range ends there.
    """
    if ":" in sizes:
        first, last, *factor = sizes.split(":")
        return ":".join([*(_bound(each, most) for each in (first, last)), *factor])
    return ",".join(dict.fromkeys(_bound(each, most) for each in sizes.split(",")))


def coarser_sizes(sizes: str, step: int) -> str:
    """Sizes as fabricbench takes them, of which a range with a factor (`1B:1GiB:4`) grows by `step` at least.

    A range becomes a list of some of its sizes. The first and the last of them stay.
    """
    parts = sizes.split(":")
    if len(parts) != 3 or int(parts[2]) >= step:
        return sizes
    every = _in_range(sizes)
    kept = every[:1]
    for size in every[1:-1]:
        if size >= kept[-1] * step and size * step <= every[-1]:
            kept.append(size)
    return ",".join(format_size(size) for size in dict.fromkeys([*kept, every[-1]]))


def count_sizes(sizes: str) -> int:
    """How many sizes these are, as fabricbench takes them: a list, or a range as `1B:1GiB:4`."""
    return len(_in_range(sizes)) if ":" in sizes else len(sizes.split(","))


def _in_range(sizes: str) -> list[int]:
    first, last, *factor = sizes.split(":")
    every = [parse_size(first)]
    while every[-1] * int(factor[0] if factor else 2) <= parse_size(last):
        every.append(every[-1] * int(factor[0] if factor else 2))
    return every


def _bound(size: str, most: int) -> str:
    return size if parse_size(size) <= most else format_size(most)


def parse_rate(text: str) -> float:
    """Gb/s (10^9 bit/s) of a rate with its unit, such as `200 Gb/s` or `25 GB/s`.

    Units: b/s and B/s with k, M, G or T before them, powers of ten, upper and lower case as written here.
    Raises UserError for a rate without a unit, with another unit, not above zero, not finite, or of no hardware.
    """
    units = "b/s or B/s with k, M, G or T before it, such as 200 Gb/s or 25 GB/s"
    match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UserError(f"{text!r} is not a rate: give a number and {units}")
    if not match[2]:
        raise UserError(f"the rate {text!r} has no unit: give {units}")
    if match[2] not in _RATE_UNITS:
        raise UserError(f"the rate {text!r} has the unknown unit {match[2]!r}: give {units}")
    rate = float(match[1]) * _RATE_UNITS[match[2]]
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(f"the rate {text!r} is not a positive, finite number")
    if not _LEAST_RATE <= rate <= _LARGEST_RATE:
        raise UserError(f"the rate {text!r} is not a rate of hardware: give one between 1 b/s and 1000000 Tb/s")
    return rate


def plural(times: int, what: str) -> str:
    """The number and the noun, with an `s` unless the number is 1."""
    return f"{times:,} {what}" if times == 1 else f"{times:,} {what}s"


#: So many names fit into a line.
FEW = 3


def few(names: Sequence[str], most: int = FEW, *, between: str = ", ") -> str:
    """The first so many names, and how many more there are."""
    return between.join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def apart(value: float, base: float) -> str:
    """How far a value is from another, such as `4.6% below`; ValueError for a base that is not positive."""
    if not base > 0:
        raise ValueError(f"no percentage relative to {base}")
    share = value / base - 1
    return f"{abs(share):.1%} {'below' if share < 0 else 'above'}"


def time_left(seconds: float) -> str:
    """How long something still takes: `3 min left`, `45 s left`."""
    return f"{round(seconds / 60)} min left" if seconds >= 120 else f"{max(round(seconds), 1)} s left"
