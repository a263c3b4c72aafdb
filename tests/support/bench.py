"""fabricbench on the host backend, with the MPI libraries of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run
from tools import build

RANKS = 4


@dataclass(frozen=True)
class Bench:
    """The program with one MPI, and how its launcher starts it.

    `launcher`: what the launcher itself is started by, such as `taskset -c 0`; `wrapper`: what each rank is started by.
    """

    installation: mpi.Installation
    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    wrapper: str = ""

    @property
    def brief(self) -> Bench:
        """For ranks that end by themselves: after a status but 0 Open MPI waits two seconds before it kills others."""
        return replace(self, environment={**self.environment, "OMPI_MCA_odls_base_sigkill_timeout": "0"})

    def run(self, folder: Path, *options: str, ranks: int = RANKS) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", self.command(*options, ranks=ranks)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)

    def command(self, *options: str, ranks: int = RANKS) -> str:
        """What a shell starts the ranks by."""
        launch = mpi.launch(self.installation.name, ranks, 1)
        variables = {**self.installation.environment, **launch.environment, **self.environment}
        mpirun = f"mpirun -n {ranks} {' '.join(launch.options)} {self.wrapper} {self.program} {' '.join(options)}"
        script = [
            *([f"{self.launcher} bash <<'END'"] if self.launcher else []),
            *(f'export {name}="{value}"' for name, value in variables.items()),
            *self.installation.shell_commands,
            mpirun,
            *(["END"] if self.launcher else []),
        ]
        return "\n".join(script)


def right(folder: Path, job: subprocess.CompletedProcess[str]) -> Run:
    """The run that a job left in a folder, of which every byte was checked."""
    assert job.returncode == 0, job.stdout + job.stderr
    run = read_run(folder / "result.jsonl")
    assert run.problems == ()
    assert {samples.wrong_bytes for samples in run.samples} == {0}
    return run


@cache
def built(name: str) -> Bench:
    installation = mpi.find(name)
    if installation is None:
        pytest.skip(f"no {name} on this machine")
    return Bench(installation, build.build(f"host-{name}", tests=False) / "fabricbench")
