"""`init` on a captured node of each part finds the links that its board has, by the names that its values use."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from fabricheck.judge.run_rules import problem_of_gpus
from fabricheck.site.facts import read_facts
from fabricheck.site.write import topology_text
from fabricheck.topology.model import Link, Topology, load_topology
from fabricheck.yardsticks.part_values import Part, load_parts
from tests.support.captured import amd_gpu, capture_of, nvidia_gpus, xgmi
from tests.support.equal_runs import run_of
from tests.support.nodes import ROOT
from tests.yardsticks.test_part_values import named

PARTS = {part.part: part for part in load_parts(ROOT / "reference_values" / "parts")}
ARCH = {"NVLink2": "sm_70", "NVLink3": "sm_80", "NVLink4": "sm_90", "NVLink5": "sm_100"}
AMD = {"AMD MI210": "gfx90a", "AMD MI300A": "gfx942", "AMD MI300X": "gfx942", "AMD MI325X": "gfx942"}
AMD |= {"AMD MI350X": "gfx950", "AMD MI355X": "gfx950"}


def name_of(part: Part) -> str:
    """As a driver would say it."""
    name = part.names[0].replace("*", "")
    return name if name.startswith(("NVIDIA", "AMD", "Tesla")) else f"NVIDIA {name}"


def captured(part: Part, folder: Path) -> Path:
    board = part.board
    assert board is not None and board.between is not None
    if part.part in AMD:
        links = board.between.count
        every = range(2, 2 + board.gpus)
        width = 1000 * 50
        gpus = [
            amd_gpu(
                at,
                [xgmi(to, least=width, most=width * links) for to in every if to != at],
                arch=AMD[part.part],
                model=name_of(part),
                link_speed="16.0 GT/s PCIe" if board.host.technology == "PCIe 4 x16" else "32.0 GT/s PCIe",
            )
            for at in every
        ]
        return capture_of(folder, amd=gpus)
    arch = "sm_103" if "300" in part.part else ARCH[board.between.technology]
    pairs = [pair for pair in itertools.combinations(range(board.gpus), 2) if board.over == "direct"]
    if board.over == "bridges":
        pairs = [(first, first + 1) for first in range(0, board.gpus, 2)]
    more: dict[str, Any] = (
        {"pcie_generation": 6 if "300" in part.part else int(board.host.technology[5:6] or 3)}
        if (board.host.technology.startswith("PCIe"))
        else {"c2c_links": 5, "c2c_mbps": 90000}
    )
    gpus = nvidia_gpus(name_of(part), arch, board.gpus, nvlinks=board.between.count, pairs=pairs, **more)
    buses = [
        {"bus_id": gpu["bus_id"][4:], "vendor": "nvidia", "numa_node": 0, "pci": "", "path_speed": "32.0 GT/s PCIe"}
        for gpu in gpus
    ]
    return capture_of(folder, nvml=gpus, pci_gpus=buses)


def kinds(links: tuple[Link, ...], ends: str) -> set[tuple[str, int, float]]:
    of = [one for one in links if any(re.match(ends, end) for end in one.ends)]
    return {(one.technology, one.count, one.count * one.rate_gbps) for one in of}


@pytest.mark.parametrize(
    "name", [name for name, part in PARTS.items() if part.board and part.board.between and "V100" not in name]
)
def test_init_finds_the_links_of_the_part(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    board = part.board
    assert board is not None and board.between is not None
    file = tmp_path / "topology.yaml"
    text = topology_text(read_facts(captured(part, tmp_path / "captured")), "found")
    file.write_text(text.replace("FILL IN Gb/s", "100 Gb/s"), encoding="utf-8")
    found: Topology = load_topology(file)
    assert len(found.gpus) == board.gpus
    own = board.node("made", board.gpus)
    ends = "switch" if board.over == "switch" else "gpu.*"
    between = {one for one in kinds(found.links, "nvswitch" if ends == "switch" else "gpu.*") if one[0] != "PCIe"}
    assert kinds(own.links, ends) - kinds(own.links, "cpu") <= between
    if board.host.technology.startswith("PCIe"):
        assert {(one[0], one[2]) for one in kinds(found.links, "numa")} == {
            (one[0], one[2]) for one in kinds(own.links, "cpu")
        }
    assert any(one.in_network_reduction for one in found.switches) == board.in_switch
    made = run_of(["n"], [(0,)], operation="local_copy")
    assert problem_of_gpus(named(made, name_of(part), 80), found) is None
