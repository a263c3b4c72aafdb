"""Asks this node for its state and writes it as one JSON file; run by the job of a test, before and after.

    python -m fabricheck.state.collect FOLDER before|after [NODES [PROGRAM]]

The launcher may start it on every rank: the first of a node writes HOST.before.json, and the others end. It never fails
a job: whatever happens, its exit status is 0, and what it could not ask stands in the file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from fabricheck.records.node_state import BlockedPath, GpuState, NicState, NodeState, When
from fabricheck.state import events, kernel, nics, other_gpus
from fabricheck.state.builds import builds_of

#: Seconds that one source may take; then its absence is noted and the others stand.
PATIENCE_S = 10.0
#: For how long the load of others is watched before a test.
WATCH_S = 0.1
#: Processes of a job that just ended may be on its GPUs for this long.
_LINGER_S = 2.0

Answer = TypeVar("Answer")
# The driver's version, the GPUs, and a line for each that does not answer.
_Gpus = tuple[str, tuple[GpuState, ...], tuple[str, ...]]


def collect(when: When, folder: Path | None = None, nodes: int = 1, program: Path | None = None) -> NodeState:
    """Return the state of this node, in bounded time. In `folder` the `nodes` of a job leave their addresses.

    `program`: what the job runs.
    """
    notes: list[str] = []
    no_gpus: _Gpus = ("", (), ())
    no_load: tuple[float, tuple[str, ...]] = (0.0, ())
    unknown: dict[str, str] = {}
    no_ports: tuple[NicState, ...] = ()
    driver, gpus, silent = _within("the GPUs", _gpus, no_gpus, notes)
    versions = _within("versions", kernel.versions, unknown, notes)
    busy, busiest = _within("load", lambda: kernel.load(WATCH_S), no_load, notes) if when == "before" else no_load
    total, free = _within("memory", kernel.memory, (0, 0), notes)
    ports = _within("the NICs", nics.nic_states, no_ports, notes)
    name = socket.gethostname().partition(".")[0]
    return NodeState(
        host=name,
        when=when,
        time_s=time.time(),
        versions={**versions, **({"GPU driver": driver} if driver else {})},
        builds=_within("builds", lambda: builds_of(program), unknown, notes) if program else unknown,
        settings=_within("settings", kernel.settings, unknown, notes),
        cores=os.cpu_count() or 0,
        busy_cores=round(busy, 2),
        busiest=busiest,
        memory_bytes=total,
        memory_free_bytes=free,
        events=_within("the kernel's log", events.kernel_events, None, notes),
        tcp=_within("TCP", nics.tcp_counters, {}, notes),
        gpus=gpus,
        nics=ports,
        blocked=_within("paths to other nodes", lambda: _paths(when, folder, name, ports, nodes), (), notes),
        notes=(*notes, *silent),
    )


def _within(what: str, ask: Callable[[], Answer], otherwise: Answer, notes: list[str]) -> Answer:
    """What `ask` gives, or `otherwise` with a note where it fails or hangs, as a call of a driver can for ever."""
    box: list[Answer] = []
    reasons: list[str] = []

    def work() -> None:
        try:
            box.append(ask())
        except Exception as error:  # whatever it is, the rest is asked
            reasons.append(f"{what}: {' '.join(str(error).split()) or type(error).__name__}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if box:
        return box[0]
    notes.append(reasons[0] if reasons else f"{what}: no response in {PATIENCE_S:g} s")
    return otherwise


def _paths(
    when: When, folder: Path | None, host: str, ports: Sequence[NicState], nodes: int
) -> tuple[BlockedPath, ...]:
    """Return the paths on which nothing passes, before the test, and those that lose large packets, after it."""
    if folder is None:
        return ()
    own = nics.own_addresses([port.name for port in ports if port.kind == "ethernet"])
    if when == "after":
        return nics.blocked_paths(folder, host, own)
    return nics.missing_connections(folder, host, own, nodes) if nodes > 1 else ()


def _gpus() -> _Gpus:
    """The GPUs, looked at again for as long as the processes of a job that just ended may be there."""
    begin = time.monotonic()
    while True:
        gpus = _gpus_now()
        busy = any(gpu.processes for gpu in gpus[1])
        if not busy or time.monotonic() - begin > _LINGER_S:
            return gpus
        time.sleep(0.2)


def _gpus_now() -> _Gpus:
    """Those of the vendor that this node has."""
    from fabricheck.state.nvidia import NvmlUnavailable

    try:
        from fabricheck.state.nvidia import gpu_states

        return gpu_states()
    except NvmlUnavailable as error:
        silent = () if error.absent else (str(error),)
    for tool in (other_gpus.amd_gpus, other_gpus.intel_gpus):
        if (gpus := tool()) is not None:
            return gpus
    return "", (), silent


def write(folder: Path, when: When, nodes: int = 1, program: Path | None = None) -> None:
    """Write the state of this node, one of `nodes` of the job, unless another process of the node does."""
    name = socket.gethostname().partition(".")[0].replace("/", "_")
    draft = folder / f"{name}.{when}.draft"
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return
    content: Any = dataclasses.asdict(collect(when, folder, nodes, program))
    draft.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    draft.rename(folder / f"{name}.{when}.json")


def main(arguments: Sequence[str]) -> None:
    """Write the state of this node: `arguments` are the folder, `before` or `after`, the job's number of nodes, and
    its program."""
    folder, when, *more = arguments
    nodes = int(more[0]) if more else 1
    write(Path(folder), cast(When, when), nodes, Path(more[1]) if len(more) > 1 else None)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException as error:  # the test must not fail of it
        print(f"fabricheck state: {type(error).__name__}: {error}", file=sys.stderr)
    sys.stderr.flush()
    # Without waiting for a thread that hangs in a driver.
    os._exit(0)
