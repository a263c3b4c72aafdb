"""Whether packets as large as the ports of this node send reach the other nodes of the job.

A datagram to a port without a listener is answered by the other node's kernel (ICMP, port unreachable), as traceroute
has it, so nothing has to listen there and root is not needed. Packets may not be fragmented: one that is too large
for a port of a switch is lost there without a word, as those of TCP and RoCE are, while smaller ones arrive. A router
that says so (ICMP, fragmentation needed) is not a fault: TCP goes by it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import select
import socket
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabricheck.records.node_state import BlockedPath

#: Of more nodes each asks those that are 1, 2, 4, … further in the order of their names.
MOST_NODES = 9
#: How the files end in which the nodes of a job leave their addresses.
ADDRESSES = ".addresses"
_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
# Linux's, which the module `socket` does not name: never fragment, whatever was learned of this way before.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_HEADERS = 28  # of IPv4 and UDP
_CLOSED_PORT = 33434  # traceroute's first
# So all of a node with eight ports, of which nobody gets an answer, take three seconds.
_TRIES, _PATIENCE_S, _MOST_AT_ONCE = 3, 0.2, 64
# What every IPv4 host takes, and what may pass where the largest do not: Ethernet's, and that of tunnels.
_SMALLEST, _SMALLER = 576, (1500, 1400)

Addresses = Mapping[str, tuple[str, int]]


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
    (folder / f"{host}{ADDRESSES}").write_text(json.dumps(own), encoding="utf-8")


def blocked_paths(folder: Path, host: str, own: Addresses) -> tuple[BlockedPath, ...]:
    """The ways from this node's ports to the same ports of others on which the largest packets are lost."""
    names = sorted(file.name.removesuffix(ADDRESSES) for file in folder.glob(f"*{ADDRESSES}"))
    asked = []
    for name in asked_by(host, names):
        others = json.loads((folder / f"{name}{ADDRESSES}").read_text(encoding="utf-8"))
        # Each node may have a bridge of its own with the same address.
        shared = [port for port in own if port in others and others[port][0] != own[port][0]]
        asked += [(port, name, others[port][0], own[port][1]) for port in shared]
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        answers = pool.map(lambda each: probe(*each[2:]), asked)
        return tuple(
            BlockedPath(port, name, *blocked)
            for (port, name, *_), blocked in zip(asked, answers, strict=True)
            if blocked is not None
        )


def asked_by(host: str, names: Sequence[str]) -> tuple[str, ...]:
    """The nodes that `host`, one of `names`, sends to."""
    count = len(names)
    if host not in names or count < 2:
        return ()
    steps = range(1, count) if count <= MOST_NODES else [1 << power for power in range((count - 1).bit_length())]
    place = names.index(host)
    return tuple(dict.fromkeys(names[(place + step) % count] for step in steps))


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
                if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM, errno.EACCES):
                    return False
                raise
    return False
