"""Failures of devices in the kernel's log, by the rows of config/kernel_events.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from fabricheck.records.node_state import KernelEvent
from fabricheck.suite import config_file
from fabricheck.yamlfile import read_yaml

Severity = Literal["fatal", "error", "corrected", "program", "ended"]
_STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
# Drivers' own words. `Fatal` of AER stands in brackets: `Uncorrected (Fatal)`.
_WORDS: tuple[tuple[str, Severity], ...] = (
    ("nonfatal|non-fatal|deferred|poison", "error"),
    ("fatal|uncorrect", "fatal"),
    ("correct", "corrected"),
)
_MOST_EVENTS = 200
_LONGEST_TEXT = 200
# Lines that a driver writes at once, such as the three of a GPU that is lost, are one message.
_AT_ONCE_S = 0.01


@dataclass(frozen=True)
class EventRow:
    """A row of config/kernel_events.yaml, which explains its fields."""

    __pydantic_config__ = _STRICT

    kind: str
    code: str
    severity: Severity
    recovery: str
    pattern: re.Pattern[str]
    recovered: re.Pattern[str] | None = None
    numbers: frozenset[int] = frozenset()
    network: bool = False


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = _STRICT

    events: tuple[EventRow, ...]


@cache
def event_rows() -> tuple[EventRow, ...]:
    """The rows of config/kernel_events.yaml. Raises UserError for a mistake in the file."""
    file = read_yaml(config_file("kernel_events.yaml"))
    return file.validated(TypeAdapter(_File).validate_json, file.as_json).events


def kernel_events(log: Path = Path("/dev/kmsg")) -> tuple[KernelEvent, ...] | None:
    """Failures of devices since the node started, or since `dmesg --clear`, as far back as the kernel's log reaches.

    None where it may not be read.
    """
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        os.lseek(descriptor, 0, os.SEEK_DATA)  # what was cleared is passed over
        return events_of(list(_records(descriptor)))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def events_of(records: Sequence[tuple[float, str]]) -> tuple[KernelEvent, ...]:
    """The events in records (seconds since the start, text) of the kernel's log; the latest of very many."""
    events: list[tuple[int, KernelEvent]] = []
    recoveries: list[tuple[int, str, str]] = []
    place = 0  # in the whole log, by which an event is before its recovery
    for at_s, text in _messages(records):
        events += [(place + begin, event) for begin, event in _events(at_s, text)]
        recoveries += [(place + begin, kind, part) for begin, kind, part in _recoveries(text)]
        place += len(text)
    seen = []
    for begin, event in sorted(events, key=lambda pair: pair[0]):
        recovered = any(
            later > begin and kind == event.kind and part in ("", event.part) for later, kind, part in recoveries
        )
        seen.append(replace(event, recovered=recovered))
    return tuple(seen[-_MOST_EVENTS:])


def _records(descriptor: int) -> Iterator[tuple[float, str]]:
    while True:
        try:
            record = os.read(descriptor, 8192).decode("utf-8", "replace")
        except BrokenPipeError:  # overwritten meanwhile
            continue
        except OSError:
            return
        if not record:
            return
        # 6,1234,987654321,-;text: level, number, microseconds since the start. Lines below it that begin with a blank
        # name the device.
        for line in record.splitlines():
            head, mark, text = line.partition(";")
            fields = head.split(",")
            if mark and len(fields) > 2 and fields[2].isdecimal():
                yield int(fields[2]) / 1e6, text.replace("\\x0a", "\n")


def _messages(records: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Records of one driver at one moment as one text."""
    begin = 0
    for at in range(1, len(records) + 1):
        if at < len(records):
            (before_s, before), (at_s, text) = records[at - 1], records[at]
            if at_s - before_s <= _AT_ONCE_S and text.split(" ")[0] == before.split(" ")[0]:
                continue
        yield records[begin][0], "\n".join(text for _, text in records[begin:at])
        begin = at


def _events(at_s: float, text: str) -> Iterator[tuple[int, KernelEvent]]:
    """Of each place in the text the first row that fits, and the place."""
    taken: list[tuple[int, int]] = []
    for row in event_rows():
        for match in row.pattern.finditer(text):
            groups = {name: value or "" for name, value in match.groupdict().items()}
            number = groups.get("number", "")
            if row.numbers and int(number) not in row.numbers:
                continue
            if any(match.start() < end and begin < match.end() for begin, end in taken):
                continue
            taken.append(match.span())
            event = KernelEvent(
                kind=row.kind,
                part=_part(match),
                at_s=at_s,
                text=" ".join(match[0].split())[:_LONGEST_TEXT],
                code=row.code,
                number=number,
                severity=_severity(groups.get("word", ""), row.severity),
                recovery=row.recovery,
                network=row.network,
            )
            yield match.start(), event


def _part(match: re.Match[str]) -> str:
    """The PCI address, with the function that Xids leave out, or the name of a port; empty where none is named."""
    part = (match.groupdict().get("part") or "").lower()
    return f"{part[-10:]}.0" if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}", part) else part


def _severity(word: str, otherwise: Severity) -> Severity:
    for pattern, severity in _WORDS:
        if re.search(pattern, word.lower()):
            return severity
    return otherwise


def _recoveries(text: str) -> Iterator[tuple[int, str, str]]:
    """Where, the kind of what works again, and of which part: of all where it is empty."""
    patterns = {(row.kind, row.recovered): row.recovered for row in event_rows() if row.recovered is not None}
    for (kind, _), pattern in patterns.items():
        for match in pattern.finditer(text):
            yield match.start(), kind, _part(match)
