"""What a cluster has started, so that another process can end exactly that, also after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process that was started: its number wraps around, so its start time (in clock ticks after boot) counts too."""

    role: str
    pid: int
    started: int

    @classmethod
    def of(cls, role: str, pid: int) -> Process | None:
        """The running process `pid`; None where it has ended."""
        started = _start_time(pid)
        return None if started is None else cls(role, pid, started)

    def is_running(self) -> bool:
        return _start_time(self.pid) == self.started

    def signal(self, number: int) -> None:
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _start_time(pid: int) -> int | None:
    try:
        # The name before the last parenthesis may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def end(processes: Iterable[Process], patience_s: float = 2.0) -> None:
    """Ask processes to end, and make those that do not."""
    todo = [one for one in processes if one.is_running()]
    for one in todo:
        one.signal(signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while any(one.is_running() for one in todo) and time.monotonic() < deadline:
        time.sleep(0.02)
    for one in todo:
        one.signal(signal.SIGKILL)
    while any(one.is_running() for one in todo) and time.monotonic() < deadline + patience_s:
        time.sleep(0.02)


class Journal:
    """Processes and faults of a cluster in a file that is appended to before anything else happens with them."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, process: Process) -> None:
        self._write({"process": asdict(process)})

    def set_fault(self, name: str, what: str | None) -> None:
        """Note a fault, or with None that it is gone."""
        self._write({"fault": name, "what": what})

    def processes(self) -> list[Process]:
        return [Process(**one["process"]) for one in self._read() if "process" in one]

    def faults(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in self._read():
            if "fault" in one:
                found.pop(one["fault"], None)
                if one["what"] is not None:
                    found[one["fault"]] = one["what"]
        return found

    def _write(self, entry: dict[str, object]) -> None:
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def _read(self) -> Iterable[dict[str, Any]]:
        if not self.file.exists():
            return
        for line in self.file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a process that was killed
                yield json.loads(line)
