"""A program for tests: writers that are killed. Prints the number of writers that it killed.

killed_writer.py lines FOLDER        one writer for each line of code of a commit, killed there
killed_writer.py times FOLDER SEED   writers of large files, killed from outside at random times
killed_writer.py append SUITE STORE FIRST   no kill: stores sessions until it is killed, and names each that it has
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fabricheck.history import folders

KILLS = 50
FILES = {name: f"{name}\n".encode() * 40 for name in folders.FILES}
LARGE = {name: os.urandom(1 << 20) for name in folders.FILES}


def in_child(work: Callable[[], object]) -> int:
    """Its process id; the work ends with status 0."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def kill_at_lines(folder: Path) -> int:
    """Returns once a writer reached its end before the line at which it was to be killed."""
    for number in range(1, 1000):

        def write(number: int = number) -> None:
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

        _, status = os.waitpid(in_child(write), 0)
        if status == 0:
            return number - 1
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("no writer ever reached its end")


def kill_at_times(folder: Path, seed: int) -> int:
    rng = random.Random(seed)
    folders.create(folder)
    for number in range(KILLS):

        def write(number: int = number) -> None:
            for each in range(1000):
                folders.commit(folder / "local", "20261121T083632Z", f"s{number}-{each}", LARGE)
                (folder.parent / f"done-s{number}-{each}").touch()

        child = in_child(write)
        time.sleep(rng.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return KILLS


def append_for_ever(root: Path, store: Path, first: int) -> None:
    from tests.support.sessions import add

    for night in range(first, first + 1000):
        entry, _ = add(root, store, night)
        print(entry.session, flush=True)


if __name__ == "__main__":
    what, place = sys.argv[1], Path(sys.argv[2])
    if what == "lines":
        print(kill_at_lines(place))
    elif what == "times":
        print(kill_at_times(place, int(sys.argv[3])))
    else:
        append_for_ever(place, Path(sys.argv[3]), int(sys.argv[4]))
