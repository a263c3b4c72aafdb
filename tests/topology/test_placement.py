"""Which GPU of the topology a rank drives, whatever its launcher, its container and its driver show it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fabricheck.records.node_state import NodeState
from fabricheck.records.run import Device, Rank, Run
from fabricheck.topology.placement import gpu_of_ranks, with_node_indexes
from tests.support.effort import effort
from tests.support.made_runs import made_ranks, made_run
from tests.support.nodes import node as made_node
from tests.support.states import gpu, node, states

HOSTS = ("nid001", "nid002")


def drawn(seed: int) -> tuple[Run, dict[int, int]]:
    """A run of one rank a GPU on two nodes, and the index in the topology that each rank's GPU has.

    A node has up to eight GPUs, of which the job was given some (other ones on each node). The driver shows all of them
    or the job's, a rank sees the job's or its own alone.
    """
    draw = random.Random(seed)
    of_node = draw.randint(1, 8)
    of_job = draw.randint(1, of_node)
    driver_shows_all, rank_sees_its_own = draw.random() < 0.5, draw.random() < 0.5
    ranks: list[Rank] = []
    nodes: list[NodeState] = []
    right: dict[int, int] = {}
    for host in HOSTS:
        given = sorted(draw.sample(range(of_node), of_job))
        shown = range(of_node) if driver_shows_all else given
        order = draw.sample(range(of_job), of_job) if rank_sees_its_own else list(range(of_job))
        nodes.append(
            node(host, gpus=tuple(gpu(number, bus_id=f"0000:{each:02x}:00.0") for number, each in enumerate(shown)))
        )
        for made, place in zip(made_ranks([host] * of_job), order, strict=True):
            number = len(ranks)
            index = 0 if rank_sees_its_own else place
            bus_id = f"0000:{given[place]:02x}:00.0"
            device = Device(index, "H200", bus_id, f"{host}-{bus_id}", 0, 150 << 30)
            ranks.append(replace(made, rank=number, device=device))
            right[number] = place
    run = made_run([rank.host for rank in ranks], (), devices=True)
    return replace(run, ranks=tuple(ranks), states=states(nodes, nodes)), right


@pytest.mark.parametrize("seed", range(effort(100)))
def test_a_rank_has_its_gpu_of_the_topology(seed: int) -> None:
    run, right = drawn(seed)
    seen = with_node_indexes(run, made_node(len(right) // len(HOSTS), ()))
    assert gpu_of_ranks(seen) == right
    for rank in seen.ranks:
        assert rank.device is not None
        assert {each.index for each in seen.states.gpus_of(rank.host) if each.bus_id == rank.device.address} == {
            right[rank.rank]
        }
