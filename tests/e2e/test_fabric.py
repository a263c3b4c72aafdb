"""NICs by libfabric alone: every byte arrives, by writes, reads and messages, here and between emulated nodes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run, read_unsupported
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from tests.support.bench import Bench, built

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.timeout(600)]

RESULT = "result.jsonl"
SHORT = f"--transport=fabric --schedules=uncontended --iterations=8 --warmup=2 --verify=every --quiet --output={RESULT}"


@pytest.fixture(scope="module")
def bench() -> Bench:
    """For what does not depend on the MPI library. Sockets are on every machine."""
    if not Path("/usr/include/rdma/fi_endpoint.h").exists():
        pytest.skip("needs libfabric's headers (Debian: libfabric-dev)")
    return replace(built("openmpi"), environment={"FI_PROVIDER": "tcp"})


def right(folder: Path) -> Run:
    """The run in a folder, of which every byte was checked."""
    run = read_run(folder / RESULT)
    assert run.problems == ()
    assert {samples.wrong_bytes for samples in run.samples} == {0}
    return run


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_every_byte_arrives(bench: Bench, access: str, tmp_path: Path) -> None:
    operations = "pingpong,unidirectional,bidirectional,alltoall,allgather,broadcast"
    job = bench.run(tmp_path, SHORT, f"--operations={operations} --sizes=12,1000002 --access={access}", ranks=3)
    assert job.returncode == 0, job.stdout + job.stderr
    run = right(tmp_path)
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
    assert job.returncode == 0, job.stdout + job.stderr
    assert {samples.operation for samples in right(tmp_path).samples} == {*operations.split(",")}


@pytest.mark.parametrize("access", ["write", "read", "send"])
def test_many_messages_are_under_way_at_once(bench: Bench, access: str, tmp_path: Path) -> None:
    train = f"--operations=unidirectional,bidirectional --train=64 --sizes=8,256KiB --access={access}"
    job = bench.run(tmp_path, SHORT, train, ranks=2)
    assert job.returncode == 0, job.stdout + job.stderr
    assert right(tmp_path).header["plan"]["train"] == 64


def test_stripes_over_all_nics_make_a_message(bench: Bench, tmp_path: Path) -> None:
    job = bench.run(tmp_path, SHORT, "--operations=pingpong --pairs=0-1 --sizes=8,1000003 --nic=all", ranks=2)
    assert job.returncode == 0, job.stdout + job.stderr
    assert len({len(rank["nics"]) for rank in right(tmp_path).header["ranks"]}) == 1


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


@pytest.mark.full
def test_a_program_that_was_built_without_libfabric_measures_all_else(tmp_path: Path) -> None:
    check_only_nics_are_left_out(built("mpich"), tmp_path, "LIBFABRIC_ROOT")


def check_only_nics_are_left_out(bench: Bench, folder: Path, said: str) -> None:
    job = bench.run(folder, SHORT, "--operations=pingpong --sizes=8", ranks=2)
    assert job.returncode == 6, job.stdout + job.stderr
    assert said in (read_unsupported(folder / RESULT) or "")
    assert len([line for line in job.stderr.splitlines() if line.startswith("fabricbench: ")]) == 1
    (folder / RESULT).unlink()
    job = bench.run(folder, SHORT.replace("fabric", "mpi", 1), "--operations=pingpong --sizes=8", ranks=2)
    assert job.returncode == 0, job.stdout + job.stderr
    right(folder)


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    """Healthy ones, and healthy again afterwards."""
    yield cluster
    faults.clear(cluster)


def between_nodes(cluster: Cluster, program: Path, folder: Path, nic: str) -> tuple[Run, float]:
    """A run over a NIC of the first two nodes, with MPI on another network, and the median goodput of 2 MiB in Gb/s."""
    folder.mkdir()
    command = [
        *("srun", "--nodes=2", "--nodelist=nid[001-002]", "--ntasks-per-node=1", "--mpi=pmix", "--time=2"),
        *(f"{program}", *SHORT.replace(RESULT, f"{folder / RESULT}").split(), f"--nic={nic}", "--pairs=0-1"),
        *("--operations=unidirectional", "--sizes=2MiB"),
    ]
    variables = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "mgmt0"}
    job = cluster.run(command, timeout_s=120, environment={**variables, "FI_PROVIDER": "tcp"})
    assert job.returncode == 0, job.stdout + job.stderr
    run = right(folder)
    (samples,) = run.samples
    return run, statistics.median(samples.goodput_gbps)


@pytest.mark.full
def test_a_slow_nic_is_slow_below_mpi(nodes: Cluster, programs: Path, tmp_path: Path) -> None:
    program = programs / "openmpi" / "fabricbench"
    run, healthy = between_nodes(nodes, program, tmp_path / "healthy", "hsn1")
    # 100 Mb/s, of which Ethernet's and TCP's headers take their part.
    assert 0.085 < healthy < 0.1
    assert run.footer is not None
    sent = run.footer["proof"]["interfaces"]["nid001"]
    assert sent["hsn1"] > 10 * (sent["mgmt0"] + sent["hsn0"])
    assert [rank.nics for rank in run.ranks] == [("hsn1",), ("hsn1",)]
    faults.slow(nodes, "nid001:hsn1", 50)
    _, slow = between_nodes(nodes, program, tmp_path / "slow", "hsn1")
    _, other = between_nodes(nodes, program, tmp_path / "other", "hsn0")
    assert 0.4 < slow / healthy < 0.6
    assert other / healthy > 0.9
