"""The process of ReFrame: it waits before its first test, its output is followed, and what ends a run ends it too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabricheck.begin import BEGIN
from fabricheck.session.progress import Progress

_FOLLOW_S = 0.3  # how often the output is looked at


@contextlib.contextmanager
def start(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Iterator[ReFrame]:
    """ReFrame, which prints to the file `output`, until it has ended; at once where it is not told to run its tests.

    Its output is followed in the file: no pipe breaks when we end, and no line is lost.
    """
    ours, theirs = socket.socketpair()
    # What the function does between fork and exec needs no lock that another thread could hold.
    with ours, theirs, output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--run"],
            env={**environment, BEGIN: str(theirs.fileno())},
            stdin=subprocess.DEVNULL,  # a process in the background that reads a terminal is stopped
            stdout=file,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            preexec_fn=_end_with_parent(os.getpid()),  # noqa: PLW1509
        )
        theirs.close()
        reframe = ReFrame(process, ours, output)
        try:
            yield reframe
        finally:
            if not reframe.begun:
                process.kill()
                process.wait()


@dataclass
class ReFrame:
    """ReFrame, which waits before its first test (fabricheck.begin)."""

    process: subprocess.Popen[bytes]
    asks: socket.socket
    output: Path
    begun: bool = False

    def listed(self) -> int | None:
        """How many test cases it is about to run, builds too; None where it ended before it knew."""
        count = self.asks.recv(32)
        return int(count) if count else None

    def run(self, progress: Progress | None) -> tuple[int, str]:
        """Its exit status, and the name of the signal by which the run was to end; empty where there was none.

        On SIGTERM ReFrame ends its jobs and writes its report: that is what it gets if we are to end, whatever ends us.
        """
        self.begun = True
        with contextlib.suppress(OSError):  # it has ended
            self.asks.sendall(b"\n")
        asked: list[str] = []
        said = _Followed(self.output, progress)

        def end(number: int, _: object) -> None:
            asked.append(signal.Signals(number).name)
            self.process.terminate()

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            while True:
                try:
                    status = self.process.wait(_FOLLOW_S)
                    return status, asked[0] if asked else ""
                except subprocess.TimeoutExpired:
                    said.read()
                except KeyboardInterrupt:
                    # ReFrame ends its jobs and writes its report: wait for that.
                    asked.append(signal.SIGINT.name)
                    self.process.send_signal(signal.SIGINT)
        finally:
            said.read()
            said.end()
            for number, handler in before.items():
                signal.signal(number, handler)


class _Followed:
    """The lines of a growing file, told to a `progress`."""

    def __init__(self, file: Path, progress: Progress | None) -> None:
        self._file, self._progress, self._at, self._rest = file, progress, 0, ""

    def read(self) -> None:
        """Tells the lines that came since."""
        with self._file.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *lines, self._rest = (self._rest + new.decode("utf-8", "replace")).split("\n")
        for line in lines if self._progress is not None else ():
            self._progress.line(line)  # type: ignore[union-attr]

    def end(self) -> None:
        if self._progress is not None:
            self._progress.flush()


def _end_with_parent(parent: int) -> Callable[[], None]:
    """What makes a child process get SIGTERM when its parent is gone, whatever ended that (Linux, prctl(2))."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    pr_set_pdeathsig = 1

    def in_child() -> None:
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes to the parent alone, which passes it on: once, whoever sent it
        prctl(pr_set_pdeathsig, int(signal.SIGTERM))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return in_child
