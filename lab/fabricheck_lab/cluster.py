"""An emulated cluster: up, down, what is wrong with it, and how to run something on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.locks import Taken, exclusive
from fabricheck.topology.model import load_topology
from fabricheck_lab import slurm
from fabricheck_lab.layout import LOGIN, LOGIN_ADDRESS, Cable, Device, Layout, check_name, switch_of
from fabricheck_lab.state import Journal, Process, end

#: Programs that must be there, and the Debian package of each.
PACKAGES: Mapping[str, str] = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
}
DEFAULT_NAME = "emulated"
FOLDER = Path("/run/fabricheck")
TOPOLOGY = "topology.yaml"

# Routes of what is sent from a port's own address; the numbers of these tables mean nothing elsewhere.
EVERY_PLANE, FIRST_TABLE = "10.0.0.0/8", 100

# A queue holds so much time of its port: a fabric loses nothing where all ranks of a node, or all other nodes, send to
# a port at once. Of 20 ms one lost the end of messages, and TCP took 200 ms to send that again (2026-11-29).
_QUEUE_MS = 500
# Flows share a port fairly, as those of a fabric do, whatever congestion control the machine's TCP has: the kernel
# holds whole messages, and has no more than a few packets of each connection queue for a port at a time.
_MESSAGE_BYTES, _QUEUED_BYTES, _SEGMENTS_BYTES = 4 << 20, 16 << 10, 4500
_TCP = {
    "tcp_congestion_control": "reno",
    "tcp_limit_output_bytes": _QUEUED_BYTES,
    "tcp_slow_start_after_idle": 0,
    "tcp_rmem": f"4096 {_MESSAGE_BYTES} {2 * _MESSAGE_BYTES}",
    "tcp_wmem": f"4096 {_MESSAGE_BYTES} {2 * _MESSAGE_BYTES}",
}
# Packets that arrive at any port wait for the kernel in a queue of each core, and are lost where it is full: with the
# usual 1,000 places some in a thousand were, on two busy cores. There is one setting for the whole machine.
_BACKLOG, _PACKETS = Path("/proc/sys/net/core/netdev_max_backlog"), 20_000


@dataclass(frozen=True)
class Status:
    """`nodes`: Slurm's state of each; `missing`: roles of daemons that have ended; `faults`: what was planted."""

    nodes: Mapping[str, str]
    missing: tuple[str, ...]
    faults: Mapping[str, str]


def require_machine() -> None:
    """Raises UserError where no cluster can be emulated, saying what is missing."""
    if os.geteuid() != 0:
        raise UserError("an emulated cluster needs network namespaces: run this as root")
    missing = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    if missing:
        raise UserError(f"an emulated cluster needs {', '.join(missing)}: apt-get install {' '.join(missing)}")


class Cluster:
    """A cluster by its name. What belongs to it lies in `FOLDER`/NAME and in namespaces `fabricheck-NAME-*`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.folder = FOLDER / layout.name
        self.journal = Journal(self.folder)

    @classmethod
    def up(cls, topology: Path, name: str = DEFAULT_NAME, timeout_s: float = 30.0) -> Cluster:
        """Build the network of a topology.yaml and start Slurm on it; all nodes are idle when this returns.

        Raises UserError where there is a cluster of that name already, or this machine cannot emulate one.
        """
        require_machine()
        cluster = cls(Layout(name, load_topology(topology)))
        with _lock(name):
            if cluster.folder.exists() or _namespaces(cluster.layout.prefix):
                raise UserError(f"there is a cluster {name!r} already: fabricheck emulate down --name {name}")
            cluster.folder.mkdir(parents=True)
            shutil.copy(topology, cluster.folder / TOPOLOGY)
            try:
                cluster._build()
                cluster._start()
                cluster.wait_until_idle(timeout_s)
            except BaseException:
                cluster._tear_down()
                raise
        return cluster

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Cluster:
        """The cluster of that name, which may be half built. Raises UserError where there is none."""
        file = FOLDER / check_name(name) / TOPOLOGY
        if not file.exists():
            raise UserError(f"there is no cluster {name!r}: fabricheck emulate up --name {name}")
        return cls(Layout(name, load_topology(file)))

    @classmethod
    def down(cls, name: str = DEFAULT_NAME) -> bool:
        """End a cluster and remove all that is left of it, also after a crash. False where there was nothing."""
        require_machine()
        prefix = f"fabricheck-{check_name(name)}-"
        with _lock(name):
            folder = FOLDER / name
            if not folder.exists() and not _namespaces(prefix):
                return False
            _tear_down(folder, prefix)
        return True

    def down_now(self) -> None:
        self.down(self.layout.name)

    def run(
        self, command: Sequence[str], *, timeout_s: float | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node, and keep what it says."""
        return subprocess.run(
            [*slurm.in_login(self.layout, LOGIN), *command],
            env={**self.environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """The variables of the login node."""
        # Some of these programs lie where a user's path does not lead.
        path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def status(self) -> Status:
        answer = self.run(["sinfo", "--noheader", "--Node", "--format=%n %t", "--partition=all"], timeout_s=20)
        nodes = dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)
        latest = {one.role: one for one in self.journal.processes()}
        missing = tuple(role for role in self.daemons if role not in latest or not latest[role].is_running())
        return Status(
            {node: nodes.get(node, "unknown") for node in self.layout.network.nodes}, missing, self.journal.faults()
        )

    def wait_until_idle(self, timeout_s: float) -> None:
        """Returns when Slurm has all nodes idle. Raises UserError when that takes longer."""
        deadline = time.monotonic() + timeout_s
        while True:
            nodes = self.status().nodes
            if set(nodes.values()) == {"idle"}:
                return
            if time.monotonic() > deadline:
                bad = ", ".join(f"{node} is {state}" for node, state in nodes.items() if state != "idle")
                raise UserError(f"the nodes did not come up in {timeout_s:g} s: {bad}; see {self.folder / 'log'}")
            time.sleep(0.1)

    # What faults are made of -------------------------------------------------------------------------------------

    def cable(self, name: str) -> Cable:
        """A cable or trunk by its name, or the cable of a port. Raises UserError for an unknown one."""
        cables = self.layout.cables
        if name in self.layout.ports:
            name = next(cable for cable in cables if cable.startswith(f"{name}--"))
        if name not in cables:
            raise UserError(f"there is no link {name!r}: {', '.join(cables)}")
        return cables[name]

    def shape(self, device: Device, rate: int | None, burst: int) -> None:
        """Let a device send at `rate` bit/s, or as fast as it can."""
        if rate is None:
            _tc(device.namespace, [f"qdisc del dev {device.name} root"])
        else:
            _tc(device.namespace, [self._tbf(device, rate, burst)])

    def plug(self, device: Device, is_in: bool) -> None:
        _ip(device.namespace, [f"link set {device.name} {'up' if is_in else 'down'}"])
        if is_in:
            self._add_routes(switch_of(self.layout, device))

    def start_node(self, node: str) -> None:
        self.start_daemon(f"slurmd {node}")

    @property
    def daemons(self) -> tuple[str, ...]:
        """The roles of all daemons of Slurm and munge."""
        return ("munged", "slurmctld", *(f"slurmd {node}" for node in self.layout.network.nodes))

    def start_daemon(self, role: str) -> None:
        program, _, node = role.partition(" ")
        if program == "munged":
            self._launch(role, slurm.munged_command(self.folder))
        elif program == "slurmctld":
            self._launch(role, slurm.slurmctld_command(self.layout, self.folder))
        else:
            self._launch(role, slurm.slurmd_command(self.layout, self.folder, node))

    def stop_node(self, node: str) -> None:
        """As if its power failed: everything on the node ends at once."""
        _kill_in(self.layout.namespace(node))

    def daemon(self, role: str) -> Process | None:
        running = [one for one in self.journal.processes() if one.role == role and one.is_running()]
        return running[-1] if running else None

    def launch_helper(self, role: str, command: list[str]) -> None:
        self._launch(role, command)

    # Building ----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        if int(_BACKLOG.read_text()) < _PACKETS:
            _BACKLOG.write_text(f"{_PACKETS}\n")
        layout = self.layout
        lines = [f"netns add {namespace}" for namespace in layout.namespaces]
        login = layout.namespace(LOGIN)
        lines.append(f"link add br-mgmt netns {login} type bridge")
        for number, node in enumerate(layout.network.nodes):
            there = f"peer name mgmt0 netns {layout.namespace(node)}"
            lines.append(f"link add m{number} netns {login} type veth {there}")
        for switch in layout.network.switches:
            namespace = layout.namespace(switch.name)
            lines += [f"link add {bridge} netns {namespace} type bridge" for bridge, _ in layout.bridges(switch.name)]
        for cable in layout.cables.values():
            near, far = cable.ends
            peer = f"peer name {far.name} netns {far.namespace}"
            lines.append(f"link add {near.name} netns {near.namespace} type veth {peer}")
        _ip(None, lines)
        self._configure_login(login)
        for node in layout.network.nodes:
            self._configure_node(node)
        for switch in layout.network.switches:
            self._configure_switch(switch.name)
        for name in (*layout.network.nodes, *(one.name for one in layout.network.switches)):
            self._add_routes(name)

    def _configure_login(self, login: str) -> None:
        lines = ["link set lo up", "link set br-mgmt up", f"address add {LOGIN_ADDRESS}/16 dev br-mgmt"]
        for number, _ in enumerate(self.layout.network.nodes):
            lines.append(f"link set m{number} master br-mgmt up")
        _ip(login, lines)

    def _configure_node(self, node: str) -> None:
        namespace = self.layout.namespace(node)
        lines = [
            "link set lo up",
            f"address add {self.layout.management_address(node)}/16 dev mgmt0",
            "link set mgmt0 up",
        ]
        for number, name in enumerate(self.layout.network.ports_of(node)):
            port = self.layout.ports[name]
            lines += [f"address add {port.address}/24 dev {port.device.name}", f"link set {port.device.name} up"]
            lines.append(f"rule add from {port.address} lookup {FIRST_TABLE + number}")
            lines.append(f"link set {port.device.name} gso_max_size {_SEGMENTS_BYTES}")
        _ip(namespace, lines)
        _sysctl(namespace, {f"net.ipv4.{name}": value for name, value in _TCP.items()})
        self._shape_all(namespace)

    def _configure_switch(self, switch: str) -> None:
        namespace = self.layout.namespace(switch)
        lines = ["link set lo up"]
        for bridge, address in self.layout.bridges(switch):
            lines += [f"address add {address} dev {bridge}", f"link set {bridge} up"]
        for link, cable in self.layout.cables.items():
            for end_, name in zip(cable.ends, link.split("--"), strict=True):
                if end_.namespace != namespace:
                    continue
                port = link.split("--")[0]
                if ":" in port:
                    lines.append(f"link set {end_.name} master br-{port.partition(':')[2]} up")
                else:
                    lines.append(f"address add {self.layout.trunk_address(link, name)}/31 dev {end_.name}")
                    lines.append(f"link set {end_.name} up")
        _ip(namespace, lines)
        self._shape_all(namespace)
        _sysctl(namespace, {"net.ipv4.ip_forward": 1, "net.ipv4.fib_multipath_hash_policy": 1})

    def _shape_all(self, namespace: str) -> None:
        ends = [(end_, cable) for cable in self.layout.cables.values() for end_ in cable.ends]
        _tc(
            namespace, [self._tbf(end_, cable.rate, cable.burst) for end_, cable in ends if end_.namespace == namespace]
        )

    def _tbf(self, device: Device, rate: int, burst: int) -> str:
        return f"qdisc replace dev {device.name} root tbf rate {rate}bit burst {burst} latency {_QUEUE_MS}ms"

    def _add_routes(self, of: str) -> None:
        _ip(self.layout.namespace(of), self.route_lines(of))

    def route_lines(self, of: str) -> list[str]:
        """What `ip` is told for the routes of a node or switch. They are gone when their device was down."""
        if of in self.layout.network.nodes:
            ports = [self.layout.ports[name] for name in self.layout.network.ports_of(of)]
            lines = [f"route replace {port.plane} via {port.gateway} dev {port.device.name}" for port in ports]
            # What a program sends from the address of a port leaves by that port, wherever it goes.
            lines += [
                f"route replace {EVERY_PLANE} via {port.gateway} dev {port.device.name} table {FIRST_TABLE + number}"
                for number, port in enumerate(ports)
            ]
            return lines
        return [
            f"route replace {subnet} " + " ".join(f"nexthop via {each}" for each in gateways)
            for subnet, gateways in self.layout.routes(of)
        ]

    def _start(self) -> None:
        slurm.write_files(self.layout, self.folder)
        self.start_daemon("munged")
        socket = self.folder / "munge" / "socket"
        deadline = time.monotonic() + 5
        while not socket.exists():
            if time.monotonic() > deadline:
                raise UserError(f"munged did not start: see {self.folder / 'log' / 'munged'}")
            time.sleep(0.02)
        self.start_daemon("slurmctld")
        for node in self.layout.network.nodes:
            self.start_node(node)

    def _launch(self, role: str, command: list[str]) -> None:
        log = self.folder / "log" / role.replace(" ", "-")
        self.journal.start(role, command, log, self.environment())

    def _tear_down(self) -> None:
        _tear_down(self.folder, self.layout.prefix)


@contextmanager
def emulated_cluster(topology: Path, name: str = DEFAULT_NAME) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    cluster = Cluster.up(topology, name)
    try:
        yield cluster
    finally:
        cluster.down_now()


def _tear_down(folder: Path, prefix: str) -> None:
    # What was launched, then whatever it left in the namespaces, which are ours alone.
    journal = Journal(folder)
    journal.close()
    end(journal.processes())
    for namespace in _namespaces(prefix):
        _kill_in(namespace)
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _kill_in(namespace: str) -> None:
    for _ in range(50):
        answer = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
        processes = [Process.of("any", int(pid)) for pid in answer.stdout.split()]
        if not any(processes):
            return
        end([one for one in processes if one], patience_s=0.0)
        time.sleep(0.02)


def _namespaces(prefix: str) -> list[str]:
    folder = Path("/var/run/netns")
    return sorted(one.name for one in folder.glob(f"{prefix}*")) if folder.exists() else []


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """One at a time builds or ends a cluster of this name."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with exclusive(FOLDER / f".{name}.lock"):
            yield
    except Taken as owner:
        raise UserError(f"cluster {name!r} is being built or ended by another process: wait for it ({owner})") from None


def _ip(namespace: str | None, lines: Sequence[str]) -> None:
    _batch("ip", namespace, lines)


def _tc(namespace: str, lines: Sequence[str]) -> None:
    _batch("tc", namespace, lines)


def _sysctl(namespace: str, settings: Mapping[str, object]) -> None:
    words = [f"{name}={value}" for name, value in settings.items()]
    _check(["nsenter", f"--net=/var/run/netns/{namespace}", "sysctl", "-qw", *words], None)


def _batch(program: str, namespace: str | None, lines: Sequence[str]) -> None:
    if lines:
        where = ["-n", namespace] if namespace else []
        _check([program, *where, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def _check(command: list[str], text: str | None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"'{' '.join(command)}' failed: {why[0] if why else 'no reason given'}")
