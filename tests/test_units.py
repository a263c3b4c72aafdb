from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.units import bound_sizes, coarser_sizes, format_size, parse_rate, parse_size, size_label


@pytest.mark.parametrize(
    ("text", "size"),
    [("8B", 8), ("64KiB", 65536), ("64 KiB", 65536), ("1GiB", 1 << 30), ("3MiB", 3 << 20), ("1000", 1000), (1, 1)],
)
def test_a_size_is_parsed(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        0,
        -1,
        True,
        "-8B",
        "+8",
        "1.5GiB",
        "1KB",
        "1kib",
        "1 gib",
        "1GB",
        "1  KiB",
        " 1KiB",
        "1KiB\n",
        "010",
        "1e3",
        "KiB",
        "99999999999GiB",
        "٣",
        "9" * 5000,
        str(1 << 63),
        1 << 63,
    ],
)
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(UserError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (8, "8B"),
        (1000, "1000B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1536, "1536B"),
        (3 << 10, "3KiB"),
        (1 << 40, "1024GiB"),
    ],
)
def test_a_size_is_written_exactly(size: int, text: str) -> None:
    assert format_size(size) == text
    assert size_label(size) == text.lower()


@given(st.integers(1, (1 << 63) - 1))
def test_every_size_survives_being_written(size: int) -> None:
    assert parse_size(format_size(size)) == size
    assert size_label(size).isascii()
    assert size_label(size).isalnum()
    assert size_label(size).islower()


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_two_sizes_never_share_a_label(one: int, other: int) -> None:
    assert (size_label(one) == size_label(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("200 Gb/s", 200.0),
        ("25 GB/s", 200.0),
        ("450GB/s", 3600.0),
        ("3.6 Tb/s", 3600.0),
        ("500 Mb/s", 0.5),
        ("119.9 MB/s", 0.9592),
        ("1 B/s", 8e-9),
    ],
)
def test_a_rate_is_parsed(text: str, gbps: float) -> None:
    assert parse_rate(text) == pytest.approx(gbps, rel=1e-12)


@pytest.mark.parametrize("text", ["200", "200 ", "1e3"])
def test_a_rate_needs_a_unit(text: str) -> None:
    with pytest.raises(UserError, match="has no unit"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["200 Gbps", "200 gb/s", "200 GiB/s", "200 G", "25 GB/s/s"])
def test_a_unit_is_never_guessed(text: str) -> None:
    with pytest.raises(UserError, match="unknown unit"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "Gb/s", "-1 Gb/s", "0 Gb/s", "inf Gb/s", "nan Gb/s", "1e999 Gb/s", "1,600 Gb/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_rate(text)


@pytest.mark.parametrize(
    ("sizes", "most", "bounded"),
    [
        ("8B,1GiB", 1 << 20, "8B,1MiB"),
        ("1MiB,64MiB,1GiB", 1 << 20, "1MiB"),
        ("8B,2MiB", 1 << 30, "8B,2MiB"),
        ("64MiB", 1000, "1000B"),
        ("1B:1GiB:4", 1 << 20, "1B:1MiB:4"),
        ("8B:1GiB", 1 << 20, "8B:1MiB"),
        ("16B:16MiB:4", 8, "8B:8B:4"),
    ],
)
def test_sizes_are_bounded(sizes: str, most: int, bounded: str) -> None:
    assert bound_sizes(sizes, most) == bounded


@given(st.integers(0, 8), st.integers(9, 34), st.integers(2, 8), st.integers(2, 600))
def test_coarser_sizes_are_some_of_a_range_with_its_ends(first: int, last: int, factor: int, step: int) -> None:
    text = f"{1 << first}B:{1 << last}B:{factor}"
    every = [1 << first]
    while every[-1] * factor <= 1 << last:
        every.append(every[-1] * factor)
    found = coarser_sizes(text, step)
    if factor >= step:
        assert found == text
        return
    sizes = [parse_size(each) for each in found.split(",")]
    assert set(sizes) <= set(every)
    assert (sizes[0], sizes[-1]) == (every[0], every[-1])
    assert all(later >= step * sooner for sooner, later in pairwise(sizes)) or len(sizes) == 2


@pytest.mark.parametrize("sizes", ["8B,1GiB", "1GiB", "8B:1GiB"])
def test_sizes_that_are_no_range_with_a_factor_stay(sizes: str) -> None:
    assert coarser_sizes(sizes, 64) == sizes
