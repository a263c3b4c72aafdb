from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabricheck.records.component import Component, Kind, read_keys

KINDS_OF_SOFTWARE = [each for each in Kind if each.is_software]


def test_components_come_back_from_their_keys() -> None:
    known = (
        Component(Kind.DEVICE, "nvswitch", "n-0"),
        Component(Kind.GPU, "gpu0", "n-0"),
        Component(Kind.LINK, "gpu0", "n-0", "nvswitch", "n-0"),
        Component.of_node("n-0"),
        Component(Kind.LIBRARY, "NCCL"),
        Component(Kind.DRIVER, "CUDA driver"),
    )
    assert read_keys(each.key for each in known) == known


def test_a_name_with_a_hyphen_is_no_link() -> None:
    assert read_keys(["n0", "n0:nic-0"]) == (Component.of_node("n0"), Component(Kind.DEVICE, "nic-0", "n0"))
    ends = ["n0:nic-0", "n0:pcie-1"]
    assert read_keys([*ends, "n0:nic-0-pcie-1"])[2] == Component(Kind.LINK, "nic-0", "n0", "pcie-1", "n0")


def test_software_has_one_key_whatever_its_version() -> None:
    for kind in KINDS_OF_SOFTWARE:
        assert Component(kind, "x", version="1").key == Component(kind, "x", version="2").key
        assert read_keys([Component(kind, "x", version="1").key]) == (Component(kind, "x"),)


@given(st.lists(st.text(max_size=12)))
def test_every_key_is_read_and_comes_back(keys: list[str]) -> None:
    assert [each.key for each in read_keys(keys)] == keys
