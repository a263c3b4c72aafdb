"""The lines of a text that a program printed, without what launchers, pods and web pages put around them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
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
    *("bytes   iters", "# All processes", "bytes   #sent", "nvloom_cli ", "| API:", "| Stage", "|    Stage"),
    *("Unidirectional ", "Bidirectional ", "RocmBandwidthTest", "- { xfer_size", "size         count", "# OMB"),
)
_MOST_SEARCHED, _LONGEST, _MOST_COUNTED = 40, 160, 2000
# A prefix says who speaks, or when; a row of a table that runs into a title is none.
_OF_LAUNCHER = re.compile(r"(?![ ]*[0-9.]+(?: |$))(?=.*(?:[\]:|>]|[0-9]Z?|-[a-z0-9]+ +[a-z0-9-]+)[ ]*$)")
# Hydra tags each write, and not each line.
_HYDRA = r"[ ]*\[[0-9]+\]"
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T?|[0-9]+:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?"
    r"|(?<![0-9.])[ ]*[0-9]+\.[0-9]{3,}(?![0-9.])|[0-9]{9,}"
)


@dataclass(frozen=True)
class Line:
    """A line as the tool wrote it and its number in the text, counted from 1.

    `speaker`: what a launcher put before it, without the time.
    """

    number: int
    text: str
    speaker: str = ""


def read_lines(text: str) -> list[Line]:
    """The lines of `text` that are not blank, without prefixes, colours, carriage returns and blanks of web pages."""
    text = text.translate(_BLANKS)
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    raw_lines = text.split("\n")
    some = [line for line in raw_lines[:_MOST_COUNTED] if line and not line.isspace()]
    prefixes = sorted(_accepted(dict.fromkeys(_prefixes(text)), some), key=len, reverse=True)
    prefix = re.compile(rf"(?:{'|'.join(prefixes)}) ?") if prefixes else None
    repeated = re.compile(rf"{_HYDRA} ") if _HYDRA in prefixes else None
    lines = []
    speakers: dict[str, str] = {}
    speaker = ""
    for number, raw in enumerate(raw_lines, start=1):
        if not raw or raw.isspace():
            continue
        line = raw.rstrip("\r")
        if prefix is not None and (match := prefix.match(line)) is not None:
            line = line[match.end() :]
            if match[0] not in speakers:
                speakers[match[0]] = _TIME.sub("", match[0]).strip()
            speaker = speakers[match[0]]
        if repeated is not None:
            line = repeated.sub("", line)
        if line and not line.isspace():
            lines.append(Line(number, line, speaker))
    return lines


def _accepted(candidates: Iterable[str], lines: Sequence[str]) -> Iterator[str]:
    """Patterns of prefixes, in which numbers may be others on other lines: those of launchers, and what most lines
    begin with.
    """
    for candidate in itertools.islice(candidates, _MOST_SEARCHED):
        any_number = re.sub("[0-9]+", lambda _: "[0-9]+", re.escape(candidate))
        pattern = "[ ]*" + re.sub(r"(?:\\ )+", lambda _: "[ ]+", any_number)
        begins = re.compile(pattern)
        if _OF_LAUNCHER.match(candidate) or 2 * sum(begins.match(line) is not None for line in lines) > len(lines):
            yield pattern


def _prefixes(text: str) -> Iterator[str]:
    """What stands before the beginnings of tools' lines."""
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
            if before:
                yield before
