"""How programs are built: once for each state of sources, options, compilers and MPI, in a cache."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from fabricheck.suite import output_folder, suite_root

_STEPS = (
    'cmake -S "$sources" -B . "$@"',
    'cmake --build . --parallel "$jobs" --target fabricbench',
    'cp fabricbench "$prefix/"',
)
#: The commands that build fabricbench.
FABRICBENCH = " && ".join(_STEPS)


def cache_folder() -> Path:
    """Where programs are kept: FABRICHECK_CACHE, else `cache` in the folder that a run leaves everything in."""
    named = os.environ.get("FABRICHECK_CACHE")
    return Path(named).resolve() if named else output_folder() / "cache"


def build_command(name: str, sources: Path, result: Path, commands: str, options: Iterable[str]) -> str:
    """The shell command that leaves in the folder `result` what `commands` build from the folder `sources`, from the
    cache where `name` was built before.

    `options`: CMake's, as shell words, which may hold variables of the environment that the command runs in. What the
    commands find and leave, what makes two builds the same, and why two runs may build at once, is said in
    src/build_once.sh.
    """
    words = (suite_root() / "src" / "build_once.sh", name, sources, cache_folder(), result, commands)
    return " ".join(["sh", *(shlex.quote(str(each)) for each in words), *options])


def build_fabricbench_command(folder: Path, options: Iterable[str]) -> str:
    """The shell command that leaves the program fabricbench in `folder`."""
    return build_command("fabricbench", suite_root() / "src", folder, FABRICBENCH, options)
