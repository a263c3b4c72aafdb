"""What has to be built for a network: namespaces, devices, addresses and routes. Nothing is built here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx

from fabricheck.errors import UserError
from fabricheck.topology.model import Topology
from fabricheck.topology.network import Network

# A plane is all NICs of one name. It has a /16 with a /24 for each switch, so that traffic of a NIC stays on its plane.
_FIRST_PLANE = 78
_MOST_PLANES, _MOST_SWITCHES, _MOST_PORTS = 100, 250, 250
ALONE = Network(("nid001",), (), (), ())
LOGIN = "login"
LOGIN_ADDRESS = "10.77.255.254"

# What a shaper lets pass at once where the topology does not say: with less, a fast link does not reach its rate.
_BURST_BYTES = 256 << 10


@dataclass(frozen=True)
class Device:
    """A network device in a namespace."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Cable:
    """A shaped link, full duplex: its name in the Network, its two ends, the rate in bit/s and the burst in bytes."""

    name: str
    ends: tuple[Device, Device]
    rate: int
    burst: int


@dataclass(frozen=True)
class Port:
    """A node's port: `device` there, `gateway` on its switch, `plane` the network of all ports of that name."""

    name: str
    device: Device
    address: str
    gateway: str
    plane: str


def check_name(name: str) -> str:
    """The name of a cluster as it is: it becomes part of paths and of patterns. Raises UserError for any other text."""
    if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", name):
        raise UserError(f"{name!r} is not a name for a cluster: up to 16 lower-case letters and digits")
    return name


@dataclass(frozen=True)
class Layout:
    """Everything that a cluster of this `name` is made of. Namespaces begin with `prefix`."""

    name: str
    topology: Topology

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.topology.network is None and (self.topology.nics or not self.topology.gpus):
            raise UserError(f"the topology of {self.topology.system} has no network: an emulated cluster is made of it")
        network = self.network
        below = Counter(network.leaf_of(port) for port in network.ports)
        longest = max(below.values(), default=0)
        if len(self.planes) > _MOST_PLANES or len(network.switches) > _MOST_SWITCHES or longest > _MOST_PORTS:
            raise UserError(f"the network of {self.topology.system} is too large to be emulated on one machine")

    @property
    def network(self) -> Network:
        """The described network; a node with GPUs and no NICs is alone."""
        return self.topology.network or ALONE

    @property
    def prefix(self) -> str:
        return f"fabricheck-{self.name}-"

    def namespace(self, of: str) -> str:
        return f"{self.prefix}{of}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        names = (LOGIN, *(one.name for one in self.network.switches), *self.network.nodes)
        return tuple(map(self.namespace, names))

    @cached_property
    def planes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(port.partition(":")[2] for port in self.network.ports))

    def management_address(self, node: str) -> str:
        number = self.network.nodes.index(node) + 1
        return f"10.77.{number // 250}.{number % 250 + 1}"

    @cached_property
    def ports(self) -> dict[str, Port]:
        """The ports by their names, such as `nid001:hsn0`."""
        used: dict[tuple[str, str], int] = {}
        port_by_name = {}
        for name in self.network.ports:
            node, _, nic = name.partition(":")
            leaf = self.network.leaf_of(name)
            used[leaf, nic] = used.get((leaf, nic), 0) + 1
            subnet = self._subnet(nic, leaf)
            device = Device(self.namespace(node), nic)
            port_by_name[name] = Port(
                name, device, f"{subnet}.{used[leaf, nic]}", f"{subnet}.254", f"10.{self._plane(nic)}.0.0/16"
            )
        return port_by_name

    def bridges(self, switch: str) -> Iterator[tuple[str, str]]:
        """Name and address (with its length) of each bridge of a switch: one for each plane of its ports."""
        nics = {port.partition(":")[2] for port in self.network.ports if self.network.leaf_of(port) == switch}
        for nic in sorted(nics):
            yield f"br-{nic}", f"{self._subnet(nic, switch)}.254/24"

    @cached_property
    def cables(self) -> dict[str, Cable]:
        """All links of the network by name."""
        bursts = {nic.name: nic.burst_bytes or _BURST_BYTES for nic in self.topology.nics}
        cable_by_name = {}
        for number, link in enumerate(self.network.links):
            ends = []
            for end in link.ends:
                if ":" in end:
                    ends.append(self.ports[end].device)
                else:
                    ends.append(Device(self.namespace(end), f"l{number}"))
            if ends[0].namespace == ends[1].namespace:
                raise UserError(f"{link.name} joins {link.ends[0]} with itself")
            nic = link.ends[0].partition(":")[2]
            rate = round(link.total_gbps * 1e9)
            cable_by_name[link.name] = Cable(link.name, (ends[0], ends[1]), rate, bursts.get(nic, _BURST_BYTES))
        return cable_by_name

    def trunk_address(self, link: str, switch: str) -> str:
        """Address of a switch on the trunk `link`, which has a /31 of its own."""
        number = list(self.cables).index(link)
        side = next(one for one in self.network.links if one.name == link).ends.index(switch)
        return f"10.{10 + number // 32768}.{number % 32768 // 128}.{2 * (number % 128) + side}"

    def routes(self, switch: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Subnets behind other switches, each with the addresses of all next hops of equal cost."""
        switches = self.network.graph.subgraph(one.name for one in self.network.switches)
        for leaf in switches:
            behind = leaf != switch and nx.has_path(switches, switch, leaf)
            if not behind or not any(True for _ in self.bridges(leaf)):
                continue
            ways = nx.all_shortest_paths(switches, switch, leaf)
            hops = sorted({next(pairwise(way))[1] for way in ways})
            links = [switches.edges[switch, hop]["link"].name for hop in hops]
            gateways = tuple(self.trunk_address(link, hop) for link, hop in zip(links, hops, strict=True))
            for bridge, _ in self.bridges(leaf):
                yield f"{self._subnet(bridge.removeprefix('br-'), leaf)}.0/24", gateways

    def _plane(self, nic: str) -> int:
        return _FIRST_PLANE + self.planes.index(nic)

    def _subnet(self, nic: str, switch: str) -> str:
        names = [one.name for one in self.network.switches]
        return f"10.{self._plane(nic)}.{names.index(switch) + 1}"


def switch_of(layout: Layout, end: Device) -> str:
    """The switch or node whose namespace a device is in."""
    return end.namespace.removeprefix(layout.prefix)
