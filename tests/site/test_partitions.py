"""A system whose partitions have different nodes: each run is judged by those that it was on."""

from __future__ import annotations

import os
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabricheck.cli import cli
from fabricheck.commands.topology import validate
from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.results.fabricbench import read_run
from fabricheck.store.metric_rows import JudgedCase, metrics_table
from fabricheck.topology.model import find_topology
from tests.support.nodes import ROOT
from tests.support.result_files import CUDA
from tests.support.sessions import FIRST_NIGHT, case

SLOW = "hgx-h200:slow"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite in which a partition of hgx-h200 has NVLinks of half the rate."""
    for folder in ("site_configs/hgx-h200", "config", "reference_values", "checks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    site = tmp_path / "site_configs" / "hgx-h200"
    text = (site / "topology.yaml").read_text()
    (site / "topology-slow.yaml").write_text(text.replace("rate: 25 GB/s", "rate: 12.5 GB/s"))
    return tmp_path


def test_a_partition_has_its_own_nodes_or_those_of_the_system(suite: Path) -> None:
    site = suite / "site_configs"
    whole = find_topology("hgx-h200", site)
    assert find_topology(SLOW, site).links[0].total_gbps == whole.links[0].total_gbps / 2
    assert find_topology("hgx-h200:gpu", site).links == whole.links
    assert len(find_topology("hgx-h200:gpu8", site).gpus) == 8


def test_a_run_is_judged_by_the_nodes_of_its_partition(suite: Path) -> None:
    judge, run = SystemJudge.of("hgx-h200", suite), read_run(CUDA)
    usual = judge.judge(run, "PingPong", {"$partition": "hgx-h200:gpu", "$environ": "openmpi"})
    slow = judge.judge(run, "PingPong", {"$partition": SLOW, "$environ": "openmpi"})
    rates = [
        next(each.expectation.expected for each in one.judgements if each.name.endswith("1gib_goodput"))
        for one in (usual, slow)
    ]
    assert rates[0] is not None
    assert rates == [rates[0], rates[0] / 2]
    assert slow.topology is judge.topology_of(SLOW)
    assert judge.judge(run).topology is judge.topology
    # Where nobody says the partition, the one that was asked for counts.
    asked = SystemJudge.of(SLOW, suite).judge(run)
    assert [each.expectation for each in asked.judgements] == [each.expectation for each in slow.judgements]


def test_what_is_stored_of_a_run_is_by_its_partition(suite: Path) -> None:
    judge, run = SystemJudge.of("hgx-h200", suite), read_run(CUDA)
    eight = judge.judge(run, None, {"$partition": "hgx-h200:gpu8"})
    unknown = replace(eight, topology=None)
    found = [
        metrics_table([JudgedCase(case("hgx-h200"), one, "{}", "{}")], "s", FIRST_NIGHT) for one in (eight, unknown)
    ]
    components = [one["components"].to_list()[0] for one in found]
    assert "nid001:nvswitch" in components[0]
    assert components[1] == ["nid001"]


def test_validate_looks_at_the_files_of_all_partitions(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRICHECK_SUITE", str(suite))
    site = suite / "site_configs" / "hgx-h200"
    text = (site / "topology-gpu8.yaml").read_text()
    (site / "topology-gpu8.yaml").write_text(text.replace("system: hgx-h200", "system: hgx-h100"))
    (site / "topology-gpu.yaml").write_text(text)
    said = CliRunner().invoke(validate, ["--system", "hgx-h200"], catch_exceptions=False)
    assert said.exit_code == 1
    assert "topology-slow.yaml: there is no partition 'slow'" in said.stdout
    assert "topology-gpu8.yaml: system: is 'hgx-h100'" in said.stdout
    assert "partition gpu: has 4 GPUs, its topology 8" in said.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["expected", "--system"],
        ["judge", str(CUDA), "--system"],
        ["reproduce", "sc24-6", "--from", str(CUDA), "--system"],
    ],
    ids=lambda command: command[0],
)
def test_a_partition_that_is_not_there_is_named(command: list[str]) -> None:
    with pytest.raises(UserError, match=r"^hgx-h200 has no partition 'gup': .*/settings.py has gpu, gpu1, gpu2, gpu8$"):
        CliRunner().invoke(cli, [*command, "hgx-h200:gup"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("visible", "said", "wanted"),
    [
        (4, None, ("gpu", 4)),
        (3, None, ("gpu", 4)),  # one is lost, and has to be missed
        (7, None, ("gpu8", 8)),
        (2, "2", ("gpu2", 2)),
    ],
)
def test_a_node_has_the_gpus_that_it_has_to_have_and_not_those_that_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: int, said: str | None, wanted: tuple[str, int]
) -> None:
    settings = run_settings(tmp_path, monkeypatch, visible, said)
    (found,) = [one for one in settings["systems"][0]["partitions"] if one["environs"]]
    (device,) = found["devices"]
    assert (found["name"], device["num_devices"]) == wanted


def test_a_wrong_number_of_gpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="FABRICHECK_GPUS is '0': give the number of GPUs of the node, 1 to 8"):
        run_settings(tmp_path, monkeypatch, 4, "0")


def run_settings(folder: Path, monkeypatch: pytest.MonkeyPatch, visible: int, said: str | None) -> dict[str, Any]:
    """The configuration of hgx-h200; a stub stands for nvidia-smi, which lists the GPUs that the driver sees."""
    stub = folder / "nvidia-smi"
    stub.write_text("#!/bin/sh\n" + "".join(f"echo 'GPU {each}: NVIDIA H200'\n" for each in range(visible)))
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    if said is None:
        monkeypatch.delenv("FABRICHECK_GPUS", raising=False)
    else:
        monkeypatch.setenv("FABRICHECK_GPUS", said)
    found = runpy.run_path(str(ROOT / "site_configs" / "hgx-h200" / "settings.py"))["site_configuration"]
    assert isinstance(found, dict)
    return found
