"""States of nodes in files: they come back as they were, and no other file costs a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.records.node_state import States
from fabricheck.results.node_state import FOLDER, read_nics, read_states
from tests.support.states import node, states


def left(folder: Path, name: str, content: bytes) -> Path:
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / name).write_bytes(content)
    return folder / "result.jsonl"


def test_they_come_back_as_they_were(tmp_path: Path) -> None:
    before, after = node("nid001"), node("nid001", "after", events=None)
    for each in (before, after):
        file = left(tmp_path, f"nid001.{each.when}.json", json.dumps(dataclasses.asdict(each)).encode())
    assert read_states(file) == states([before], [after])
    assert read_states(tmp_path.parent / "result.jsonl") == States()


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is not a state of a node: "),
        (b"[]", "is not a state of a node: "),
        (b'{"host": "a"}', "is not a state of a node: when: "),
        (b" " * (5 << 20), "is too large"),
    ],
    ids=["empty", "a list", "a half", "large"],
)
def test_another_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    found = read_states(left(tmp_path, "nid001.before.json", content))
    (line,) = found.unread
    assert said in line
    assert (found.before, found.after, found.asked) == ({}, {}, True)


def test_a_file_that_was_not_finished_is_none(tmp_path: Path) -> None:
    assert read_states(left(tmp_path, "nid001.before.draft", b"{")) == States(asked=True)


def test_machines_with_one_name_and_the_address_of_each_port(tmp_path: Path) -> None:
    for name in ("nid001.a.machine", "nid002.b.machine", "nid002.c.machine"):
        left(tmp_path, name, b"")
    for host, address in (("nid001", "10.0.0.1"), ("nid002", "10.0.0.2"), ("nid003", "10.0.0.2")):
        file = left(tmp_path, f"{host}.addresses", json.dumps({"hsn0": [address, 9000, 7]}).encode())
    left(tmp_path, "nid004.addresses", b"[")
    assert read_states(file).twice == ("nid002",)
    assert {address: part.text for address, part in read_nics(file).items()} == {"10.0.0.1": "nid001:hsn0"}


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
WHOLE = dataclasses.asdict(node("nid001"))


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), values))
def test_whatever_stands_in_a_field_it_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, wrong: Any) -> None:
    folder = tmp_path_factory.mktemp("states")
    found = read_states(left(folder, "n.before.json", json.dumps({**WHOLE, **wrong}).encode()))
    assert len(found.before) + len(found.after) + len(found.unread) == 1
