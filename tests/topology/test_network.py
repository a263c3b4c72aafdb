"""The network between nodes: routes, distances, and mistakes in its description."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.topology.between_nodes import alltoall_gbps, pair_rates
from fabricheck.topology.model import load_topology
from fabricheck.topology.network import DISTANCES, Network, fold, node_of, unfold
from tests.support.nodes import ROOT

GOOD = (ROOT / "tests/data/topologies/network.yaml").read_text(encoding="utf-8")


def load(tmp_path: Path, text: str = GOOD) -> Network:
    file = tmp_path / "topology.yaml"
    file.write_text(text, encoding="utf-8")
    network = load_topology(file).network
    assert network is not None
    return network


def test_routes_on_one_switch_and_over_spines(tmp_path: Path) -> None:
    network = load(tmp_path)
    (near,) = network.routes("nid001:hsn0", "nid002:hsn1")
    assert near.components == (
        *("nid001", "nid001:hsn0", "nid001:hsn0--leaf0", "leaf0"),
        *("nid002:hsn1--leaf0", "nid002:hsn1", "nid002"),
    )
    assert near.rate_gbps == 100
    far = network.routes("nid001:hsn0", "nid003:hsn0")
    assert [("spine0" in way.components, "spine1" in way.components) for way in far] == [(True, False), (False, True)]
    assert {way.rate_gbps for way in far} == {80}
    assert "leaf0--spine1" in far[1].components
    assert len(network.routes("nid001", "nid003")) == 2 * 2 * 2
    assert network.routes("nid001", "nid001") == ()


RAILS = (
    GOOD[: GOOD.index("  switches:")]
    + """\
  switches: [{name: "rail[0-1]"}]
  links:
    - technology: cable
      rate: 100 Gb/s
      source: made up
      pairs: [["nid[001-004]:hsn0", rail0], ["nid[001-004]:hsn1", rail1]]
"""
)


def test_rails_without_a_spine(tmp_path: Path) -> None:
    network = load(tmp_path, RAILS)
    assert network.is_rail_only and not load(tmp_path).is_rail_only
    ((*_, first, _, _),) = (each.components for each in network.routes("nid001:hsn0", "nid004:hsn0"))
    assert first == "nid004:hsn0--rail0"
    assert [each.components[3] for each in network.routes("nid001", "nid004")] == ["rail0", "rail1"]
    # From a rail to another the data change inside one of the nodes.
    assert network.routes("nid001:hsn0", "nid004:hsn1") == network.routes("nid001", "nid004")
    assert network.distance("nid001", "nid004") == "same-switch"
    rates = pair_rates(network, "nid001:hsn0", "nid004:hsn1")
    assert (rates.expected, rates.ceiling) == (100, 200)
    assert alltoall_gbps(network, frozenset(network.nodes)) == math.inf


def test_nodes_that_share_no_rail_are_a_mistake(tmp_path: Path) -> None:
    text = RAILS.replace(
        '["nid[001-004]:hsn0", rail0], ["nid[001-004]:hsn1"', '["nid[001-003]:hsn0", rail0], ["nid[003-004]:hsn1"'
    )
    with pytest.raises(UserError, match="no links connect nid004 to the rest"):
        load(tmp_path, text)


def test_distances(tmp_path: Path) -> None:
    network = load(tmp_path)
    assert network.distance("nid001", "nid002") == "same-switch"
    assert network.distance("nid001", "nid003") == "other-groups"
    ungrouped = load(tmp_path, GOOD.replace(", group: east", "").replace(", group: west", ""))
    assert ungrouped.distance("nid001", "nid003") == "same-group"
    assert {"same-switch", "same-group", "other-groups"} == set(DISTANCES)


@pytest.mark.parametrize(
    ('old', 'new', 'line'),
    [
        ("nid[003-004]:hsn0", "nid[003-005]:hsn0", 18),
        ("nid[001-002]:hsn1", "nid[001-002]:hsn7", 17),
        ("nid[001-002]:hsn1", "nid[001-002]:hsn0", 17),
        ("[leaf1, \"nid[003-004]:hsn1\"]", "[leaf0, \"nid[003-004]:hsn0\"]", 18),
        ("\"leaf[0-1]\", \"spine[0-1]\"", "leaf1, \"spine[0-1]\"", 13),
        ("\"spine[0-1]\"}", "nid001}", 9),
        ("nid[001-004]", "nid[001-", 8),
        ("nid[001-004]", "nid[001-005]", 8),
        ("leaf1, \"nid[003-004]:hsn1\"", "\"nid001:hsn0\", \"nid[003-004]:hsn1\"", 18),
        ("rate: 40 Gb/s", "rate: \"40\"", 19),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_file_and_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    assert old in GOOD
    with pytest.raises(UserError) as error:
        load(tmp_path, GOOD.replace(old, new, 1))
    message = str(error.value)
    assert "\n" not in message
    assert f"topology.yaml:{line}: network" in message


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no node 'nid9' in the network; its nodes are nid\\[001-004\\]"):
        load(tmp_path).routes("nid9", "nid001")


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=50))
def test_short_forms_say_the_same(numbers: set[int]) -> None:
    names = {f"nid{number:04d}" for number in numbers}
    assert set(unfold(fold(names))) == names
    assert {node_of(port) for port in unfold(f"{fold(names)}:hsn0")} == names


@pytest.mark.parametrize(
    "text",
    [
        "leaf[-54688654-1]",
        "leaf[-1203222819105223830-1]",
        "nid[1-400]m[1-400]",
        "nid[1-60000],cn[1-60000]",
        "nid[1-" + "9" * 5000 + "]",
        "nid[5-1]",
        "nid[001-004/2/3]",
        "nid[001--- -004]",
        "nid[001-",
    ],
)
def test_lists_of_names_that_are_none_or_never_end(text: str) -> None:
    with pytest.raises(UserError):
        unfold(text)


@pytest.mark.parametrize("name", ["nid[", "nid[1-9999999999]", "nid[5-1]", "a,b", "@all", "", "n%s", "two words"])
def test_a_host_with_a_name_that_no_node_has_is_told_as_it_is(name: str) -> None:
    assert fold(["nid001", name, name, "nid002"]) == f"nid001,{name},nid002"


@pytest.mark.parametrize(
    ("text", "count"), [("nid[00001-20000]", 20000), ("a[1-300],b[1-300]", 600), ("x[1-9]m[01-04]y[1,3-4]", 108)]
)
def test_long_lists_of_names(text: str, count: int) -> None:
    assert len(unfold(text)) == count
