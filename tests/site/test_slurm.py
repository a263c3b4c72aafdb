"""Slurm's outputs as its commands print them (22.05 and 23.11), and the settings and networks that follow."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.commands.site import _ready, init
from fabricheck.errors import UserError
from fabricheck.session.reframe import Listing
from fabricheck.site.facts import read_facts
from fabricheck.site.found import FoundNic, NodeFacts
from fabricheck.site.nics import network_of_ibnetdiscover, network_of_lldp, network_of_slurm
from fabricheck.site.plan import Choices, plan
from fabricheck.site.slurm import Slurm, read_slurm
from fabricheck.site.write import topology_text
from fabricheck.topology.model import load_topology
from fabricheck.topology.network import fold
from tests.support.nodes import ROOT

CAPTURED = {
    "sinfo": (
        "gpu|4|gpu:h200:4(S:0-1)|nid[001-004]|64|idle\n"
        "gpu|1|gpu:h200:4(S:0-1)|nid005|64|down*\n"
        "big|2|gpu:h200:8|nid[101-102]|128|idle\n"
        "cpu|9|(null)|cn[1-9]|64|alloc\n"
    ),
    "config": (
        "AccountingStorageType   = accounting_storage/slurmdbd\nClusterName = alpha\nTopologyPlugin = topology/tree\n"
    ),
    "mpi": (
        "MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n\tpmix\n"
        "specific pmix plugin versions available: pmix_v4\n"
    ),
    "topology": "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=nid[001-005]\n",
}
IB0 = FoundNic("mlx5_0", "InfiniBand 4X HDR", 200.0, 0, "/sys/class/infiniband")


def slurm_of(**changed: str) -> Slurm:
    found = read_slurm({**CAPTURED, **changed})
    assert found is not None
    return found


def facts_with(slurm: Slurm) -> NodeFacts:
    return replace(read_facts(ROOT / "tests/data/site/h200x4"), slurm=slurm)


def test_partitions_with_their_nodes_and_gpus() -> None:
    slurm = slurm_of()
    assert [(one.name, len(one.nodes), one.gpus, one.gres) for one in slurm.partitions] == [
        ("gpu", 5, 4, "h200"),
        ("big", 2, 8, "h200"),
        ("cpu", 9, 0, ""),
    ]
    assert (slurm.accounting, slurm.cluster) == (True, "alpha")
    assert slurm.interface_of("openmpi") == "pmix" and slurm.interface_of("mpich") == "pmi2"
    assert read_slurm({}) is None


def test_the_partition_of_these_nodes_is_chosen_and_the_others_are_said() -> None:
    planned = plan(facts_with(slurm_of()), "alpha", "", Choices(access=("--account=x",)))
    (partition,) = planned.partitions
    assert (partition["name"], partition["scheduler"], partition["launcher"]) == ("gpu", "slurm", "srun")
    assert partition["access"] == ["--partition=gpu", "--exclusive", "--account=x"]
    assert partition["resources"][0]["options"] == ["--gres=gpu:h200:{num_gpus_per_node}"]
    assert partition["extras"]["nodes"] == 5
    assert planned.environments[0]["extras"]["launcher_options"] == ["--mpi=pmix"]
    assert any("partition big: its nodes have 8 GPUs and this capture 4" in each for each in planned.left_out)


def test_a_partition_that_slurm_does_not_have() -> None:
    with pytest.raises(UserError, match="--partition gup: Slurm has no such partition, but gpu, big, cpu"):
        plan(facts_with(slurm_of()), "alpha", "", Choices(partitions=("gup",)))


@pytest.mark.parametrize(
    ("widths", "wanted"),
    [
        ((1,), "--system alpha --tag smoke"),
        ((40,), "--system alpha --tag smoke --nodes 2"),
        ((1, 40), "--system alpha:p40 --tag smoke --nodes 2"),
    ],
)
def test_the_first_run_on_a_cluster_asks_for_two_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], widths: tuple[int, ...], wanted: str
) -> None:
    monkeypatch.setattr("fabricheck.site.validation.problems", lambda *_: iter(()))
    monkeypatch.setattr("fabricheck.session.reframe.list_suite", lambda *_: Listing(("A @alpha:gpu+openmpi",), ""))
    partitions = tuple({"name": f"p{width}", "extras": {"nodes": width}} for width in widths)
    assert _ready("alpha", partitions, own=False)
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"run {wanted}")


def test_nodes_that_slurm_gives_out_whole_without_knowing_their_gpus() -> None:
    planned = plan(facts_with(slurm_of(sinfo="all|2|(null)|vm,vn|64|idle\n")), "alpha", "", Choices())
    (partition,) = planned.partitions
    assert partition["name"] == "all" and "resources" not in partition
    assert partition["devices"][0]["num_devices"] == 4
    assert any("no port with a rate is in /sys" in each for each in planned.left_out)


def test_without_accounting_jobs_are_watched_by_squeue() -> None:
    config = CAPTURED["config"].replace("slurmdbd", "none")
    (partition,) = plan(facts_with(slurm_of(config=config)), "alpha", "", Choices()).partitions
    assert partition["scheduler"] == "squeue"


def test_a_library_that_srun_cannot_start_is_left_out() -> None:
    """Each of its ranks would be alone, and all would seem well."""
    planned = plan(facts_with(slurm_of(mpi="MPI plugin types are...\n\tnone\n\tpmi2\n")), "alpha", "", Choices())
    assert planned.environments == ()
    assert any("Open MPI 4.1.6: srun has no interface to start its ranks" in each for each in planned.left_out)


def test_one_switch_is_a_network(tmp_path: Path) -> None:
    nodes = slurm_of().partitions[0].nodes
    network = network_of_slurm(slurm_of(), nodes, [IB0])
    assert loaded(tmp_path, network) == ["nid[001-005]", 5]


def test_a_tree_without_rates_says_how_large_it_is() -> None:
    tree = (
        "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=nid[001-002]\n"
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=nid[003-004]\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=nid[001-004] Switches=leaf[0-1]\n"
    )
    nodes = [f"nid00{number}" for number in range(1, 5)]
    assert network_of_slurm(slurm_of(topology=tree), nodes, [IB0])["fabric"] == {
        "nodes": 4,
        "source": "scontrol show topology (topology/tree)",
    }
    assert network_of_slurm(slurm_of(topology=""), nodes, [IB0]) == {"fabric": {"nodes": 4, "source": "sinfo"}}


def loaded(tmp_path: Path, network: dict[str, object]) -> list[object]:
    """The network of a topology.yaml that was written with it."""
    facts = replace(read_facts(ROOT / "tests/data/site/h200x4"), nics=(IB0,))
    file = tmp_path / "topology.yaml"
    file.write_text(topology_text(facts, "alpha", network), encoding="utf-8")
    found = load_topology(file).network
    assert found is not None
    return [fold(found.nodes), len([link for link in found.links if ":" in link.ends[0]])]


IBNETDISCOVER = (ROOT / "tests/data/site/ibnetdiscover.txt").read_text(encoding="utf-8")


def test_every_cable_of_an_infiniband_fabric(tmp_path: Path) -> None:
    file = tmp_path / "ib.txt"
    file.write_text(IBNETDISCOVER)
    network = network_of_ibnetdiscover(file, ["nid001", "nid002", "nid003"], [IB0])
    assert loaded(tmp_path, network) == ["nid[001-003]", 3]
    found = load_topology(tmp_path / "topology.yaml").network
    assert found is not None
    trunks = {link.ends: (link.count, link.rate_gbps) for link in found.links if ":" not in link.ends[0]}
    assert trunks == {("leaf1", "spine1"): (2, 200.0), ("leaf2", "spine1"): (1, 200.0)}
    (route,) = found.routes("nid001", "nid003")
    assert "spine1" in route.components


def test_lldp_names_the_switch_of_each_port(tmp_path: Path) -> None:
    file = tmp_path / "lldp.txt"
    lines = [f"nid00{node}: lldp.mlx5_0.chassis.name=tor1" for node in (1, 2)]
    file.write_text("\n".join(["nid001: lldp.eno1.chassis.name=management", *lines]))
    assert loaded(tmp_path, network_of_lldp(file, ["nid001", "nid002"], [IB0])) == ["nid[001-002]", 2]
    file.write_text(lines[0] + "\n" + lines[1].replace("tor1", "tor2"))
    assert network_of_lldp(file, ["nid001", "nid002"], [IB0])["fabric"] == {
        "nodes": 2,
        "source": "LLDP, lldp.txt",
    }


@pytest.mark.parametrize("read", [network_of_lldp, network_of_ibnetdiscover])
def test_another_file_is_one_line(tmp_path: Path, read: Callable[..., object]) -> None:
    file = tmp_path / "other.txt"
    file.write_text("command not found\n")
    with pytest.raises(UserError, match=r"other\.txt: has no"):
        read(file, [], [IB0])


def test_lists_of_nodes_that_are_none_are_left_out() -> None:
    line = "gpu|4|gpu:h200:4(S:0-1)|nid[001-99999999999]|64|idle\n"
    tree = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=nid[001-\n"
    slurm = slurm_of(sinfo=CAPTURED["sinfo"] + line, topology=CAPTURED["topology"] + tree)
    assert [len(one.nodes) for one in slurm.partitions] == [5, 2, 9]
    assert [leaf.name for leaf in slurm.switches] == ["leaf0"]


@pytest.mark.parametrize("name", ["../../x", 'gpu";touch x;"', "$(touch x)"])
def test_a_partition_of_any_name_is_asked_by_a_folder_of_a_plain_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder stands in a command that people paste, too."""
    (tmp_path / "listed").write_text(f"{name}|4|gpu:h100:4|n[1-4]|64|idle\n")
    for program, does in {"sinfo": f"cat {tmp_path}/listed", "srun": f'echo "$@" >> {tmp_path}/asked; exit 1'}.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("RFM_PREFIX", str(tmp_path / "output"))
    job = CliRunner().invoke(init, ["--system=x", f"--site={tmp_path / 'site'}"])
    assert isinstance(job.exception, UserError)
    asked = (tmp_path / "asked").read_text().splitlines()[-1]
    folder = Path(asked.rpartition(" capture ")[2])
    assert folder.parent == tmp_path / "output" / "captured"
    assert re.fullmatch(r"[A-Za-z0-9_-]+", folder.name)
