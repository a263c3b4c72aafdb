"""A longer cable: holds each packet that the kernel queues for it for so long, and then lets it go on.

    python -m fabricheck_lab.delay QUEUE MICROSECONDS

Runs in the network namespace of the cable's end, and takes the place of netem, which not every kernel has. The packets
stay in the kernel, as large as they were (nfnetlink_queue, linux/netfilter/nfnetlink_queue.h); only their numbers come
here. Both directions share one queue, in the order in which they came, and are late alike.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8
_PACKET, _CONFIG, _VERDICT_BATCH = _SUBSYSTEM, _SUBSYSTEM | 2, _SUBSYSTEM | 3
_ERROR, _REQUEST, _WANT_ANSWER = 2, 1, 4
# Attributes: of a packet, of a verdict, and of the configuration.
_PACKET_HEADER, _VERDICT_HEADER = 1, 2
_COMMAND, _WHAT_TO_COPY, _MOST_PACKETS, _FLAGS_MASK, _FLAGS = 1, 2, 3, 4, 5
_BIND, _NUMBERS_ONLY, _AS_LARGE_AS_THEY_ARE, _ACCEPT = 1, 1, 4, 1
_PACKETS, _BUFFER_BYTES = 1 << 16, 4 << 20  # some thousand messages; beyond them packets are lost, as in any queue
_PRIORITY = 1


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _message(kind: int, flags: int, queue: int, *attributes: bytes) -> bytes:
    body = struct.pack("!BBH", socket.AF_UNSPEC, 0, queue) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def _bind(kernel: socket.socket, queue: int) -> None:
    """Raises OSError where the kernel does not give us the queue."""
    for attributes in (
        (_attribute(_COMMAND, struct.pack("!BBH", _BIND, 0, 0)),),
        (
            _attribute(_WHAT_TO_COPY, struct.pack("!IB", 0, _NUMBERS_ONLY)),
            _attribute(_MOST_PACKETS, struct.pack("!I", _PACKETS)),
            _attribute(_FLAGS_MASK, struct.pack("!I", _AS_LARGE_AS_THEY_ARE)),
            _attribute(_FLAGS, struct.pack("!I", _AS_LARGE_AS_THEY_ARE)),
        ),
    ):
        kernel.send(_message(_CONFIG, _REQUEST | _WANT_ANSWER, queue, *attributes))
        kind, error = struct.unpack_from("=4xH10xi", kernel.recv(1 << 16))
        if kind != _ERROR or error:
            raise OSError(-error, os.strerror(-error))


def _number(message: bytes) -> int | None:
    """The number of the packet that the kernel tells of. None where it tells of something else."""
    kind, attribute = struct.unpack_from("=4xH16xH", message)
    # Its header, with the number, is the first that is said of a packet.
    is_packet = kind == _PACKET and attribute == _PACKET_HEADER
    return int.from_bytes(message[24:28], "big") if is_packet else None


def hold(kernel: socket.socket, queue: int, delay_ns: int) -> NoReturn:
    """Let each packet go on `delay_ns` after it came."""
    waiting: deque[tuple[int, int]] = deque()  # when it goes on, and its number
    while True:
        now, last = time.monotonic_ns(), None
        while waiting and waiting[0][0] <= now:
            last = waiting.popleft()[1]
        if last is not None:
            verdict = _attribute(_VERDICT_HEADER, struct.pack("!II", _ACCEPT, last))  # on all up to this one
            kernel.send(_message(_VERDICT_BATCH, _REQUEST, queue, verdict))
        patience = max(0.0, (waiting[0][0] - time.monotonic_ns()) / 1e9) if waiting else None
        if select.select([kernel], [], [], patience)[0]:
            came, number = time.monotonic_ns(), _number(kernel.recv(1 << 16))
            if number is not None:
                waiting.append((came + delay_ns, number))


def main(words: Sequence[str]) -> None:
    queue, microseconds = int(words[0]), float(words[1])
    with contextlib.suppress(PermissionError):
        # Late is what packets are to be by our clock, not by what else the machine does.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        kernel.bind((0, 0))
        _bind(kernel, queue)
        hold(kernel, queue, round(microseconds * 1000))


if __name__ == "__main__":
    main(sys.argv[1:])
