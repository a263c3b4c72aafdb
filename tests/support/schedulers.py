"""A scheduler's commands that answer as one would."""

from __future__ import annotations

import os
from pathlib import Path


def knows(folder: Path, *nodes: str) -> str:
    """A search path on which `sinfo` says that these nodes are idle; it stands in `folder`."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"echo '{node}|gpu|idle|none'\n" for node in nodes)
    (folder / "sinfo").write_text(f"#!/bin/sh\n{lines}")
    (folder / "sinfo").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
