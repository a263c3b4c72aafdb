"""What the MPI libraries of this machine let a rank have; that they start ranks, all tests of fabricbench show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck import mpi

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]


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
