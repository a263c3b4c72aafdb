"""What a cluster has started, so that another process can end exactly that, also after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError


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
    for process in todo:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while any(one.is_running() for one in todo) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in todo:
        process.signal(signal.SIGKILL)
    while any(one.is_running() for one in todo) and time.monotonic() < deadline + patience_s:
        time.sleep(0.02)


# Arguments: the role, the file, and the command. Renamed when it is whole.
_NOTE = (
    'read -r stat < /proc/$$/stat && printf "%s\\n" "$0" "$stat" > "$1.new" && mv "$1.new" "$1" && shift && exec "$@"'
)
_PATIENCE_S = 5.0


def _read_note(file: Path) -> Process:
    """A role, and the line of /proc/PID/stat."""
    role, stat = file.read_text(encoding="utf-8").split("\n", 1)
    return Process(role, int(stat.split()[0]), int(stat.rpartition(")")[2].split()[19]))


class Journal:
    """Processes and faults of a cluster, in files of its `folder` that outlive whoever wrote them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "journal"
        self.started = folder / "started"
        self.closed = folder / "closed"

    def start(self, role: str, command: list[str], log: Path, environment: dict[str, str]) -> Process:
        """Starts a command in a session of its own, as no child of ours. Raises UserError where it does not start.

        It notes itself before it becomes the command, so that nothing ever runs un-noted, even if we end meanwhile.
        """
        self.started.mkdir(exist_ok=True)
        note = self.started / f"{time.time_ns()}"
        words = ["setsid", "--fork", "sh", "-c", _NOTE, role, str(note), *command]
        with log.open("ab") as out:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, check=False)
        deadline = time.monotonic() + _PATIENCE_S
        while not note.exists():
            if time.monotonic() > deadline:
                raise UserError(f"{role} did not start in {_PATIENCE_S:g} s: see {log}")
            time.sleep(0.002)
        return _read_note(note)

    def set_fault(self, name: str, what: str | None) -> None:
        """Note a fault, or with None that it is gone."""
        self._write({"fault": name, "what": what})

    def processes(self) -> list[Process]:
        """All that was ever started, in order."""
        folders = (folder for folder in (self.closed, self.started) if folder.exists())
        notes = (file for folder in folders for file in sorted(folder.iterdir()) if file.suffix != ".new")
        return [_read_note(file) for file in notes]

    def close(self) -> None:
        """Nothing starts any more, also what is about to note itself now: it finds no folder, and ends."""
        with contextlib.suppress(FileNotFoundError):
            self.started.rename(self.closed)

    def faults(self) -> dict[str, str]:
        fault_by_part: dict[str, str] = {}
        for entry in self._read():
            if "fault" in entry:
                fault_by_part.pop(entry["fault"], None)
                if entry["what"] is not None:
                    fault_by_part[entry["fault"]] = entry["what"]
        return fault_by_part

    def _write(self, entry: dict[str, object]) -> None:
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")

    def _read(self) -> Iterable[dict[str, Any]]:
        if not self.file.exists():
            return
        for line in self.file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a process that was killed
                yield json.loads(line)
