"""How fabricbench is built: once for each state of sources, options, compilers and MPI, in a cache of programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from fabricheck.suite import output_folder, suite_root


def cache_folder() -> Path:
    """Where programs are kept: FABRICHECK_CACHE, else `cache` in the folder that a run leaves everything in."""
    named = os.environ.get("FABRICHECK_CACHE")
    return Path(named).resolve() if named else output_folder() / "cache"


def build_command(program: Path, options: Iterable[str]) -> str:
    """The shell command that leaves fabricbench at the path `program`, from the cache where it was built before.

    `options`: CMake's, as shell words, which may hold variables of the environment that the command runs in. What makes
    two builds the same, and why two runs may build at once, is said in src/build_once.sh.
    """
    source = suite_root() / "src"
    paths = (source / "build_once.sh", source, cache_folder(), program)
    return " ".join(["sh", *(shlex.quote(str(each)) for each in paths), *options])
