"""What can be broken on an emulated cluster. Faults know nothing of benchmarks."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from fabricheck.emulation import gpu_faults
from fabricheck.emulation.cluster import Cluster
from fabricheck.emulation.layout import Cable, Device, switch_of
from fabricheck.emulation.state import end
from fabricheck.errors import UserError


def slow(cluster: Cluster, link: str, percent: float, *, one_side: bool = False) -> None:
    """A link loses `percent` of its rate, or with `one_side` only what its first end sends."""
    if not 0 < percent < 100:
        raise UserError(f"a link can lose more than 0 and less than 100 percent of its rate, not {percent:g}")
    cable = cluster.cable(link)
    rate = round(cable.rate * (1 - percent / 100))
    # The other side may be slow from before.
    for device, sent in zip(cable.ends, (rate, cable.rate if one_side else rate), strict=True):
        cluster.shape(device, sent, cable.burst)
    side = " in one direction" if one_side else ""
    cluster.journal.set_fault(f"slow {cable.name}", f"{cable.name} has {100 - percent:g}% of its rate{side}")


def unshaped(cluster: Cluster, link: str) -> None:
    """A link is as fast as the machine: faster than its nominal rate."""
    cable = cluster.cable(link)
    for device in cable.ends:
        cluster.shape(device, None, cable.burst)
    cluster.journal.set_fault(f"slow {cable.name}", f"{cable.name} is not shaped")


def flap(cluster: Cluster, link: str, period_s: float) -> None:
    """A link goes down and comes up again, each for half of the period."""
    if period_s <= 0:
        raise UserError(f"a period is more than 0 s, not {period_s:g}")
    cable = cluster.cable(link)
    device = cable.ends[1]
    half = f"{period_s / 2:g}"
    ip = f"ip -n {device.namespace}"
    # The routes over a device are gone once it was down.
    restore = "".join(f"; {ip} {line}" for line in cluster.route_lines(switch_of(cluster.layout, device)))
    down, up = f"{ip} link set {device.name} down", f"{ip} link set {device.name} up{restore}"
    role = f"flap {cable.name}"
    _stop(cluster, role)
    cluster.launch_helper(role, ["sh", "-c", f"while :; do {down}; sleep {half}; {up}; sleep {half}; done"])
    cluster.journal.set_fault(role, f"{cable.name} goes down and up every {period_s:g} s")


def unplug(cluster: Cluster, port: str) -> None:
    """A port has no carrier, as with its cable pulled."""
    cable = _cable_of_port(cluster, port)
    cluster.plug(cable.ends[1], False)
    cluster.journal.set_fault(f"unplug {port}", f"{port} is unplugged")


def node_down(cluster: Cluster, node: str) -> None:
    """A node loses its power: everything on it ends at once."""
    _check_node(cluster, node)
    cluster.stop_node(node)
    cluster.journal.set_fault(f"node-down {node}", f"{node} is down")


def kill_daemon(cluster: Cluster, role: str) -> None:
    """A daemon of Slurm or munge ends, such as `slurmd nid001`; jobs that it started go on."""
    if role not in cluster.daemons:
        raise UserError(f"there is no daemon {role!r}: {_some(cluster.daemons)}")
    if process := cluster.daemon(role):
        process.signal(signal.SIGKILL)
        end([process])
    cluster.journal.set_fault(f"kill-daemon {role}", f"{role} was killed")


def loss(cluster: Cluster, port: str, per_10000: int) -> None:
    """A port loses that many of 10,000 packets that it receives. Needs nftables."""
    if not 0 < per_10000 <= 10000:
        raise UserError(f"between 1 and 10000 of 10,000 packets can be lost, not {per_10000}")
    cable = _cable_of_port(cluster, port)
    device = cable.ends[0]
    rules = (
        # Made before it is deleted, so that it need not be there: the rule then is the only one.
        f"add table netdev {_table(device)}\ndelete table netdev {_table(device)}\n"
        f"add table netdev {_table(device)}\n"
        f"add chain netdev {_table(device)} loss {{ type filter hook ingress device {device.name} priority 0; }}\n"
        f"add rule netdev {_table(device)} loss numgen random mod 10000 <= {per_10000 - 1} drop\n"
    )
    _nft(device.namespace, rules)
    cluster.journal.set_fault(f"loss {port}", f"{port} loses {per_10000} of 10,000 packets")


def clear(cluster: Cluster) -> None:
    """Mends everything: links, ports and nodes are as they were built, and all nodes are idle."""
    for name in cluster.journal.faults():
        kind, _, what = name.partition(" ")
        _CLEAR[kind](cluster, what)
        cluster.journal.set_fault(name, None)
    cluster.wait_until_idle(60.0)


def _clear_slow(cluster: Cluster, link: str) -> None:
    cable = cluster.cable(link)
    for device in cable.ends:
        cluster.shape(device, cable.rate, cable.burst)


def _clear_flap(cluster: Cluster, link: str) -> None:
    _stop(cluster, f"flap {link}")
    cluster.plug(cluster.cable(link).ends[1], True)


def _clear_unplug(cluster: Cluster, port: str) -> None:
    cluster.plug(_cable_of_port(cluster, port).ends[1], True)


def _clear_node_down(cluster: Cluster, node: str) -> None:
    cluster.start_node(node)
    cluster.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], timeout_s=20)


def _clear_kill_daemon(cluster: Cluster, role: str) -> None:
    if cluster.daemon(role) is None:
        cluster.start_daemon(role)


def _clear_loss(cluster: Cluster, port: str) -> None:
    device = _cable_of_port(cluster, port).ends[0]
    _nft(device.namespace, f"delete table netdev {_table(device)}")


_CLEAR = {
    "slow": _clear_slow,
    "flap": _clear_flap,
    "unplug": _clear_unplug,
    "node-down": _clear_node_down,
    "kill-daemon": _clear_kill_daemon,
    "loss": _clear_loss,
    gpu_faults.KIND: gpu_faults.clear,
}


def _stop(cluster: Cluster, role: str) -> None:
    if process := cluster.daemon(role):
        # The shell and what it is waiting for.
        process.signal(signal.SIGSTOP)
        subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
        process.signal(signal.SIGKILL)
        end([process])


def _cable_of_port(cluster: Cluster, port: str) -> Cable:
    if port not in cluster.layout.ports:
        raise UserError(f"there is no port {port!r}: {_some(list(cluster.layout.ports))}")
    return cluster.cable(port)


def _check_node(cluster: Cluster, node: str) -> None:
    if node not in cluster.layout.network.nodes:
        raise UserError(f"there is no node {node!r}: {_some(cluster.layout.network.nodes)}")


def _table(device: Device) -> str:
    """A table of its own for each port, so that mending one leaves the others broken."""
    return f"fabricheck_{device.name}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" … {names[-1]}" if len(names) > 4 else "")


def _nft(namespace: str, rules: str) -> None:
    command = ["ip", "netns", "exec", namespace, "nft", "-f", "-"]
    try:
        done = subprocess.run(command, input=rules, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("losing packets needs nft: apt-get install nftables") from None
    if done.returncode != 0:
        raise UserError(f"'{' '.join(command)}' failed: {(done.stderr.strip() or 'no reason given').splitlines()[0]}")
