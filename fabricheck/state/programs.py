"""Runs a program of the machine for its answer, in bounded time also where it hangs in the kernel."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: For `python -c`: imports are not looked for in the current folder, where another user may have left a json.py.
NOT_HERE = "import sys; sys.path = [*filter(None, sys.path)]"
_PACKAGE = Path(__file__).resolve().parent.parent.parent


def module_command(module: str, *words: str) -> list[str]:
    """The command that runs a module of this package as a program, wherever it runs.

    `python -m` would look for every import in the current folder first.
    """
    run = f'runpy.run_module({module!r}, run_name="__main__", alter_sys=True)'
    return [sys.executable, "-c", f"{NOT_HERE}; sys.path.insert(0, {str(_PACKAGE)!r}); import runpy; {run}", *words]


@dataclass(frozen=True)
class Answer:
    """What a program printed. `problem`: why it gave no answer, in a few words; empty where it did.

    `missing`: the program is not on this machine, which is no fault. `late`: it had not ended in time.
    """

    output: str = ""
    problem: str = ""
    missing: bool = False
    errors: str = ""
    late: bool = False

    @property
    def given(self) -> bool:
        return not self.problem and not self.missing


def ask(command: Sequence[str], seconds: float = 60.0, environment: Mapping[str, str] | None = None) -> Answer:
    """Run a command and wait `seconds` at most.

    A program that waits for a driver cannot always be ended: it is left behind then, and not waited for.
    """
    if shutil.which(command[0], path=(environment or os.environ).get("PATH")) is None:
        return Answer(missing=True)
    # Into files: a child of the program may keep a pipe open after its end.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )
        except OSError as error:
            return Answer(problem=f"cannot be started: {error.strerror}")
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
            return Answer(problem=f"did not respond in {seconds:g} s", late=True)
        output.seek(0)
        errors.seek(0)
        text, said = output.read(), errors.read()
    if status != 0:
        lines = [line.strip() for line in (said + "\n" + text).splitlines() if line.strip()]
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return Answer(text, f"{how}{': ' + lines[-1][:200] if lines else ''}", errors=said)
    return Answer(text, errors=said)
