"""Nodes at random, written as every source has them: the topology is that of the node as it should be, and the fault is
said; or one line says what could not be read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.site.facts import read_facts
from fabricheck.site.found import NodeFacts
from fabricheck.site.nominal import CODES
from fabricheck.site.write import topology_text
from tests.support.effort import effort
from tests.support.machines import FAULTS, Machine, cut, draw_machine, write_json, write_texts

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
