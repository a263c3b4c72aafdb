"""What fabricbench itself promises, with real MPI: whose time is kept, whose core it is, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fabricheck.records.metrics import metrics_of, parse_metric_name
from fabricheck.records.operations import DATA_TYPES, OPERATIONS
from fabricheck.results.fabricbench import read_run
from tests.support.bench import Bench, right
from tools.build import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.timeout(600)]

DELAY_MS = 20
# Between the program and its MPI library: the calls return later on one rank only, when the others are done.
LATE_RANK = ROOT / "tests/data/programs/late_rank.cpp"


def test_operations_are_those_of_the_package(openmpi: Bench) -> None:
    said = subprocess.run([openmpi.program, "--list-operations"], capture_output=True, text=True, check=True).stdout
    table = [{"name": name, **asdict(traits), "pattern": list(traits.pattern)} for name, traits in OPERATIONS.items()]
    assert json.loads(said) == {"operations": table, "data_types": dict(DATA_TYPES)}


def test_the_help_names_every_operation_and_every_option(openmpi: Bench) -> None:
    said = subprocess.run([openmpi.program, "--help"], capture_output=True, text=True, check=True).stdout
    words = set(re.findall(r"[\w-]+", said))
    assert set(OPERATIONS) <= words
    options = (ROOT / "src" / "fabricbench" / "options.cpp").read_text()
    names = re.findall(r'^    {"([\w-]+)", (?:true|false),', options, re.MULTILINE)
    assert len(names) > 30
    assert {f"--{name}" for name in names} <= words
    assert max(map(len, said.splitlines())) <= 120


def late_rank(bench: Bench, rank: int, folder: Path) -> Bench:
    """The same program, with calls of one rank that return `DELAY_MS` late."""
    library = folder / "liblate.so"
    subprocess.run(
        [bench.installation.mpicxx, "-shared", "-fPIC", f"-DDELAY_MS={DELAY_MS}", LATE_RANK, "-o", library], check=True
    )
    return replace(bench, wrapper=f"env LATE_RANK={rank} LD_PRELOAD={library}")


ALL = "--operations=allreduce --implementation=library"
PAIR = "--operations=unidirectional --pairs=0-1 --schedules=uncontended"


@pytest.mark.parametrize(("operation", "rank"), [(ALL, 0), (ALL, 2), (PAIR, 1)])
def test_the_time_of_the_slowest_rank_is_the_one_that_is_kept(
    bench: Bench, operation: str, rank: int, tmp_path: Path
) -> None:
    options = f"{operation} --sizes=64 --iterations=8 --warmup=2 --verify=off --output=result.jsonl"
    job = late_rank(bench, rank, tmp_path).run(tmp_path, options, ranks=3)
    assert job.returncode == 0, job.stdout + job.stderr
    (samples,) = read_run(tmp_path / "result.jsonl").samples
    assert len(samples.times_ns) == 8
    assert min(samples.times_ns) >= DELAY_MS * 1_000_000


@pytest.mark.parametrize("split", ["nodes", "rails"])
def test_groups_at_once_have_their_own_data_and_times(bench: Bench, split: str, tmp_path: Path) -> None:
    """One late rank makes its own group slow, and the other not."""
    job = late_rank(bench, 3, tmp_path).run(
        tmp_path,
        "--operations=allreduce,alltoall,allgather,reduce_scatter,broadcast,reduce --implementation=library",
        f"--split={split} --group-size=2 --schedules=contended --sizes=1KiB --iterations=8 --warmup=2",
        "--verify=every --output=result.jsonl",
        ranks=4,
    )
    run = right(tmp_path, job)
    groups = {"nodes": [(0, 1), (2, 3)], "rails": [(0, 2), (1, 3)]}[split]
    times = {each.ranks: each.times_ns for each in run.samples if each.operation == "allreduce"}
    assert list(times) == groups
    assert min(times[groups[1]]) >= DELAY_MS * 1_000_000 > min(times[groups[0]])


def test_cores_are_counted_as_they_are_allowed(bench: Bench, tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine has one core, on which two ranks always share it")
    found = []
    for number in (1, 2):
        allowed = ",".join(map(str, cores[:number]))
        job = replace(bench, launcher=f"taskset -c {allowed}").run(
            tmp_path,
            f"--operations=pingpong --sizes=8 --iterations=8 --quiet --output={number}.jsonl",
            ranks=2,
        )
        assert job.returncode == 0, job.stdout + job.stderr
        header = read_run(tmp_path / f"{number}.jsonl").header
        found.append((header["oversubscribed"], {rank["cpus"] for rank in header["ranks"]}))
    assert [oversubscribed for oversubscribed, _ in found] == [True, False]
    assert found[0][1] == {str(cores[0])}


@pytest.mark.parametrize("inject", ["", "--inject=crash:1", "--inject=crash:0", "--inject=hang:1"])
def test_no_log_is_left_behind(openmpi: Bench, inject: str, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    job = replace(openmpi, wrapper=f"env TMPDIR={temporary}").run(
        tmp_path,
        "--operations=pingpong --sizes=8,16 --iterations=8 --quiet --timeout=3",
        f"{inject} --output=result.jsonl",
        ranks=2,
    )
    assert (job.returncode != 0) == bool(inject), job.stdout + job.stderr
    assert [path.name for path in temporary.iterdir() if path.name.startswith("fabricbench")] == []


def test_a_temporary_folder_that_cannot_be_written_ends_nothing(openmpi: Bench, tmp_path: Path) -> None:
    job = replace(openmpi, wrapper=f"env TMPDIR={tmp_path / 'missing'}").run(
        tmp_path, "--operations=pingpong --sizes=8 --iterations=8 --quiet --output=result.jsonl", ranks=2
    )
    assert job.returncode == 0, job.stdout + job.stderr
    assert read_run(tmp_path / "result.jsonl").problems == ()


def test_what_ranks_have_otherwise_than_the_first_is_in_the_header(openmpi: Bench, tmp_path: Path) -> None:
    script = tmp_path / "rank.sh"
    script.write_text(
        "case $OMPI_COMM_WORLD_RANK in\n0) export NCCL_ALGO=Ring NCCL_PROTO=LL;;\n2) export NCCL_ALGO='\"Tree\"';;\n"
        '*) export NCCL_ALGO=Ring NCCL_PROTO=LL;;\nesac\nexec "$@"\n'
    )
    job = replace(openmpi, wrapper=f"sh {script}").run(
        tmp_path, "--sizes=8B --iterations=8 --quiet --output=result.jsonl --case=PingPong", ranks=3
    )
    assert job.returncode == 0, job.stdout + job.stderr
    header = read_run(tmp_path / "result.jsonl").header
    assert header["case"] == "PingPong"
    assert header["environment"]["NCCL_ALGO"] == "Ring"
    assert header["environment_differences"] == [
        {"rank": 2, "name": "NCCL_ALGO", "value": '"Tree"'},
        {"rank": 2, "name": "NCCL_PROTO", "value": None},
    ]
    assert header["library_differences"] == []


# Rank 1 stops at the first thing that ranks gather in the set-up.
STOPS = ROOT / "tests/data/programs/stops_in_set_up.cpp"


def test_a_rank_that_is_stopped_in_the_set_up_is_named(openmpi: Bench, tmp_path: Path) -> None:
    compiler = [f"{openmpi.installation.mpicxx}", "-shared", "-fPIC", f"{STOPS}", "-o", "libstop.so"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    job = replace(openmpi, wrapper=f"env LD_PRELOAD={tmp_path / 'libstop.so'}").run(
        tmp_path, "--sizes=8B --iterations=8 --quiet --timeout=5 --output=result.jsonl", ranks=2
    )
    assert job.returncode == 4, job.stdout + job.stderr
    error = json.loads((tmp_path / "result.jsonl").read_text().splitlines()[-1])
    assert (error["kind"], error["missing_ranks"]) == ("timeout", [1])
    assert "while allocating the buffers" in error["message"]


COPIES = """
#include <string.h>
#include <unistd.h>
void* memcpy(void* to, const void* from, size_t size) {
  if (size >= 64 << 20) usleep(100000);
  return memmove(to, from, size);
}
"""


def test_the_copy_in_host_memory_is_timed_by_the_time_that_it_had_a_core(openmpi: Bench, tmp_path: Path) -> None:
    """On a busy machine it had it for a tenth of the time, and what was healthy was above the highest plausible."""
    (tmp_path / "copies.c").write_text(COPIES)
    subprocess.run(["mpicc.openmpi", "-shared", "-fPIC", "-o", "libcopies.so", "copies.c"], cwd=tmp_path, check=True)
    replace(openmpi, wrapper=f"env LD_PRELOAD={tmp_path / 'libcopies.so'}").run(
        tmp_path, "--sizes=8B --iterations=8 --quiet --output=result.jsonl", ranks=2
    )
    assert read_run(tmp_path / "result.jsonl").header["host_copy_gbps"] > 8e-9 * (64 << 20) / 0.1


@pytest.mark.parametrize("killed", [2, 1])
def test_a_rank_that_is_killed_is_the_one_that_is_named(openmpi: Bench, killed: int, tmp_path: Path) -> None:
    job = openmpi.run(
        tmp_path, f"--sizes=8,16 --iterations=8 --quiet --inject=kill:{killed} --output=result.jsonl", ranks=3
    )
    assert job.returncode != 0
    error = json.loads((tmp_path / "result.jsonl").read_text().splitlines()[-1])
    assert (error["record"], error["kind"], error["missing_ranks"]) == ("error", "crash", [killed])
    assert f"fabricbench: rank {killed} was killed" in job.stderr


def test_a_size_that_mpi_cannot_count_is_refused_before_it_is_allocated(openmpi: Bench, tmp_path: Path) -> None:
    job = openmpi.brief.run(tmp_path, "--sizes=64GiB --timeout=3 --output=result.jsonl", ranks=2)
    assert job.returncode == 2, job.stdout + job.stderr
    assert "choose smaller sizes" in job.stderr


def test_memory_that_is_missing_on_another_rank_is_called_so(openmpi: Bench, tmp_path: Path) -> None:
    script = tmp_path / "rank.sh"
    script.write_text('if [ $OMPI_COMM_WORLD_RANK = 1 ]; then ulimit -v 3000000; fi\nexec "$@"\n')
    job = replace(openmpi, wrapper=f"bash {script}").run(
        tmp_path, "--sizes=1600MiB --iterations=8 --quiet --output=result.jsonl", ranks=2
    )
    assert job.returncode != 0
    error = json.loads((tmp_path / "result.jsonl").read_text().splitlines()[-1])
    assert (error["record"], error["kind"]) == ("error", "memory")


def test_a_train_is_named_in_its_metrics(bench: Bench, tmp_path: Path) -> None:
    job = bench.run(
        tmp_path,
        "--operations=unidirectional,bidirectional,allreduce --schedules=uncontended --pairs=0-1 --train=16",
        "--sizes=8,64KiB --iterations=8 --quiet --output=result.jsonl",
        ranks=2,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    run = read_run(tmp_path / "result.jsonl")
    assert run.problems == ()
    assert run.header["plan"]["train"] == 16
    names = [each.name for each in metrics_of(run)]
    assert "unidirectional_uncontended_0_1_64kib_train_goodput" in names
    assert all(parse_metric_name(name).train for name in names)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("", 0),
        ("--operations=host_read --inject=wrong-byte", 5),
        ("--operations=host_triad --inject=wrong-byte", 5),
        ("--operations=local_copy", 2),
        ("--operations=host_triad --transport=mpi", 2),
    ],
)
def test_all_cores_of_a_numa_node_use_every_byte(openmpi: Bench, options: str, status: int, tmp_path: Path) -> None:
    job = openmpi.brief.run(
        tmp_path,
        "--transport=cores --operations=host_read,host_stream,host_triad --schedules=uncontended --sizes=8,1000003",
        "--iterations=8 --warmup=2",
        f"--verify=every --quiet --output=result.jsonl {options}",
        ranks=1,
    )
    assert job.returncode == status, job.stdout + job.stderr
    if status == 0:
        right(tmp_path, job)
