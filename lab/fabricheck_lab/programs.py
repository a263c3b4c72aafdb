"""What emulated nodes run: the stand-ins and fabricbench, built once for each state of their sources and then kept."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
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
        raise UserError(f"{root} is not a checkout of Fabricheck, with whose tools the emulated GPUs' program is built")
    target = TARGETS[vendor]
    folder = root / "build" / "emulated" / f"{target}-{_state(root, target)}"
    if not folder.is_dir():
        libraries, program = _build(root, target)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            for source in (*libraries.glob("*.so*"), *(libraries / name for name in node.SMI), program):
                shutil.copy2(source, whole / source.name, follow_symlinks=False)
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
    files = [one for each in sources for one in ([each] if each.is_file() else each.rglob("*"))]
    return sorted(one for one in files if one.is_file() and one.suffix != ".pyc")


def _require(root: Path, target: str) -> None:
    """Raises UserError where something is missing that the build needs, naming all of it in one line."""
    real, nvidia = node.find_real(), Path(sys.prefix) / "cuda" / "nvidia"
    nccl = {"NCCL's header nccl.h": nvidia / "nccl" / "include" / "nccl.h"}
    needed: Mapping[str, Mapping[str, Path | str | None]] = {
        "cuda": {"NVIDIA's compiler nvcc": nvidia / "cu13" / "bin" / "nvcc", **nccl},
        "hip": {"AMD's compiler hipcc": shutil.which("hipcc"), "libamdhip64": real.hip, **nccl},
        "sycl-emulated": {},
    }
    every = {"cmake": shutil.which("cmake"), str(node.MPICXX): node.MPICXX, **needed[target]}
    missing = [what for what, path in every.items() if path is None or not Path(path).exists()]
    if missing:
        raise UserError(f"emulated GPUs need {', '.join(missing)}: run `make lab` in {root}, which installs it")


def _build(root: Path, target: str) -> tuple[Path, Path]:
    """The folder of the stand-ins, and fabricbench. Says on stderr that it compiles, and how far that is."""
    _require(root, target)
    environment = {**os.environ, "FABRICHECK_MPI": "machine", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "tools.build", "--without-tests", "standins", target]
    _say(f"compiling fabricbench and the stand-ins for emulated GPUs ({target}), once: minutes on a few cores")
    status, tail = node.watched(command, _Progress(), cwd=root, env=environment)
    program = root / "build" / target / _PROGRAM
    if status != 0 or not program.is_file():
        raise UserError(
            f"fabricbench does not build for emulated GPUs: `python -m tools.build standins {target}` said\n{tail}"
        )
    return root / "build" / "standins", program


class _Progress:
    """Repeats a line of CMake's that tells how far it is, every ten seconds."""

    def __init__(self) -> None:
        self.due = time.monotonic()

    def __call__(self, line: str) -> None:
        if _HOW_FAR.match(line) and time.monotonic() >= self.due:
            self.due = time.monotonic() + _EVERY_S
            _say(line.rstrip())


#: `[ 42%]` of make, `[17/60]` of ninja.
_HOW_FAR = re.compile(r"\[ *\d+(%|/\d+)\]")
_EVERY_S = 10.0


def _say(text: str) -> None:
    print(f"fabricheck: {text}", file=sys.stderr, flush=True)
