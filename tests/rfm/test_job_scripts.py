"""The job scripts that ReFrame writes of our checks, with containers and with modules of EasyBuild and Spack.

ReFrame is real and runs nothing (`--dry-run`); the programs of module systems are stand-ins that say nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabricheck.suite import suite_root

pytestmark = pytest.mark.e2e
GPUS_OF_LSF = {"name": "_rfm_gpu", "options": ["-gpu num={num_gpus_per_node}"]}


def job_script(
    folder: Path, check: str, *, system: dict[str, Any], partition: dict[str, Any], environment: dict[str, Any]
) -> list[str]:
    """The lines of the script of a check of smoke.py on a node with four H100."""
    devices = [{"type": "gpu", "arch": "sm_90", "model": "H100", "num_devices": 4}]
    shared = {"scheduler": "local", "launcher": "srun", "environs": ["site"], "devices": devices}
    partitions = [{"name": "gpu", **shared, "processor": {"num_cpus": 64}, **partition}]
    extras = {"backend": "cuda", "mpi": "openmpi", **environment.pop("extras", {})}
    environments = [{"name": "site", "features": ["mpi", "cuda", "nccl"], "extras": extras, **environment}]
    systems = [{"name": "theirs", "hostnames": [".*"], "partitions": partitions, **system}]
    settings = {"systems": systems, "environments": environments}
    (folder / "theirs.py").write_text(f"site_configuration = {settings!r}\n")
    programs = folder / "bin"
    programs.mkdir()
    for name, said in {"spack": "echo 0.22.1", "lmod": "echo 'Modules based on Lua: Version 8.7' >&2"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{said}\n")
        (programs / name).chmod(0o755)
    built = folder / "built" / "site" / "fabricbench"
    built.parent.mkdir(parents=True)
    built.write_text("#!/bin/sh\n")
    built.chmod(0o755)
    command = ["reframe", "-C", "theirs.py", "-c", str(suite_root() / "checks" / "smoke.py"), "-n", check]
    job = subprocess.run(
        [*command, f"--setvar=BuildFabricbench.prebuilt={folder / 'built'}", "--dry-run"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "LMOD_CMD": str(programs / "lmod"),
        },
    )
    found = [*folder.glob(f"stage/theirs/gpu/site/{check}*/rfm_job.sh")]
    assert len(found) == 1, job.stdout + job.stderr
    (script,) = found
    return script.read_text().splitlines()


def launch_of(lines: list[str]) -> str:
    """The line that starts the ranks, after which the exit status is kept."""
    position = lines.index("status=$?")
    assert lines[position + 1] == "echo $status > exit-status"
    return lines[position - 1]


@pytest.mark.parametrize(
    ("launcher", "processor", "options"),
    [
        # 64 cores of two sockets, and four ranks.
        ("srun", {"num_cpus": 128, "num_cpus_per_core": 2, "num_sockets": 2}, "srun --cpus-per-task=32"),
        ("srun", {}, "srun"),
        ("mpirun", {"num_cpus": 64, "num_cpus_per_core": 1}, "mpirun -np 4 --map-by slot:PE=16 --bind-to core"),
    ],
)
def test_ranks_of_gpus_get_their_share_of_the_cores(
    tmp_path: Path, launcher: str, processor: dict[str, Any], options: str
) -> None:
    """A rank with one core waits for its GPU on the core that the threads of NCCL need."""
    scheduler = "slurm" if launcher == "srun" else "local"
    partition = {"launcher": launcher, "scheduler": scheduler, "processor": processor, "access": ["--exclusive"]}
    lines = job_script(tmp_path, "SmokePeers", system={}, partition=partition, environment={})
    assert launch_of(lines).startswith(f"{options} {tmp_path}")
    asked = "#SBATCH --cpus-per-task=32"
    assert (asked in lines) == ("32" in options)


def test_modules_of_easybuild(tmp_path: Path) -> None:
    modules = ["foss/2023b", "CUDA/12.4.0", "NCCL/2.20.5-GCCcore-13.2.0-CUDA-12.4.0"]
    lines = job_script(
        tmp_path, "SmokePeers", system={"modules_system": "lmod"}, partition={}, environment={"modules": modules}
    )
    loads = [lines.index(f"module load {each}") for each in modules]
    assert loads == sorted(loads)
    launch = launch_of(lines)
    assert launch.startswith(f"srun {tmp_path / 'built' / 'site' / 'fabricbench'} --transport=copy ")
    assert "--expect-ranks=4" in launch and " --output=result.jsonl " in launch
    assert loads[-1] < lines.index(launch)


def test_packages_of_spack(tmp_path: Path) -> None:
    packages = ["openmpi@5.0.3+cuda", "nccl@2.20.3"]
    lines = job_script(
        tmp_path, "SmokePeers", system={"modules_system": "spack"}, partition={}, environment={"modules": packages}
    )
    loads = [number for number, line in enumerate(lines) if "spack load" in line]
    assert [package for package in packages if not any(package in lines[number] for number in loads)] == []
    assert max(loads) < lines.index(launch_of(lines))


def test_an_environment_of_spack(tmp_path: Path) -> None:
    activate = [". /opt/spack/share/spack/setup-env.sh", "spack env activate gpu"]
    lines = job_script(tmp_path, "SmokePeers", system={}, partition={}, environment={"prepare_cmds": activate})
    assert [line for line in lines if line in activate] == activate
    assert lines.index(activate[-1]) < lines.index(launch_of(lines))


# By the platform: what begins the launch, the options of the site, and how a folder is mounted where it lies.
CONTAINERS = {
    "Apptainer": ("srun apptainer exec ", ["--nv"], '-B"{0}:{0}"'),
    "Sarus": ("srun sarus run ", ["--mpi"], '--mount=type=bind,source="{0}",destination="{0}"'),
    "Podman": ("srun podman run --rm --env-host ", ["--device=nvidia.com/gpu=all"], "--volume={0}:{0}"),
    "Pyxis": ("srun ", ["--no-container-mount-home"], "{0}:{0}"),
}


@pytest.mark.parametrize("platform", CONTAINERS)
def test_a_container(tmp_path: Path, platform: str) -> None:
    """The launcher starts the container, and the container fabricbench, which finds what is named by its path."""
    begin, options, mounted = CONTAINERS[platform]
    container = {"platform": platform, "image": "docker.io/site/cuda:13.0", "options": options}
    known = {"Apptainer", "Sarus"}  # to ReFrame
    platforms = [{"type": platform, "modules": [], "env_vars": [["SITES_OWN", "/c"]]}] if platform in known else []
    lines = job_script(
        tmp_path,
        "SmokePeers",
        system={},
        partition={"container_platforms": platforms},
        environment={"extras": {"container": container}},
    )
    launch = launch_of(lines)
    program = tmp_path / "built" / "site" / "fabricbench"
    assert launch.startswith(begin)
    before, _, after = launch.partition(f" {program} ")
    assert after.startswith("--transport=copy ") and after.endswith(" --case=SmokePeers,@theirs:gpu+site")
    assert options[0] in before and "docker.io/site/cuda:13.0" in before
    assert all(mounted.format(folder) in before for folder in (program.parent, suite_root()))
    if platform in known:
        assert lines.index("export SITES_OWN=/c") < lines.index(launch)
        assert "/rfm_workdir" in before
    else:
        (stage,) = re.findall(r"--(?:container-)?workdir=(\S+)", before)
        assert mounted.format(stage) in before and (Path(stage) / "rfm_job.sh").exists()


def test_a_job_of_lsf(tmp_path: Path) -> None:
    partition = {"scheduler": "lsf", "launcher": "lrun", "access": ["-q gpu"], "resources": [GPUS_OF_LSF]}
    lines = job_script(tmp_path, "SmokePeers", system={}, partition=partition, environment={})
    assert {"#BSUB -q gpu", "#BSUB -gpu num=4"} <= {*lines}
    assert launch_of(lines).startswith(f"lrun -N 1 -T 4 {tmp_path}")
