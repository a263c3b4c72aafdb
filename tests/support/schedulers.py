"""A scheduler's commands that answer as one would."""

from __future__ import annotations

import os
from pathlib import Path


def knows(folder: Path, *nodes: str) -> str:
    """A search path on which Slurm says that these nodes are idle, and booted long ago; it stands in `folder`."""
    folder.mkdir(exist_ok=True)
    for program, line in (("sinfo", "{}|gpu|idle|none"), ("scontrol", "NodeName={} BootTime=1764000000")):
        lines = "".join(f"echo '{line.format(node)}'\n" for node in nodes)
        (folder / program).write_text(f"#!/bin/sh\n{lines}")
        (folder / program).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
