"""`fabricheck init`: from a capture, or this machine, to files with which everything that can run is selected."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fabricheck.cli import main
from fabricheck.commands.judge import judge
from fabricheck.commands.site import capture, init
from fabricheck.errors import UserError
from fabricheck.session.reframe import Selection, list_suite
from fabricheck.site.facts import read_facts
from fabricheck.site.plan import Choices, plan
from fabricheck.site.software import Library, NodeSoftware
from fabricheck.site.validation import problems
from fabricheck.site.write import Site, write_site
from fabricheck.state import capture as capturing
from fabricheck.suite import Suite
from fabricheck.suites.sources import extract
from fabricheck.topology.model import Topology, load_topology
from tests.support.captured import TEXTS, nic
from tests.support.nodes import ROOT, system

CAPTURES = ROOT / "tests" / "data" / "site"


def run_init(*arguments: object) -> Result:
    return CliRunner().invoke(init, [str(each) for each in arguments], catch_exceptions=False)


def settings_of(suite: Path, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    content = runpy.run_path(str(suite / "site_configs" / name / "settings.py"))["site_configuration"]
    (partition,) = content["systems"][0]["partitions"]
    return partition, content["environments"]


def write(suite: Path, name: str, source: Path) -> None:
    """What `init` writes, without what it says."""
    facts = read_facts(source)
    write_site(facts, plan(facts, name, "a node", Choices()), Site(suite, name, {}))


def copy_of(folder: Path, text: str = "NVIDIA H200", **software: object) -> Path:
    """The capture of four H200 with another model, or other software."""
    kept = folder / "kept"
    shutil.copytree(CAPTURES / "h200x4", kept)
    (kept / capturing.NVML).write_text((kept / capturing.NVML).read_text().replace('"NVIDIA H200"', json.dumps(text)))
    known = json.loads((kept / capturing.SOFTWARE).read_text())
    (kept / capturing.SOFTWARE).write_text(json.dumps({**known, **software}))
    return kept


def table_alone(folder: Path) -> Path:
    kept = folder / "kept"
    kept.mkdir()
    shutil.copy(CAPTURES / "h200x4" / capturing.NVIDIA_TOPO, kept)
    return kept


def selected(suite: Path, name: str) -> set[str]:
    cases = list_suite(Suite(suite), Selection(name), suite / "output").cases
    return {" ".join(sorted(case.partition(" @")[0].split())) for case in cases}


def test_a_node_needs_no_edit_and_every_check_that_can_run_is_selected(suite: Path) -> None:
    write(suite, "new", CAPTURES / "h200x4")
    assert [*problems(suite, "new")] == []
    cases = selected(suite, "new")
    for transport in ("staging", "copy", "ccl", "mpi"):
        assert f"%transport={transport} PingPong" in cases
    assert {"%access=read %transport=kernel PeerCopies", "%transport=kernel LocalCopies", "SmokePeers"} <= cases


def test_the_h200_node_is_the_one_in_site_configs(suite: Path) -> None:
    write(suite, "found", CAPTURES / "h200x4")
    found, known = load_topology(suite / "site_configs/found/topology.yaml"), system("hgx-h200")

    def links(topology: Topology) -> set[tuple[str, str, str, float]]:
        hosts = {cpu.name: "host" for cpu in topology.cpus}
        return {
            (link.ends[0], hosts.get(link.ends[1], link.ends[1]), link.technology, link.total_gbps)
            for link in topology.links
        }

    assert links(found) == links(known)
    assert found.switches[0].in_network_reduction == known.switches[0].in_network_reduction
    assert found.gpu_memory_gbps == pytest.approx(known.gpu_memory_gbps, rel=0.03)
    partition, (environment,) = settings_of(suite, "found")
    assert partition["devices"] == [{"type": "gpu", "arch": "sm_90", "model": "H200", "num_devices": 4}]
    assert environment["features"] == ["mpi", "cuda", "nccl"]
    assert ["PATH", "/usr/local/cuda/bin:$PATH"] in environment["env_vars"]


@pytest.mark.full
def test_without_a_ccl_copies_and_kernels_are_still_measured(suite: Path, tmp_path: Path) -> None:
    write(suite, "new", copy_of(tmp_path, ccl=None))
    cases = selected(suite, "new")
    assert "%transport=copy PingPong" in cases
    assert "%transport=ccl PingPong" not in cases


@pytest.mark.parametrize("root", ["/opt/cray", "/usr", ""])
def test_nics_are_measured_below_mpi_where_libfabric_takes_gpus(suite: Path, tmp_path: Path, root: str) -> None:
    kept = copy_of(tmp_path, libfabric=root)
    (kept / capturing.NICS).write_text(json.dumps([nic("mlx5_0")]))
    write(suite, "new", kept)
    _, (environment,) = settings_of(suite, "new")
    assert ("libfabric" in environment["features"]) is bool(root)
    assert environment["extras"].get("cmake_options") == (["-DLIBFABRIC_ROOT=/opt/cray"] if "cray" in root else None)
    if root != "/usr":  # which selects as any other
        assert any("NicLoopback" in case for case in selected(suite, "new")) is bool(root)


@pytest.mark.parametrize(
    "said", ['"""+__import__("os").mkdir("PLANTED")+"""', '\\n"""\\n__import__("os").mkdir("PLANTED")\\n"""', "\\", '"']
)
def test_what_a_node_says_of_itself_is_no_code(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """A capture may come from anybody, and settings are run."""
    kept = copy_of(tmp_path, f"NVIDIA H200{said}".replace("\\n", "\n"))
    monkeypatch.chdir(tmp_path)
    write(suite, "new", kept)
    assert settings_of(suite, "new") and load_topology(suite / "site_configs" / "new" / "topology.yaml")
    assert not (tmp_path / "PLANTED").exists()


def software_here(monkeypatch: pytest.MonkeyPatch, *libraries: Library) -> None:
    monkeypatch.setattr("fabricheck.site.software.find_software", lambda vendor: NodeSoftware(libraries))


def test_what_is_not_told_has_to_be_filled_in_and_the_exit_status_says_so(suite: Path, tmp_path: Path) -> None:
    done = run_init("--system", "new", "--from", table_alone(tmp_path))
    assert done.exit_code == 1
    assert "to be filled in:" in done.output and "FILL IN Gb/s" in done.output
    assert "validate --system new" in done.output.splitlines()[-1]


@pytest.mark.parametrize("copied", [False, True], ids=["redirected", "copied from a terminal"])
def test_texts_of_tools_are_taken_and_what_they_do_not_say_is_selected(
    suite: Path, tmp_path: Path, copied: bool
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    topo = (CAPTURES / "h200x4" / capturing.NVIDIA_TOPO).read_text()
    for name, text in {**TEXTS, "topo": topo}.items():
        (kept / f"{name}.out").write_text(text.expandtabs() if copied else text)
    done = run_init("--system", "new", "--from", kept)
    assert done.exit_code == 0
    partition, (environment,) = settings_of(suite, "new")
    assert (partition["name"], partition["extras"]["nodes"], partition["scheduler"]) == ("gpu", 4, "squeue")
    # The software of a node that nobody looked at is not absent, and not that of this machine.
    assert {"mpi", "cuda", "nccl"} <= {*environment["features"]} and "not_gpu_aware" not in environment["extras"]
    assert environment["extras"]["gpu_arch"] == "90" and "launcher_options" not in environment["extras"]
    topology = (suite / "site_configs/new/topology.yaml").read_text()
    assert topology.count("[gpu0, nvswitch], [gpu1, nvswitch], [gpu2, nvswitch], [gpu3, nvswitch]") == 1
    assert "name: mlx5_0, model: InfiniBand 400 Gb/sec" in topology and "mlx5_1" not in topology


def test_a_site_outside_of_the_suite(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRICHECK_SITES", "")
    software_here(monkeypatch)
    mine = tmp_path / "mine"
    done = run_init("--system", "new", "--from", table_alone(tmp_path), "--site", mine)
    assert (mine / "site_configs/new/topology.yaml").is_file() and (mine / "reference_values/new.yaml").is_file()
    assert done.output.splitlines()[-1].endswith(f"fabricheck --site {mine} validate --system new")
    assert not (suite / "site_configs/new").exists()


@pytest.mark.full
def test_this_machine(suite: Path) -> None:
    """Whatever this machine is, its files say what the kernel says."""
    kept = CliRunner().invoke(capture, [str(suite / "kept")], catch_exceptions=False)
    assert kept.exit_code == 0
    assert (suite / "kept" / capturing.NUMA).exists()
    assert run_init("--system", "here", "--from", suite / "kept").exit_code == 0
    topology = load_topology(suite / "site_configs/here/topology.yaml")
    partition, _ = settings_of(suite, "here")
    # The kernel's word, read by other means than capture's.
    domains = [each for each in Path("/sys/devices/system/node").glob("node*/cpulist") if each.read_text().strip()]
    assert len(topology.cpus) == len(domains or [0])
    places = [
        ((each / "physical_package_id").read_text(), (each / "core_id").read_text())
        for each in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    ]
    assert partition["processor"]["num_cpus"] == len(set(places))
    nvidia = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    if nvidia or not topology.gpus:
        assert len(topology.gpus) == nvidia


def test_nothing_is_overwritten(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(suite, "new", CAPTURES / "h200x4")
    with pytest.raises(SystemExit, match="2"):
        main(["init", "--system", "new", "--from", str(CAPTURES / "h200x4")])
    assert "topology.yaml: exists already" in capsys.readouterr().err


def test_settings_of_the_site_stay_as_they_are(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(suite, "written", CAPTURES / "h200x4")
    folder = suite / "site_configs"
    (folder / "new").mkdir()
    mine = (folder / "written" / "settings.py").read_text().replace("written", "new") + "# mine\n"
    (folder / "new" / "settings.py").write_text(mine)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["init", "--system", "new", "--from", str(CAPTURES / "h200x4")])
    assert (folder / "new" / "settings.py").read_text() == mine
    assert load_topology(folder / "new" / "topology.yaml").gpus
    shown = capsys.readouterr()
    assert f"{folder / 'new' / 'settings.py'} (kept" in shown.out and "checks are selected" in shown.out, shown.err
    assert "left out" not in shown.err


def test_gpus_without_an_environment_for_them_end_a_run_before_it_starts(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(suite, "new", CAPTURES / "h200x4")
    settings = suite / "site_configs/new/settings.py"
    settings.write_text(settings.read_text().replace('"mpi",', '"mpi"] or ['))
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--system", "new"])
    assert "has GPUs, but none of its environments can use them (openmpi)" in capsys.readouterr().err
    assert not (suite / "output" / "runs").exists()


@pytest.mark.full
def test_mpi_that_is_not_gpu_aware_never_sees_device_memory(suite: Path, tmp_path: Path) -> None:
    """Its checks do not start, and say which library it is and what to do; the others start all the same."""
    write(suite, "new", CAPTURES / "h200x4")
    program = tmp_path / "built" / "openmpi" / "fabricbench"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")  # no result: what starts is INCOMPLETE here
    program.chmod(0o755)
    selection = ("--name", "SmokeLibraries", "--no-store", "--built", str(tmp_path / "built"))
    done = subprocess.run(
        [sys.executable, "-m", "fabricheck", "run", "--system", "new", *selection],
        env={**os.environ, "COLUMNS": "500"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("note")]
    assert len(said) == 1, done.stdout
    assert "does not apply: Open MPI 4.1.6" in said[0] and "SmokeLibraries %transport=mpi @new:default" in said[0]
    assert "is not GPU-aware: use an Open MPI configured" in said[0]
    assert "SmokeLibraries %transport=ccl" in done.stdout


#: Of the acceptance of four H200 (docs/results/h200x4-2026-11-21): each transport, and what had no model on a new site.
RECORDED = (
    "LocalCopies-copy",
    "SharedGpu-copy",
    "HostCopies-pinned",
    "PingPong-copy",
    "PeerCopies-kernel-read",
    "Collectives-ccl",
)


def test_what_was_recorded_there_is_judged_and_green_on_the_first_day(suite: Path, tmp_path: Path) -> None:
    write(suite, "new", CAPTURES / "h200x4")
    extract(ROOT / "docs/results/h200x4-2026-11-21/raw.tar.xz", tmp_path / "recorded")
    files = [str(tmp_path / "recorded/raw/acceptance" / f"{each}.jsonl") for each in RECORDED]
    done = CliRunner().invoke(judge, [*files, "--system", "new"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "unjudged" not in done.output


def test_two_outputs_of_one_tool_are_a_mistake(tmp_path: Path) -> None:
    for name in ("node1", "node2"):
        (tmp_path / name).write_text(TEXTS["cpu"])
    with pytest.raises(UserError, match="node1 and node2 both have the output of `lscpu`"):
        read_facts(tmp_path)
