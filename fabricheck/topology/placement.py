"""Where the ranks of a run are on the machine that a topology describes: GPUs of a node, ports of the network."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fabricheck.errors import UserError
from fabricheck.records.component import Component, Kind, short_host
from fabricheck.records.node_state import NodeState, States
from fabricheck.records.run import Device, Run
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import nic_of


def node_name(host: str, topology: Topology | None) -> str:
    """Return the name of a host in the network of a topology, or without its domain if that does not have it."""
    if topology is not None and topology.network is not None:
        with contextlib.suppress(UserError):
            return topology.network.node_of_host(host)
    return short_host(host)


def gpu_of_ranks(run: Run) -> dict[int, int]:
    """The node-local index of the GPU of each rank.

    Of an NVIDIA GPU it is the driver's, where the node reported that: topologies and nvidia-smi number them so, and
    CUDA only those that CUDA_VISIBLE_DEVICES shows. Else it is the index under which the rank saw it. Where ranks of a
    node gave one index to different GPUs, because a launcher showed each rank its own GPU only, it is the place of the
    GPU's PCI address among those of the ranks.
    """
    has_nvml = run.header.get("backend") == "cuda"
    indexes: dict[int, int] = {}
    devices_of_hosts: dict[str, dict[int, Device]] = {}
    for rank in run.ranks:
        if rank.device is not None:
            devices_of_hosts.setdefault(rank.host, {})[rank.rank] = rank.device
    for host, seen in devices_of_hosts.items():
        devices = {each.uuid: each for each in seen.values()}
        by_driver = {gpu.bus_id: gpu.index for gpu in run.states.gpus_of(host)} if has_nvml else {}
        if by_driver.keys() >= {each.address for each in devices.values()}:
            indexes |= {rank: by_driver[each.address] for rank, each in seen.items()}
        elif len({each.index for each in devices.values()}) < len(devices):
            order = sorted(each.bus_id for each in devices.values())
            indexes |= {rank: order.index(each.bus_id) for rank, each in seen.items()}
        else:
            indexes |= {rank: each.index for rank, each in seen.items()}
    return indexes


def with_node_indexes(run: Run, topology: Topology | None) -> Run:
    """Return the run with each rank's GPU under its node-local index (`gpu_of_ranks`), and its host as `node_name`.

    Where a driver shows more GPUs than the topology describes, as in a container, a job sees some of the node's GPUs
    alone: then the driver's GPUs are those of the ranks, by PCI address, and get the index that the ranks give them.
    """
    if topology is not None:
        run = replace(run, states=_states_of_job(run, len(topology.gpus)))
    indexes = gpu_of_ranks(run)
    names = {host: node_name(host, topology) for host in {rank.host for rank in run.ranks}}
    ranks = []
    for rank in run.ranks:
        device = replace(rank.device, index=indexes[rank.rank]) if rank.device is not None else None
        ranks.append(replace(rank, host=names[rank.host], device=device))
    return replace(run, ranks=tuple(ranks))


def _states_of_job(run: Run, gpus_of_topology: int) -> States:
    indexes = gpu_of_ranks(replace(run, states=States()))
    of_host: dict[str, dict[str, int]] = {}
    for rank in run.ranks:
        if rank.device is not None:
            of_host.setdefault(short_host(rank.host), {})[rank.device.address] = indexes[rank.rank]

    def of_job(state: NodeState) -> NodeState:
        own = of_host.get(state.host, {})
        if len(state.gpus) <= gpus_of_topology or not own:
            return state
        gpus = [replace(gpu, index=own[gpu.bus_id]) for gpu in state.gpus if gpu.bus_id in own]
        return replace(state, gpus=tuple(gpus))

    before = {host: of_job(state) for host, state in run.states.before.items()}
    after = {host: of_job(state) for host, state in run.states.after.items()}
    return replace(run.states, before=before, after=after)


def gpu_component(topology: Topology | None, index: int, host: str, address: str) -> Component:
    """A GPU of a node, at a PCI address; the topology may call it otherwise than by its index."""
    names = {gpu.index: gpu.name for gpu in topology.gpus} if topology is not None else {}
    return Component(Kind.GPU, names.get(index, f"gpu{index}"), host, address=address)


def nics_of_ranks(run: Run, topology: Topology) -> dict[int, tuple[str, ...]]:
    """The NICs that libfabric used for each rank: by the topology's names where it was told those, else by its own."""
    asked = [names.split("+") for names in (run.header.get("plan", {}).get("nic") or "").split(",")]
    known = {nic.name for nic in topology.nics}
    nics = {}
    for rank in run.ranks:
        names = asked[rank.local_rank % len(asked)]
        told = len(names) == len(rank.nics or names) and known.issuperset(names)
        nics[rank.rank] = tuple(names) if told else rank.nics
    return nics


def ends_of_ranks(run: Run, topology: Topology) -> dict[int, str]:
    """Where each rank is plugged into the network: the port of its GPU's NIC where that is known, else its node.

    Empty on a single node, where two hosts have the name of one node, and where the topology has no network. Raises
    UserError for a host that is not a node of it.
    """
    network = topology.network
    if network is None or len({each.host for each in run.ranks}) < 2:
        return {}
    nodes = {host: network.node_of_host(host) for host in {each.host for each in run.ranks}}
    if len({*nodes.values()}) < len(nodes):
        return {}
    gpus = gpu_of_ranks(run)
    ends = {}
    for rank in run.ranks:
        node = nodes[rank.host]
        nic = nic_of(topology, topology.gpu(gpus[rank.rank])) if rank.device is not None else None
        port = f"{node}:{nic.name}" if nic is not None else ""
        ends[rank.rank] = port if port in network.ports_of(node) else node
    return ends


# The rest is what schedulers and file systems send.
_MOST = 0.9


def port_used(run: Run, host: str, ports: Sequence[str]) -> str | None:
    """Of the `ports` of a node the one over which the kernel's counters say that its data went, where it is one."""
    sent = (run.footer or {}).get("proof", {}).get("interfaces", {}).get(host, {})
    bytes_of = {port: sent.get(port.partition(":")[2], 0) for port in ports}
    port = max(ports, key=lambda nic: bytes_of[nic])
    return port if bytes_of[port] > _MOST * sum(sent.values()) else None


def nics_of_lone_ranks(run: Run, topology: Topology) -> dict[int, str]:
    """The NIC port, such as hsn0, of each rank that is alone on its node and drives no GPU, where counters tell it."""
    network = topology.network
    counts = Counter(each.host for each in run.ranks)
    if network is None or len(counts) < 2:
        return {}
    nics = {}
    for own_rank in run.ranks:
        ports = network.ports_of(network.node_of_host(own_rank.host))
        if counts[own_rank.host] == 1 and own_rank.device is None and ports:
            nics[own_rank.rank] = port_used(run, own_rank.host, ports)
    return {rank: port.partition(":")[2] for rank, port in nics.items() if port is not None}
