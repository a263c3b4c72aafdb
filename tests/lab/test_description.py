"""What the stand-ins are told of a node is its link graph; mistakes are one line before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.topology.graph import node_graph
from fabricheck_lab.description import Choices, describe, write_node
from fabricheck_lab.node_faults import plant
from tests.support.nodes import PAPERS
from tests.support.nodes import system as topology_of


@pytest.mark.parametrize("system", PAPERS)
def test_routes_carry_what_the_graph_says(system: str) -> None:
    topology = topology_of(system)
    graph = node_graph(topology)
    content = describe(topology, Choices(0.001))
    links = content["links"]
    routes = {(one["from"], one["to"]): [links[number] for number in one["links"]] for one in content["routes"]}
    for a in topology.gpus:
        for b in topology.gpus:
            if a != b:
                rate = min(link["rate"] for link in routes[a.name, b.name])
                assert rate == pytest.approx(graph.widest_path(a, b).rate_gbps * 1e6)
                assert [link["to"] for link in routes[a.name, b.name]][-1] == b.name
    assert len({gpu["uuid"] for gpu in content["gpus"]}) == len(topology.gpus)
    cards = {gpu.package for gpu in topology.gpus} if system == "aurora" else topology.gpus
    assert len({gpu["bus_id"] for gpu in content["gpus"]}) == len(cards)


def test_gcds_of_a_numa_domain_share_its_link_to_devices() -> None:
    content = describe(topology_of("lumi"), Choices(0.001))
    shared = [link["name"] for link in content["links"]].index("numa3->devices")
    users = {one["to"] for one in content["routes"] if shared in one["links"]}
    assert users == {"gcd0", "gcd1"}


@pytest.mark.parametrize(
    "system, scale, said",
    (
        ("emulated", 0.001, "emulated has no GPUs"),
        ("alps", 0.0, "a scale of 0 does not fit"),
        ("alps", 2.0, "a scale of 2 does not fit"),
    ),
)
def test_what_cannot_be_emulated(system: str, scale: float, said: str) -> None:
    with pytest.raises(UserError, match=said):
        describe(topology_of(system), Choices(scale))


@pytest.mark.parametrize(
    "faults, said",
    (
        ({"nvlink": {}}, "there is no fault 'nvlink'"),
        ({"links": {"gpu0->gpu9": 0.5}}, "the node has no 'gpu0->gpu9'"),
        ({"missing_gpus": ["gcd0"]}, "the node has no 'gcd0'"),
        ({"throttle": {"gpu0": {"reasons": ["heat"]}}}, "throttle of gpu0: the node has no 'heat'"),
        ({"processes": [{"gpu": "gpu0", "flows": [["gpu0", "nowhere"]]}]}, "the node has no 'nowhere'"),
    ),
)
def test_faults_name_what_the_node_has(tmp_path: Path, faults: dict[str, object], said: str) -> None:
    write_node(topology_of("alps"), tmp_path, Choices(0.001))
    with pytest.raises(UserError, match=said):
        plant(tmp_path, faults)
    assert not (tmp_path / "faults.json").exists()
    plant(tmp_path, {"links": {"gpu0->gpu1": 0.5}})
    assert json.loads((tmp_path / "faults.json").read_text()) == {"links": {"gpu0->gpu1": 0.5}}
