"""The lines of a text that a program printed, without what launchers, pods and web pages put around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Blanks that a browser or a word processor put in place of plain ones.
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# How lines of the tools and libraries begin that are read here. What stands before one of them is a launcher's.
_BEGINNINGS = (
    *("# nThread ", "# nccl-tests ", "rccl-tests", "# Using devices", "# Collective test", "# Out of bounds"),
    *("#  Rank", "# Rank", "# OSU ", "# Size ", "# Datatype:", "# Benchmarking", "# #processes", "# Intel(R) MPI"),
    *("nvbandwidth Version", "Running ", "memcpy ", "SUM ", "[P2P (Peer", "P2P Connectivity", "TransferBench v"),
    *("#bytes", "MPI startup():", "+------", "| Test:", "Final:", "NIXLBench Conf", "Block Size (B)", "CXI ", "RDMA_"),
)
_MOST_SEARCHED, _LONGEST = 40, 160
# A prefix says who speaks, or when; a row of a table that runs into a title is none.
_OF_LAUNCHER = re.compile(r"(?![ ]*[0-9.]+(?: |$))(?=.*(?:[\]:|>]|[0-9]Z?|-[a-z0-9]+ +[a-z0-9-]+)[ ]*$)")
# Hydra tags each write, and not each line.
_HYDRA = r"[ ]*\[[0-9]+\]"


@dataclass(frozen=True)
class Line:
    """A line as the tool wrote it and its number in the text, counted from 1."""

    number: int
    text: str


def read_lines(text: str) -> list[Line]:
    """The lines of `text` that are not blank, without prefixes, colours, carriage returns and blanks of web pages."""
    text = text.translate(_BLANKS)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    prefixes = sorted(set(_prefixes(text)), key=len, reverse=True)
    prefix = re.compile(rf"(?:{'|'.join(prefixes)}) ?") if prefixes else None
    repeated = re.compile(rf"{_HYDRA} ") if _HYDRA in prefixes else None
    lines = []
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw or raw.isspace():
            continue
        line = raw.rstrip("\r")
        if prefix is not None:
            line = prefix.sub("", line, count=1) if prefix.match(line) else line
        if repeated is not None:
            line = repeated.sub("", line)
        if line and not line.isspace():
            lines.append(Line(number, line))
    return lines


def _prefixes(text: str) -> Iterator[str]:
    """Patterns of what stands before the beginnings of tools' lines; numbers in them may be others on other lines."""
    for beginning in _BEGINNINGS:
        position = -1
        for _ in range(_MOST_SEARCHED):
            position = text.find(beginning, position + 1)
            if position < 0:
                break
            nearest = max(position - _LONGEST, 0)
            start = text.rfind("\n", nearest, position) + 1
            if not start and nearest:
                continue
            before = text[start:position].rstrip(" \t#").strip()
            if before and _OF_LAUNCHER.match(before):
                yield rf"[ ]*{re.sub('[0-9]+', lambda _: '[0-9]+', re.escape(before))}"
