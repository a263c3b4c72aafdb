"""Nodes at random, written as every source has them: the topology is that of the node as it should be, and the fault is
said; or one line says what could not be read."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.site.facts import read_facts
from fabricheck.site.found import NodeFacts
from fabricheck.site.nominal import CODES
from fabricheck.site.write import topology_text
from fabricheck.state import capture
from fabricheck.state.capture import amd_facts, nic_facts, pci_gpus
from tests.support.effort import effort
from tests.support.machines import (
    FAULTS,
    Board,
    Machine,
    cut,
    draw_machine,
    write_json,
    write_nccl,
    write_rocm,
    write_texts,
)

# What NCCL's file does not show: ports and GPUs that do not work. It names no models.
_NOT_IN_NCCL = ("port down", "GPU lost", "GPU hidden", "no NVLinks", "GPU in MIG mode")
WRITERS = {"json": write_json, "texts": write_texts, "nccl": write_nccl, "rocm": write_rocm}


def written(machine: Machine, source: str, folder: Path) -> Path:
    return WRITERS[source](machine, folder) if source in WRITERS else write_texts(machine, folder, listed=False)


def sources_of(machine: Machine) -> list[str]:
    """Those that have all of this machine."""
    board, fault = machine.board, machine.fault
    if machine.partitions > 1 or machine.functions > 1 or machine.spare:
        return ["json"]
    if fault == "an NVLink down":
        return ["json"]
    if board.c2c:
        return ["json", "texts"]
    in_texts = fault not in ("slow slot", "GPU hidden")
    if board.is_amd:
        return ["json"] + ["rocm"] * (in_texts and board.links < board.hive and not machine.storage)
    in_sinfo = in_texts and board.gres != "" and fault != "GPU in MIG mode"
    in_nccl = fault not in _NOT_IN_NCCL and machine.knows_numa and not (machine.storage or machine.dpus or machine.vpis)
    return ["json"] + ["texts"] * in_texts + ["sinfo"] * in_sinfo + ["nccl"] * in_nccl


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
    parts, of_pair = machine.partitions, board.links // max(board.hive - 1, 1)
    fabric = ("Infinity Fabric 3", of_pair, 512.0) if board.generation else ("Infinity Fabric", of_pair, 400.0)
    numas = [machine.numa_of(index) if machine.knows_numa else None for index in range(machine.gpus)]
    ends = [f"gpu{index}" if parts == 1 else f"card{index}" for index in range(machine.gpus)]
    for index, numa in enumerate(numas):
        hive = ends[index + 1 : index - index % (board.hive or 1) + board.hive]
        cpu, rate = f"numa{numa or 0}", {4: 256.0, 5: 512.0}.get(board.pcie, 0.0)
        to_cpu = ("NVLink-C2C", board.c2c, 720.0) if board.c2c else (f"PCIe {board.pcie} x16", 1, rate)
        links.append((ends[index], cpu, *to_cpu))
        if board.is_amd:
            links += [(ends[index], peer, *fabric) for peer in hive]
            inside = [f"gpu{index * parts + part}" for part in range(parts) if parts > 1]
            links += [(ends[index], part, "Infinity Fabric in the GPU", 1, 6553.6) for part in inside]
            continue
        others = hive if board.hive else ["nvswitch"]
        for other in others if board.links else ():
            rate = 112.5 if board.arch == "sm_86" else {3: 200.0, 4: 200.0, 5: 400.0}[board.generation]
            links.append((f"gpu{index}", other, f"NVLink{board.generation}", of_pair, rate))
    return {
        "GPUs": [(at, board.arch, numas[at // parts]) for at in range(machine.gpus * parts)],
        "links": sorted(links),
        "ports": sorted((name, float(machine.rate)) for name in machine.names),
        "order": machine.names,
        "scheme": {0: "", machine.gpus * parts: "one-to-one"}.get(len(machine.names), "packed"),
        "switch": bool(board.links) and not board.hive,
    }


@pytest.mark.parametrize("seed", range(effort(500)))
def test_every_source_gives_the_node_as_it_should_be(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    machine = draw_machine(rng)
    for source in sources_of(machine):
        check_source(machine, source, tmp_path / source, f"seed {seed}: {machine}, {source}", rng)


def check_source(machine: Machine, source: str, folder: Path, where: str, rng: random.Random) -> None:
    written(machine, source, folder)
    if source != "json" and machine.knows_numa and rng.random() < 0.3:
        (folder / "lscpu.txt").unlink(missing_ok=True)  # the tables name NUMA nodes, too
    facts = read_facts(folder)
    codes = {doubt.code for doubt in facts.doubts}
    if machine.partitions > 1 and machine.lost is not None:
        assert codes == {"unlike-product"} and not facts.doubts[0].changed, where
        return
    if source == "sinfo" and machine.board.gres == "a100" and machine.fault == "no NVLinks":
        assert facts.notes, where  # an A100 for PCIe without bridges would look the same
        return
    got, wanted = shape(facts), expected_shape(machine)
    links, wanted_links = got.pop("links"), wanted.pop("links")
    if source == "texts" and machine.board.c2c:
        wanted_links = [(*link[:3], 1, None) if link[2] == "NVLink-C2C" else link for link in wanted_links]  # type: ignore[attr-defined]
    if source == "rocm" and machine.names:
        wanted["scheme"] = "dynamic"  # no table has the places of ports
    assert got == wanted, where
    # Links between CPUs, which no source has, are asked for where nothing else joins the GPUs.
    of_gpus = [link for link in links if link[2] != "link between CPUs" and link[0][:3] in ("gpu", "car")]  # type: ignore[attr-defined]
    assert of_gpus == wanted_links, where
    assert bool(facts.problems) == (machine.fault == "GPU in MIG mode"), where
    wanted_codes = {FAULTS[machine.fault]} if machine.fault else set()
    if source == "json" and machine.fault == "GPU in MIG mode":
        wanted_codes = {"hidden-gpus"}  # the bus shows how many there are
    wanted_codes |= {"unlike-product"} if machine.lost is not None else set()
    assert codes == wanted_codes, where
    # The files have what should be, or the doubt says that they have not; accepted, they have what is.
    accepted = read_facts(folder, CODES)
    # (A node that may have fewer GPUs is still unlike its product.)
    assert codes <= {doubt.code for doubt in accepted.doubts}, where
    assert not any(doubt.changed for doubt in accepted.doubts), where
    differ = topology_text(facts, "found") != topology_text(accepted, "found")
    assert differ == any(doubt.changed for doubt in facts.doubts), where


#: As the driver writes an architecture.
VERSIONS = {"gfx942": 90402, "gfx90a": 90010}


def put(folder: Path, files: Mapping[str, object]) -> Path:
    """Files of the kernel; None where it has none."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / name).write_text(f"{text}\n")
    return folder


def sysfs_of(captured: Mapping[str, list[dict[str, Any]]], root: Path) -> Path:
    """The GPUs and ports of a capture as the kernel has them."""
    (root / "bus/pci/devices").mkdir(parents=True)
    for gpu in captured[capture.PCI_GPUS]:
        vendor = {"class": "0x030200", "vendor": "0x10de", "numa_node": gpu["numa_node"]}
        device = put(root / "devices" / gpu["pci"], vendor)
        (root / "bus/pci/devices" / gpu["bus_id"]).symlink_to(device)
    for gpu in captured[capture.AMD]:
        node = root / "class/kfd/kfd/topology/nodes" / str(gpu["node"])
        location = int(gpu["bus_id"][5:7], 16) << 8
        version = f"simd_count 304\ngfx_target_version {VERSIONS[gpu['arch']]}\ndomain 0"
        memory = f"width 8192\nmem_clk_max 2600\nsize_in_bytes {gpu['memory_mib'] << 20}"
        put(node, {"properties": f"{version}\nlocation_id {location}", "mem_banks/0/properties": memory})
        for at, link in enumerate(gpu["links"]):
            rates = f"min_bandwidth {link['least_mbps']}\nmax_bandwidth {link['most_mbps']}"
            text = f"type 11\nnode_to {link['to']}\nweight {link['weight']}\n{rates}"
            put(node, {f"io_links/{at:03}/properties": text})
        if gpu["pci"] is not None:
            about = {"product_name": gpu["model"], "numa_node": gpu["numa_node"]}
            link = {"max_link_speed": gpu["link_speed"], "max_link_width": gpu["link_width"]}
            (root / "bus/pci/devices" / gpu["bus_id"]).symlink_to(put(root / "devices" / gpu["pci"], {**about, **link}))
    for port in captured[capture.NICS]:
        device = put(root / "devices" / port["pci"], {"numa_node": port["numa_node"]})
        card = root / "class/infiniband" / port["name"]
        state = {
            "ports/1/state": "4: ACTIVE" if port["up"] else "1: DOWN",
            "ports/1/phys_state": "5: LinkUp" if port["up"] else "3: Disabled",
        }
        put(card, {"hca_type": port["card"], "ports/1/rate": port["rate"], "ports/1/link_layer": port["kind"], **state})
        (card / "device").symlink_to(device)
        if port.get("virtual"):
            (device / "physfn").touch()
    return root


@pytest.mark.parametrize("seed", range(effort(20)))
def test_the_kernels_files_are_read_as_they_are_captured(seed: int, tmp_path: Path) -> None:
    folder = write_json(draw_machine(random.Random(seed)), tmp_path / "node")
    readers = {capture.PCI_GPUS: pci_gpus, capture.AMD: amd_facts, capture.NICS: nic_facts}
    captured = {name: json.loads((folder / name).read_text()) if (folder / name).exists() else [] for name in readers}
    for gpu in captured[capture.AMD][::2]:
        gpu["arch"] = "gfx90a"
    sysfs = sysfs_of(captured, tmp_path / "sys")
    for name, read in readers.items():
        key = {capture.AMD: "node", capture.NICS: "name"}.get(name, "bus_id")
        found = {entry[key]: entry for entry in read(sysfs)}
        for entry in captured[name]:
            wanted = {field: value for field, value in entry.items() if field != "driver"}
            assert {field: found[entry[key]][field] for field in wanted} == wanted, f"seed {seed}"
        assert len(found) == len(captured[name])


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
def test_a_port_that_the_table_alone_has_is_asked_for(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    kind = rng.choice(("mlx5_", "cxi"))
    machine = replace(draw_machine(rng), fault="", lost=None, names=(f"{kind}0", f"{kind}1"))
    folder = write_texts(machine, tmp_path / "node")
    ports = folder / "ibstat.txt"
    if kind == "cxi" or rng.random() < 0.5:
        ports.unlink()
    else:
        ports.write_text(ports.read_text().partition("CA 'mlx5_1'")[0])
    (note,) = [note for note in read_facts(folder).notes if f"{kind}1" in note]
    assert ("ibstat" in note) == (kind == "mlx5_"), f"seed {seed}"


@pytest.mark.parametrize("seed", range(effort(20)))
def test_an_older_table_has_the_numa_nodes_by_their_cores(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    machine = replace(draw_machine(rng), fault="", lost=None)
    machine = replace(machine, forms=replace(machine.forms, windows=False))
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


@pytest.mark.parametrize(("names", "rates"), [(("p1s0f1", "P2p1s0f1"), [100, 100]), (("p1s0f0", "p1s0f1"), [200, 200])])
def test_functions_of_one_cable_share_its_rate(names: tuple[str, str], rates: list[int], tmp_path: Path) -> None:
    """A DGX Spark shows each port of its card in two PCI domains, by the names of its devices; ibstat has no more."""
    machine = Machine(
        Board("NVIDIA GB10", "sm_121", (1,), 0, 0, 5), 1, 1, "Ethernet", tuple(f"roce{n}" for n in names), 200
    )
    folder = write_texts(machine, tmp_path / "node")
    text = (folder / "ibstat.txt").read_text()
    (folder / "ibstat.txt").write_text(re.sub(r"GUID: 0x\d+", "GUID: 0x1", text))
    assert [nic.rate_gbps for nic in read_facts(folder).nics] == rates
