"""Two outputs of one test side by side: by size, and what else differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.units import format_size

# A goodput is of interest from here up, a time below.
_SMALL = 64 << 10
_Key = tuple[str, int]


@dataclass(frozen=True)
class PastePair:
    """Two outputs of one test: by operation and size the values of both, in us or GB/s, and what else differs."""

    before: VendorOutput
    after: VendorOutput
    values: Mapping[_Key, tuple[float, float]]
    differences: Mapping[str, tuple[str, str]]


def comparisons(before: Sequence[VendorOutput], after: Sequence[VendorOutput]) -> Iterator[PastePair]:
    """Yields one for each test of which both have an output with a size in common, the first with the first."""
    others = [output for output in after if output.samples]
    for output in before:
        left = _values(output)
        other = next((each for each in others if each.tool == output.tool and left.keys() & _values(each).keys()), None)
        if other is not None:
            others.remove(other)
            right = _values(other)
            values = {key: (left[key], right[key]) for key in left if key in right}
            yield PastePair(output, other, values, _differences(output, other))


def side_by_side(before: Sequence[VendorOutput], after: Sequence[VendorOutput]) -> Iterator[str]:
    """Yields a line for each size that both outputs have, and one for what differs."""
    compared = list(comparisons(before, after))
    if not compared:
        tools = (", ".join(dict.fromkeys(output.tool for output in side)) for side in (before, after))
        yield f"not compared: no size of one test is in both ({' | '.join(tools)})"
    for pair in compared:
        yield f"{pair.before.tool}: {pair.before.path} -> {pair.after.path}"
        for (operation, size), (first, second) in pair.values.items():
            unit = "us" if size < _SMALL else "GB/s"
            change = 100 * (second / first - 1)
            yield f"  {operation} {format_size(size):28} {first:>12.4g} {second:>12.4g} {unit:4} {change:+.1f}%"
        for name, (old, new) in pair.differences.items():
            yield f"  differs      {name}: {old or 'not said'} -> {new or 'not said'}"


def _values(output: VendorOutput) -> dict[_Key, float]:
    """By operation and size the slowest of its measurements, in us or GB/s, out of place where it says so."""
    values: dict[_Key, float] = {}
    for sample in output.samples:
        if sample.placement == "in-place":
            continue
        key = (sample.operation, sample.bytes)
        value = _value(sample)
        slower = max if sample.bytes < _SMALL else min
        values[key] = slower(values.get(key, value), value)
    return values


def _value(sample: Samples) -> float:
    if sample.bytes < _SMALL:
        return float(sample.latency_us.mean())
    return float(sample.goodput_gbps.mean()) / 8


def _differences(before: VendorOutput, after: VendorOutput) -> Mapping[str, tuple[str, str]]:
    """What the two outputs say of themselves that is not the same."""
    sides: list[dict[str, str]] = []
    for output in (before, after):
        said = {"version": output.version or "", "ranks": str(output.ranks or "")}
        said |= {"hosts": " ".join(dict.fromkeys(output.hosts)), "devices": " ".join(dict.fromkeys(output.devices))}
        said |= {**output.facts, **output.variables}
        said.pop("not read", None)
        sides.append(said)
    names = dict.fromkeys((*sides[0], *sides[1]))
    pairs = {name: (sides[0].get(name, ""), sides[1].get(name, "")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
