"""Network ports of this node: state, rate, counters (sysfs), TCP's own counters, and whether packets get through.

Whether packets as large as the ports send reach the other nodes of the job: a datagram to a port without a listener is
answered by the other node's kernel (ICMP, port unreachable), as traceroute has it, so nothing has to listen there and
root is not needed. Packets may not be fragmented: one that is too large for a port of a switch is lost there without a
word, as those of TCP and RoCE are, while smaller ones arrive. A router that says so (ICMP, fragmentation needed) is not
a fault: TCP goes by it.
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import re
import select
import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fabricheck.records.node_state import MOST_NODES, BlockedPath, NicState, asked_by
from fabricheck.state.capture import infiniband_ports, read, read_first, slingshot_ports
from fabricheck.state.kernel import without_empty
from fabricheck.state.programs import ask

# Of drivers' own counters (`ethtool -S`) those that tell of trouble.
_TROUBLE = re.compile(
    r"paus|pfc|discard|drop|err|crc|symbol|fec|retrans|replay|uncorrected|timeout|out_of_(buffer|seq)"
)
_MOST_COUNTERS = 64
# Of TCP's, what is needed to tell loss from load (`nstat -az`).
_TCP = (
    "OutSegs",
    "InSegs",
    "RetransSegs",
    "InErrs",
    "TCPOFOQueue",
    "TCPSackRecovery",
    "TCPSackRecoveryFail",
    "TCPFastRetrans",
    "TCPSlowStartRetrans",
    "TCPLostRetransmit",
    "TCPLossProbes",
    "TCPTimeouts",
    "TCPDSACKRecv",
)


def nic_states(sysfs: Path = Path("/sys")) -> tuple[NicState, ...]:
    """The ports of this node: InfiniBand, Slingshot and Ethernet, without loopback and what the kernel bridges."""
    return (*_infiniband(sysfs), *_slingshot(sysfs), *_ethernet(sysfs))


def _infiniband(sysfs: Path) -> Iterator[NicState]:
    for name, port, device in infiniband_ports(sysfs):
        told_rate = read(port / "rate")
        rate, lanes = re.match(r"[\d.]+", told_rate), re.search(r"\((.+)\)", told_rate)
        counters = {**_numbers(port / "counters"), **_numbers(port / "hw_counters")}
        _, _, state = read(port / "state").partition(": ")
        yield NicState(
            name=name,
            kind="infiniband",
            up="ACTIVE" in state,
            rate_gbps=float(rate[0]) if rate else None,
            driver=_driver(device),
            firmware=read(device / "fw_ver"),
            counters=counters,
            settings=without_empty(
                {
                    # The link is there, and no subnet or fabric manager has activated the port.
                    "state": state if state in ("INIT", "ARMED") else "",
                    "link layer": read(port / "link_layer"),
                    "lanes": lanes[1] if lanes else "",
                    "PCIe": _pcie(device),
                    # One for each address: how many there are differs with the addresses of containers.
                    "GID types": _different(port / "gid_attrs" / "types"),
                    "RoCE v2 GID of IPv4": _gid_of_ipv4(port),
                    "traffic class": read(device / "tc" / port.name / "traffic_class"),
                }
            ),
        )


def _slingshot(sysfs: Path) -> Iterator[NicState]:
    for device, speed in slingshot_ports(sysfs):
        own = device / "device"
        rate = re.search(r"\d+", speed)
        link = read_first(own / "port", "link", "0/link/state", "link_state")
        telemetry = {
            name: value for name, value in _numbers(own / "telemetry").items() if _TROUBLE.search(name.lower())
        }
        yield NicState(
            name=device.name,
            kind="cxi",
            up=link.lower() == "up" if link else None,
            rate_gbps=float(rate[0]) if rate else None,
            driver=_driver(device),
            firmware=read(own / "uc" / "qspi_blob_version"),
            counters=telemetry,
            settings=without_empty({"PCIe": _pcie(device)}),
        )


def _ethernet(sysfs: Path) -> Iterator[NicState]:
    for port in sorted(sysfs.glob("class/net/*")):
        # Type 1 is Ethernet; IP over InfiniBand is 32, loopback 772.
        if read(port / "type") != "1" or (port / "bridge").exists() or read(port / "operstate") in ("", "unknown"):
            continue
        speed, mtu = read(port / "speed"), read(port / "mtu")
        yield NicState(
            name=port.name,
            kind="ethernet",
            up=read(port / "carrier") == "1",
            rate_gbps=int(speed) / 1000 if speed.isdecimal() and int(speed) else None,
            mtu=int(mtu) if mtu.isdecimal() else None,
            duplex=read(port / "duplex") or None,
            driver=_driver(port),
            counters={
                **_numbers(port / "statistics"),
                **_own_counters(port.name),
                **{name: int(text) for name in ("carrier_changes",) if (text := read(port / name)).isdecimal()},
            },
            settings=without_empty({**_dcb(port), **_ecn(port), "PCIe": _pcie(port), "offloads": _offloads(port.name)}),
        )


def _pcie(device: Path) -> str:
    """The link of its PCI device to the slot, now and at most, such as `16.0 GT/s x16 of 32.0 GT/s x16`."""
    links = []
    for which in ("current", "max"):
        speed, width = (read(device / "device" / f"{which}_link_{what}") for what in ("speed", "width"))
        links.append(f"{speed.removesuffix(' PCIe')} x{width}" if speed and width else "")
    now, most = links
    return f"{now} of {most}" if now and most and now != most else now


def _different(folder: Path) -> str:
    """What the files of a folder say, each once; a place of the table that is free cannot be read."""
    return ", ".join(sorted({read(file) for file in folder.glob("*")} - {""}))


def _gid_of_ipv4(port: Path) -> str:
    """The index that `NCCL_IB_GID_INDEX` and `UCX_IB_GID_INDEX` have to name for packets that are routed."""
    for file in sorted((port / "gid_attrs" / "types").glob("*"), key=lambda each: each.name.zfill(4)):
        if read(file) == "RoCE v2" and read(port / "gids" / file.name).startswith("0000:0000:0000:0000:0000:ffff:"):
            return file.name
    return ""


# linux/ethtool.h: who cuts large packets and joins them, the port or a core.
_SIOCETHTOOL = 0x8946
_OFFLOADS = {"TSO": 0x1E, "GSO": 0x23, "GRO": 0x2B}


def _offloads(name: str) -> str:
    """Those that are on, such as `TSO GSO GRO`, or `none`; empty where the kernel cannot tell."""
    on = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for offload, command in _OFFLOADS.items():
            value = array.array("I", [command, 0])
            try:
                fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP", name.encode()[:15], value.buffer_info()[0]))
            except OSError:
                return ""
            if value[1]:
                on.append(offload)
    return " ".join(on) or "none"


def _dcb(port: Path) -> dict[str, str]:
    """The priorities with flow control, such as `3:on`, and by which fields a packet has its priority, such as `dscp
    pcp`, in the order of trust; where `dcb` (iproute2) is there and the driver knows of it, or `mlnx_qos` for mlx5,
    whose trust `dcb` does not know."""
    pfc, trust = _by_dcb(port.name)
    if not trust and _driver(port) == "mlx5_core" and read(port / "carrier") == "1":
        pfc_of_mlx5, trust = _by_mlnx_qos(port.name)
        pfc = pfc or pfc_of_mlx5
    return {"PFC": pfc, "trusted priorities": trust}


def _by_dcb(name: str) -> tuple[str, str]:
    pfc = re.search(r"prio-pfc((?: \d:(?:on|off))+)", ask(["dcb", "pfc", "show", "dev", name], 3).output)
    trust = re.search(r"^order:?((?: [a-z-]+)+)", ask(["dcb", "apptrust", "show", "dev", name], 3).output, re.MULTILINE)
    on = re.findall(r"\d:on", pfc[1]) if pfc else []
    return (" ".join(on) or "off") if pfc else "", trust[1].strip() if trust else ""


def _by_mlnx_qos(name: str) -> tuple[str, str]:
    answer = ask(["mlnx_qos", "-i", name], 3).output
    trust = re.search(r"Priority trust state: (\w+)", answer)
    flags = re.search(r"^\s*enabled:?((?:\s+[01]){8})", answer, re.MULTILINE)
    on = [f"{priority}:on" for priority, flag in enumerate(flags[1].split()) if flag == "1"] if flags else []
    return (" ".join(on) or "off") if flags else "", trust[1] if trust else ""


def _ecn(port: Path) -> dict[str, str]:
    """Of mlx5, the priorities whose congestion it notices (`np`, at the receiver) and reacts to (`rp`), such as `3`."""
    settings = {}
    for role in ("np", "rp"):
        enabled = {file.name: read(file) for file in (port / "ecn" / f"roce_{role}" / "enable").glob("*")}
        on = sorted(name for name, value in enabled.items() if value == "1")
        settings[f"ECN ({role})"] = (" ".join(on) or "off") if enabled else ""
    return settings


def _own_counters(name: str) -> dict[str, int]:
    """Those of the driver, where `ethtool` is there: pauses, discards and the like, if they ever counted."""
    pairs = re.findall(r"^\s*(\S+): (\d+)$", ask(["ethtool", "-S", name], 3).output, re.MULTILINE)
    told = {f"ethtool_{what}": int(value) for what, value in pairs if _TROUBLE.search(what.lower()) and int(value)}
    return dict(sorted(told.items())[:_MOST_COUNTERS])


def tcp_counters(proc: Path = Path("/proc")) -> dict[str, int]:
    """The kernel's counters of TCP in this network namespace."""
    counters: dict[str, int] = {}
    for file in (proc / "net" / "snmp", proc / "net" / "netstat"):
        lines = read(file).splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            kind = names.partition(":")[0]
            if kind in ("Tcp", "TcpExt"):
                counters.update(zip(names.split()[1:], map(int, values.split()[1:]), strict=False))
    return {name: counters[name] for name in _TCP if name in counters}


def _numbers(folder: Path) -> dict[str, int]:
    """The files of a folder that hold one number; Slingshot's have the time behind it (`12@1700000000.5`)."""
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return {}
    counters = {}
    for file in files:
        text = read(file).partition("@")[0]
        if text.isdecimal():
            counters[file.name] = int(text)
    return counters


def _driver(device: Path) -> str:
    link = device / "device" / "driver"
    return link.resolve().name if link.exists() else ""


#: How the files end in which the nodes of a job leave their addresses.
ADDRESSES = ".addresses"
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
# Linux's, which the module `socket` does not name: never fragment, whatever was learned of this way before.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_HEADERS = 28  # of IPv4 and UDP
_CLOSED_PORT = 33434  # traceroute's first
# So all of a node with eight ports, of which nobody gets an answer, take three seconds.
_TRIES, _PATIENCE_S = 3, 0.2
# Connections or packets that wait for an answer at once: to each port of MOST_NODES nodes with eight.
_MOST_AT_ONCE = 8 * MOST_NODES
# What every IPv4 host takes, and what may pass where the largest do not: Ethernet's, and that of tunnels.
_SMALLEST, _SMALLER = 576, (1500, 1400)

# Nodes of a job start within seconds of each other. A SYN, of 60 bytes, is sent again after 1 and 3 s (RFC 6298).
_MEETING_S, _CONNECT_S, _SYN_BYTES = 2.5, 3.5, 60
_CONNECTED, _CLOSED = ".connected", ".closed"
# What this process lacks, which tells nothing of the other end.
_OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)

Addresses = Mapping[str, Sequence[Any]]
# A port of this node, the node that has a port of that name, too, and what that node left of it.
_Path = tuple[str, str, Sequence[Any]]


def own_addresses(ports: Collection[str]) -> Addresses:
    """IPv4 address and MTU in bytes of each of `ports` that has one."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for name in ports:
            request = struct.pack("256s", name.encode()[:15])
            try:
                address = fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24]
                mtu = struct.unpack_from("i", fcntl.ioctl(asked, _SIOCGIFMTU, request), 16)[0]
            except OSError:
                continue  # not up, or without an address
            addresses[name] = (socket.inet_ntoa(address), mtu)
    return addresses


def leave_addresses(folder: Path, host: str, own: Addresses) -> None:
    """Before the test, for the other nodes."""
    draft = folder / f"{host}.draft-of-addresses"
    draft.write_text(json.dumps(own), encoding="utf-8")
    draft.rename(folder / f"{host}{ADDRESSES}")


def missing_connections(
    folder: Path, host: str, own: Addresses, nodes: int, wanted: Collection[str] = ()
) -> tuple[BlockedPath, ...]:
    """Return the paths to other nodes' ports on which no TCP connection comes about, before the test of `nodes` nodes,
    and the ports of others that have the address of this node's. `wanted`: ports that each node has to have.

    Each node listens on each of its ports, leaves its addresses with the number of the TCP port as third value, and
    connects to those of `asked_by`. It takes as long as the nodes differ in their start, and at most nine seconds: a
    node that has not come after `_MEETING_S` is not asked.
    """
    with ExitStack() as stack:
        listening = {}
        for port, (address, mtu) in own.items():
            listener = stack.enter_context(socket.create_server((address, 0), backlog=MOST_NODES))
            listening[port] = (address, mtu, listener.getsockname()[1])
        # Whoever is refused from then on knows why.
        stack.callback((folder / f"{host}{_CLOSED}").touch)
        leave_addresses(folder, host, listening)
        _wait_for(folder, ADDRESSES, nodes, _MEETING_S)
        asked, equal = _paths(folder, host, own, wanted)
        with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
            lost = list(pool.map(lambda path: _unconnected(folder, *path), asked))
        (folder / f"{host}{_CONNECTED}").touch()
        _wait_for(folder, _CONNECTED, len([*folder.glob(f"*{ADDRESSES}")]), _MEETING_S)
    return (*(BlockedPath(port, name, 0, 0) for port, name, _ in equal), *filter(None, lost))


def _paths(folder: Path, host: str, own: Addresses, wanted: Collection[str] = ()) -> tuple[list[_Path], list[_Path]]:
    """Return the paths to the ports of `asked_by` that this node has too, and those to ports of any node with the same
    address, as a bridge that each node has for itself."""
    names = sorted(file.name.removesuffix(ADDRESSES) for file in folder.glob(f"*{ADDRESSES}"))
    asked_nodes = asked_by(host, names)
    asked, equal = [], []
    for name in names:
        others = json.loads((folder / f"{name}{ADDRESSES}").read_text(encoding="utf-8"))
        for port in own if name != host else ():
            path = (port, name, others.get(port, ()))
            if port in others and others[port][0] == own[port][0]:
                equal.append(path)
            elif name in asked_nodes and (port in others or port in wanted):
                asked.append(path)
    return asked, equal


def _wait_for(folder: Path, ending: str, count: int, most_s: float) -> None:
    until = time.monotonic() + most_s
    while len([*folder.glob(f"*{ending}")]) < count and time.monotonic() < until:
        time.sleep(0.02)


def _unconnected(folder: Path, port: str, name: str, there: Sequence[Any]) -> BlockedPath | None:
    """The path to a port of the node `name` if no connection comes about. While it listens, a firewall refuses."""
    if not there:
        return BlockedPath(port, name, _SYN_BYTES, 0)
    try:
        socket.create_connection((there[0], there[2]), timeout=_CONNECT_S).close()
        return None
    except OSError as error:
        if error.errno in _OWN_LIMITS:
            raise
        if error.errno == errno.ECONNREFUSED and f"{name}{_CLOSED}" in os.listdir(folder):
            return None
        return BlockedPath(port, name, _SYN_BYTES, 0)


def blocked_paths(folder: Path, host: str, own: Addresses) -> tuple[BlockedPath, ...]:
    """The ways from this node's ports to the same ports of others on which the largest packets are lost."""
    asked, _ = _paths(folder, host, own)
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        answers = pool.map(lambda path: probe(path[2][0], own[path[0]][1]), asked)
        return tuple(
            BlockedPath(port, name, *blocked)
            for (port, name, _), blocked in zip(asked, answers, strict=True)
            if blocked is not None
        )


def probe(address: str, mtu: int) -> tuple[int, int] | None:
    """Bytes of the packets that are lost on the way to `address`, and of the largest that arrive.

    None where those of `mtu` bytes arrive, and where none does: then nothing answers, or a firewall is in the way.
    """
    if _arrives(address, mtu) or not _arrives(address, _SMALLEST):
        return None
    smaller = next((size for size in _SMALLER if size < mtu and _arrives(address, size)), _SMALLEST)
    # Once more: answers may have been lost.
    return None if _arrives(address, mtu) else (mtu, smaller)


def _arrives(address: str, size: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        sender.connect((address, _CLOSED_PORT))
        for _ in range(_TRIES):
            try:
                sender.send(bytes(size - _HEADERS))
                end = time.monotonic() + _PATIENCE_S
                while (left := end - time.monotonic()) > 0:
                    if select.select([sender], [], [], left)[0]:
                        sender.recv(1)
                        return True  # somebody listens there, and answers
            except OSError as error:
                # Refused: it arrived. Too large: a router said so, to TCP as well.
                if error.errno in (errno.ECONNREFUSED, errno.EMSGSIZE):
                    return True
                if error.errno in _OWN_LIMITS:
                    raise
                return False
    return False
