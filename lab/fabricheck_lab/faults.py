"""What can be broken on an emulated cluster. Faults know nothing of benchmarks."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from fabricheck.errors import UserError
from fabricheck.state.programs import module_command
from fabricheck_lab import gpu_faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.layout import Cable, Device, switch_of
from fabricheck_lab.state import end

_PACKAGES = {"nft": "nftables", "iptables": "iptables"}
# Which queues of packets of a namespace a program has asked for.
_QUEUES = "/proc/net/netfilter/nfnetlink_queue"
_PATIENCE_S = 10.0


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


def delay(cluster: Cluster, link: str, microseconds: float) -> None:
    """A link takes that much longer in each direction, as a longer cable does. Needs iptables.

    With 0 it has the program that holds its packets, and no delay: what the program itself costs.
    Where that program ends, the link loses everything.
    """
    if not 0 <= microseconds <= 1e6:
        raise UserError(f"a link can take 0 to 1,000,000 us more, not {microseconds:g}")
    cable = cluster.cable(link)
    _clear_delay(cluster, cable.name)
    role, queue = f"delay {cable.name}", _queue(cluster, cable)
    enter = ["nsenter", f"--net=/var/run/netns/{cable.ends[0].namespace}"]
    program = module_command("fabricheck_lab.delay", str(queue), f"{microseconds:g}")
    cluster.launch_helper(role, [*enter, *program])
    deadline = time.monotonic() + _PATIENCE_S
    while not _is_bound(enter, queue):
        if time.monotonic() > deadline or cluster.daemon(role) is None:
            raise UserError(f"{role} did not start: see {cluster.folder / 'log'}")
        time.sleep(0.02)
    _queue_packets(cable.ends[0], queue, True)
    cluster.journal.set_fault(role, f"{cable.name} takes {microseconds:g} us more in each direction")


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


def _clear_delay(cluster: Cluster, link: str) -> None:
    """Also where there is none, or only a part of it."""
    cable = cluster.cable(link)
    _queue_packets(cable.ends[0], _queue(cluster, cable), False)
    _stop(cluster, f"delay {link}")


_CLEAR = {
    "slow": _clear_slow,
    "flap": _clear_flap,
    "unplug": _clear_unplug,
    "node-down": _clear_node_down,
    "kill-daemon": _clear_kill_daemon,
    "loss": _clear_loss,
    "delay": _clear_delay,
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
        raise UserError(f"no node {node!r}: {_some(cluster.layout.network.nodes)}")


def _table(device: Device) -> str:
    """A table of its own for each port, so that mending one leaves the others broken."""
    return f"fabricheck_{device.name}"


def _queue(cluster: Cluster, cable: Cable) -> int:
    """A queue of its own for each link: their numbers are those of a namespace."""
    return list(cluster.layout.cables).index(cable.name)


def _is_bound(enter: Sequence[str], queue: int) -> bool:
    """Whether a program has asked for the packets of a queue."""
    answer = subprocess.run([*enter, "cat", _QUEUES], capture_output=True, text=True, check=False)
    return any(line.split()[0] == str(queue) for line in answer.stdout.splitlines())


def _queue_packets(device: Device, queue: int, wanted: bool) -> None:
    """Let all that a device sends and receives wait in a queue, or no longer."""
    iptables = ["iptables", "-w", "-t", "mangle"]
    for chain, side in (("PREROUTING", "-i"), ("POSTROUTING", "-o")):
        rule = [chain, side, device.name, "-j", "NFQUEUE", "--queue-num", str(queue)]
        is_there = _in_namespace(device.namespace, [*iptables, "-C", *rule]).returncode == 0
        if is_there != wanted:
            _check(_in_namespace(device.namespace, [*iptables, "-A" if wanted else "-D", *rule]))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" … {names[-1]}" if len(names) > 4 else "")


def _nft(namespace: str, rules: str) -> None:
    _check(_in_namespace(namespace, ["nft", "-f", "-"], rules))


def _in_namespace(namespace: str, words: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    if shutil.which(words[0]) is None:
        raise UserError(f"this fault needs {words[0]}: apt-get install {_PACKAGES[words[0]]}")
    command = ["ip", "netns", "exec", namespace, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise UserError(f"'{' '.join(done.args)}' failed: {(done.stderr.strip() or 'no reason given').splitlines()[0]}")
