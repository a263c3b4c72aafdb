"""A program for tests: `killed_writer.py FOLDER` starts a writer for each line of code of a commit to a store, kills it
there, and prints how many it killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from fabricheck.store import folders

FILES = {name: f"{name}\n".encode() * 40 for name in folders.FILES}


def write(folder: Path, number: int) -> None:
    """Commit session `number`, and be killed at the line of this number."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        # A comprehension has a line event for each element, and so for all that was left by those before.
        if frame.f_code.co_filename != folders.__file__ or frame.f_code.co_name.startswith("<"):
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    folders.create(folder)
    folders.commit(folder / "local", "20261121T083632Z", f"s{number}", FILES)


def kill_at_lines(folder: Path) -> int:
    """Returns once a writer reached its end before the line at which it was to be killed."""
    for number in range(1, 1000):
        child = os.fork()
        if child == 0:
            write(folder, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return number - 1
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("no writer ever reached its end")


if __name__ == "__main__":
    print(kill_at_lines(Path(sys.argv[1])))
