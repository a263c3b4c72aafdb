"""Runs a program of the machine for its answer, in bounded time also where it hangs in the kernel."""

from __future__ import annotations

import sys
from pathlib import Path

from fabricheck.state.capture import ProgramOutput, ask

__all__ = ["NOT_HERE", "ProgramOutput", "ask", "module_command"]

#: For `python -c`: imports are not looked for in the current folder, where another user may have left a json.py.
NOT_HERE = "import sys; sys.path = [*filter(None, sys.path)]"
_PACKAGE = Path(__file__).resolve().parent.parent.parent


def module_command(module: str, *words: str) -> list[str]:
    """The command that runs a module of this package as a program, wherever it runs.

    `python -m` would look for every import in the current folder first.
    """
    run = f'runpy.run_module({module!r}, run_name="__main__", alter_sys=True)'
    return [sys.executable, "-c", f"{NOT_HERE}; sys.path.insert(0, {str(_PACKAGE)!r}); import runpy; {run}", *words]
