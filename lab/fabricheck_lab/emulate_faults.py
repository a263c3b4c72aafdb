"""`fabricheck emulate fault`: what can be broken on an emulated cluster, and on the GPUs of one in miniature."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from fabricheck_lab.node_faults import FACTS, REASONS

if TYPE_CHECKING:
    from fabricheck_lab.cluster import Cluster

_name = click.option("--name", default="emulated", show_default=True, help="The cluster's name.")


@click.group()
def fault() -> None:
    """Plant a fault, or remove it again.

    When: to see how Fabricheck reports a fault, before a real one.

    \b
    fabricheck emulate fault slow nid002:hsn0 10
    fabricheck emulate exec -- fabricheck run --system emulated --tag smoke
    """


def cluster_of(name: str) -> Cluster:
    from fabricheck_lab.cluster import Cluster, require_machine

    require_machine()
    return Cluster.find(name)


def _plant(name: str, plant: Callable[[Cluster], None]) -> None:
    cluster = cluster_of(name)
    plant(cluster)
    faults = cluster.journal.faults().values()
    click.echo("".join(f"planted: {what}\n" for what in faults) or "nothing is planted\n", nl=False)


@fault.command()
@click.argument("link")
@click.argument("percent", type=float)
@click.option("--one-side", is_flag=True, help="Slow down only what the first end sends.")
@_name
def slow(*, link: str, percent: float, one_side: bool, name: str) -> None:
    """A link (nid001:hsn0, or leaf0--spine0) loses PERCENT of its rate.

    \b
    fabricheck emulate fault slow nid002:hsn0 10
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.slow(cluster, link, percent, one_side=one_side))


@fault.command()
@click.argument("link")
@_name
def unshaped(*, link: str, name: str) -> None:
    """A link has no rate limit: it is as fast as this machine.

    \b
    fabricheck emulate fault unshaped leaf0--spine0
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.unshaped(cluster, link))


@fault.command()
@click.argument("link")
@click.option("--period", type=float, default=2.0, show_default=True, help="Seconds of one time down and up.")
@_name
def flap(*, link: str, period: float, name: str) -> None:
    """A link goes down and up.

    \b
    fabricheck emulate fault flap nid002:hsn0 --period 1
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.flap(cluster, link, period))


@fault.command()
@click.argument("port")
@_name
def unplug(*, port: str, name: str) -> None:
    """A port (nid001:hsn0) loses its carrier.

    \b
    fabricheck emulate fault unplug nid002:hsn0
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.unplug(cluster, port))


@fault.command()
@click.argument("node")
@_name
def node_down(*, node: str, name: str) -> None:
    """A node loses its power.

    \b
    fabricheck emulate fault node-down nid002
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.node_down(cluster, node))


@fault.command()
@click.argument("daemon", nargs=-1, required=True)
@_name
def kill_daemon(*, daemon: tuple[str, ...], name: str) -> None:
    """A daemon ends: munged, slurmctld, or slurmd NODE.

    \b
    fabricheck emulate fault kill-daemon slurmd nid002
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.kill_daemon(cluster, " ".join(daemon)))


@fault.command()
@click.argument("port")
@click.argument("per_10000", type=int)
@_name
def loss(*, port: str, per_10000: int, name: str) -> None:
    """A port loses PER_10000 of 10,000 packets.

    \b
    fabricheck emulate fault loss nid002:hsn0 50
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.loss(cluster, port, per_10000))


@fault.command()
@click.argument("link")
@click.argument("microseconds", type=float)
@_name
def delay(*, link: str, microseconds: float, name: str) -> None:
    """A link (nid001:hsn0, or leaf0--spine0) takes MICROSECONDS more in each direction.

    \b
    fabricheck emulate fault delay nid002:hsn0 400
    """
    from fabricheck_lab import faults

    _plant(name, lambda cluster: faults.delay(cluster, link, microseconds))


@fault.command()
@_name
def clear(*, name: str) -> None:
    """Remove all faults.

    \b
    fabricheck emulate fault clear
    """
    from fabricheck_lab import faults

    _plant(name, faults.clear)


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("other")
@click.argument("percent", type=float)
@click.option("--one-side", is_flag=True, help="Slow down only what GPU sends.")
@_name
def gpu_link(*, node: str, gpu: str, other: str, percent: float, one_side: bool, name: str) -> None:
    """The link from GPU to OTHER (GPU, switch or CPU) loses PERCENT of its rate. If OTHER is GPU, its memory does.

    \b
    fabricheck emulate fault gpu-link nid002 gpu0 gpu1 50
    """
    from fabricheck_lab import gpu_faults

    ends = gpu, other
    _plant(name, lambda cluster: gpu_faults.slow_link(cluster, node, ends, percent, one_side=one_side))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@_name
def gpu_missing(*, node: str, gpu: str, name: str) -> None:
    """A GPU is not there.

    \b
    fabricheck emulate fault gpu-missing nid002 gpu1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.missing(cluster, node, gpu))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("percent", type=float)
@click.option("--reason", type=click.Choice(REASONS), default="sw_thermal_slowdown", show_default=True)
@_name
def gpu_slow(*, node: str, gpu: str, percent: float, reason: str, name: str) -> None:
    """A GPU is throttled: it and its links lose PERCENT of their speed.

    \b
    fabricheck emulate fault gpu-slow nid002 gpu1 30 --reason hw_slowdown
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.throttled(cluster, node, gpu, percent, reason))


@fault.command()
@click.argument("node")
@click.argument("gpu", nargs=-1, required=True)
@_name
def gpu_order(*, node: str, gpu: tuple[str, ...], name: str) -> None:
    """The driver numbers the named GPUs first, in this order, and then the others.

    \b
    fabricheck emulate fault gpu-order nid002 gpu1 gpu0
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.reordered(cluster, node, gpu))


@fault.command()
@click.argument("node")
@click.argument("gpu", nargs=-1)
@_name
def gdr_lost(*, node: str, gpu: tuple[str, ...], name: str) -> None:
    """The named GPUs of a node (without GPU: all) have no GPUDirect RDMA.

    \b
    fabricheck emulate fault gdr-lost nid002 gpu1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.gdr_lost(cluster, node, gpu))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("number", type=int)
@_name
def nvlink_down(*, node: str, gpu: str, number: int, name: str) -> None:
    """One of the NVLinks of a GPU is down.

    \b
    fabricheck emulate fault nvlink-down nid002 gpu1 3
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.nvlink_down(cluster, node, gpu, number))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("generation", type=int)
@click.argument("width", type=int, required=False)
@_name
def pcie(*, node: str, gpu: str, generation: int, width: int | None, name: str) -> None:
    """The PCIe link of a GPU came up at a lower GENERATION, or with fewer lanes.

    \b
    fabricheck emulate fault pcie nid002 gpu1 3 8
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.pcie(cluster, node, gpu, generation, width))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@_name
def hung_gpu(*, node: str, gpu: str, name: str) -> None:
    """Operations on a GPU never end.

    \b
    fabricheck emulate fault hung-gpu nid002 gpu1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.hung(cluster, node, gpu))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.option("--memory", default="1GiB", show_default=True, help="The memory of the GPU that the process uses.")
@click.option("--to", help="The process also sends to this GPU or CPU, all the time.")
@_name
def other_process(*, node: str, gpu: str, memory: str, to: str | None, name: str) -> None:
    """Somebody else's process is on a GPU.

    \b
    fabricheck emulate fault other-process nid002 gpu1 --memory 2GiB --to gpu0
    """
    from fabricheck.units import parse_size
    from fabricheck_lab import gpu_faults

    held = parse_size(memory)
    _plant(name, lambda cluster: gpu_faults.other_process(cluster, node, gpu, held, to))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("nic")
@_name
def gpu_nic(*, node: str, gpu: str, nic: str, name: str) -> None:
    """*CCL uses NIC for a GPU; the topology associates another one.

    \b
    fabricheck emulate fault gpu-nic nid002 gpu0 hsn1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.another_nic(cluster, node, gpu, nic))


@fault.command()
@click.argument("node")
@_name
def no_plugin(*, node: str, name: str) -> None:
    """*CCL finds no plugin or driver of the fabric on a node, and uses sockets.

    \b
    fabricheck emulate fault no-plugin nid002
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.no_plugin(cluster, node))


@fault.command()
@click.argument("node")
@click.argument("what", metavar="driver|ccl|runtime|...")
@click.argument("value")
@_name
def version(*, node: str, what: str, value: str, name: str) -> None:
    """A driver or library of a node has another version, such as `ccl 22703` for NCCL 2.27.3.

    \b
    fabricheck emulate fault version nid002 ccl 22703
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.version(cluster, node, what, value))


@fault.command()
@click.argument("node")
@click.argument("gpu")
@click.argument("fact", type=click.Choice(FACTS))
@click.argument("value")
@_name
def nvml(*, node: str, gpu: str, fact: str, value: str, name: str) -> None:
    """NVML, rocm-smi and amd-smi report VALUE for a GPU.

    \b
    fabricheck emulate fault nvml nid002 gpu0 remapped_rows_pending 1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.fact(cluster, node, gpu, fact, value))


@fault.command()
@click.argument("node")
@click.argument("setting", metavar="NAME=VALUE")
@_name
def variable(*, node: str, setting: str, name: str) -> None:
    """The ranks of a node have a variable that other nodes do not have, such as NCCL_P2P_DISABLE=1.

    \b
    fabricheck emulate fault variable nid002 NCCL_P2P_DISABLE=1
    """
    from fabricheck_lab import gpu_faults

    _plant(name, lambda cluster: gpu_faults.variable(cluster, node, setting))
