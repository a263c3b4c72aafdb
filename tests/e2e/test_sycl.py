"""The sycl backend on the processor: SYCL's OpenCL device takes a GPU's place, and every kernel and transport runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.records.metrics import expected_metric_names, metrics_of
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.bench import right
from tools import build, oneapi_home

pytestmark = [pytest.mark.e2e, pytest.mark.compile, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(1200)]

# A device alone works as fast as it can; several share the processor with the ranks that wait for them.
ONE_THREAD = {"DPCPP_CPU_NUM_CUS": "1"}
COLLECTIVES = "alltoall,allreduce,allgather,reduce_scatter,broadcast,reduce"
FEW = "--sizes=12,4KiB,1MiB --iterations=6 --warmup=2"


@dataclass(frozen=True)
class Bench:
    """The sycl backend, MPICH's launcher for it, and the variables without which it finds no processor."""

    program: Path
    installation: mpi.Installation
    processor: dict[str, str]

    def run(
        self, folder: Path, *options: str, variables: Mapping[str, str], ranks: int = 2
    ) -> subprocess.CompletedProcess[str]:
        launch = mpi.launch("mpich", ranks, 1)
        every = {**self.installation.environment, **launch.environment, **ONE_THREAD, **variables}
        script = [
            *(f'export {name}="{value}"' for name, value in every.items()),
            *self.installation.shell_commands,
            f"exec mpirun -n {ranks} {' '.join([*launch.options, str(self.program), *options])} --output=result.jsonl",
        ]
        command = ["bash", "-c", "\n".join(script)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)

    def on_processor(self, folder: Path, *options: str, ranks: int = 2, **variables: str) -> None:
        job = self.run(folder, *options, "--share-devices", ranks=ranks, variables={**self.processor, **variables})
        run = right(folder, job)
        assert [metric.name for metric in metrics_of(run)] == list(expected_metric_names(run.header))


@pytest.fixture(scope="module")
def bench() -> Bench:
    installation = mpi.find("mpich")
    if installation is None:
        pytest.skip("no mpich on this machine")
    try:
        build.options("sycl")
    except UserError as error:
        pytest.skip(str(error))
    folder = build.build("sycl", tests=False)
    return Bench(folder / "fabricbench", installation, oneapi_home.runtime_environment(build.ONEAPI_WHEELS))


@pytest.mark.parametrize(
    "options",
    [
        "--transport=kernel --operations=host_to_device,device_to_host,host_bidirectional,host_stream,local_copy",
        "--transport=copy --operations=host_bidirectional,local_copy",
        "--transport=kernel --operations=host_to_device --host-memory=migrated",
        "--transport=copy --operations=device_to_host --host-memory=pageable",
    ],
)
def test_a_device_and_its_host(bench: Bench, tmp_path: Path, options: str) -> None:
    bench.on_processor(tmp_path, options, FEW, "--verify=every", ranks=1)


@pytest.mark.parametrize(
    "options",
    [
        f"--transport=mpi --operations=pingpong,{COLLECTIVES}",
        f"--transport=ccl --operations=pingpong,bidirectional,{COLLECTIVES}",
        f"--transport=staging --operations=pingpong,{COLLECTIVES}",
        "--transport=mpi --operations=pingpong --buffers=host-device",
        "--transport=ccl --operations=alltoall --implementation=library",
    ],
)
def test_two_ranks(bench: Bench, tmp_path: Path, options: str) -> None:
    bench.on_processor(tmp_path, options, FEW)


def test_a_wrong_byte_is_found(bench: Bench, tmp_path: Path) -> None:
    options = "--transport=mpi --operations=pingpong --sizes=1KiB --iterations=4 --inject=wrong-byte:1 --share-devices"
    job = bench.run(tmp_path, options, variables=bench.processor)
    assert job.returncode == 5, job.stdout + job.stderr
    assert {each.verdict for each in read_run(tmp_path / "result.jsonl").problems} == {Verdict.FAIL}


def test_the_header_says_what_took_a_gpus_place(bench: Bench, tmp_path: Path) -> None:
    bench.on_processor(tmp_path, "--transport=ccl --operations=allreduce", FEW)
    run = read_run(tmp_path / "result.jsonl")
    assert not run.on_gpus
    header = run.header
    assert (header["backend"], header["platform"]) == ("sycl", "cpu")
    assert header["libraries"]["gpu"]["name"] == "SYCL on OpenCL" and header["libraries"]["gpu"]["driver"]
    assert header["libraries"]["ccl"]["name"] == "oneCCL"
    assert header["environment"]["ONEAPI_DEVICE_SELECTOR"] == "opencl:cpu"
    assert "CCL_LOG_LEVEL" not in header["environment"]  # that was fabricbench's own wish
    footer = read_run(tmp_path / "result.jsonl").footer
    assert footer is not None
    assert (footer["proof"]["paths"], footer["proof"]["evidence"]) == ({"SHM/MPI": 1}, "CCL_LOG_LEVEL")


@pytest.mark.parametrize(
    ("options", "processor", "ending"),
    [
        ("--transport=staging", False, (2, "no GPU is visible on .*ZE_AFFINITY_MASK")),
        ("--transport=copy --share-devices", True, (6, "not a Level Zero GPU, and only those share")),
        ("--transport=copy --operations=host_to_device --host-memory=managed --share-devices", True, (6, "migrated")),
    ],
)
def test_what_is_missing_is_one_line(
    bench: Bench, tmp_path: Path, options: str, processor: bool, ending: tuple[int, str]
) -> None:
    status, message = ending
    job = bench.run(tmp_path, options, variables=bench.processor if processor else {})
    lines = [line for line in job.stderr.splitlines() if line.startswith("fabricbench:")]
    assert job.returncode == status, job.stdout + job.stderr
    assert len(lines) == 1 and re.search(message, lines[0]), job.stderr


def test_without_oneccl_the_ccl_transport_is_refused(tmp_path: Path, bench: Bench) -> None:
    """One file knows whether there is a library, and compiles where there is none."""
    folder = bench.program.parent
    source = str(build.ROOT / "src" / "fabricbench" / "transports" / "transport.cpp")
    commands = json.loads((folder / "compile_commands.json").read_text())
    # It is compiled together with others; how, they all say.
    file, command = next((each["file"], each["command"]) for each in commands if "-DFABRICBENCH_CCL" in each["command"])
    words = [word for word in shlex.split(command) if word != "-DFABRICBENCH_CCL"]
    words[words.index("-o") + 1] = str(tmp_path / "transport.o")
    words[words.index(file)] = source
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    assert b"built without NCCL, RCCL or oneCCL" in (tmp_path / "transport.o").read_bytes()
