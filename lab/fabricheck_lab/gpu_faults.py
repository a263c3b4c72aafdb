"""What can be broken on the emulated GPUs of a cluster that is a system in miniature.

Each fault is added to `faults.json` of its node (node_faults.py, lab/README.md), which the stand-ins read
again, and noted in the cluster's journal. Ends of links and GPUs are given by the node's names, such as `gpu0` or
`nvswitch`; a GPU may also be its index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.topology.host import host_links
from fabricheck_lab import node_faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.node_faults import FACTS
from fabricheck_lab.rehearsal import VARIABLES, gpu_folder

#: The first word of what the journal calls these faults.
KIND = "gpu"
#: Gb/s of a lane, by generation (PCI Express base specification 6.0: GT/s times the line code).
PCIE_LANE_GBPS = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64.0}
# The process that stands for somebody else's.
_PID = 4242
_SOMEBODY = "python"


class EmulatedNode:
    """The emulated GPUs of one node of a cluster, and what was planted there. UserError where it has none."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        nodes = cluster.layout.network.nodes
        if node not in nodes:
            raise UserError(f"no node {node!r}: choose from {', '.join(nodes)}")
        self.cluster, self.name = cluster, node
        self.folder: Path = gpu_folder(cluster.layout.name, node)
        file = self.folder / "node.json"
        if not file.is_file():
            name = cluster.layout.name
            raise UserError(
                f"{name} has no emulated GPUs: bring up a system in miniature, as in "
                "`fabricheck emulate up --system alps`"
            )
        self.content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        self.gpus: list[str] = [each["name"] for each in self.content["gpus"]]
        planted = self.folder / "faults.json"
        self.faults: dict[str, Any] = json.loads(planted.read_text(encoding="utf-8")) if planted.is_file() else {}

    def gpu(self, text: str) -> str:
        """The name of a GPU that is given by name or index. UserError for an unknown one."""
        by_index = {str(each["index"]): each["name"] for each in self.content["gpus"]}
        name = by_index.get(text, text)
        if name not in self.gpus:
            raise UserError(f"{self.name} has no GPU {text!r}: choose from {', '.join(self.gpus)}, or by index")
        return str(name)

    def links(self, gpu: str, other: str) -> tuple[str, str]:
        """The two directions of the link between two ends; of a GPU and itself its memory. UserError where none is."""
        known = [each["name"] for each in self.content["links"]]
        memory = f"{gpu} memory"
        names = (memory, memory) if gpu == other else (f"{gpu}->{other}", f"{other}->{gpu}")
        if names[0] not in known:
            ends = ", ".join(name.partition("->")[2] for name in known if name.startswith(f"{gpu}->"))
            raise UserError(f"{gpu} of {self.name} has no link to {other}: it is linked to {ends or 'nothing'}")
        return names

    def slow(self, names: Iterable[str], factor: float) -> None:
        """Links have `factor` of the rate that they have now."""
        links = self.faults.setdefault("links", {})
        for name in names:
            links[name] = links.get(name, 1.0) * factor

    def add(self, field: str, gpus: Iterable[str]) -> None:
        """GPUs that a fault of this name has beside those that have it already."""
        self.faults[field] = list(dict.fromkeys([*self.faults.get(field, ()), *gpus]))

    def plant(self, fault: str, what: str) -> None:
        """Write the faults, and note this one: `fault` is its name on this node, `what` is for people."""
        node_faults.plant(self.folder, self.faults)
        self.cluster.journal.set_fault(f"{KIND} {self.name} {fault}", f"{self.name}: {what}")


def slow_link(cluster: Cluster, node: str, ends: tuple[str, str], percent: float, *, one_side: bool) -> None:
    """A link between GPUs, or a GPU and a switch or CPU, loses `percent` of its rate; all: nothing gets through."""
    at = EmulatedNode(cluster, node)
    known = {link[side] for link in at.content["links"] for side in ("from", "to")}
    source, destination = (end if end in known else at.gpu(end) for end in ends)
    factor = _rest(percent, most=100)
    both = at.links(source, destination)
    for name in both[:1] if one_side else both:
        at.faults.setdefault("links", {})[name] = factor
    side = " in this direction" if one_side else ""
    at.plant(f"link {source} {destination}", f"{source} -> {destination} has {100 - percent:g}% of its rate{side}")


def missing(cluster: Cluster, node: str, gpu: str) -> None:
    """A GPU is not there."""
    at = EmulatedNode(cluster, node)
    at.add("missing_gpus", [at.gpu(gpu)])
    if len(at.faults["missing_gpus"]) == len(at.gpus):
        raise UserError(f"{at.gpu(gpu)} is the last GPU of {node}: one has to be left")
    at.plant(f"missing {at.gpu(gpu)}", f"{at.gpu(gpu)} is not there")


def throttled(cluster: Cluster, node: str, gpu: str, percent: float, reason: str) -> None:
    """A GPU and all its links lose `percent` of their speed, and NVML gives the reason."""
    at = EmulatedNode(cluster, node)
    name = at.gpu(gpu)
    at.faults.setdefault("throttle", {})[name] = {"factor": _rest(percent), "reasons": [reason]}
    at.plant(f"slow {name}", f"{name} has {100 - percent:g}% of its speed ({reason})")


def reordered(cluster: Cluster, node: str, gpus: Sequence[str]) -> None:
    """The driver numbers these GPUs first, in this order, and the others after them."""
    at = EmulatedNode(cluster, node)
    names = [at.gpu(each) for each in gpus]
    if len(set(names)) < len(names):
        raise UserError(f"{', '.join(gpus)}: name each GPU once")
    at.faults["gpu_order"] = names
    at.plant("order", f"the driver numbers {', '.join(names)} first")


def gdr_lost(cluster: Cluster, node: str, gpus: Sequence[str]) -> None:
    """GPUs (none given: all) have no GPUDirect RDMA: data take the way over host memory."""
    at = EmulatedNode(cluster, node)
    names = [at.gpu(each) for each in gpus] or at.gpus
    at.add("gdr_lost", names)
    at.plant("gdr", f"{', '.join(at.faults['gdr_lost'])} have no GPUDirect RDMA")


def another_nic(cluster: Cluster, node: str, gpu: str, nic: str) -> None:
    """*CCL takes another NIC for a GPU than the topology has for it."""
    at = EmulatedNode(cluster, node)
    name = at.gpu(gpu)
    known = [each["name"] for each in at.content["nics"]]
    if nic not in known:
        raise UserError(f"{node} has no NIC {nic!r}: choose from {', '.join(known)}")
    at.faults.setdefault("nic_of", {})[name] = nic
    at.plant(f"nic {name}", f"*CCL takes {nic} for {name}")


def no_plugin(cluster: Cluster, node: str) -> None:
    """*CCL finds no plugin or driver of the fabric on a node, and falls back to sockets."""
    at = EmulatedNode(cluster, node)
    at.faults["no_fabric_plugin"] = True
    at.plant("plugin", "*CCL finds sockets only")


def version(cluster: Cluster, node: str, what: str, value: str) -> None:
    """A driver or library of a node has another version, given as the node has it: a number, or text."""
    at = EmulatedNode(cluster, node)
    known = at.content["versions"]
    if what not in known:
        raise UserError(f"{node} has no version of {what!r}: choose from {', '.join(known)}")
    at.faults.setdefault("versions", {})[what] = _number(value, what) if isinstance(known[what], int) else value
    at.plant(f"version {what}", f"{what} has the version {value}, and {known[what]} elsewhere")


def fact(cluster: Cluster, node: str, gpu: str, name: str, value: str) -> None:
    """NVML, rocm-smi and amd-smi say another number of a GPU, such as its temperature or memory errors."""
    at = EmulatedNode(cluster, node)
    if name not in FACTS:
        raise UserError(f"there is no fact {name!r} of a GPU: choose from {', '.join(FACTS)}")
    gpu = at.gpu(gpu)
    at.faults.setdefault("nvml", {}).setdefault(gpu, {})[name] = _number(value, name)
    at.plant(f"fact {gpu} {name}", f"{name} of {gpu} is {value}")


def variable(cluster: Cluster, node: str, setting: str) -> None:
    """All ranks of a node have a variable (`NAME=VALUE`) that the others have not, as by a profile of the node."""
    name, _, value = setting.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*=[\w.,:/@+^-]*", setting):
        raise UserError(f"{setting!r} is not a variable: NAME=VALUE, its value without blanks and quotes")
    at = EmulatedNode(cluster, node)
    with (at.folder / VARIABLES).open("a", encoding="utf-8") as file:
        file.write(f"export {name}={value}\n")
    at.plant(f"variable {name}", f"{name} is {value}")


def nvlink_down(cluster: Cluster, node: str, gpu: str, number: int) -> None:
    """One NVLink is down: NVML says so at both GPUs, and what is left of the links to the same place is slower."""
    at = EmulatedNode(cluster, node)
    name = at.gpu(gpu)
    links = _nvlinks(at, name)
    if not links:
        raise UserError(f"{name} of {node} has no NVLinks")
    if not 0 <= number < len(links):
        raise UserError(f"{name} of {node} has no NVLink {number}: they are 0 to {len(links) - 1}")
    far = links[number]["to"]
    alike = [place for place, each in enumerate(links) if each["to"] == far]
    down = at.faults.setdefault("nvlinks", {})
    if str(number) in down.get(name, {}):
        raise UserError(f"NVLink {number} of {name} of {node} is down already")
    up = sum(str(place) not in down.get(name, {}) for place in alike)
    at.slow(at.links(name, far), (up - 1) / up)
    down.setdefault(name, {})[str(number)] = {"state": "inactive"}
    if far in at.gpus:
        back = [place for place, each in enumerate(_nvlinks(at, far)) if each["to"] == name]
        down.setdefault(far, {})[str(back[alike.index(number)])] = {"state": "inactive"}
    at.plant(f"nvlink {name} {number}", f"NVLink {number} of {name}, to {far}, is down: {up - 1} of {len(alike)} left")


def pcie(cluster: Cluster, node: str, gpu: str, generation: int, width: int | None) -> None:
    """A GPU's PCIe link came up at less. Where the topology has no PCIe there, only NVML says so."""
    at = EmulatedNode(cluster, node)
    name = at.gpu(gpu)
    full = next(each["pcie"] for each in at.content["gpus"] if each["name"] == name)
    width = width if width is not None else full["width"]
    if not (1 <= generation <= full["generation"] and 1 <= width <= full["width"]):
        best = f"generation {full['generation']} x{full['width']}"
        raise UserError(f"generation {generation} x{width}: {name} of {node} has {best}, and can come up at less only")
    factor = PCIE_LANE_GBPS[generation] * width / (PCIE_LANE_GBPS[full["generation"]] * full["width"])
    topology = cluster.layout.topology
    to_host = host_links(topology, [topology.gpu(name)])
    own = (link for link in topology.links if name in link.ends or link in to_host)
    real = [link.ends for link in own if re.match(r"PCIe \d", link.technology)]
    for ends in real:
        for link in at.links(*ends):
            at.faults.setdefault("links", {})[link] = factor
    at.faults.setdefault("pcie", {})[name] = {"generation": generation, "width": width}
    more = "" if real else ", which carries no data here"
    at.plant(f"pcie {name}", f"PCIe of {name} is generation {generation} x{width}{more}")


def hung(cluster: Cluster, node: str, gpu: str) -> None:
    """Operations on a GPU never end."""
    at = EmulatedNode(cluster, node)
    at.add("hung_gpus", [at.gpu(gpu)])
    at.plant(f"hung {at.gpu(gpu)}", f"{at.gpu(gpu)} hangs")


def other_process(cluster: Cluster, node: str, gpu: str, memory_bytes: int, to: str | None) -> None:
    """Somebody else's process has memory of a GPU and, with `to`, transfers that never end from the GPU to there."""
    at = EmulatedNode(cluster, node)
    name = at.gpu(gpu)
    places = [each["name"] for each in at.content["cpus"]]
    flows = [[name, to if to in places else at.gpu(to)]] if to is not None else []
    processes = at.faults.setdefault("processes", [])
    own = {"gpu": name, "pid": _PID + len(processes), "name": _SOMEBODY, "memory_bytes": memory_bytes}
    processes.append({**own, "flows": flows})
    busy = f" and sends to {flows[0][1]}" if flows else ""
    pid = own["pid"]
    at.plant(f"process {pid}", f"process {pid} ({_SOMEBODY}) has {memory_bytes} bytes of {name}{busy}")


def clear(cluster: Cluster, what: str) -> None:
    """Remove all faults of the emulated GPUs of a node; `what` is the name of one of them after its kind."""
    folder = EmulatedNode(cluster, what.partition(" ")[0]).folder
    node_faults.plant(folder, {})
    (folder / VARIABLES).unlink(missing_ok=True)


def _nvlinks(at: EmulatedNode, gpu: str) -> list[dict[str, Any]]:
    return next(each["nvlinks"] for each in at.content["gpus"] if each["name"] == gpu)


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text):
        raise UserError(f"{what} is a whole number, not {text!r}")
    return int(text)


def _rest(percent: float, *, most: float = 99.9) -> float:
    if not 0 < percent <= most:
        raise UserError(f"more than 0 and up to {most:g} percent can be lost, not {percent:g}")
    return 1 - percent / 100
