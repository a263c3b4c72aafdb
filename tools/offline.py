"""Writes one archive that installs without a network: the suite, the wheels of what a run needs, MPI and CMake too, and
the pinned releases of the vendor suites.

    make bundle-offline          # dist/fabricheck-offline.tar.gz, for machines like this one
    tar xzf fabricheck-offline.tar.gz && cd fabricheck && make demo

The wheels are those of this architecture and Python; their hashes are compared with tools/constraints.txt when they are
fetched and again when they are installed. tools/setup.py takes them from the folder `wheels` of a suite that has one,
and the builds of vendor suites their release from `vendor`, by its sum in config/vendor.yaml.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fabricheck.suites.sources import RELEASES, fetch_releases
from tools.setup import CONSTRAINTS, ROOT, WHEELS, SetupError, requirements, run_pip

ARCHIVE = ROOT / "dist" / "fabricheck-offline.tar.gz"
_NAME = "fabricheck"


def fetch(folder: Path) -> None:
    """Downloads the wheels of this machine's Python into `folder`."""
    tools = re.findall(r"^((?:pip|setuptools)==\S+)", CONSTRAINTS.read_text(), re.MULTILINE)
    hashes = ["--require-hashes", "--constraint", str(CONSTRAINTS)]
    download = ["download", *hashes, "--only-binary=:all:", "--dest", str(folder)]
    needed = [*requirements(), *requirements("cmake"), *tools]
    run_pip(*download, *needed)
    for wheel in requirements("mpi"):
        # A machine without such a wheel uses an MPI that is installed on it.
        with contextlib.suppress(SetupError):
            run_pip(*download, "--no-deps", wheel)


def write(archive: Path, wheels: Path, releases: Path) -> None:
    """The files that git knows, as they are now, the wheels, and releases of the vendor suites."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                tar.add(ROOT / name, f"{_NAME}/{name}")
        for folder, name in ((wheels, WHEELS.name), (releases, RELEASES)):
            for file in sorted(folder.iterdir()):
                tar.add(file, f"{_NAME}/{name}/{file.name}")


def main() -> int:
    with tempfile.TemporaryDirectory() as wheels, tempfile.TemporaryDirectory() as releases:
        try:
            fetch(Path(wheels))
        except SetupError as error:
            print(f"fabricheck: {error}", file=sys.stderr)
            return 2
        for line in fetch_releases(Path(releases)):
            print(f"fabricheck: left out: {line}", file=sys.stderr)
        write(ARCHIVE, Path(wheels), Path(releases))
    size = ARCHIVE.stat().st_size / 1e6
    print(
        f"{ARCHIVE}: {size:,.0f} MB, for Python {sys.version_info.major}.{sys.version_info.minor} on this architecture"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
