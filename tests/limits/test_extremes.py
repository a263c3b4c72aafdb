"""Numbers that no hardware has are one clear line, and unusual graphs that some have are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.limits import algorithms, memory, optimum
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import load_topology
from tests.support.nodes import node

FILE = """\
system: example
description: two GPUs
gpus:
  - {name: gpu0, index: 0, model: A100}
  - {name: gpu1, index: 1, model: A100}
cpus:
  - {name: numa0, device_rate: 300 Gb/s, source: made up}
  - {name: numa1}
links:
  - {technology: NVLink, count: 4, rate: {forward: 25 GB/s, back: 10 GB/s}, source: made up, pairs: [[gpu0, gpu1]]}
  - {technology: PCIe, count: 1, rate: 256 Gb/s, source: made up, pairs: [[gpu0, numa0], [gpu0, numa1], [gpu1, numa0]]}
"""


def load(tmp_path: Path, old: str = "", new: str = "") -> Path:
    assert old in FILE
    file = tmp_path / "topology.yaml"
    file.write_text(FILE.replace(old, new) if old else FILE, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("forward: 25 GB/s", "forward: 1e300 GB/s"),
        ("forward: 25 GB/s", "forward: 1e-30 GB/s"),
        ("count: 4", "count: " + "9" * 30),
        ("count: 4", "count: " + "9" * 400),
        ("back: 10 GB/s", "back: '10'"),
        (", back: 10 GB/s", ""),
        ("back: 10 GB/s", "backwards: 10 GB/s"),
    ],
)
def test_impossible_numbers_are_one_line(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(UserError) as error:
        load_topology(load(tmp_path, old, new))
    message = str(error.value)
    assert "\n" not in message and len(message) < 600
    assert "topology.yaml:10: links[0]" in message


def test_a_gpu_may_have_several_numa_domains(tmp_path: Path) -> None:
    topology = load_topology(load(tmp_path))
    alone = memory.host_device_gbps(topology, topology.gpus[:1])
    together = memory.host_device_gbps(topology, topology.gpus)
    assert alone == {"gpu0": pytest.approx(512)}
    # Both share what numa0 gives; the link to numa1 is the first one's own.
    assert together == {"gpu0": pytest.approx(256 + 150), "gpu1": pytest.approx(150)}


def torus(side: int, count: int) -> list[tuple[int, int, int, float]]:
    links = []
    for a in range(side):
        for b in range(side):
            for other in (side * ((a + 1) % side) + b, side * a + (b + 1) % side):
                links.append((side * a + b, other, count, 400.0))
    return links


@pytest.mark.parametrize(("side", "count"), [(4, 32), (8, 32), (6, 1)])
def test_a_torus_with_many_parallel_links(side: int, count: int) -> None:
    made = node(side * side, torus(side, count))
    size = side * side
    found = algorithms.by_library(node_graph(made), "allgather").gbps
    best = optimum.collective(made, "allgather", made.gpus)
    assert best == pytest.approx(4 * count * 400 * size / (size - 1))
    assert 0 < found <= best * (1 + 1e-6)
