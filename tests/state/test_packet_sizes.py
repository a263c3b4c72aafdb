"""Whether large packets reach the other nodes: by this machine's own kernel, and with answers made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.records.node_state import BlockedPath
from fabricheck.state import packet_sizes


def test_this_machine_answers_itself() -> None:
    (address, mtu) = packet_sizes.own_addresses(["lo", "no-such-port"])["lo"]
    assert address == "127.0.0.1"
    assert packet_sizes.probe(address, 1500) is None
    # Larger than the port itself takes, which the kernel says: nothing is lost without a word.
    assert packet_sizes.probe(address, min(mtu + 100, 65_000)) is None


@pytest.mark.parametrize(
    ("arriving", "found"),
    [(9000, None), (1500, (9000, 1500)), (1450, (9000, 1400)), (1280, (9000, 576)), (0, None)],
)
def test_the_largest_packets_that_arrive(
    arriving: int, found: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none arrives nobody knows why: a firewall, perhaps."""
    monkeypatch.setattr(packet_sizes, "_arrives", lambda _, size: size <= arriving)
    assert packet_sizes.probe("192.0.2.1", 9000) == found


def test_answers_that_came_late_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, True, True])
    monkeypatch.setattr(packet_sizes, "_arrives", lambda *_: next(answers))
    assert packet_sizes.probe("192.0.2.1", 9000) is None


def test_every_node_asks_all_of_few_and_some_of_many() -> None:
    few, many = [f"n{each}" for each in range(packet_sizes.MOST_NODES)], [f"n{each:05}" for each in range(10_000)]
    assert all(set(packet_sizes.asked_by(host, few)) == set(few) - {host} for host in few)
    assert len(packet_sizes.asked_by("n09999", many)) == 14
    assert packet_sizes.asked_by("n09999", many)[:3] == ("n00000", "n00001", "n00003")
    assert packet_sizes.asked_by("n1", ["n1"]) == packet_sizes.asked_by("n9", ["n1", "n2"]) == ()


def test_ways_to_the_same_port_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that each node has for itself is no way; nor is a port that the other does not have."""
    for number in (1, 2, 3):
        own = {"hsn0": (f"192.0.2.{number}", 9000), "docker0": ("172.17.0.1", 1500)}
        packet_sizes.leave_addresses(tmp_path, f"nid00{number}", own)
    asked = []

    def arrives(address: str, size: int) -> bool:
        asked.append(address)
        return address != "192.0.2.2" or size <= 1500

    monkeypatch.setattr(packet_sizes, "_arrives", arrives)
    own = {"hsn0": ("192.0.2.1", 9000), "docker0": ("172.17.0.1", 1500), "ib0": ("198.51.100.1", 4092)}
    assert packet_sizes.blocked_paths(tmp_path, "nid001", own) == (BlockedPath("hsn0", "nid002", 9000, 1500),)
    assert set(asked) == {"192.0.2.2", "192.0.2.3"}
