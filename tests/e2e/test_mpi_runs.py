"""The MPI libraries of this machine build and start a program the way in which a ReFrame job does it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.suite import suite_root

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]

PROGRAM = suite_root() / "tests/data/programs/ranks.cpp"


@pytest.mark.parametrize("name", mpi.NAMES)
def test_a_rank_may_use_all_cores_of_its_share(name: str, tmp_path: Path) -> None:
    installation = mpi.find(name)
    if installation is None:
        pytest.skip(f"no {name} on this machine")
    cores = mpi.physical_cores()
    launch = mpi.launch(name, 1, cores, cores)
    command = [str(installation.mpirun), "-n", "1", *launch.options, sys.executable, "-c"]
    command.append("import os; print('may use', len(os.sched_getaffinity(0)))")
    variables = {**os.environ, **mpi.as_root(name), **launch.environment}
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=variables)
    assert f"may use {len(os.sched_getaffinity(0))}" in job.stdout, job.stderr


@pytest.mark.parametrize("name", mpi.NAMES)
@pytest.mark.parametrize("more_than_cores", [False, True], ids=["a core each", "more ranks than cores"])
def test_ranks_start_and_talk(name: str, more_than_cores: bool, tmp_path: Path) -> None:
    installation = mpi.find(name)
    if installation is None:
        pytest.skip(f"no {name} on this machine")
    ranks = mpi.physical_cores() + (1 if more_than_cores else 0)
    launch = mpi.launch(name, ranks, mpi.physical_cores())
    subprocess.run([installation.mpicxx, PROGRAM, "-o", "program"], cwd=tmp_path, check=True)
    variables = {**installation.environment, **launch.environment}
    script = [
        *(f"export {variable}={value}" for variable, value in variables.items()),
        *installation.shell_commands,
        f"mpirun -np {ranks} {' '.join(launch.options)} ./program",
    ]
    job = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr
    library = {"openmpi": "Open MPI v", "mpich": "MPICH Version:"}[name]
    assert f"ranks={ranks} sum={ranks * (ranks - 1) // 2} library={library}" in job.stdout
    assert re.search(rf"\b{re.escape(installation.version)}\b", job.stdout), "another MPI than the one that was found"
