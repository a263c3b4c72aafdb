"""NICs by libfabric alone: every byte arrives, by writes, reads and messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_unsupported
from tests.support.bench import Bench, built, right

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

RESULT = "result.jsonl"
SHORT = f"--transport=fabric --schedules=uncontended --iterations=8 --warmup=2 --verify=every --quiet --output={RESULT}"


@pytest.fixture(scope="module")
def bench() -> Bench:
    """For what does not depend on the MPI library. Sockets are on every machine."""
    if not Path("/usr/include/rdma/fi_endpoint.h").exists():
        pytest.skip("needs libfabric's headers (Debian: libfabric-dev)")
    return replace(built("openmpi"), environment={"FI_PROVIDER": "tcp"})


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_every_byte_arrives(bench: Bench, access: str, tmp_path: Path) -> None:
    operations = "pingpong,unidirectional,bidirectional,alltoall,allgather,broadcast"
    job = bench.run(tmp_path, SHORT, f"--operations={operations} --sizes=12,1000002 --access={access}", ranks=3)
    run = right(tmp_path, job)
    assert (run.header["plan"]["access"], run.header["plan"]["nic"]) == (access, "near")
    assert run.header["libraries"]["fabric"]["name"] == "libfabric"
    for rank in run.header["ranks"]:
        (nic,) = rank["nics"]
        assert nic["provider"].startswith("tcp")
        assert "device_memory" not in nic  # there is no device
    assert run.footer is not None
    ((path, times),) = run.footer["proof"]["paths"].items()
    assert path.startswith("OFI provider tcp")
    assert (times, run.footer["proof"]["evidence"]) == (3, "libfabric")


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_a_rank_moves_its_own_memory_out_and_in(bench: Bench, access: str, tmp_path: Path) -> None:
    operations = "local_copy,host_to_device,device_to_host,host_bidirectional,host_stream"
    job = bench.run(tmp_path, SHORT, f"--operations={operations} --sizes=8,1000003 --access={access}", ranks=1)
    assert {samples.operation for samples in right(tmp_path, job).samples} == {*operations.split(",")}


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_many_messages_are_under_way_at_once(bench: Bench, access: str, tmp_path: Path) -> None:
    train = f"--operations=unidirectional,bidirectional --train=64 --sizes=8,256KiB --access={access}"
    job = bench.run(tmp_path, SHORT, train, ranks=2)
    assert right(tmp_path, job).header["plan"]["train"] == 64


def test_stripes_over_all_nics_make_a_message(bench: Bench, tmp_path: Path) -> None:
    job = bench.run(tmp_path, SHORT, "--operations=pingpong --pairs=0-1 --sizes=8,1000003 --nic=all", ranks=2)
    assert len({len(rank["nics"]) for rank in right(tmp_path, job).header["ranks"]}) == 1


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_a_wrong_byte_is_found(bench: Bench, access: str, tmp_path: Path) -> None:
    options = f"--operations=unidirectional --pairs=0-1 --sizes=64KiB --access={access} --inject=wrong-byte"
    assert bench.run(tmp_path, SHORT, options, ranks=2).returncode == 5


@pytest.mark.parametrize(
    ("provider", "options", "says"),
    [
        ("nothing", "", "FI_PROVIDER is nothing"),
        ("tcp", "--nic=mlx5_77", "mlx5_77"),
        ("tcp", "--nic=77", "77"),
    ],
)
def test_what_a_node_does_not_have_is_one_line(
    bench: Bench, provider: str, options: str, says: str, tmp_path: Path
) -> None:
    other = replace(bench, environment={"FI_PROVIDER": provider})
    job = other.run(tmp_path, SHORT, f"--operations=pingpong --sizes=8 {options}", ranks=2)
    assert job.returncode == 6, job.stdout + job.stderr
    assert says in (read_unsupported(tmp_path / RESULT) or "")
    assert len([line for line in job.stderr.splitlines() if line.startswith("fabricbench: ")]) == 1


def test_where_libfabric_cannot_be_loaded_the_other_transports_go_on(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "libfabric.so.1").touch()
    without = replace(bench, environment={"LD_LIBRARY_PATH": f"{tmp_path}:$LD_LIBRARY_PATH"})
    check_only_nics_are_left_out(without, tmp_path, "libfabric.so.1")


def test_a_program_that_was_built_without_libfabric_measures_all_else(tmp_path: Path) -> None:
    check_only_nics_are_left_out(built("mpich"), tmp_path, "LIBFABRIC_ROOT")


def check_only_nics_are_left_out(bench: Bench, folder: Path, said: str) -> None:
    job = bench.run(folder, SHORT, "--operations=pingpong --sizes=8", ranks=2)
    assert job.returncode == 6, job.stdout + job.stderr
    assert said in (read_unsupported(folder / RESULT) or "")
    assert len([line for line in job.stderr.splitlines() if line.startswith("fabricbench: ")]) == 1
    (folder / RESULT).unlink()
    job = bench.run(folder, SHORT.replace("fabric", "mpi", 1), "--operations=pingpong --sizes=8", ranks=2)
    right(folder, job)
