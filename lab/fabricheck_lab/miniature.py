"""Any described system in miniature: its topology with rates scaled by one factor, its partition on emulated nodes.

What comes out is a suite of its own: links to the checks, sources and configuration of this one, and a site folder with
the scaled topology.yaml and settings for the emulated cluster. So everything that reads a site's files, the model
before all, knows the miniature's rates, and nothing has to be scaled back.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fabricheck.errors import UserError
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES
from fabricheck.suite import MINIATURE, outside_roots, site_root
from fabricheck.topology.host import host_links
from fabricheck.topology.model import Topology, load_topology, partition_files
from fabricheck.topology.network import Network, NetworkSwitch, fold, node_of
from fabricheck.topology.nic import nics_of
from fabricheck.units import parse_rate
from fabricheck.yamlfile import read_yaml

#: What a NIC of a miniature carries at most where no scale is given, and all NICs of a node together: little enough for
#: two cores that have other work, too. Each of eight NICs has more, or what goes between GPUs would take twice as long.
NIC_MBPS, NODE_MBPS, LEAST_NIC_MBPS = 50.0, 100.0, 25.0
#: The scale of nodes without NICs.
WITHOUT_NICS = 1 / 8000
#: What the kernel's shaper keeps to on this kind of machine, in Gb/s.
SLOWEST_GBPS, FASTEST_GBPS = 1e-3, 4.0
#: Bytes that may pass a shaped port at once: a few packets.
BURST_BYTES = 16 << 10
#: The largest transfer takes this time at least over the fastest link of a GPU, and the largest to the host and over it
#: over the fastest to a CPU: below some 2 ms the machine's own scheduler is what is measured.
LARGEST_S = 4e-3
#: Half of that where it takes longer than this over the slowest link between GPUs: six of Aurora's 66 pairs are on MDFI
#: and 60 on Xe Link, with a thirteenth of its rate.
LONGEST_S = 40e-3
#: And between nodes, 0.1 s over a port of `NIC_MBPS`: the steps of a collective take a part of it.
MOST_BYTES_BETWEEN_NODES = 512 << 10
#: A GPU's memory is no faster than so many of its fastest links.
MEMORY_OF_LINKS = 2.0
#: What keeps sessions short: sizes of a range grow by this factor, and one size has so many seconds.
SIZE_STEP, BUDGET_S = 64, 0.05
MOST_NODES = 64
#: Folders of the suite that a miniature shares.
SHARED = ("checks", "src")
#: What a small transfer may take in µs, in place of the policy's own: all ranks share the cores of one machine.
SLOWEST_US, FASTEST_US = 20_000, 0.02
#: How much equals differ at least, as a relative standard deviation. While other work kept both cores busy, goodputs of
#: healthy pairs were 0.2% to 6.7% below the model, and latencies one of another by a factor of two (2026-11-22).
SPREADS = {"latency": 0.5, "goodput": 0.02}


@dataclass(frozen=True)
class Miniature:
    """A system's partition on `nodes` emulated nodes; every rate is `scale` times the described one."""

    system: str
    partition: str
    nodes: int
    scale: float


def plan(name: str, nodes: int, scale: float | None, root: Path) -> Miniature:
    """The miniature of `SYSTEM` or `SYSTEM:PARTITION` of the suite at `root`.

    Without `scale`, ports carry `nic_mbps`. Raises UserError for an unknown system, and for nodes or a scale that this
    machine cannot emulate.
    """
    system, _, partition = name.partition(":")
    topology = load_topology(topology_file(system, partition, root))
    if not 1 <= nodes <= MOST_NODES:
        raise UserError(f"--nodes {nodes}: a miniature has 1 to {MOST_NODES} nodes")
    if nodes > 1 and not topology.nics:
        raise UserError(
            f"--nodes {nodes}: {name} has no NICs in its topology, so its nodes cannot be joined: --nodes 1"
        )
    if nodes > 1 and any(len(nics_of(topology, gpu)) > 1 for gpu in topology.gpus):
        raise UserError(f"{name}: a GPU has several NICs, and the stand-in of NCCL uses one: describe one for each GPU")
    fastest = max((nic.rate_gbps for nic in topology.nics), default=None)
    if scale is None:
        scale = nic_mbps(topology) / 1e3 / fastest if fastest else WITHOUT_NICS
    if not (math.isfinite(scale) and 0 < scale <= 1):
        raise UserError(f"--scale {scale:g}: is more than 0 and at most 1")
    for nic in topology.nics if nodes > 1 else ():
        rate = nic.rate_gbps * scale
        if not SLOWEST_GBPS <= rate <= FASTEST_GBPS:
            good = nic_mbps(topology) / 1e3 / nic.rate_gbps
            raise UserError(
                f"--scale {scale:g}: {nic.name} would carry {rate * 1e3:g} Mb/s, and the kernel shapes "
                f"{SLOWEST_GBPS * 1e3:g} to {FASTEST_GBPS * 1e3:g} Mb/s here: choose --scale {good:g}"
            )
    return Miniature(system, partition, nodes, scale)


def nic_mbps(topology: Topology) -> float:
    """What the fastest NIC of a node carries in a miniature whose scale nobody chose."""
    return max(LEAST_NIC_MBPS, min(NIC_MBPS, NODE_MBPS / len(topology.nics)))


def topology_file(system: str, partition: str, root: Path) -> Path:
    """The topology.yaml of a system's partition. Raises UserError where there is none."""
    sites = site_root(system, root) / "site_configs"
    file = partition_files(system, sites).get(partition, sites / system / "topology.yaml")
    if not file.is_file():
        folders = (root, *outside_roots())
        known = sorted(found.parent.name for folder in folders for found in folder.glob("site_configs/*/topology.yaml"))
        raise UserError(f"no system {system!r} to emulate: systems are {', '.join(known)}")
    return file


def scaled_topology(miniature: Miniature, root: Path) -> dict[str, Any]:
    """The content of the miniature's topology.yaml."""
    file = topology_file(miniature.system, miniature.partition, root)
    topology = load_topology(file)
    content = dict(read_yaml(file).content)
    why = f"miniature: {miniature.scale:g} of"

    def scaled(entry: Mapping[str, Any], rate: str = "rate") -> dict[str, Any]:
        known = entry.get(rate)
        if known is None:
            return dict(entry)
        if isinstance(known, Mapping):
            less: Any = {way: _scaled_rate(text, miniature.scale) for way, text in known.items()}
        else:
            less = _scaled_rate(known, miniature.scale)
        return {**entry, rate: less, "source": f"{why} {entry['source']}"}

    content["description"] = f"{content['description']}, in miniature ({miniature.nodes} emulated nodes)"
    content["links"] = [scaled(link) for link in content.get("links", [])]
    content["cpus"] = [scaled(cpu, "device_rate") for cpu in content["cpus"]]
    content["nics"] = [{**scaled(nic), "burst_bytes": BURST_BYTES} for nic in content.get("nics", [])]
    if "gpu_memory" in content:
        content["gpu_memory"] = _scaled_memory(scaled(content["gpu_memory"]), topology, miniature.scale)
    # The memory of the machine that emulates is not scaled.
    content["host_memory"] = "measured"
    # *CCL's stand-in takes the paths that the real library would; MPI has nothing but TCP between emulated nodes.
    paths = dict(content.get("transport_paths", {}))
    network = {**(paths.get("network") or {}), "mpi": "TCP"}
    content["transport_paths"] = {**paths, "network": network, "source": f"{why} {paths.get('source', 'nothing')}"}
    content.pop("network", None)
    content.pop("fabric", None)  # how many nodes the real system has
    if miniature.nodes > 1:
        content["network"] = small_network(topology, miniature)
    return content


def _scaled_memory(entry: dict[str, Any], topology: Topology, scale: float) -> dict[str, Any]:
    """A GPU's memory, as fast as a few links at most: copies inside it take no less time than the shortest others."""
    most = MEMORY_OF_LINKS * fastest_gbps(topology) * scale
    if parse_rate(entry["rate"]) <= most:
        return entry
    return {"rate": f"{most * 1e3:.9g} Mb/s", "source": f"miniature: {MEMORY_OF_LINKS:g} links between GPUs"}


def _scaled_rate(text: str, scale: float) -> str:
    return f"{parse_rate(text) * scale * 1e3:.9g} Mb/s"


def most_bytes(fastest: float, slowest: float = math.inf) -> int:
    """The largest transfer over links of so many Gb/s, those of the miniature: a power of two, and no latency.

    A range whose sizes grow by four ends at the power of four below it, where it is none.
    """
    size = SMALLEST_GOODPUT_BYTES
    while size < fastest * 1e9 / 8 * LARGEST_S:
        size *= 2
    return size if size <= slowest * 1e9 / 8 * LONGEST_S else max(SMALLEST_GOODPUT_BYTES, size // 2)


def fastest_gbps(topology: Topology, *, to_host: bool = False) -> float:
    """Of the links of GPUs: to one another, to switches and to CPUs; or of those to CPUs, where any is described."""
    gpus = {gpu.name for gpu in topology.gpus}
    links = [link for link in topology.links if set(link.ends) & gpus]
    if to_host:
        links = [*host_links(topology, topology.gpus)] or links
    return max((link.total_gbps for link in links), default=1.0)


def slowest_gbps(topology: Topology) -> float:
    """Of the links between GPUs and to their switches; infinite where there are none."""
    names = {gpu.name for gpu in topology.gpus} | {one.name for one in topology.switches if not one.host_only}
    return min((link.total_gbps for link in topology.links if set(link.ends) <= names), default=math.inf)


def node_names(miniature: Miniature) -> tuple[str, ...]:
    return tuple(f"nid{number:03}" for number in range(1, miniature.nodes + 1))


def small_network(topology: Topology, miniature: Miniature) -> dict[str, Any]:
    """Switches and cables of a few nodes: a part of the described network, else one switch.

    The part has two nodes of a leaf where it can, of leaves far apart, and the switches on the shortest ways between
    them. A trunk keeps its share of what the ports below its leaf carry, and the rate of one of its links at least:
    whatever it is shared with, a single message has that.
    """
    names = node_names(miniature)
    network = topology.network
    if network is None:
        nics = ((f"{fold(names)}:{nic.name}", "leaf0", nic.rate_gbps) for nic in topology.nics)
        return _network(names, [NetworkSwitch("leaf0")], nics, miniature.scale)
    chosen = _spread(network, miniature.nodes)
    new = dict(zip(chosen, names, strict=True))
    ways = [way.components for pair in combinations(chosen, 2) for way in network.routes(*pair)]
    leaves = [network.leaf_of(port) for node in chosen for port in network.ports_of(node)]
    used = {*leaves, *(name for way in ways for name in way)}
    below, here = Counter(map(network.leaf_of, network.ports)), Counter(leaves)
    links = []
    for link in network.links:
        first, second = link.ends
        if node_of(first) in new and ":" in first:
            links.append((f"{new[node_of(first)]}:{first.partition(':')[2]}", second, link.total_gbps))
        elif link.name in used:
            shares = [here[end] / below[end] for end in link.ends if below[end]] or [here.total() / below.total()]
            share = max(shares)
            links.append((first, second, max(link.total_gbps * share, link.rate_gbps)))
    switches = [switch for switch in network.switches if switch.name in used]
    return _network(names, switches, links, miniature.scale)


def _network(
    nodes: Iterable[str], switches: Iterable[NetworkSwitch], links: Iterable[tuple[str, str, float]], scale: float
) -> dict[str, Any]:
    shaped = {"technology": "shaped veth", "source": "miniature: the shaper is set to it"}
    return {
        "nodes": fold(nodes),
        "switches": [{"name": each.name, **({"group": each.group} if each.group else {})} for each in switches],
        "links": [
            {**shaped, "rate": f"{gbps * scale * 1e3:.9g} Mb/s", "pairs": [[one, other]]} for one, other, gbps in links
        ],
    }


def _spread(network: Network, count: int) -> list[str]:
    """So many nodes of a network, two of a leaf where that is possible. Raises UserError where it has fewer."""
    if count > len(network.nodes):
        raise UserError(f"--nodes {count}: the network of topology.yaml has {len(network.nodes)} nodes")
    by_leaves: dict[tuple[str, ...], list[str]] = {}
    for node in network.nodes:
        by_leaves.setdefault(tuple(map(network.leaf_of, network.ports_of(node))), []).append(node)
    groups = [*by_leaves.values()]
    for several in range(min(len(groups), (count + 1) // 2), len(groups) + 1):
        taken = [groups[place * len(groups) // several] for place in range(several)]
        turns = [node for turn in zip_longest(*taken) for node in turn if node is not None]
        if len(turns) >= count:
            return sorted(turns[:count], key=network.nodes.index)
    raise AssertionError("all groups have all nodes")


def write_topology(miniature: Miniature, root: Path, folder: Path) -> Path:
    """Write the miniature's topology.yaml into a folder, and return its path."""
    file = folder / "topology.yaml"
    writer = YAML()
    writer.width = 118
    with file.open("w", encoding="utf-8") as stream:
        stream.write("# Written by `fabricheck emulate up`: a rehearsal, not a machine.\n")
        writer.dump(scaled_topology(miniature, root), stream)
    return file


def write_suite(miniature: Miniature, root: Path, folder: Path, topology: Path, environment: Mapping[str, Any]) -> Path:
    """Write the suite of a miniature into `folder`, and return the folder of its site's files.

    `topology`: its topology.yaml. `environment`: what fabricheck_lab.settings needs to know of the programs and
    libraries of the miniature.
    """
    site = folder / "site_configs" / miniature.system
    site.mkdir(parents=True)
    for name in SHARED:
        (folder / name).symlink_to(root / name)
    (folder / "reference_values").mkdir()
    _write_config(root / "config", folder / "config")
    shutil.copy(topology, site / "topology.yaml")
    small = load_topology(topology)
    described = {
        "settings": str(site_root(miniature.system, root) / "site_configs" / miniature.system / "settings.py"),
        "system": miniature.system,
        "partition": miniature.partition,
        "nodes": miniature.nodes,
        "scale": miniature.scale,
        "nics": [nic.name for nic in small.nics],
        "effort": {
            "most_bytes": most_bytes(fastest_gbps(small), slowest_gbps(small)),
            "most_bytes_by_host": most_bytes(fastest_gbps(small, to_host=True)),
            "most_bytes_between_nodes": MOST_BYTES_BETWEEN_NODES,
            "size_step": SIZE_STEP,
            "budget": BUDGET_S,
        },
        **environment,
    }
    (site / MINIATURE).write_text(json.dumps(described, indent=1), encoding="utf-8")
    (site / "settings.py").write_text(_SETTINGS, encoding="utf-8")
    return site


def _write_config(real: Path, folder: Path) -> None:
    """The suite's own, but for what its policy says of latencies, of how much equals differ, and of their tails."""
    folder.mkdir()
    for source_file in real.iterdir():
        if source_file.name != _POLICY:
            (folder / source_file.name).symlink_to(source_file)
    source = "emulated nodes: all ranks share the cores of one machine, whose time is what a small transfer takes"
    content = dict(read_yaml(real / _POLICY).content)
    content["latencies"] = [{"limit_us": SLOWEST_US, "minimum_us": FASTEST_US, "source": source}]
    spreads = [{"quantity": name, "spread": spread, "source": source} for name, spread in SPREADS.items()]
    content["tails_of_equals"] = False  # what is slow now and then waits for a core
    content["equals"] = [*spreads, *content.get("equals", [])]
    with (folder / _POLICY).open("w", encoding="utf-8") as file:
        YAML().dump(content, file)


_POLICY = "policy.yaml"

_SETTINGS = '''"""Written by `fabricheck emulate up`: settings for emulated nodes. A rehearsal, not a machine."""

from pathlib import Path

from fabricheck_lab.settings import of_miniature

site_configuration = of_miniature(Path(__file__).with_name("miniature.json"))
'''
