"""Writes one archive that installs without a network: the suite, and the wheels of what a run needs, MPI and CMake too.

    make bundle-offline          # dist/fabricheck-offline.tar.gz, for machines like this one
    tar xzf fabricheck-offline.tar.gz && cd fabricheck && make demo

The wheels are those of this architecture and Python; their hashes are compared with tools/constraints.txt when they are
fetched and again when they are installed. tools/setup.py takes them from the folder `wheels` of a suite that has one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.setup import CONSTRAINTS, PIP, ROOT, WHEELS, requirements

ARCHIVE = ROOT / "dist" / "fabricheck-offline.tar.gz"
_NAME = "fabricheck"


def fetch(folder: Path) -> None:
    """Downloads the wheels of this machine's Python into `folder`."""
    tools = re.findall(r"^((?:pip|setuptools)==\S+)", CONSTRAINTS.read_text(), re.MULTILINE)
    download = [*map(str, PIP), "download", "--require-hashes", "--constraint", str(CONSTRAINTS), "--dest", str(folder)]
    needed = [*requirements(), *requirements("cmake"), *tools]
    subprocess.run([*download, "--only-binary=:all:", *needed], check=True)
    for wheel in requirements("mpi"):
        # A machine without such a wheel uses an MPI that is installed on it.
        subprocess.run([*download, "--only-binary=:all:", "--no-deps", wheel], check=False)


def write(archive: Path, wheels: Path) -> None:
    """The files that git knows, as they are now, and the wheels."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                tar.add(ROOT / name, f"{_NAME}/{name}")
        for wheel in sorted(wheels.iterdir()):
            tar.add(wheel, f"{_NAME}/{WHEELS.name}/{wheel.name}")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            fetch(Path(folder))
        except subprocess.CalledProcessError as error:
            print(f"fabricheck: pip ended with {error.returncode}: is its registry reachable?", file=sys.stderr)
            return 2
        write(ARCHIVE, Path(folder))
    size = ARCHIVE.stat().st_size / 1e6
    print(
        f"{ARCHIVE}: {size:,.0f} MB, for Python {sys.version_info.major}.{sys.version_info.minor} on this architecture"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
