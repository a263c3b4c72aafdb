"""Reads the files in which nodes left their state beside a result (fabricheck.state.collect writes them)."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fabricheck.jsonfile import first_mistake
from fabricheck.records.component import Component, Kind
from fabricheck.records.node_state import NodeState, States

#: The folder beside a result file.
FOLDER = "node-state"
_LARGEST = 4 << 20


@cache
def _adapter() -> TypeAdapter[NodeState]:
    return TypeAdapter(NodeState)


def read_states(beside: Path) -> States:
    """What the nodes said before and after the run whose result file is `beside`. Whatever lies there, this returns."""
    folder = beside.parent / FOLDER
    try:
        files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    except OSError as error:
        return States(asked=True, unread=(f"{folder}: {error.strerror}",))
    before: dict[str, NodeState] = {}
    after: dict[str, NodeState] = {}
    unread = []
    for file in files:
        try:
            state = read_state(file)
        except ValueError as error:
            unread.append(f"{file}: {error}")
            continue
        (before if state.when == "before" else after)[state.host] = state
    names = Counter(file.name.partition(".")[0] for file in folder.glob("*.machine"))
    twice = tuple(sorted(name for name, machines in names.items() if machines > 1))
    return States(before, after, folder.is_dir(), tuple(unread), twice)


def read_nics(beside: Path) -> dict[str, Component]:
    """By its IPv4 address each port of the nodes that left theirs, of those that have it alone."""
    nics: dict[str, list[Component]] = {}
    for file in (beside.parent / FOLDER).glob("*.addresses"):
        with contextlib.suppress(Exception):  # whatever lies there
            for port, (address, *_) in json.loads(file.read_bytes()).items():
                nics.setdefault(address, []).append(Component(Kind.NIC, port, file.name.partition(".")[0]))
    return {address: ports[0] for address, ports in nics.items() if len(ports) == 1}


def read_state(file: Path) -> NodeState:
    """The state in a file. ValueError where it is none, in one line."""
    try:
        if file.stat().st_size > _LARGEST:
            raise ValueError("is too large for the state of a node")
        return _adapter().validate_json(file.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise ValueError(f"is not a state of a node: {first_mistake(error)}") from None
