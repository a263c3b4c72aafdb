"""Findings for tests that do not care which code they have."""

from __future__ import annotations

import re

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

_KINDS = {"gpu": Kind.GPU, "hsn": Kind.NIC, "ib": Kind.NIC, "mlx": Kind.NIC, "leaf": Kind.SWITCH, "spine": Kind.SWITCH}


def at(text: str) -> tuple[Component, ...]:
    """The components of a text such as `nid001:gpu2`, `nid001:gpu0 → nid001:gpu1` or `nid002, nid002:hsn0 or leaf0`."""
    return tuple(map(_one, re.split(r", | or ", text))) if text else ()


def _one(text: str) -> Component:
    for sign, direction in ((" → ", "out"), (" ↔ ", "")):
        if sign in text:
            first, second = map(_one, text.split(sign))
            return Component.between(first, second, direction)
    if "--" in text:
        first, second = map(_one, text.split("--"))
        return Component(Kind.LINK, first.name, first.node, second.name, second.node)
    text, _, direction = text.partition(" ")
    host, _, name = text.rpartition(":")
    kind = _KINDS.get(re.sub(r"[\d_]+$", "", name), Kind.DEVICE if host else Kind.NODE)
    if not host and kind is Kind.NODE:
        return Component.of_node(name)
    return Component(kind, name, host, direction=direction)


def bad_finding(
    verdict: Verdict, message: str, place: str = "", files: tuple[str, ...] = (), *, code: str = "recorded"
) -> Finding:
    """Something that keeps a session from being green; `place` as `at` takes it."""
    return Finding(code, verdict, message, at(place), files=files)


def note(message: str) -> Finding:
    """Something that changes no verdict."""
    return Finding("recorded", Verdict.PASS, message)
