"""What emulated nodes run: the stand-ins and fabricbench, built once for each state of their sources and then kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck_lab import node

#: What tools/build.py calls the programs for a vendor's GPUs.
TARGETS: Mapping[str, str] = {"nvidia": "cuda", "amd": "hip", "intel": "sycl-emulated"}
_PROGRAM = "fabricbench"


@dataclass(frozen=True)
class Programs:
    """A folder that never changes, so that a miniature keeps what it was brought up with: `libraries`, and `program`,
    the path of fabricbench."""

    libraries: Path

    @property
    def program(self) -> Path:
        return self.libraries / _PROGRAM


def programs(root: Path, vendor: str) -> Programs:
    """Those for a vendor's GPUs, of the checkout `root`; built where its build/emulated has none of these sources.

    Raises UserError where they do not build.
    """
    if not (root / "tools" / "build.py").is_file():
        raise UserError(f"{root} is no checkout of Fabricheck, with whose tools the emulated GPUs' program is built")
    target = TARGETS[vendor]
    folder = root / "build" / "emulated" / f"{target}-{_state(root, target)}"
    if not folder.is_dir():
        libraries, program = _build(root, target)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            for each in (*libraries.glob("*.so*"), *(libraries / name for name in node.SMI), program):
                shutil.copy2(each, whole / each.name, follow_symlinks=False)
            try:
                whole.rename(folder)  # at once, so that it is there as a whole or not at all
            except OSError:
                if not folder.is_dir():  # else somebody else was faster
                    raise
    return Programs(folder)


def _state(root: Path, target: str) -> str:
    """Sixteen digits that are others as soon as a source, an option or a library to build against is another."""
    digest = hashlib.sha256()
    sources = (root / "src", node.SOURCES, root / "tools" / "rccl_shim", root / "tools" / "build.py")
    for file in _files(sources):
        digest.update(f"{file.name}\0".encode())
        digest.update(file.read_bytes())
    digest.update(f"{target} {node.MPICXX.resolve()} {sys.prefix} {node.find_real()}".encode())
    return digest.hexdigest()[:16]


def _files(sources: Iterable[Path]) -> list[Path]:
    found = [one for each in sources for one in ([each] if each.is_file() else each.rglob("*"))]
    return sorted(one for one in found if one.is_file() and one.suffix != ".pyc")


def _build(root: Path, target: str) -> tuple[Path, Path]:
    """The folder of the stand-ins, and fabricbench."""
    if not node.MPICXX.exists():
        raise UserError(f"there is no {node.MPICXX}, with which emulated GPUs run: install Debian's libopenmpi-dev")
    environment = {**os.environ, "FABRICHECK_MPI": "machine", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "tools.build", "--without-tests", "standins", target]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
    program = root / "build" / target / _PROGRAM
    if done.returncode != 0 or not program.is_file():
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise UserError(
            f"fabricbench does not build for emulated GPUs: `python -m tools.build standins {target}` said\n{tail}"
        )
    return root / "build" / "standins", program
