"""Asks this node for its state and writes it as one JSON file; run by the job of a test, before and after.

    python -m fabricheck.state.collect FOLDER before|after [NODES [PROGRAM [PORTS [UNTIL]]]]

The launcher may start it on every rank: the first of a node writes HOST.before.json, and the others end. It never fails
a job: whatever happens, its exit status is 0, and what it could not ask stands in the file. NODES: of the job;
PROGRAM: what it runs. A node whose PORTS (`hsn0,hsn1`) reach those of another node by nothing leaves HOST.unconnected:
the benchmark need not start. UNTIL, in seconds of the clock that only rises: by then the file is written, without what
did not answer until then.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from fabricheck.records.node_state import GPUS, NICS, BlockedPath, GpuState, NicState, NodeState, When
from fabricheck.state import kernel, nics, other_gpus
from fabricheck.state.builds import builds_of
from fabricheck.state.capture import NvmlUnavailable, read

#: How the empty files end in which each node leaves that its name is taken.
MACHINE = ".machine"
#: Seconds that one source may take; then its absence is noted and the others stand.
PATIENCE_S = 10.0
#: For how long the load of others is watched before a test.
WATCH_S = 0.1
#: Processes of a job that just ended may be on its GPUs for this long.
_LINGER_S = 2.0

# The driver's version, the GPUs, a line for each that does not answer, and whether these are all that the node has.
_Gpus = tuple[str, tuple[GpuState, ...], tuple[str, ...], bool]


def collect(
    when: When,
    folder: Path | None = None,
    nodes: int = 1,
    program: Path | None = None,
    wanted: Sequence[str] = (),
    *,
    until: float = math.inf,
) -> NodeState:
    """Return the state of this node, in bounded time. In `folder` the `nodes` of a job leave their addresses.

    `program`: what the job runs. `wanted`, `until`: as PORTS and UNTIL; who has so little time does not wait for the
    processes of an earlier job to end.
    """
    notes: list[str] = []
    no_gpus: _Gpus = ("", (), (), False)
    name = socket.gethostname().partition(".")[0]
    # First and alone: the other questions would be load.
    load = _Asked("load", lambda: kernel.load(WATCH_S), until) if when == "before" else None
    busy, busiest = load.answer((0.0, ()), notes) if load is not None else (0.0, ())
    # All at once: a driver that needs seconds takes none from the others.
    sources: dict[str, Callable[[], Any]] = {
        GPUS: _gpus if until == math.inf else _gpus_now,
        "versions": kernel.versions,
        "memory": kernel.memory,
        NICS: nics.nic_states,
        "builds": lambda: builds_of(program) if program is not None else {},
        "settings": kernel.settings,
        "the kernel's log": kernel.failures,
        "TCP": nics.tcp_counters,
    }
    asked = {source: _Asked(source, ask, until) for source, ask in sources.items()}
    driver, gpus, silent, whole = asked[GPUS].answer(no_gpus, notes)
    versions = asked["versions"].answer({}, notes)
    total, free = asked["memory"].answer((0, 0), notes)
    ports = asked[NICS].answer((), notes)
    unread = [source for source, known in ((GPUS, whole), (NICS, not asked[NICS].failed)) if not known]
    xids, events = asked["the kernel's log"].answer((None, None), notes)
    paths = _Asked("paths to other nodes", lambda: _paths(when, folder, name, ports, nodes, wanted=wanted), until)
    return NodeState(
        host=name,
        when=when,
        time_s=time.time(),
        versions={**versions, **({"GPU driver": driver} if driver else {})},
        builds=asked["builds"].answer({}, notes),
        settings=asked["settings"].answer({}, notes),
        cores=os.cpu_count() or 0,
        busy_cores=round(busy, 2),
        busiest=busiest,
        memory_bytes=total,
        memory_free_bytes=free,
        xids=xids,
        events=events,
        tcp=asked["TCP"].answer({}, notes),
        gpus=gpus,
        nics=ports,
        blocked=paths.answer((), notes),
        notes=(*notes, *silent),
        unread=tuple(unread),
    )


class _Asked:
    """A question in a thread of its own, which may fail or hang, as a call of a driver can for ever."""

    def __init__(self, what: str, ask: Callable[[], Any], until: float) -> None:
        self._what, self._ask = what, ask
        self._box: list[Any] = []
        self._reason = f"no response in {min(PATIENCE_S, until - time.monotonic()):.2g} s"
        self._ends = min(time.monotonic() + PATIENCE_S, until)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._box.append(self._ask())
        except Exception as error:  # whatever it is, the rest is asked
            self._reason = " ".join(str(error).split()) or type(error).__name__

    @property
    def failed(self) -> bool:
        """Whether there is no answer so far."""
        return not self._box

    def answer(self, otherwise: Any, notes: list[str]) -> Any:
        """Return the answer, or `otherwise` with a note where there is none in time."""
        self._thread.join(max(self._ends - time.monotonic(), 0.0))
        if self._box:
            return self._box[0]
        notes.append(f"{self._what}: {self._reason}")
        return otherwise


def _paths(
    when: When, folder: Path | None, host: str, ports: Sequence[NicState], nodes: int, *, wanted: Sequence[str]
) -> tuple[BlockedPath, ...]:
    """Return the paths on which nothing passes, before the test, and those that lose large packets, after it."""
    if folder is None:
        return ()
    own = nics.own_addresses([port.name for port in ports if port.kind == "ethernet"])
    if when == "after":
        return nics.blocked_paths(folder, host, own)
    return nics.missing_connections(folder, host, own, nodes, wanted) if nodes > 1 else ()


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
    try:
        from fabricheck.state.nvidia import gpu_states

        driver, states, lost = gpu_states()
        return driver, states, lost, True  # the driver counts those, too, that it has lost
    except NvmlUnavailable as error:
        silent = () if error.absent else (str(error),)
    for tool in (other_gpus.amd_gpus, other_gpus.intel_gpus):
        if (gpus := tool()) is not None:
            return *gpus, not gpus[2]
    return "", (), silent, not silent


def _machine() -> str:
    """Of this start of the kernel and this network namespace: emulated nodes share a kernel."""
    return f"{read(Path('/proc/sys/kernel/random/boot_id'))}-{os.stat('/proc/self/ns/net').st_ino}"


def main(arguments: Sequence[str]) -> None:
    """Write the state of this node, unless another process of the node does: `arguments` as above, those at the end
    may be missing."""
    defaults = ("", "before", "1", "", "", "inf")
    place, when, nodes, program, ports, until = (*arguments, *defaults[len(arguments) :])
    folder, name = Path(place), socket.gethostname().partition(".")[0].replace("/", "_")
    (folder / f"{name}.{_machine()}{MACHINE}").touch()
    draft = folder / f"{name}.{when}.draft"
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        return
    wanted = [port for port in ports.split(",") if port]
    state = collect(
        cast(When, when), folder, int(nodes), Path(program) if program else None, wanted, until=float(until)
    )
    content: Any = dataclasses.asdict(state)
    draft.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    draft.rename(folder / f"{name}.{when}.json")
    # With RDMA data may pass where TCP does not.
    only_tcp = all(nic.kind == "ethernet" for nic in state.nics)
    if when == "before" and only_tcp and any(path.port in wanted for path in state.blocked):
        (folder / f"{name}.unconnected").touch()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException as error:  # the test must not fail of it
        print(f"fabricheck state: {type(error).__name__}: {error}", file=sys.stderr)
    sys.stderr.flush()
    # Without waiting for a thread that hangs in a driver.
    os._exit(0)
