"""A build folder never mixes what two configurations found."""

from __future__ import annotations

from pathlib import Path

from tools.build import forget_other_options

OLD = ["-DFABRICHECK_BACKEND=host", "-DMPI_CXX_COMPILER=/wheel/bin/mpicxx"]
NEW = [OLD[0], "-DMPI_CXX_COMPILER=/usr/bin/mpicxx"]


def test_other_options_are_configured_again(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "host-openmpi"
    forget_other_options(folder, OLD)
    cache = folder / "CMakeCache.txt"
    cache.write_text("MPI_CXX_LIBRARIES=/wheel/lib/libmpi.so")
    forget_other_options(folder, OLD)
    assert cache.exists()
    forget_other_options(folder, NEW)
    assert not cache.exists()
    cache.write_text("MPI_CXX_LIBRARIES=/usr/lib/libmpi.so")
    forget_other_options(folder, NEW)
    assert cache.exists()
