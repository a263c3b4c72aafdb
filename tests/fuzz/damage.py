"""Valid files damaged: bytes, lines, numbers, words and whole parts changed, doubled, lost, or replaced by what breaks
parsers. What is chosen comes from a seed."""

from __future__ import annotations

import itertools
import random
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: What breaks parsers, in place of a part of a file or beside it.
NASTY = (
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J\x1b]0;x\x07", "\u202e\u2028".encode(), b"\r", b"\t", b"%"),
    *(b"$ref", b"nan", b"NaN", b"-inf", b"Infinity", b"1e999", b"-0", b"0x1F", b"1_000", b"9" * 400, b"1e-320"),
    *(b"true", b"null", b"~", b"[" * 3000, b"{" * 3000, b'{"a":' * 2000, b"- " * 2000, b"&a [*a]", b"*x", b"<<: *x"),
    *(b"? [a]", b"!!bool x", b"!!float ''", b"!!python/name:os.system", b"2026-01-01", b"2026-99-99", b"12:30:45"),
    *(b"---\n", b"...\n", b"''", b'"', b"x" * 70000, b"[]", b"{}", b'""', b"../../x", b"/dev/null"),
    *(
        b"a0: &a0 [1,1]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)),
    ),
)

#: Numbers at the edge of something, beside those that are drawn.
_EDGES: tuple[int | float, ...] = (
    *(0, 1, -1, 2, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**18, 10**30),
    *(0.0, -0.0, 0.5, 1.5, 0.1, 1e-9, 1e9, 1e16, 5e-324, 2.2e-308, 1.7976931348623157e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)

_HOW = (
    *("replace", "insert", "number", "number", "word", "word", "nasty word", "line lost", "line doubled", "cut"),
    *("byte", "moved"),
)
#: Of half of the inputs, so that most of them are still of their format, and what reads it has to look at the values.
_HOW_GENTLY = ("number", "number", "word", "word", "value", "value", "line lost")
#: Values of another kind than the one that they replace.
_VALUES = (
    *(b"null", b"true", b"false", b"0", b"1", b"-1", b"7.5", b"1e400", b"NaN", b'""', b'"x"', b'"nan"', b"x", b"[]"),
    *(
        b"{}",
        b"[[]]",
        b"[1]",
        b'["x"]',
        b'{"x": 1}',
        b"99999999999999999999",
        b'"\\ud800"',
        b'"\\u0000"',
        b"2026-01-01",
    ),
)
_NUMBER = re.compile(rb"[0-9]+")
#: A name, a number or a quoted text, as JSON, YAML and tables have them.
_WORD = re.compile(rb'"[^"\n]*"|[A-Za-z0-9_.+$-]+')


class Choices:
    """Where the choices of a damage come from."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def integer(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def one_of(self, among: Sequence[T]) -> T:
        return self._random.choice(among)

    def binary(self, least: int, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(least, most))

    def number(self) -> int | float:
        how = self._random.randrange(4)
        if how == 0:
            return self._random.randint(-2, 70)
        if how == 1:
            return self._random.randint(-(2**70), 2**70) >> self._random.randrange(70)
        if how == 2:
            return self._random.choice(_EDGES)
        bits: tuple[float] = struct.unpack("<d", self._random.randbytes(8))
        return bits[0]


def damage(choices: Choices, inputs: Sequence[tuple[Path, bytes]]) -> tuple[Path, bytes]:
    """One of the valid inputs, and its content after one to four changes."""
    file, content = choices.one_of(inputs)
    ways = choices.one_of((_HOW, _HOW_GENTLY))
    for _ in range(choices.integer(1, 4)):
        content = _changed(choices, content, choices.one_of(ways))
    return file, content


def damaged(seed: str, inputs: Sequence[tuple[Path, bytes]]) -> Iterator[tuple[Path, bytes]]:
    """`damage` without end."""
    choices = Choices(seed)
    for _ in itertools.count():
        yield damage(choices, inputs)


def _changed(choices: Choices, content: bytes, how: str) -> bytes:
    at = choices.integer(0, len(content))
    if how == "replace":
        return content[:at] + choices.one_of(NASTY) + content[at + choices.one_of([0, 1, 1, 2, 8, 40, 400]) :]
    if how == "insert":
        return content[:at] + choices.binary(0, 12) + content[at:]
    if how == "number":
        return _replaced(content, _NUMBER.search(content, at), str(choices.number()).encode())
    if how == "word":
        other = _word(content, choices.integer(0, len(content)))
        return _replaced(content, _word(content, at), other[0] if other else b"")
    if how == "value":
        return _replaced(content, _word(content, at), choices.one_of(_VALUES))
    if how == "nasty word":
        return _replaced(content, _word(content, at), choices.one_of(NASTY))
    if how == "cut":
        return content[:at]
    if how == "byte":
        return content[:at] + choices.binary(1, 1) + content[at + 1 :]
    lines, line = content.split(b"\n"), content.count(b"\n", 0, at)
    if how == "line lost":
        return b"\n".join([*lines[:line], *lines[line + 1 :]])
    if how == "line doubled":
        return b"\n".join([*lines[: line + 1], *lines[line:]])
    to, rest = choices.integer(0, len(lines)), [*lines[:line], *lines[line + 1 :]]
    return b"\n".join([*rest[:to], lines[line], *rest[to:]])


def _word(content: bytes, at: int) -> re.Match[bytes] | None:
    """The word at `at`, whole, also where that is in the middle of quoted text."""
    return _WORD.search(content, max(content.rfind(mark, 0, at) for mark in (b",", b":", b"[", b"{", b"\n")) + 1)


def _replaced(content: bytes, found: re.Match[bytes] | None, by: bytes) -> bytes:
    """`by` in place of what was found; at the end where nothing was."""
    start, end = found.span() if found else (len(content), len(content))
    return content[:start] + by + content[end:]
