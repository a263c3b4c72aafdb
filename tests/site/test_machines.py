"""Nodes at random, written as every source has them: the topology is that of the node as it should be, and the fault is
said; or one line says what could not be read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.site.facts import read_facts
from fabricheck.site.found import NodeFacts
from fabricheck.site.nominal import CODES
from fabricheck.site.write import topology_text
from fabricheck.state import capture
from tests.support.captured import capture_of, nvidia_gpus
from tests.support.effort import effort
from tests.support.machines import FAULTS, Machine, cut, draw_machine, write_json, write_texts
from tests.support.nodes import ROOT

SOURCES = ("json", "texts", "sinfo")


def written(machine: Machine, source: str, folder: Path) -> Path:
    return write_json(machine, folder) if source == "json" else write_texts(machine, folder, listed=source == "texts")


def shape(facts: NodeFacts) -> dict[str, object]:
    """What a topology has of a node, without who says it."""
    return {
        "GPUs": [(gpu.index, gpu.arch, gpu.numa) for gpu in facts.gpus],
        "links": sorted((*link.ends, link.technology, link.count, link.rate_gbps) for link in facts.links),
        "ports": sorted((nic.name, nic.rate_gbps) for nic in facts.nics),
        "order": facts.association.nics if facts.association else (),
        "scheme": facts.association.scheme if facts.association else "",
        "switch": facts.has_switch,
    }


def expected_shape(machine: Machine) -> dict[str, object]:
    board, links = machine.board, []
    numas = [machine.numa_of(index) if machine.knows_numa else None for index in range(machine.gpus)]
    for index, numa in enumerate(numas):
        cpu, rate = f"numa{numa or 0}", {4: 256.0, 5: 512.0}.get(board.pcie, 0.0)
        to_cpu = ("NVLink-C2C", board.c2c, 720.0) if board.c2c else (f"PCIe {board.pcie} x16", 1, rate)
        links.append((f"gpu{index}", cpu, *to_cpu))
        if board.is_amd:
            peers = [f"gpu{peer}" for peer in range(index + 1, machine.gpus)]
            links += [(f"gpu{index}", peer, "Infinity Fabric 3", board.links, 512.0) for peer in peers]
            continue
        end = f"gpu{index ^ 1}" if board.paired else "nvswitch"
        if board.links and not (board.paired and index % 2):
            rate = {3: 200.0, 4: 200.0, 5: 400.0}[board.generation]
            links.append((f"gpu{index}", end, f"NVLink{board.generation}", board.links, rate))
    return {
        "GPUs": [(index, board.arch, numa) for index, numa in enumerate(numas)],
        "links": sorted(links),
        "ports": sorted((name, float(machine.rate)) for name in machine.names),
        "order": machine.names,
        "scheme": {0: "", machine.gpus: "one-to-one"}.get(len(machine.names), "packed"),
        "switch": bool(board.links) and not board.paired and not board.is_amd,
    }


@pytest.mark.parametrize("seed", range(effort(100)))
def test_every_source_gives_the_node_as_it_should_be(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    machine = draw_machine(rng)
    source = rng.choice([each for each in SOURCES if each != "sinfo" or machine.board.gres])
    if machine.board.is_amd or machine.board.c2c:
        source = "json"
    if machine.fault in ("slow slot", "GPU hidden") and source != "json":
        return  # no text has it
    facts = read_facts(written(machine, source, tmp_path / "node"))
    where = f"seed {seed}: {machine}, {source}"
    if source == "sinfo" and machine.board.gres == "a100" and machine.fault == "no NVLinks":
        assert facts.notes_at["gpus"], where  # an A100 for PCIe without bridges would look the same
        return
    got, wanted = shape(facts), expected_shape(machine)
    links, wanted_links = got.pop("links"), wanted.pop("links")
    assert got == wanted, where
    # Links between CPUs, which no source has, are asked for where nothing else joins the GPUs.
    assert [link for link in links if link[2] != "link between CPUs" and link[0][:3] == "gpu"] == wanted_links, where  # type: ignore[attr-defined]
    codes = [doubt.code for doubt in facts.doubts]
    assert {*codes} == ({FAULTS[machine.fault]} if machine.fault else set()), where
    # The files have what should be, or the doubt says that they have not; accepted, they have what is.
    accepted = read_facts(tmp_path / "node", CODES)
    # (A node that may have fewer GPUs is still unlike its product.)
    assert {*codes} <= {doubt.code for doubt in accepted.doubts}, where
    assert not any(doubt.changed for doubt in accepted.doubts), where
    differ = topology_text(facts, "found") != topology_text(accepted, "found")
    assert differ == any(doubt.changed for doubt in facts.doubts), where


@pytest.mark.parametrize("seed", range(effort(100)))
def test_a_file_that_is_cut_off_gives_no_other_node(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    machine = draw_machine(rng)
    folder = cut(write_texts(machine, tmp_path / "node"), rng)
    try:
        facts = read_facts(folder)
    except UserError as error:
        assert "\n" not in str(error)
        return
    if facts.gpus:
        same = shape(facts)["GPUs"] == expected_shape(machine)["GPUs"]
        assert same or facts.problems or facts.notes or facts.doubts, f"seed {seed}"


@pytest.mark.parametrize("seed", range(effort(20)))
def test_an_older_table_has_the_numa_nodes_by_their_cores(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    machine = replace(draw_machine(rng), fault="")
    folder = write_texts(machine, tmp_path / "node")
    file = folder / "topo.txt"
    lines = file.read_text().splitlines()
    lines[0] = lines[0].partition("\tNUMA Affinity")[0]
    for at in range(machine.gpus):
        cells = lines[1 + at].split("\t")[:-4]
        numa = machine.numa_of(at)
        lines[1 + at] = "\t".join([*cells, f"{48 * numa}-{48 * numa + 47}"])
    file.write_text("\n".join(lines))
    facts = read_facts(folder)
    assert [gpu.numa for gpu in facts.gpus] == [machine.numa_of(at) for at in range(machine.gpus)]


def test_a_table_of_rocm_has_its_numa_nodes_beside_a_pasted_lscpu(tmp_path: Path) -> None:
    (tmp_path / capture.ROCM_SMI_TOPO).write_text((ROOT / "tests/data/site/rocm-smi_topology.txt").read_text())
    nodes = "".join(f"NUMA node{node} CPU(s): {16 * node}-{16 * node + 15}\n" for node in range(4))
    (tmp_path / "cpu.txt").write_text(f"NUMA node(s): 4\n{nodes}")
    assert [gpu.numa for gpu in read_facts(tmp_path).gpus] == [3, 3, 1]


def test_links_of_ga102_are_narrower_than_those_of_their_generation(tmp_path: Path) -> None:
    gpus = nvidia_gpus("NVIDIA RTX A6000", "sm_86", 2, nvlinks=4, pairs=[(0, 1)])
    links = read_facts(capture_of(tmp_path / "node", nvml=gpus)).links
    assert [link.total_gbps for link in links if link.technology == "NVLink3"] == [450.0]
