"""Two outputs of one test side by side: by size, and what else differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.units import format_size

# A goodput is of interest from here up, a time below.
_SMALL = 64 << 10
_Key = tuple[str, int, str]


def side_by_side(before: Sequence[VendorOutput], after: Sequence[VendorOutput]) -> Iterator[str]:
    """Yields a line for each size that both outputs have, and one for what differs; nothing of different tests."""
    others = {output.tool: output for output in after}
    for output in before:
        other = others.get(output.tool)
        if other is None:
            continue
        left, right = _values(output), _values(other)
        common = [key for key in left if key in right]
        if common:
            yield f"{output.tool}: {output.path} -> {other.path}"
        for operation, size, placement in common:
            first, second = left[operation, size, placement], right[operation, size, placement]
            unit = "us" if size < _SMALL else "GB/s"
            change = 100 * (second / first - 1)
            what = " ".join(word for word in (operation, placement, format_size(size)) if word)
            yield f"  {what:40} {first:>12.4g} {second:>12.4g} {unit:4} {change:+.1f}%"
        for name, (old, new) in _differences(output, other).items():
            yield f"  differs      {name}: {old or 'not said'} -> {new or 'not said'}"


def _values(output: VendorOutput) -> dict[_Key, float]:
    """By operation, size and placement the slowest of its measurements, in us or GB/s."""
    values: dict[_Key, float] = {}
    for sample in output.samples:
        key = (sample.operation, sample.bytes, sample.placement)
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
        said |= {"hosts": " ".join(dict.fromkeys(output.hosts)), **output.facts, **output.variables}
        sides.append(said)
    names = dict.fromkeys((*sides[0], *sides[1]))
    pairs = {name: (sides[0].get(name, ""), sides[1].get(name, "")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
