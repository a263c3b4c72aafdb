"""Reads the files in which nodes left their state beside a result (fabricheck.state.collect writes them)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fabricheck.jsonfile import first_mistake
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
    return States(before, after, folder.is_dir(), tuple(unread))


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
