from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.diagnosis.of_session import distance_classes, find_distance_classes
from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.topology.network import Network
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import system


@pytest.fixture
def network() -> Network:
    found = system("emulated").network
    assert found is not None
    return found


def run_over(hosts: list[str], gbps: dict[tuple[int, int], list[float]]) -> Run:
    samples = [
        made_samples("unidirectional", pair, MIB, values, schedule="contended", round_=0)
        for pair, values in gbps.items()
    ]
    return made_run(hosts, samples)


def test_pairs_are_told_by_their_distance(network: Network) -> None:
    run = run_over(["nid001", "nid002", "nid005"], {(0, 1): [0.2] * 3, (1, 0): [0.1] * 4, (0, 2): [0.05] * 6})
    near, far = distance_classes(run, network)
    assert (near.distance, near.pairs, near.summary.count) == ("same-switch", 2, 7)
    assert (near.summary.min, near.summary.median, near.summary.max) == pytest.approx((0.1, 0.1, 0.2), rel=1e-3)
    assert near.summary.mean == pytest.approx((3 * 0.2 + 4 * 0.1) / 7, rel=1e-3)
    assert (far.distance, far.pairs, far.quantity) == ("same-group", 1, "goodput")
    assert far.interval == pytest.approx((0.05, 0.05), rel=1e-3)
    assert "unidirectional contended mpi 1MiB goodput, same-group (1 pair): median 0.05 Gb/s" in far.message
    assert [type(each) for each in find_distance_classes(run, network)] == [Finding] * 2


def test_what_was_cut_off_or_inside_a_node_has_no_distance(network: Network) -> None:
    run = run_over(["nid001", "nid002"], {(0, 1): [0.2] * 3})
    assert not list(find_distance_classes(replace(run, footer=None), network))
    assert not list(distance_classes(run_over(["nid001"] * 2, {(0, 1): [0.2] * 3}), network))
    with pytest.raises(UserError, match="'nid999', which is not a node of the network"):
        list(distance_classes(run_over(["nid001", "nid999"], {(0, 1): [0.2] * 3}), network))
