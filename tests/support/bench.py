"""fabricbench on the host backend, with the MPI libraries of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from fabricheck import mpi
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


@cache
def built(name: str) -> Bench:
    installation = mpi.find(name)
    if installation is None:
        pytest.skip(f"no {name} on this machine")
    return Bench(installation, build.build(f"host-{name}", tests=False) / "fabricbench")
