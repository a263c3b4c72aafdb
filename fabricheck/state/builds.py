"""Which build of a program and of the libraries that move its data a node starts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from fabricheck.state.programs import ask

# MPI, *CCL, and what they and the runtimes of GPUs are built on.
_MOVES_DATA = re.compile(r"lib(?:\w*mpi\w*|\w*ccl|cudart|amdhip64|sycl|fabric|ucp)\.so")
# Owner, kind and length of the note of the linker's --build-id (ELF, "GNU" notes of type 3), which stands at the start.
_NOTE = b"\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00"
_START_BYTES, _ID_BYTES = 1 << 16, 20
_PATIENCE_S = 5.0


def builds_of(program: Path) -> dict[str, str]:
    """By name the build of a program and of its libraries, as this node finds them; nothing of what it does not find.

    Raises OSError where the program cannot be read.
    """
    builds = {program.name: build_of(program)}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", ask(["ldd", str(program)], _PATIENCE_S).output, re.MULTILINE):
        if _MOVES_DATA.match(name):
            builds[name] = build_of(Path(path))
    return builds


def build_of(file: Path) -> str:
    """The linker's build-id in hexadecimal digits; of a file without one, the digest of its start and its size."""
    with file.open("rb") as stream:
        start = stream.read(_START_BYTES)
    place = start.find(_NOTE)
    if place >= 0:
        return start[place + len(_NOTE) :][:_ID_BYTES].hex()[:12]
    return f"{hashlib.sha256(start).hexdigest()[:12]} of {file.stat().st_size} B"
