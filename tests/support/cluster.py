"""An emulated cluster for tests, and programs for it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck_lab.cluster import Cluster, emulated_cluster, require_machine
from fabricheck_lab.network_suite import TOPOLOGY
from tools import build

T = TypeVar("T")


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
    """fabricbench with the Open MPI of the machine, which Slurm's plugins know."""
    folder = tmp_path_factory.mktemp("programs")
    usual = mpi.find("openmpi")
    if usual is not None:
        build.core()  # by the usual one
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRICHECK_MPI", "machine")
        found = mpi.find("openmpi")
        if found is None:
            pytest.skip("needs Open MPI of the machine (Debian: openmpi-bin libopenmpi-dev)")
        place = suite_root() / "build" / f"{'host' if found == usual else 'machine'}-openmpi"
        (folder / "openmpi").symlink_to(build.build("host-openmpi", folder=place, tests=False))
    for name in ("packed", "round-robin"):
        (folder / f"openmpi-{name}").symlink_to(folder / "openmpi")
    return folder


def run_and(run: Callable[[], T], act: Callable[[], object], word: str, folder: Path, pattern: str) -> T:
    """What `run` returns; `act` is called meanwhile, once a file of `folder` has a `word`, which has to come."""
    ended = threading.Event()

    def has_word() -> bool:
        with contextlib.suppress(OSError):  # files come and go while the run goes on
            return any(word in file.read_text() for file in folder.glob(pattern))
        return False

    def wait_and_act() -> None:
        while not has_word():
            assert not ended.wait(0.05), f"the run ended without {word!r}"
        act()

    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(wait_and_act)
        try:
            result = run()
        finally:
            ended.set()
        acted.result()
    return result
