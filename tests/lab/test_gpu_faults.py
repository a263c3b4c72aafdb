"""Faults of emulated GPUs as a user plants them: what the stand-ins are told, what status lists, and mistakes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fabricheck.cli import main
from fabricheck.suite import suite_root
from fabricheck.topology.model import load_topology
from fabricheck_lab import cluster as clusters
from fabricheck_lab import emulate_faults, faults, rehearsal
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.description import Choices, write_node
from fabricheck_lab.layout import Layout
from fabricheck_lab.miniature import plan, scaled_topology

NODE = "nid002"


def made(system: str, folder: Path, patch: pytest.MonkeyPatch, *, nodes: int = 2) -> Cluster:
    """A cluster whose files are there and nothing else: neither namespaces nor Slurm."""
    patch.setattr(clusters, "FOLDER", folder)
    patch.setattr(rehearsal, "FOLDER", folder)
    chosen = plan(system, nodes, None, suite_root())
    file = folder / "topology.yaml"
    with file.open("w", encoding="utf-8") as stream:
        YAML().dump(scaled_topology(chosen, suite_root()), stream)
    topology = load_topology(file)
    cluster = Cluster(Layout("mini", topology))
    cluster.folder.mkdir()
    for node in cluster.layout.network.nodes:
        write_node(topology, rehearsal.gpu_folder("mini", node), Choices(scale=1.0, node=node))
    patch.setattr(emulate_faults, "cluster_of", lambda _: cluster)
    patch.setattr(Cluster, "wait_until_idle", lambda *_: None)
    return cluster


@pytest.fixture
def alps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return made("alps", tmp_path, monkeypatch)


def fault(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["emulate", "fault", *words])
    return int(ended.value.code or 0)


def planted(cluster: Cluster, node: str = NODE) -> dict[str, Any]:
    file = rehearsal.gpu_folder(cluster.layout.name, node) / "faults.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


# The others are planted by the rehearsals (tests/faults/test_rehearsal.py), whose checks find them.
PLANTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpu-link nid002 gpu0 cpu0 100 --one-side", {"links": {"gpu0->cpu0": 0.0}}),
    ("gpu-link nid002 0 gpu0 50", {"links": {"gpu0 memory": 0.5}}),
    ("gdr-lost nid002", {"gdr_lost": ["gpu0", "gpu1", "gpu2", "gpu3"]}),
    (
        "other-process nid002 gpu0 --memory 1MiB --to gpu1",
        {
            "processes": [
                {"gpu": "gpu0", "pid": 4242, "name": "python", "memory_bytes": 1 << 20, "flows": [["gpu0", "gpu1"]]}
            ]
        },
    ),
    ("version nid002 ccl 22703", {"versions": {"ccl": 22703}}),
    ("nvml nid002 1 temperature_c 92", {"nvml": {"gpu1": {"temperature_c": 92}}}),
    # GH200 has C2C between GPU and CPU.
    ("pcie nid002 gpu0 3 8", {"pcie": {"gpu0": {"generation": 3, "width": 8}}}),
)


@pytest.mark.parametrize("words, told", PLANTED, ids=[words for words, _ in PLANTED])
def test_the_stand_ins_are_told_and_people_read_it(
    alps: Cluster, words: str, told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fault(*words.split()) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"planted: {NODE}: ")
    assert planted(alps) == told
    assert planted(alps, "nid001") == {}


def test_faults_add_up_and_clear_removes_all(alps: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("gpu-missing nid002 3", "hung-gpu nid002 0", "hung-gpu nid002 1", "gdr-lost nid001"):
        assert fault(*words.split()) == 0
    assert planted(alps) == {"missing_gpus": ["gpu3"], "hung_gpus": ["gpu0", "gpu1"]}
    assert len(alps.journal.faults()) == 4
    faults.clear(alps)
    assert (planted(alps), planted(alps, "nid001"), alps.journal.faults()) == ({}, {}, {})


def test_a_variable_is_told_to_the_ranks_of_its_node(alps: Cluster) -> None:
    """Those of a rank's own NIC come before it."""
    assert fault("variable", NODE, "NCCL_NET=Socket") == 0
    assert fault("variable", NODE, "OMPI_MCA_btl_tcp_if_include=mgmt0") == 0
    file = rehearsal.gpu_folder("mini", NODE) / rehearsal.VARIABLES
    prolog = rehearsal.prolog(alps.layout.topology, "mini", Path("/nowhere")).replace("$(hostname)", NODE)
    environment = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_LOCALID": "0"}
    told = subprocess.run(["sh", "-c", prolog], env=environment, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-3:] == [
        "export OMPI_MCA_btl_tcp_if_include=hsn0",
        "export NCCL_NET=Socket",
        "export OMPI_MCA_btl_tcp_if_include=mgmt0",
    ]
    faults.clear(alps)
    assert not file.exists()


def test_an_nvlink_is_down_at_both_ends_and_takes_its_share(alps: Cluster) -> None:
    # 18 NVLinks of a GPU: six to each other one.
    assert fault("nvlink-down", NODE, "gpu0", "7") == 0
    assert fault("nvlink-down", NODE, "gpu0", "8") == 0
    told = planted(alps)
    assert told["nvlinks"]["gpu0"] == {"7": {"state": "inactive"}, "8": {"state": "inactive"}}
    far = next(each for each in told["nvlinks"] if each != "gpu0")
    assert len(told["nvlinks"][far]) == 2
    assert told["links"] == {f"gpu0->{far}": pytest.approx(4 / 6), f"{far}->gpu0": pytest.approx(4 / 6)}


def test_pcie_slows_the_link_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leonardo = made("leonardo", tmp_path, monkeypatch)
    assert fault("pcie", NODE, "gpu0", "3") == 0
    told = planted(leonardo)
    assert told["pcie"] == {"gpu0": {"generation": 3, "width": 16}}
    assert told["links"] == {"gpu0->cpu0": pytest.approx(0.5), "cpu0->gpu0": pytest.approx(0.5)}


WRONG = (
    ("gpu-missing nid009 0", "no node 'nid009': choose from nid001, nid002"),
    ("gpu-missing nid002 9", "nid002 has no GPU '9': choose from gpu0, gpu1, gpu2, gpu3, or by index"),
    ("gpu-link nid002 gpu0 cpu2 50", "gpu0 of nid002 has no link to cpu2: it is linked to"),
    ("gpu-link nid002 gpu0 gpu1 0", "more than 0 and up to 100 percent can be lost, not 0"),
    ("gpu-order nid002 0 gpu0", "0, gpu0: name each GPU once"),
    ("nvlink-down nid002 gpu0 18", "gpu0 of nid002 has no NVLink 18: they are 0 to 17"),
    ("pcie nid002 gpu0 6", "generation 6 x16: gpu0 of nid002 has generation 5 x16, and can come up at less only"),
    ("gpu-nic nid002 0 hsn4", "nid002 has no NIC 'hsn4': choose from hsn0, hsn1, hsn2, hsn3"),
    ("version nid002 mpi 5", "nid002 has no version of 'mpi': choose from runtime, cuda_driver, driver"),
    ("version nid002 ccl 2.27", "ccl is a whole number, not '2.27'"),
    ("variable nid002 NCCL_NET", "'NCCL_NET' is not a variable: NAME=VALUE"),
)


@pytest.mark.parametrize("words, said", WRONG, ids=[words for words, _ in WRONG])
def test_mistakes_are_one_line_and_plant_nothing(
    alps: Cluster, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fault(*words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert (planted(alps), alps.journal.faults()) == ({}, {})


def test_the_last_gpu_and_a_link_that_is_down(alps: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for gpu in "012":
        assert fault("gpu-missing", NODE, gpu) == 0
    assert fault("gpu-missing", NODE, "3") == 2
    assert "gpu3 is the last GPU of nid002" in capsys.readouterr().err
    assert fault("nvlink-down", NODE, "gpu0", "7") == 0
    assert fault("nvlink-down", NODE, "gpu0", "7") == 2
    assert "NVLink 7 of gpu0 of nid002 is down already" in capsys.readouterr().err
    assert len(planted(alps)["nvlinks"]["gpu0"]) == 1


def test_lumi_has_no_nvlinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made("lumi", tmp_path, monkeypatch)
    assert fault("nvlink-down", NODE, "gcd0", "0") == 2
    assert "gcd0 of nid002 has no NVLinks" in capsys.readouterr().err


def test_a_cluster_without_emulated_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clusters, "FOLDER", tmp_path)
    monkeypatch.setattr(rehearsal, "FOLDER", tmp_path)
    topology = suite_root() / "site_configs" / "emulated" / "topology.yaml"
    cluster = Cluster(Layout("plain", load_topology(topology)))
    monkeypatch.setattr(emulate_faults, "cluster_of", lambda _: cluster)
    assert fault("hung-gpu", "nid001", "0") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "plain has no emulated GPUs: bring up a system in miniature" in line
