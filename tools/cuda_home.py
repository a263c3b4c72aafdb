"""Makes a CUDA_HOME out of NVIDIA's wheels: a compiler for the CUDA backend where no CUDA toolkit is installed."""

from __future__ import annotations

import json
from pathlib import Path


def cuda_home(target: Path) -> Path:
    """Where the toolkit lies below the folder that the wheels were unpacked into with `pip install --target`."""
    return target / "nvidia" / "cu13"


def nccl_home(target: Path) -> Path:
    """Where NCCL's header and library lie below the same folder."""
    return target / "nvidia" / "nccl"


def complete(target: Path) -> None:
    """Adds what the wheels leave out and build tools look for: `lib64`, unversioned names, `version.json`."""
    home = cuda_home(target)
    _link(home / "lib64", "lib")
    for folder in (home / "lib", nccl_home(target) / "lib"):
        for library in sorted(folder.glob("lib*.so.*")):
            _link(folder / f"{library.name.partition('.so.')[0]}.so", library.name)
    version = next(target.glob("nvidia_cuda_nvcc-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    (home / "version.json").write_text(json.dumps({"cuda": {"name": "CUDA SDK", "version": version}}) + "\n")


def _link(link: Path, points_to: str) -> None:
    if not link.exists():
        link.symlink_to(points_to)
