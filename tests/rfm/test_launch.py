"""How ranks are bound to the cores next to their GPUs, and on how many nodes they are."""

from __future__ import annotations

import runpy
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reframe.core.exceptions import SanityError

from fabricheck.extras import cores_problems, parse_cores
from fabricheck.fleet.steps import words_of_step
from fabricheck.results.check_judgement import read_judgement
from fabricheck.rfm.job_end import FAILED, RESULT, read_exit_status
from fabricheck.rfm.launch import (
    binding_options,
    devices_of_ranks,
    is_nvlink_domain,
    launch_in_job,
    nodes_for,
    nodes_lost,
    nodes_up,
    not_launched,
)
from fabricheck.topology.model import Topology, find_topology
from fabricheck.topology.schema import FabricEntry
from tests.support.nodes import ROOT
from tests.support.result_files import DATA

TWO_NODES = DATA / "two_nodes_nccl_collectives.jsonl"
CORES = ["8-9", "10,12", "0-1", "2-3"]


def made(ranks: int, *, devices: tuple[int, ...] = (), ranks_per_device: int = 1) -> Any:
    gpus = [SimpleNamespace(device_type="gpu", num_devices=4)]
    partition = SimpleNamespace(devices=gpus)
    more = {"rank_devices": devices, "ranks_per_device": ranks_per_device, "num_tasks_per_node": ranks}
    return SimpleNamespace(current_partition=partition, **more)


@pytest.mark.parametrize(
    ("test", "devices"),
    [
        (made(4), [0, 1, 2, 3]),
        (made(2, devices=(0, 2)), [0, 2]),
        (made(4, ranks_per_device=2), [0, 0, 1, 1]),
        (made(1), [0]),
    ],
)
def test_each_rank_is_bound_for_the_gpu_that_it_drives(test: Any, devices: list[int]) -> None:
    assert devices_of_ranks(test) == devices


def test_launchers_bind_in_their_own_words() -> None:
    assert binding_options("srun", CORES, [0, 1, 2]) == ["--cpu-bind=mask_cpu:0x300,0x1400,0x3"]
    assert binding_options("mpiexec", CORES, [3, 0]) == ["--ppn 2", "--cpu-bind=list:2-3:8-9"]
    assert binding_options("jsrun", CORES, [0]) == []


def test_there_have_to_be_cores_of_each_gpu() -> None:
    assert list(cores_problems({}, 4)) == list(cores_problems({"cores": CORES}, 4)) == []
    assert len(list(cores_problems({"cores": CORES}, 8))) == 1
    for text in ("", "7-0", "a", "1-", "-1", "0-3,", "1-2-3"):
        assert len(list(cores_problems({"cores": [text, "0"]}, 2))) == 1


def of_site(system: str) -> tuple[Topology, list[frozenset[int]]]:
    settings = runpy.run_path(str(ROOT / "site_configs" / system / "settings.py"))["site_configuration"]
    cores = settings["systems"][0]["partitions"][0]["extras"]["cores"]
    return find_topology(system, ROOT / "site_configs"), [parse_cores(each) for each in cores]


@pytest.mark.parametrize(
    ("system", "cores_of_numa_node"), [("lumi", 16), ("frontier", 16), ("dardel", 16), ("alps", 72), ("aurora", 52)]
)
def test_cores_of_sites_are_next_to_the_gpu_by_the_topology_too(system: str, cores_of_numa_node: int) -> None:
    topology, cores = of_site(system)
    numa = [cpu.name for cpu in topology.cpus]
    for card, own in zip(topology.gpus, cores, strict=True):
        linked = {end for link in topology.links if card.name in link.ends for end in link.ends} & set(numa)
        assert {core // cores_of_numa_node for core in own} <= {numa.index(cpu) for cpu in linked} or not linked
    assert sum(map(len, cores)) == len(frozenset().union(*cores))  # no core has two ranks


@pytest.mark.parametrize(
    ("launcher", "family", "name"),
    [
        ("local", "openmpi", "flux"),  # ReFrame has no launcher of Flux
        ("mpirun", "openmpi", "mpirun"),
        ("mpirun", "mpich", "mpiexec"),
        ("mpirun", "intelmpi", "mpiexec"),
        ("mpirun", None, "mpiexec"),
        ("mpiexec", "openmpi", "mpiexec"),  # of PBS
        ("srun", "openmpi", "srun"),
    ],
)
def test_a_fleet_is_told_a_launcher_that_its_steps_know(launcher: str, family: str | None, name: str) -> None:
    job = SimpleNamespace(launcher=SimpleNamespace(options=["--own=1"]))
    partition = SimpleNamespace(launcher_type=SimpleNamespace(registered_name=launcher))
    test: Any = SimpleNamespace(
        job=job,
        current_partition=partition,
        current_environ=SimpleNamespace(extras={"mpi": family} if family else {}),
        job_time="10m",
        patience=8.0,
        fleet_launcher="fabricheck.fleet.sweep",
        num_tasks_per_node=4,
    )
    launch_in_job(test, "/runs/one/fleet")
    words = shlex.split(job.launcher.run_command(job))
    assert words[-7:] == ["/runs/one/fleet", name, "4", "240", "8", "--own=1", "--"]
    step = words_of_step(name, "17", ["nid001", "nid002"], 4)
    assert step[0] == name and {"-n", "-np", "--ntasks=8"} & {*step}


@dataclass(frozen=True)
class Slurm:
    """What ReFrame knows of Slurm's nodes: the state of each."""

    states: dict[str, set[str]]
    registered_name: str = "squeue"

    def allnodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name, states=states) for name, states in self.states.items()]

    def filternodes(self, job: object, nodes: list[SimpleNamespace]) -> list[SimpleNamespace]:
        return [each for each in nodes if each.name.startswith("nid")]


@pytest.mark.parametrize(
    ("scheduler", "known", "up"),
    [
        (Slurm({f"nid{n}": {"IDLE"} for n in range(4)}), 4, (4, {})),
        (
            Slurm({f"nid{n}": {"IDLE", "DRAIN"} if n == 2 else {"ALLOCATED"} for n in range(4)}),
            4,
            (3, {"nid2": "DRAIN+IDLE"}),
        ),
        # So many are left.
        (Slurm({f"nid{n}": {"DOWN"} if n == 2 else {"IDLE"} for n in range(4)}), 3, (3, {})),
        # No pair is left: the job says what it waits for.
        (Slurm({f"nid{n}": {"DOWN"} for n in range(4)}), 4, (4, {})),
        (Slurm({"nid0": {"IDLE"}, "nid1": {"DOWN"}}), 2, (2, {})),
        (Slurm({"nid0": {"IDLE"}, "nid1": {"DOWN"}, "nid2": {"IDLE"}}, "pbs"), 3, (3, {})),
    ],
)
def test_nodes_that_take_no_job_are_left_out_by_name(
    scheduler: Slurm, known: int, up: tuple[int, dict[str, str]]
) -> None:
    test: Any = SimpleNamespace(job=SimpleNamespace(scheduler=scheduler))
    assert nodes_up(test, known) == up


@pytest.mark.parametrize(("known", "there"), [(4, 8), (8, 8), (0, 8), (9, 9)])
def test_a_partition_of_slurm_that_is_larger_than_described_has_more_to_cover(known: int, there: int) -> None:
    scheduler = Slurm({**{f"nid{n}": {"IDLE"} for n in range(8)}, "login1": {"IDLE"}})
    partition = SimpleNamespace(extras={"nodes": known}, fullname="nowhere:default")
    test: Any = SimpleNamespace(job=SimpleNamespace(scheduler=scheduler), wanted_nodes=0, current_partition=partition)
    assert nodes_for(test)[::3] == (known, there)


@pytest.mark.parametrize(
    ("scheduler", "told", "lost"),
    [
        (Slurm({"nid0": {"IDLE"}, "nid1": {"DOWN", "NOT_RESPONDING"}}), ["nid0.cluster", "nid1.cluster"], ["nid1"]),
        # The job's own list, where nothing was measured; nid2 ran another job.
        (Slurm({"nid0": {"DOWN"}, "nid1": {"IDLE"}, "nid2": {"DOWN"}}), [], ["nid0"]),
        (Slurm({"nid0": {"DRAINING"}, "nid1": {"ALLOCATED"}}), ["nid0", "nid1"], []),
        (Slurm({"nid0": {"DOWN"}, "nid1": {"IDLE"}}, "pbs"), ["nid0", "nid1"], []),
    ],
)
def test_a_node_that_slurm_lost_during_the_job_is_named(scheduler: Slurm, told: list[str], lost: list[str]) -> None:
    test: Any = SimpleNamespace(job=SimpleNamespace(scheduler=scheduler, nodelist=["nid0", "nid1"]))
    assert [str(*finding.components) for finding in nodes_lost(test, told)] == lost


@pytest.mark.parametrize(("reason", "named"), [("JobLaunchFailure", ["nid3"]), ("NonZeroExitCode", [])])
def test_the_first_node_of_a_job_that_slurm_could_not_start_is_named(
    monkeypatch: pytest.MonkeyPatch, reason: str, named: list[str]
) -> None:
    """Where its folder is not there, nobody else can say so."""
    text = f"JobId=6 JobName=test\n   JobState=FAILED Reason={reason} Dependency=(null)\n   BatchHost=nid3\n"
    monkeypatch.setattr("fabricheck.rfm.launch.ask_slurm", lambda command: SimpleNamespace(output=text))
    test: Any = SimpleNamespace(job=SimpleNamespace(scheduler=Slurm({}), jobid="6"))
    assert [(each.code, each.node) for each in not_launched(test)] == [("start-failed", node) for node in named]


def test_the_result_file_knows_a_node_that_slurm_left_out_of_a_job_that_was_ended_for_it(tmp_path: Path) -> None:
    lines = TWO_NODES.read_text().replace("node1", "nid1").splitlines(keepends=True)
    (tmp_path / RESULT).write_text("".join(lines[:-1]))
    job = SimpleNamespace(scheduler=Slurm({"nid1": {"DOWN"}}), nodelist=["None"], jobid="1")
    told = {"errors": lambda: "", "output": lambda: "", "num_nodes": 2}
    partition = SimpleNamespace(fullname="nowhere:default")
    test: Any = SimpleNamespace(job=job, stagedir=str(tmp_path), current_partition=partition, **told)
    with pytest.raises(SanityError):
        read_exit_status(test, "")
    judged = read_judgement(tmp_path)
    assert judged is not None
    assert [str(*finding.components) for finding in judged.findings if finding.code == "node-lost"] == ["nid1"]


def test_a_job_that_is_cancelled_after_fabricbench_wrote_why_it_ends_is_judged_by_that(tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text('{"record": "error", "kind": "timeout"}')
    test: Any = SimpleNamespace(stagedir=str(tmp_path))
    assert read_exit_status(test, "") == FAILED


@pytest.mark.parametrize(
    ("nodes", "domain", "joined"), [(18, 18, True), (36, 18, False), (2, 1, False), (0, 18, False)]
)
def test_pairs_of_an_nvlink_domain_are_for_partitions_that_are_one(
    monkeypatch: pytest.MonkeyPatch, nodes: int, domain: int, joined: bool
) -> None:
    fabric = FabricEntry(nodes=nodes, source="made") if nodes else None
    rack = replace(find_topology("hgx-h200", ROOT / "site_configs"), fabric=fabric, nvlink_domain_nodes=domain)
    monkeypatch.setattr("fabricheck.rfm.launch.topology_of", {"rack:gpu": rack}.get)
    assert is_nvlink_domain("rack:gpu") is joined
    assert not is_nvlink_domain("unknown:gpu")
