"""Steps of the job of a fleet: a program on one node or over many, in bounded time whatever becomes of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# How many times as long as its equals a node may take.
_TIMES = 3.0
# What a step has to end after it was asked to; Slurm gives its processes less.
_TO_END_S = 8.0
_POLL_S = 0.05
_LAST_LINES = 3


@dataclass(frozen=True)
class Ended:
    """How a step ended: `status` is None where it had to be ended after `seconds`; `said`: its stdout and stderr."""

    status: int | None
    seconds: float
    said: str

    @property
    def reason(self) -> str:
        """In words: what was said last, of launcher and program."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        telling = [line for line in lines if re.match(r"(srun: error: |fabricbench: |slurmstepd: error: )", line)]
        words = "; ".join((telling or lines)[:_LAST_LINES]) or "no output"
        if self.status is None:
            return f"no result in {self.seconds:.0f} s, and it was ended ({words})"
        return f"it ended with status {self.status} ({words})"


#: What starts ranks on some nodes of the job around this: Open MPI, Hydra and PALS, Flux.
#: `{hosts}`, `{slots}`: the nodes, and each with its ranks; `{nodes}`, `{ranks}`, `{all}`: how many of both.
_INSIDE = {
    "mpirun": "mpirun --host {slots} -np {all}",
    "mpiexec": "mpiexec --hosts {hosts} --ppn {ranks} -n {all}",
    # Without the whole node a task would see no GPU.
    "flux": "flux run --exclusive -o gpu-affinity=off --requires=host:{hosts} -N {nodes} -n {all}",
}


def words_of_step(launcher: str, job: str, nodes: Sequence[str], ranks: int, options: Iterable[str] = ()) -> list[str]:
    """The `launcher`'s words for a step on `nodes`, `ranks` on each: srun's in the `job`, else in that around this."""
    if launcher in _INSIDE:
        slots = ",".join(f"{node}:{ranks}" for node in nodes)
        places = {"hosts": ",".join(nodes), "slots": slots, "nodes": len(nodes), "ranks": ranks}
        return [*_INSIDE[launcher].format(**places, all=ranks * len(nodes)).split(), *options]
    return [
        *("srun", f"--jobid={job}", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"),
        *(f"--ntasks={ranks * len(nodes)}", f"--ntasks-per-node={ranks}", "--overlap", "--kill-on-bad-exit=1"),
        # A step that was given up may still hold what this one wants.
        *("--no-kill", "--input=none", *options),
    ]


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    words: IO[bytes]
    began: float
    given_up: float | None = None
    ended: Ended | None = None

    @classmethod
    def start(cls, command: Sequence[str], folder: Path, words: Path) -> _Running:
        stream = words.open("w+b")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        return cls(process, stream, time.monotonic())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def look(self) -> bool:
        """Whether it has ended."""
        if self.ended is None and (status := self.process.poll()) is not None:
            self._finish(status if self.given_up is None else None)
        return self.ended is not None

    def give_up(self) -> None:
        """Asks it to end, and makes it where it does not; to be called again until it has ended."""
        if self.given_up is None:
            self.given_up = self.seconds
            self._signal(signal.SIGTERM)
        elif self.seconds - self.given_up > _TO_END_S:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _finish(self, status: int | None) -> None:
        self.words.seek(0)
        output = self.words.read().decode("utf-8", "replace")
        self.words.close()
        self.ended = Ended(status, self.seconds if self.given_up is None else self.given_up, output)


def time_for(done: Sequence[float], limit_s: float, patience_s: float) -> float:
    """Seconds that a node has whose peers took `done`: a multiple of that, and `patience_s` more at least."""
    typical = statistics.median(done) if done else limit_s
    return min(limit_s, max(_TIMES * typical, typical + patience_s))


def run_step(command: Sequence[str], words: Path, limit_s: float) -> Ended:
    """Runs one step; what it says goes to the file `words`."""
    return run_steps({"": command}, {"": Path.cwd()}, {"": words}, limit_s, 0.0)[""]


def run_steps(
    commands: Mapping[str, Sequence[str]],
    folders: Mapping[str, Path],
    words: Mapping[str, Path],
    limit_s: float,
    patience_s: float,
    *,
    tell: Callable[[str, Ended], None] = lambda *_: None,
) -> dict[str, Ended]:
    """Runs steps by name, all at the same time, each in its folder; `tell` is called as each ends.

    Once half of several have ended, the others have as long as `time_for` says.
    """
    running = {name: _Running.start(command, folders[name], words[name]) for name, command in commands.items()}
    reported: set[str] = set()
    while any([not each.look() for each in running.values()]) or len(reported) < len(running):
        for name, step in running.items():
            if step.ended is not None and name not in reported:
                reported.add(name)
                tell(name, step.ended)
        done = [each.ended.seconds for each in running.values() if each.ended is not None]
        limit = limit_s
        if len(running) > 1 and len(done) >= len(running) / 2:
            limit = time_for(done, limit_s, patience_s)
        for step in running.values():
            if not step.look() and step.seconds > limit:
                step.give_up()
        time.sleep(_POLL_S)
    return {name: each.ended for name, each in running.items() if each.ended is not None}
