"""What may have changed between two runs, and what the data of a metric pass."""

from __future__ import annotations

import json
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.records.run import Rank, Run, Samples
from fabricheck.results.fabricbench import read_run
from fabricheck.store.changes import facts_of_this_host, software_of, tuning_of, versions_of_suite
from fabricheck.topology.components import components_of
from fabricheck.topology.model import Topology, find_topology
from tests.support.result_files import CUDA, HOST
from tests.support.sessions import ROOT, case
from tests.support.synthetic import rank, samples


def with_header(run: Run, **changes: Any) -> Run:
    return replace(run, header={**run.header, **changes})


def software(run: Run, **more: Any) -> dict[str, str]:
    found: dict[str, str] = json.loads(
        software_of(run, more.get("case"), more.get("session", {}), more.get("host", {}))
    )
    return found


def test_libraries_and_drivers() -> None:
    found = software(read_run(CUDA), session={"suite": "0123"})
    assert found == {
        "CUDA": "13.0",
        "CUDA driver": "580.159",
        "NCCL": "2.28.3",
        "Open MPI": "4.1.6",
        "fabricbench": "0.1.0",
        "suite": "0123",
    }


def test_modules_of_the_job_script(tmp_path: Path) -> None:
    (tmp_path / "rfm_job.sh").write_text(
        "#!/bin/bash\nmodule load cray-mpich/8.1.28 rocm\n  module load craype\nmodule unload x/1\n#module load no/1\n"
    )
    found = software(read_run(HOST), case=case(folder=tmp_path))
    assert {name: value for name, value in found.items() if name.startswith("module")} == {
        "module cray-mpich": "8.1.28",
        "module rocm": "default",
        "module craype": "default",
    }


def test_facts_of_this_host_count_only_for_runs_on_it() -> None:
    run = read_run(HOST)
    here = replace(run, ranks=tuple(replace(each, host=socket.gethostname()) for each in run.ranks))
    assert "kernel" not in software(run, host=facts_of_this_host())
    assert software(here, host=facts_of_this_host())["kernel"]
    away = replace(run, ranks=(here.ranks[0], run.ranks[1]))
    assert "kernel" not in software(away, host=facts_of_this_host())


def test_a_run_without_a_header() -> None:
    empty = Run("x", {}, (), (), None)
    assert software(empty, session={"suite": "0123"}) == {"suite": "0123"}
    assert tuning_of(empty, None) == "{}"


def test_tuning_without_what_the_launcher_sets() -> None:
    run = read_run(HOST)
    # As mpirun --oversubscribe --bind-to none of Open MPI 4.1, mpirun of 5.0 and of MPICH 4.0 set them.
    of_launcher = {
        "OMPI_MCA_num_procs": "2",
        "OMPI_MCA_initial_wdir": "/a",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "nid001",
    }
    noisy = with_header(run, environment={**of_launcher, "NCCL_ALGO": "Ring"})
    assert json.loads(tuning_of(noisy, case())) == {"NCCL_ALGO": "Ring", "profile": "default"}
    moved = with_header(noisy, environment={"NCCL_ALGO": "Ring", "OMPI_MCA_initial_wdir": "/b"})
    assert tuning_of(moved, case()) == tuning_of(noisy, case())


def test_the_revision_of_a_suite(tmp_path: Path) -> None:
    assert versions_of_suite(tmp_path)["suite"] == "unknown"

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    git("tag", "v1")
    revision = git("rev-parse", "HEAD")
    assert versions_of_suite(tmp_path)["suite"] == revision
    (tmp_path / "file").write_text("2")
    assert versions_of_suite(tmp_path)["suite"] == f"{revision}-dirty"


def names(run: Run, of: Samples, topology: Topology | None) -> tuple[str, ...]:
    return tuple(each.key for each in components_of(run, of, topology))


def components(system: str, ranks: list[Rank], of: Samples, **header: Any) -> tuple[str, ...]:
    run = Run("x", {"transport": "ccl", **header}, tuple(ranks), (of,), None)
    return names(run, of, find_topology(system, ROOT / "site_configs"))


def test_a_pair_behind_a_switch() -> None:
    ranks = [rank(number, "n1") for number in range(4)]
    assert components("hgx-h200", ranks, samples((0, 3), 8)) == (
        "n1", "n1:gpu0", "n1:gpu0-nvswitch", "n1:gpu3", "n1:gpu3-nvswitch", "n1:nvswitch",
    )  # fmt: skip
    staged = components("hgx-h200", ranks, samples((0, 3), 8), transport="staging")
    assert {"n1:cpu0", "n1:cpu0-gpu0"} <= set(staged)
    assert "n1:nvswitch" not in staged
    everything = components("hgx-h200", ranks, samples((0, 1, 2, 3), 8, operation="allreduce"))
    assert set(components("hgx-h200", ranks, samples((1, 2), 8))) < set(everything)


def test_a_pair_of_two_nodes_has_the_nic_of_each_gpu() -> None:
    ranks = [rank(number, f"n{number // 4}") for number in range(8)]
    found = components("leonardo", ranks, samples((1, 6), 8))
    names = [one.name for one in find_topology("leonardo", ROOT / "site_configs").nics]
    assert {"n0", "n1", "n0:gpu1", "n1:gpu2"} <= set(found)
    used = {each for each in found if each.split(":")[-1] in names}
    assert {each.split(":")[0] for each in used} == {"n0", "n1"}
    assert len(used) == 2


@pytest.mark.parametrize(
    ("sent", "nics"),
    [
        ({"hsn0": 65_000_000, "hsn1": 0, "mgmt0": 2000}, ["hsn0"]),
        ({"hsn0": 33_000_000, "hsn1": 32_000_000}, ["hsn0", "hsn1"]),
        ({"eth0": 65_000_000}, ["hsn0", "hsn1"]),
        ({}, ["hsn0", "hsn1"]),
    ],
)
def test_nodes_without_gpus_have_the_nics_that_sent(sent: dict[str, int], nics: list[str]) -> None:
    ranks = [replace(rank(number, f"n{number}"), device=None) for number in range(2)]
    footer = {"proof": {"interfaces": {host: sent for host in ("n0", "n1")}}}
    run = Run("x", {"transport": "mpi"}, tuple(ranks), (samples((0, 1), 8),), footer)
    found = names(run, run.samples[0], find_topology("emulated", ROOT / "site_configs"))
    assert found == tuple(sorted(["n0", "n1", *(f"{host}:{nic}" for host in ("n0", "n1") for nic in nics)]))


def test_host_memory_is_reached_over_the_link_to_the_cpu() -> None:
    ranks = [rank(number, "n1") for number in range(4)]
    to_gpu3 = ("n1", "n1:cpu0", "n1:cpu0-gpu3", "n1:gpu3")
    assert components("hgx-h200", ranks, samples((0, 3), 8), plan={"buffers": "host-device"}) == to_gpu3
    assert components("hgx-h200", ranks, samples((3, 0), 8), plan={"buffers": "device-host"}) == to_gpu3
    assert components("hgx-h200", ranks, samples((3, 0), 8), plan={"buffers": "host-host"}) == ("n1",)
    assert components("hgx-h200", ranks, samples((3,), 8, operation="host_to_device")) == to_gpu3
    assert components("hgx-h200", ranks, samples((3,), 8, operation="local_copy")) == ("n1", "n1:gpu3")


def test_the_host_port_and_no_topology() -> None:
    run = read_run(HOST)
    assert names(run, run.samples[0], None) == ("nid001",)
    assert names(run, run.samples[0], find_topology("local", ROOT / "site_configs")) == ("nid001",)


@pytest.mark.parametrize("system", sorted(file.parent.name for file in ROOT.glob("site_configs/*/topology.yaml")))
def test_every_system_has_components(system: str) -> None:
    topology = find_topology(system, ROOT / "site_configs")
    gpus = len(topology.gpus)
    ranks = [replace(rank(each), device=None) for each in range(2)]
    if gpus:
        ranks = [rank(each) for each in range(gpus)]
        ranks = [
            replace(each, device=replace(each.device, index=topology.gpus[each.rank].index, uuid=f"GPU-{each.rank}"))
            for each in ranks
            if each.device is not None
        ]
    for of in (samples((0, len(ranks) - 1), 8), samples(range(len(ranks)), 8, operation="alltoall")):
        found = components(system, ranks, of)
        assert found[0] == "nid001"
        assert all(each.startswith("nid001:") for each in found[1:])
        assert len(found) == len(set(found)) and list(found) == sorted(found)
