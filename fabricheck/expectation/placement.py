"""Where the ranks of a run are on the machine that a topology describes: GPUs of a node, ports of the network."""

from __future__ import annotations

from fabricheck.records.run import Run
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import nic_of


def gpu_of_ranks(run: Run) -> dict[int, int]:
    """The node-local index of the GPU of each rank.

    That is the index under which the rank saw it. Where ranks of a node gave one index to different GPUs, because a
    launcher showed each rank its own GPU only, it is the place of the GPU's PCI address among those of the ranks.
    """
    indexes: dict[int, int] = {}
    for host in {each.host for each in run.ranks}:
        seen = {each.rank: each.device for each in run.ranks if each.host == host and each.device is not None}
        devices = {each.uuid: each for each in seen.values()}
        if len({each.index for each in devices.values()}) < len(devices):
            order = sorted(each.bus_id for each in devices.values())
            indexes |= {rank: order.index(each.bus_id) for rank, each in seen.items()}
        else:
            indexes |= {rank: each.index for rank, each in seen.items()}
    return indexes


def ends_of_ranks(run: Run, topology: Topology) -> dict[int, str]:
    """Where each rank is plugged into the network: the port of its GPU's NIC where that is known, else its node.

    Empty on a single node, and where the topology has no network. Raises UserError for a host that is no node of it.
    """
    network = topology.network
    if network is None or len({each.host for each in run.ranks}) < 2:
        return {}
    gpus = gpu_of_ranks(run)
    ends = {}
    for each in run.ranks:
        node = network.node_of_host(each.host)
        nic = nic_of(topology, topology.gpu(gpus[each.rank])) if each.device is not None else None
        port = f"{node}:{nic.name}" if nic is not None else ""
        ends[each.rank] = port if port in network.ports_of(node) else node
    return ends
