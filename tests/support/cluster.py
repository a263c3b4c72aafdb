"""An emulated cluster for tests, and programs for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck_lab.cluster import Cluster, emulated_cluster, require_machine
from fabricheck_lab.network_suite import TOPOLOGY
from tests.support.effort import is_full
from tools import build


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        require_machine()
    except UserError as error:
        pytest.skip(str(error))
    # A name of its own: a cluster that somebody is looking at stays as it is.
    with emulated_cluster(TOPOLOGY, f"test{os.getpid() % 100000}") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fabricbench with the MPI libraries of the machine, which Slurm's plugins know."""
    folder = tmp_path_factory.mktemp("programs")
    usual = {name: mpi.find(name) for name in mpi.NAMES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRICHECK_MPI", "machine")
        for name in mpi.NAMES if is_full() else ("openmpi",):  # what runs with MPICH runs with FULL=1 only
            found = mpi.find(name)
            if found is None:
                pytest.skip(f"needs {name} of the machine (Debian: openmpi-bin libopenmpi-dev mpich libmpich-dev)")
            of = "host" if found == usual[name] else "machine"
            built = build.build(f"host-{name}", folder=suite_root() / "build" / f"{of}-{name}", tests=False)
            (folder / name).symlink_to(built)
    for name in ("packed", "round-robin"):
        (folder / f"openmpi-{name}").symlink_to(folder / "openmpi")
    return folder
