"""Pairs of nodes below MPI, and by libfabric and MPI in one job: which layer is slow. Needs root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fabricheck.results.fabricbench import read_run
from fabricheck.suite import suite_root
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Finished, Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.matrix, pytest.mark.timeout(600)]


class Layers:
    """A site whose Open MPI environment has libfabric over sockets."""

    def __init__(self, cluster: Cluster, programs: Path, root: Path) -> None:
        if not Path("/usr/include/rdma/fi_endpoint.h").exists():
            pytest.skip("needs libfabric's headers (Debian: libfabric-dev)")
        self.site = Site(cluster, root, programs, size="512KiB")
        shutil.copy(suite_root() / "checks" / "nics.py", root / "checks")
        settings = root / "site_configs/emulated/settings.py"
        text = settings.read_text().replace('"features": ["mpi"]', '"features": ["mpi", "libfabric"]')
        settings.write_text(text.replace('"vendor": {}', '"vendor": {"libfabric": "/usr/bin", "ucx": "/usr/bin"}'))
        self.module = root / "site_configs/emulated/modulefiles/fabricheck-openmpi"
        self.set("FI_PROVIDER", "tcp")

    def set(self, variable: str, value: str) -> None:
        with self.module.open("a") as module:
            module.write(f"setenv {variable} {value}\n")

    def run(self) -> Finished:
        options = [
            *(f"--setvar={name}.node_state=no" for name in ("NodePairs", "NicPairs")),
            "--setvar=NicPairs.warmup=1",
            "--setvar=NicPairs.sizes=host:512KiB",
        ]
        names = "^(NodePairs|NicPairs %access=write)"
        return self.site.run("pair", "--tag=layers", "--rounds=2", "--launches=2", "--", *options, name=names)


def test_the_layer_that_is_slow_is_named(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    layers = Layers(cluster, programs, tmp_path)
    healthy = layers.run()
    assert (healthy.status, causes(healthy)) == (0, []), healthy.output
    launches = sorted(path.parent.name for path in healthy.folder.glob("stage/**/launch.sh"))
    assert launches == [f"launch-{number}" for number in (1, 2, 3, 4)]
    faults.slow(cluster, "nid001:hsn0", 50)
    link = layers.run()
    faults.clear(cluster)
    assert causes(link) == ["slow-pair hsn0@nid001"], link.output


def test_a_provider_that_falls_back_is_no_measurement_of_the_fabric(
    cluster: Cluster, programs: Path, tmp_path: Path
) -> None:
    """InfiniBand, whose NICs libfabric uses by sockets, since somebody set FI_PROVIDER."""
    layers = Layers(cluster, programs, tmp_path)
    described = tmp_path / "site_configs/emulated/topology.yaml"
    described.write_text(described.read_text().replace("shaped veth", "InfiniBand"))
    options = ("--launches=1", "--", "--setvar=NicLatency.node_state=no")
    done = layers.site.run("pair", *options, name="^NicLatency")
    assert done.verdict == "INVALID", done.output
    (problem,) = [problem for problem in done.problems if "path-forbidden" in problem]
    assert "FI_PROVIDER=tcp" in problem
    assert "OMPI_MCA" not in problem


def test_stripes_take_all_nics_and_a_slow_one_holds_them_up(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    layers = Layers(cluster, programs, tmp_path)
    options = ("--launches=1", "--", "--setvar=NicStriping.node_state=no", "--setvar=NicStriping.sizes=host:2MiB")
    healthy = layers.site.run("pair", *options, name="^NicStriping")
    assert healthy.verdict not in ("FAIL", "INVALID"), healthy.output  # other work may take some of the speed
    (result,) = healthy.folder.rglob("result.jsonl")
    assert [rank.nics for rank in read_run(result).ranks] == [("hsn0", "hsn1")] * 2
    goodputs = [value for name, value in healthy.metrics.items() if name.endswith("_goodput")]
    assert len(goodputs) == 2
    assert all(0.1 < goodput < 0.2 for goodput in goodputs)  # a NIC has 0.1 Gb/s
    faults.slow(cluster, "nid001:hsn1", 80)
    slow = layers.site.run("pair", *options, name="^NicStriping")
    faults.clear(cluster)
    assert slow.verdict == "FAIL", slow.output
    (cause,) = json.loads((slow.folder / "verdict.json").read_text(encoding="utf-8"))["causes"]
    assert cause["code"] == "slow-pair", slow.output
    ports = {(part["node"], part["name"]) for part in cause["components"] if part["kind"] == "nic"}
    assert ports == {(node, nic) for node in ("nid001", "nid002") for nic in ("hsn0", "hsn1")}


def test_a_nic_that_is_down_is_named_and_costs_no_other_test(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    layers = Layers(cluster, programs, tmp_path)
    faults.unplug(cluster, "nid001:hsn1")
    done = layers.site.run("pair", "--launches=1", name="^(NicStriping|NicLatency)")
    faults.clear(cluster)
    assert done.status != 0, done.output
    down = [problem for problem in done.problems if "nic-down" in problem]
    assert down, done.output
    assert all("nid001:hsn1" in problem for problem in down)
    assert any("latency" in name for name in done.metrics)  # by the other NIC


def test_programs_of_libfabric_and_ucx_run_between_nodes(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    for program, package in (("fi_pingpong", "libfabric-bin"), ("ucx_perftest", "ucx-utils")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (Debian: {package})")
    layers = Layers(cluster, programs, tmp_path)
    shutil.copy(suite_root() / "checks" / "vendor_fabric.py", tmp_path / "checks")
    for variable, value in (("FI_TCP_IFACE", "hsn0"), ("UCX_NET_DEVICES", "hsn0"), ("UCX_TLS", "tcp,self")):
        layers.set(variable, value)
    options = [
        f"--setvar={name}.{setting}"
        for name in ("FiPingpong", "UcxPerftest")
        for setting in ("node_state=no", "iterations=10", "sizes=host:2MiB")
    ]
    done = layers.site.run("pair", "--launches=1", "--", *options, name="^(FiPingpong|UcxPerftest %bench=tag_bw)")
    assert done.verdict not in ("FAIL", "INVALID"), done.output
    goodputs = {name.partition("_")[0]: value for name, value in done.metrics.items() if name.endswith("_goodput")}
    assert goodputs.keys() == {"pingpong", "unidirectional"}
    assert all(0.05 < goodput < 0.1 for goodput in goodputs.values())  # a NIC has 0.1 Gb/s


def causes(done: Finished) -> list[str]:
    """Code and first component of each."""
    written = json.loads((done.folder / "verdict.json").read_text(encoding="utf-8"))["causes"]
    parts = [(cause["code"], cause["components"][0]) for cause in written]
    return [f"{code} {part['name']}@{part.get('node', '')}" for code, part in parts]
