"""Systems in miniature: what becomes of their topology and settings. No cluster is built here."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.extras import effort_problems
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES
from fabricheck.suite import MINIATURE, suite_root
from fabricheck.topology.model import Topology, find_topology, load_topology
from fabricheck.topology.transport_paths import ccl_paths, mpi_paths
from fabricheck.yardsticks.policy import load_policy
from fabricheck_lab.layout import Layout
from fabricheck_lab.miniature import (
    BURST_BYTES,
    LARGEST_S,
    LEAST_NIC_MBPS,
    NODE_MBPS,
    SLOWEST_US,
    SPREADS,
    Miniature,
    nic_mbps,
    plan,
    write_suite,
    write_topology,
)
from fabricheck_lab.settings import of_miniature

ROOT = suite_root()
SYSTEMS = sorted(file.parent.name for file in ROOT.glob("site_configs/*/topology.yaml"))
#: Of which there is something to bring up in miniature: nodes with GPUs.
WITH_GPUS = [name for name in SYSTEMS if find_topology(name, ROOT / "site_configs").gpus]
ENVIRONMENT: dict[str, Any] = {
    "environment": {"env_vars": [["A", "1"]], "extras": {"mpi": "openmpi", "mpicxx": "/mpicxx"}}
}


@dataclass(frozen=True)
class Made:
    real: Topology
    small: Topology
    settings: dict[str, Any]
    chosen: Miniature


@pytest.fixture(scope="module", params=WITH_GPUS)
def miniature(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    name = request.param
    real = find_topology(name, ROOT / "site_configs")
    chosen = plan(name, 3 if real.nics else 1, None, ROOT)
    folder = tmp_path_factory.mktemp(name)
    file = write_topology(chosen, ROOT, folder)
    site = write_suite(chosen, ROOT, folder / "suite", file, ENVIRONMENT)
    return Made(real, load_topology(site / "topology.yaml"), of_miniature(site / "miniature.json"), chosen)


def test_every_rate_of_a_system_is_scaled_by_one_factor(miniature: Made) -> None:
    real, small, scale = miniature.real, miniature.small, miniature.chosen.scale
    assert [link.ends for link in small.links] == [link.ends for link in real.links]
    for one, other in zip(small.links, real.links, strict=True):
        assert one.total_gbps == pytest.approx(other.total_gbps * scale)
    for nic, described in zip(small.nics, real.nics, strict=True):
        assert nic.rate_gbps == pytest.approx(described.rate_gbps * scale)
        assert nic.burst_bytes == BURST_BYTES
    assert sum(nic.rate_gbps for nic in small.nics) <= max(NODE_MBPS, LEAST_NIC_MBPS * len(small.nics)) / 1e3 + 1e-9
    if small.nics:
        assert max(nic.rate_gbps for nic in small.nics) == pytest.approx(nic_mbps(miniature.real) / 1e3)


def test_every_nic_of_every_node_is_a_port_of_the_small_network(miniature: Made) -> None:
    small = miniature.small
    layout = Layout("test", small)
    assert len(layout.ports) == miniature.chosen.nodes * len(small.nics)
    for port, device in layout.ports.items():
        assert device.device.name == port.partition(":")[2]


def gpu_rates(topology: Topology) -> list[float]:
    """Gb/s of each link of a GPU."""
    ends = {each.name for each in topology.gpus}
    return [link.total_gbps for link in topology.links if set(link.ends) & ends]


def test_the_settings_keep_the_site_and_replace_the_machine(miniature: Made) -> None:
    small, settings = miniature.small, miniature.settings
    (system,) = settings["systems"]
    (partition,) = system["partitions"]
    assert (partition["scheduler"], partition["launcher"]) == ("squeue", "srun")
    assert partition["extras"]["nodes"] == miniature.chosen.nodes
    assert list(effort_problems(partition["extras"])) == []
    largest_s = 8e-9 * partition["extras"]["most_bytes"] / max(gpu_rates(small))
    # Those of Aurora would take 52 ms over each of 60 pairs.
    least_s = LARGEST_S / 2 if small.system == "aurora" else LARGEST_S
    assert least_s <= largest_s < 2 * least_s
    assert SMALLEST_GOODPUT_BYTES <= partition["extras"]["most_bytes_by_host"] <= partition["extras"]["most_bytes"]
    assert partition["devices"][0]["num_devices"] == len(small.gpus)
    names = [each["name"] for each in settings["environments"]]
    assert names == partition["environs"]
    for each in settings["environments"]:
        assert ["A", "1"] in each["env_vars"]
        assert each["extras"]["mpicxx"] == "/mpicxx"
        # MPI would not use the links of such memory.
        assert "modules" not in each and "device-collectives" not in each["features"]


def test_the_policy_is_the_suites_but_for_what_the_machine_sets(tmp_path: Path) -> None:
    chosen = plan("alps", 2, None, ROOT)
    write_suite(chosen, ROOT, tmp_path / "suite", write_topology(chosen, ROOT, tmp_path), ENVIRONMENT)
    own, real = (load_policy(root / "config" / "policy.yaml") for root in (tmp_path / "suite", ROOT))
    assert (own.floors, own.confidence, own.smallest_loss) == (real.floors, real.confidence, real.smallest_loss)
    assert [one.limit_us for one in own.latencies] == [SLOWEST_US]
    assert own.spread_of_equals("latency", "node", True, "one", host_memory=False) == SPREADS["latency"]
    assert (own.tails_of_equals, real.tails_of_equals) == (False, True)


def test_paths_between_nodes_are_those_that_the_miniature_has(miniature: Made) -> None:
    if miniature.chosen.nodes > 1:
        assert mpi_paths(miniature.small, 3).described == "TCP"
        assert ccl_paths(miniature.small, 3) == ccl_paths(miniature.real, 3)


@pytest.mark.parametrize(
    "name, nodes, scale, message",
    [
        ("alpse", 2, None, "no system 'alpse' to emulate: systems are alps, aurora"),
        ("alps", 0, None, "--nodes 0: a miniature has 1 to 64 nodes"),
        ("alps", 65, None, "--nodes 65: a miniature has 1 to 64 nodes"),
        (
            "hgx-h200",
            2,
            None,
            "--nodes 2: hgx-h200 has no NICs in its topology, so its nodes cannot be joined: --nodes 1",
        ),
        ("alps", 2, 0.0, "--scale 0: is more than 0 and at most 1"),
        ("alps", 2, float("nan"), "--scale nan: is more than 0 and at most 1"),
        ("alps", 2, 0.5, "--scale 0.5: hsn0 would carry 100000 Mb/s"),
        ("alps", 2, 1e-9, "--scale 1e-09: hsn0 would carry 0.0002 Mb/s"),
    ],
)
def test_what_cannot_be_emulated_is_one_line(name: str, nodes: int, scale: float | None, message: str) -> None:
    with pytest.raises(UserError) as error:
        plan(name, nodes, scale, ROOT)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


FABRIC = """\
  nodes: nid[001-064]
  switches: [{name: "leaf[1-4]", group: hall1}, {name: "spine[1-2]"}, {name: unused}]
  links:
    - technology: cable
      rate: 200 Gb/s
      source: made up
      pairs: [["nid[001-016]:ib0", leaf1], ["nid[017-032]:ib0", leaf2], ["nid[033-048]:ib0", leaf3],
              ["nid[049-064]:ib0", leaf4]]
    - {technology: trunk, count: 4, rate: 200 Gb/s, source: made up, pairs: [["leaf[1-4]", "spine[1-2]"]]}
"""


@pytest.mark.parametrize(("nodes", "leaves", "trunk"), [(2, 1, None), (4, 2, 0.05), (16, 4, 0.05), (64, 4, 0.2)])
def test_a_miniature_keeps_leaves_and_trunks_of_the_described_network(
    tmp_path: Path, nodes: int, leaves: int, trunk: float | None
) -> None:
    """A leaf has sixteen ports of 200 Gb/s, 3,200 in all, and 1,600 upwards: a part of it keeps half, or one link."""
    site = tmp_path / "site_configs" / "made"
    site.mkdir(parents=True)
    text = (
        (ROOT / "site_configs" / "hgx-h200" / "topology.yaml").read_text().replace("system: hgx-h200", "system: made")
    )
    nics = "nics:\n  - {name: ib0, model: NDR200, rate: 200 Gb/s, source: made up}\n"
    (site / "topology.yaml").write_text(f"{text}\n{nics}network:\n{FABRIC}")
    small = load_topology(write_topology(plan("made", nodes, None, tmp_path), tmp_path, tmp_path))
    assert small.network is not None
    used = [small.network.leaf_of(port) for port in small.network.ports]
    assert len(small.network.nodes) == nodes and len(set(used)) == leaves
    assert max(map(used.count, used)) - min(map(used.count, used)) == 0
    rates = {round(link.total_gbps, 6) for link in small.network.links if ":" not in link.ends[0]}
    assert rates == (set() if trunk is None else {trunk})
    assert {each.group for each in small.network.switches if each.name.startswith("leaf")} == {"hall1"}
    Layout("test", small)
    with pytest.raises(UserError, match="has 64 nodes"):
        small = load_topology(write_topology(Miniature("made", "", 65, 1e-4), tmp_path, tmp_path))


def test_a_system_outside_of_the_suite_comes_up_with_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = tmp_path / "sites"
    shutil.copytree(ROOT / "site_configs" / "alps", sites / "site_configs" / "ours")
    monkeypatch.setenv("FABRICHECK_SITES", str(sites))
    small = plan("ours", 2, None, ROOT)
    (tmp_path / "made").mkdir()
    topology = write_topology(small, ROOT, tmp_path / "made")
    written = json.loads((write_suite(small, ROOT, tmp_path / "suite", topology, ENVIRONMENT) / MINIATURE).read_text())
    assert written["settings"] == str(sites / "site_configs" / "ours" / "settings.py")
