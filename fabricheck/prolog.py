"""`fabricheck doctor --prolog`: its exit status is a fault of this node or 0, in bounded time.

A scheduler takes each node away whose prolog fails. A typo in a file that all nodes share, a suite that was moved or a
file system that hangs is not a fault of the node, and would take all of them. So another process answers, and this one
has imported nothing yet but what starting Python did.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import syslog
import time

#: Seconds after which whatever still runs is left.
ENDS_S = 4.5
#: What is added to the status that the command ends with: one without it is Python's own, whose 1 is no DEGRADED node.
ADDED = 64
#: Exit statuses of what doctor found wrong with the node: DEGRADED, FAIL, INCOMPLETE.
FAULTS = (1, 3, 4)
#: Of those seconds, for what comes after the node's answers.
_JUDGES_S = 0.7
_MOST = 1 << 16  # bytes of what is said that are read


def is_prolog(words: list[str]) -> bool:
    """Whether a command line is that of a prolog."""
    return "doctor" in words[:1] and "--prolog" in words


def seconds_left(most: float) -> float:
    """Return how many of `most` seconds a prolog may wait for answers; all of them without a guard."""
    return min(most, _ends[0] - _JUDGES_S - time.monotonic())


_ends = [float("inf")]  # one time, which `guard` sets


def guard(seconds: float = ENDS_S) -> None:
    """Goes on in a child, and ends this process with the child's status where that is a fault of the node, else with 0.

    What the child says on stderr goes to the system's log too. All words of the child come through this process: one
    that cannot be killed would keep a pipe open.
    """
    _ends[0] = time.monotonic() + seconds
    try:
        while (unused := os.open(os.devnull, os.O_RDWR)) <= 2:  # else a pipe takes the number of one that was closed
            continue
        os.close(unused)
        pipes = os.pipe(), os.pipe()
        child = os.fork()
    except OSError as error:
        _say(2, f"fabricheck: the prolog has no result for this node: {error.strerror}\n".encode())
        os._exit(0)
    if child == 0:
        for number, (_, writing) in enumerate(pipes, start=1):
            os.dup2(writing, number)
        # The old ones may know theirs for files.
        sys.stdout = open(1, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
        return
    for _, writing in pipes:
        os.close(writing)
    (printed, said), status = _wait(child, [reading for reading, _ in pipes], _ends[0])
    _say(1, printed)
    _say(2, said)
    code = 0 if status is None else status - ADDED
    for line in said.decode(errors="replace").splitlines():
        syslog.syslog(syslog.LOG_WARNING, f"fabricheck: {line}")
    if status is None or code not in (0, *FAULTS):
        why = f"no response in {seconds:g} s" if status is None else f"ended with {code if code > 0 else status}"
        lines = said.decode(errors="replace").split("\n")
        text = f"fabricheck: the prolog has no result for this node ({why}): {lines[-2] if len(lines) > 1 else ''}"
        _say(2, f"{text}\n".encode())
        syslog.syslog(syslog.LOG_WARNING, text)
    os._exit(code if code in FAULTS else 0)


def _say(number: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(number, text)


def _wait(child: int, readings: list[int], until: float) -> tuple[list[bytes], int | None]:
    """What a child says in time, and its status; None where it has not ended, and is left behind."""
    said, status = {reading: b"" for reading in readings}, None
    open_ = set(readings)
    while status is None and (left := until - time.monotonic()) > 0:
        ready = select.select(open_, [], [], min(left, 0.05 if open_ else 0.01))[0]
        for reading in ready:
            new = os.read(reading, 4096)
            said[reading] = (said[reading] + new)[:_MOST]
            if not new:
                open_.remove(reading)
        if not ready:
            ended, how = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(how) if ended else None
    if status is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return [*said.values()], status
