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
    write_site(folder, system=system, partition=partition, environment=environment)
    write_program(folder / "built" / "site" / "fabricbench")
    (script,) = write_scripts(folder, ["smoke"], [check])
    return script.read_text().splitlines()


def write_site(folder: Path, *, system: dict[str, Any], partition: dict[str, Any], environment: dict[str, Any]) -> None:
    devices = [{"type": "gpu", "arch": "sm_90", "model": "H100", "num_devices": 4}]
    shared = {"scheduler": "local", "launcher": "srun", "environs": ["site"], "devices": devices}
    partitions = [{"name": "gpu", **shared, "processor": {"num_cpus": 64}, **partition}]
    extras = {"backend": "cuda", "mpi": "openmpi", **environment.pop("extras", {})}
    environments = [{"name": "site", "features": ["mpi", "cuda", "nccl"], "extras": extras, **environment}]
    systems = [{"name": "theirs", "hostnames": [".*"], "partitions": partitions, **system}]
    settings = {"systems": systems, "environments": environments}
    (folder / "theirs.py").write_text(f"site_configuration = {settings!r}\n")
    for name, said in {"spack": "echo 0.22.1", "lmod": "echo 'Modules based on Lua: Version 8.7' >&2"}.items():
        write_program(folder / "bin" / name, said)


def write_program(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)


def write_scripts(folder: Path, files: list[str], checks: list[str]) -> list[Path]:
    """The job scripts of `checks` (a name, or a pattern of one with its parameters) in `files` of the suite."""
    named = [*(f"-c{suite_root() / 'checks' / file}.py" for file in files), "-n", "|".join(checks)]
    command = ["reframe", "-C", "theirs.py", *named, f"--setvar=BuildFabricbench.prebuilt={folder / 'built'}"]
    job = subprocess.run(
        [*command, "--dry-run"], cwd=folder, capture_output=True, text=True, check=False, env=variables(folder)
    )
    scripts = [*folder.glob("stage/theirs/gpu/site/[!B]*/rfm_job.sh")]
    assert len(scripts) == len(checks), job.stdout + job.stderr
    return scripts


def variables(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LMOD_CMD": str(folder / "bin" / "lmod")}


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


def test_a_variable_to_try_is_set_or_unset_whoever_set_it(tmp_path: Path) -> None:
    tried = {"NCCL_PROTO": "LL", "NCCL_IB_SL": None}
    environment = {"env_vars": [["NCCL_IB_SL", "3"], ["NCCL_PROTO", "Simple"]], "extras": {"tried": tried}}
    lines = job_script(tmp_path, "SmokePeers", system={}, partition={}, environment=environment)
    steps = ["export NCCL_PROTO=Simple", "export NCCL_PROTO=LL", launch_of(lines)]
    assert [lines.index(line) for line in steps] == sorted(lines.index(line) for line in steps)
    steps = ["export NCCL_IB_SL=3", "unset NCCL_IB_SL", launch_of(lines)]
    assert [lines.index(line) for line in steps] == sorted(lines.index(line) for line in steps)


# By the platform: what begins the launch, the options of the site, and how a folder is mounted where it lies.
CONTAINERS = {
    "Apptainer": ("srun apptainer exec ", ["--nv"], '-B"{0}:{0}"'),
    "Sarus": ("srun sarus run ", ["--mpi"], '--mount=type=bind,source="{0}",destination="{0}"'),
    "Podman": ("srun podman run --rm --env-host ", ["--device=nvidia.com/gpu=all"], "--volume={0}:{0}"),
    "Pyxis": ("srun ", ["--no-container-mount-home"], "{0}:{0}"),
}


# They start what comes after the image; srun starts one rank, in a container where it is asked for one.
ENTER = 'until [ "$1" = site/cuda:13.0 ]; do shift; done; shift; exec env INSIDE={0} "$@"'
SRUN = """
for option; do case $option in --container-image=*) export INSIDE=Pyxis;; -*) ;; *) break;; esac; shift; done
exec "$@"
"""
PULL = '[ "$1" = pull ] && echo "pull $2" >> {0} && exit\n'
SAY = 'echo "${{INSIDE:-outside}} ${{0##*/}} $*" >> {0}\n'


@pytest.mark.full
@pytest.mark.parametrize("platform", CONTAINERS)
def test_all_launches_are_in_the_container(tmp_path: Path, platform: str) -> None:
    """The launcher starts the container, and that fabricbench, which finds what is named by its path. Of vendor suites:
    place, check of the data, help and measurement; and of a comparison each round of either program."""
    begin, options, mounted = CONTAINERS[platform]
    said = tmp_path / "said"
    known = {"type": platform, "modules": [], "env_vars": [["SITES_OWN", "/c"]]}  # to ReFrame
    write_site(
        tmp_path,
        system={},
        partition={
            "container_platforms": [known] if platform in ("Apptainer", "Sarus") else [],
            "scheduler": "slurm",
            "processor": {},
        },
        environment={
            "extras": {
                "container": {"platform": platform, "image": "site/cuda:13.0", "options": options},
                "vendor": {"osu": str(tmp_path / "osu"), "nccl-tests": str(tmp_path / "nccl-tests")},
            }
        },
    )
    for name in ("apptainer", "podman", "sarus"):
        write_program(tmp_path / "bin" / name, PULL.format(said) * (name == "sarus") + ENTER.format(platform))
    write_program(tmp_path / "bin" / "srun", SRUN)
    for program in ("built/site/fabricbench", "osu/osu_latency", "nccl-tests/all_reduce_perf"):
        helps = 'case "$*" in -h) echo --output_file;; esac' * ("nccl" in program)
        write_program(tmp_path / program, SAY.format(said) + helps)
    programs = {
        r"OsuPairs.*=latency.*=HH.*=1": ["fabricbench", "osu_latency", "osu_latency"],
        r"NcclTests.*=all_reduce.*=1": ["fabricbench", "all_reduce_perf", "all_reduce_perf"],
        r"CrossCheckNccl.*=allreduce.*=1": ["fabricbench", "all_reduce_perf"] * 7,
        "SmokePeers": ["fabricbench"],
    }
    files = ["vendor_osu", "vendor_nccl_tests", "cross_check", "smoke"]
    ran = {}
    for script in write_scripts(tmp_path, files, [*programs]):
        said.write_text("")
        text = script.read_text()
        folders = (script.parent, tmp_path / "built" / "site", suite_root())
        assert all(mounted.format(folder) in text for folder in folders)
        # The state of a node is asked outside: an image needs no Python.
        asks = [line for line in text.splitlines() if "fabricheck.state.collect" in line]
        assert ["srun sh -c" in line for line in asks] == [True, True]
        subprocess.run(["bash", script.name], cwd=script.parent, env=variables(tmp_path), check=False)
        lines = [line.split(" ", 2) for line in said.read_text().splitlines()]
        if platform == "Sarus":
            assert lines.pop(0) == ["pull", "site/cuda:13.0"]
        assert {place for place, *_ in lines} == {platform}
        ran[script.parent.name.partition("_")[0]] = [(program, given) for _, program, given in lines]
        if script.parent.name.startswith("SmokePeers"):
            launch = launch_of(text.splitlines())
            before, _, after = launch.partition(f" {tmp_path / 'built' / 'site' / 'fabricbench'} ")
            assert launch.startswith(begin) and options[0] in before and "site/cuda:13.0" in before
            assert after.startswith("--transport=copy ") and after.endswith(" --case=SmokePeers,@theirs:gpu+site")
            assert re.findall(r"(?:--(?:container-)?workdir=|--pwd |-w )(\S+)", before) == [str(script.parent)]
            assert ("export SITES_OWN=/c" in text.partition(launch)[0]) is (platform in ("Apptainer", "Sarus"))
    assert {name.partition(".")[0]: names for name, names in programs.items()} == {
        name: [program for program, _ in calls] for name, calls in ran.items()
    }
    assert "-J report.json" in ran["NcclTests"][-1][1] and " -c" in ran["OsuPairs"][1][1]


def test_a_job_of_lsf_in_an_environment_of_spack(tmp_path: Path) -> None:
    activate = [". /opt/spack/share/spack/setup-env.sh", "spack env activate gpu"]
    partition = {"scheduler": "lsf", "launcher": "lrun", "access": ["-q gpu"], "resources": [GPUS_OF_LSF]}
    lines = job_script(tmp_path, "SmokePeers", system={}, partition=partition, environment={"prepare_cmds": activate})
    assert {"#BSUB -q gpu", "#BSUB -gpu num=4"} <= {*lines}
    assert [line for line in lines if line in activate] == activate
    launch = launch_of(lines)
    assert launch.startswith(f"lrun -N 1 -T 4 {tmp_path}")
    assert lines.index(activate[-1]) < lines.index(launch)
