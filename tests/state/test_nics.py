"""Network ports as sysfs shows them: trees as the kernel's documentation describes, and this machine's own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from fabricheck.records.node_state import MOST_NODES, BlockedPath, asked_by
from fabricheck.state import nics
from fabricheck.state.nics import nic_states, tcp_counters
from tests.support.effort import effort


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    return root


def test_infiniband_slingshot_and_ethernet(tmp_path: Path) -> None:
    port = "class/infiniband/mlx5_0/ports/1"
    cxi = "class/cxi/cxi0/device"
    files = {
        f"{port}/state": "4: ACTIVE",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/counters/symbol_error": "3",
        f"{port}/counters/port_xmit_wait": "18446744073709551615",
        f"{port}/hw_counters/out_of_sequence": "7",
        f"{port}/hw_counters/lifespan": "no number",
        "class/infiniband/mlx5_0/fw_ver": "28.39.1002",
        f"{port}/link_layer": "Ethernet",
        f"{port}/gid_attrs/types/0": "IB/RoCE v1",
        f"{port}/gid_attrs/types/1": "RoCE v2",
        f"{port}/gid_attrs/types/2": "",
        f"{port}/gid_attrs/types/3": "RoCE v2",
        **{f"class/net/hsn0/ecn/roce_np/enable/{priority}": str(int(priority == 3)) for priority in range(8)},
        **{f"class/net/hsn0/ecn/roce_rp/enable/{priority}": "0" for priority in range(8)},
        "class/infiniband/mlx5_1/ports/2/state": "1: DOWN",
        "class/infiniband/mlx5_1/ports/2/rate": "2.5 Gb/sec (1X SDR)",
        "class/infiniband/mlx5_0/device/current_link_speed": "16.0 GT/s PCIe",
        "class/infiniband/mlx5_0/device/current_link_width": "8",
        "class/infiniband/mlx5_0/device/max_link_speed": "32.0 GT/s PCIe",
        "class/infiniband/mlx5_0/device/max_link_width": "16",
        f"{cxi}/current_link_speed": "16.0 GT/s PCIe",
        f"{cxi}/current_link_width": "16",
        f"{cxi}/max_link_speed": "16.0 GT/s PCIe",
        f"{cxi}/max_link_width": "16",
        f"{cxi}/port/speed": "BS_200G",
        f"{cxi}/port/link": "up",
        f"{cxi}/telemetry/hni_pcs_uncorrected_cw": "12@1700000000.123456",
        f"{cxi}/telemetry/hni_llr_tx_replay_event": "7@1700000000.123456",
        f"{cxi}/telemetry/hni_rx_ok_64": "99@1700000000.123456",
        "class/net/hsn0/type": "1",
        "class/net/hsn0/operstate": "down",
        "class/net/hsn0/speed": "-1",
        "class/net/hsn0/mtu": "9000",
        "class/net/hsn0/statistics/rx_dropped": "5",
        "class/net/hsn0/carrier_changes": "4",
        "class/net/lo/type": "772",
        "class/net/lo/operstate": "unknown",
        "class/net/docker0/type": "1",
        "class/net/docker0/operstate": "up",
        "class/net/docker0/bridge/bridge_id": "8000",
    }
    found = {each.name: each for each in nic_states(tree(tmp_path, files))}
    assert list(found) == ["mlx5_0", "mlx5_1_2", "cxi0", "hsn0"]
    first = found["mlx5_0"]
    assert (first.up, first.rate_gbps, first.firmware) == (True, 400.0, "28.39.1002")
    assert first.counters == {"symbol_error": 3, "port_xmit_wait": 18446744073709551615, "out_of_sequence": 7}
    assert first.settings == {
        "link layer": "Ethernet",
        "lanes": "4X NDR",
        "PCIe": "16.0 GT/s x8 of 32.0 GT/s x16",
        "GID types": "IB/RoCE v1, RoCE v2",
    }
    assert found["mlx5_1_2"].up is False
    assert (found["cxi0"].up, found["cxi0"].rate_gbps) == (True, 200.0)
    assert found["cxi0"].settings == {"PCIe": "16.0 GT/s x16"}
    assert found["cxi0"].counters == {"hni_llr_tx_replay_event": 7, "hni_pcs_uncorrected_cw": 12}
    ethernet = found["hsn0"]
    assert (ethernet.up, ethernet.rate_gbps, ethernet.mtu, ethernet.duplex) == (False, None, 9000, None)
    assert ethernet.counters == {"rx_dropped": 5, "carrier_changes": 4}
    assert ethernet.settings == {"ECN (np)": "3", "ECN (rp)": "off"}


def test_ports_of_other_makers(tmp_path: Path) -> None:
    """Cassini 2 (Slingshot 400) as HPE's own cxi_stat reads it; EFA; a port of Omni-Path that no fabric manager
    activated; Broadcom's RoCE with the GIDs of a link-local and an IPv4 address."""
    cxi, efa, hfi1, bnxt = (
        *("class/cxi/cxi0/device/port/0", "class/infiniband/rdmap16s27/ports/1"),
        *("class/infiniband/hfi1_0/ports/1", "class/infiniband/bnxt_re0/ports/1"),
    )
    files = {
        f"{cxi}/link/speed": "ck400G",
        f"{cxi}/link/state": "up",
        f"{efa}/state": "4: ACTIVE",
        f"{efa}/rate": "100 Gb/sec (4X EDR)",
        f"{efa}/link_layer": "Unspecified",
        f"{efa}/hw_counters/retrans_pkts": "12",
        f"{hfi1}/state": "2: INIT",
        f"{hfi1}/rate": "100 Gb/sec (4X EDR)",
        f"{bnxt}/state": "4: ACTIVE",
        f"{bnxt}/rate": "400 Gb/sec (4X NDR)",
        f"{bnxt}/link_layer": "Ethernet",
        **{f"{bnxt}/gid_attrs/types/{index}": ("IB/RoCE v1", "RoCE v2")[index % 2] for index in range(4)},
        **{f"{bnxt}/gids/{index}": "fe80:0000:0000:0000:0a00:27ff:fe00:0001" for index in (0, 1)},
        **{f"{bnxt}/gids/{index}": "0000:0000:0000:0000:0000:ffff:c0a8:0101" for index in (2, 3)},
        "class/infiniband/bnxt_re0/tc/1/traffic_class": "Global tclass=104",
    }
    found = {each.name: each for each in nic_states(tree(tmp_path, files))}
    assert {name: (each.kind, each.up, each.rate_gbps) for name, each in found.items()} == {
        "bnxt_re0": ("infiniband", True, 400.0),
        "hfi1_0": ("infiniband", False, 100.0),
        "rdmap16s27": ("infiniband", True, 100.0),
        "cxi0": ("cxi", True, 400.0),
    }
    assert found["hfi1_0"].settings["state"] == "INIT"
    assert found["rdmap16s27"].counters == {"retrans_pkts": 12}
    told = found["bnxt_re0"].settings
    assert (told["RoCE v2 GID of IPv4"], told["traffic class"]) == ("3", "Global tclass=104")


def test_what_mlnx_qos_says_where_dcb_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVIDIA's tool prints it, of the newer and the older form."""
    files = {"class/net/hsn0/type": "1", "class/net/hsn0/operstate": "up", "class/net/hsn0/carrier": "1"}
    sysfs = tree(tmp_path / "sys", files)
    (tmp_path / "mlx5_core").mkdir()
    (sysfs / "class/net/hsn0/device").mkdir()
    (sysfs / "class/net/hsn0/device/driver").symlink_to(tmp_path / "mlx5_core")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    head = "Priority trust state: dscp\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
    for row in ("\tenabled     0   0   0   1   0   0   0   0", "\tenabled:   0   0   0   1   0   0   0   0"):
        (tmp_path / "mlnx_qos").write_text(f"#!/bin/sh\ncat << 'E'\n{head}{row}\nE\n")
        (tmp_path / "mlnx_qos").chmod(0o755)
        (nic,) = nic_states(sysfs)
        assert nic.settings == {"PFC": "3:on", "trusted priorities": "dscp"}


def test_the_priorities_with_flow_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As dcb-pfc(8) and dcb-apptrust(8) print them."""
    files = {"class/net/hsn0/type": "1", "class/net/hsn0/operstate": "up"}
    sysfs = tree(tmp_path / "sys", files)
    line = "pfc-cap 8 macsec-bypass off delay 0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cases: tuple[tuple[str, dict[str, str]], ...] = (
        (line, {"PFC": "3:on"}),
        (line.replace("3:on", "3:off"), {"PFC": "off"}),
        (f"{line}\norder: dscp pcp", {"PFC": "3:on", "trusted priorities": "dscp pcp"}),
        ("", {}),
    )
    for printed, told in cases:
        (tmp_path / "dcb").write_text(f"#!/bin/sh\necho '{printed}'\n")
        (tmp_path / "dcb").chmod(0o755)
        (nic,) = nic_states(sysfs)
        assert nic.settings == told


def test_this_machine_has_counters() -> None:
    assert {"OutSegs", "InSegs", "RetransSegs", "TCPOFOQueue"} <= set(tcp_counters())
    for each in nic_states():
        assert "rx_packets" in each.counters or each.kind != "ethernet"


def test_tcp_without_the_files(tmp_path: Path) -> None:
    assert tcp_counters(tmp_path) == {}


def test_this_machine_answers_itself() -> None:
    (address, mtu) = nics.own_addresses(["lo", "no-such-port"])["lo"]
    assert address == "127.0.0.1"
    assert nics.probe(address, 1500) is None
    # Larger than the port itself takes, which the kernel says: nothing is lost without a word.
    assert nics.probe(address, min(mtu + 100, 65_000)) is None


@pytest.mark.parametrize(
    ("arriving", "found"),
    [(9000, None), (1500, (9000, 1500)), (1450, (9000, 1400)), (1280, (9000, 576)), (0, None)],
)
def test_the_largest_packets_that_arrive(
    arriving: int, found: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none arrives nobody knows why: a firewall, perhaps."""
    monkeypatch.setattr(nics, "_arrives", lambda _, size: size <= arriving)
    assert nics.probe("192.0.2.1", 9000) == found


def test_answers_that_came_late_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, True, True])
    monkeypatch.setattr(nics, "_arrives", lambda *_: next(answers))
    assert nics.probe("192.0.2.1", 9000) is None


def test_every_node_asks_all_of_few_and_some_of_many() -> None:
    few, many = [f"n{each}" for each in range(MOST_NODES)], [f"n{each:05}" for each in range(10_000)]
    assert all(set(asked_by(host, few)) == set(few) - {host} for host in few)
    assert len(asked_by("n09999", many)) == 14
    assert asked_by("n09999", many)[:3] == ("n00000", "n00001", "n00003")
    assert asked_by("n1", ["n1"]) == asked_by("n9", ["n1", "n2"]) == ()


def test_ways_to_the_same_port_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge that each node has for itself is no way; nor is a port that the other does not have."""
    for number in (1, 2, 3):
        own = {"hsn0": (f"192.0.2.{number}", 9000), "docker0": ("172.17.0.1", 1500)}
        nics.leave_addresses(tmp_path, f"nid00{number}", own)
    asked = []

    def arrives(address: str, size: int) -> bool:
        asked.append(address)
        return address != "192.0.2.2" or size <= 1500

    monkeypatch.setattr(nics, "_arrives", arrives)
    own = {"hsn0": ("192.0.2.1", 9000), "docker0": ("172.17.0.1", 1500), "ib0": ("198.51.100.1", 4092)}
    assert nics.blocked_paths(tmp_path, "nid001", own) == (BlockedPath("hsn0", "nid002", 9000, 1500),)
    assert set(asked) == {"192.0.2.2", "192.0.2.3"}


# How a port of one node is kept from that of another: the rule of the other's firewall or a route of its own, and
# whether the other way is shut, too: there an answer is lost, unless only what begins a connection is.
_SYN = "tcp flags & (syn | ack) == syn"
FAULTS = {
    "dropped": ("{rule} drop", True),
    "begin dropped": (f"{{rule}} {_SYN} drop", False),
    "refused": (f"{{rule}} {_SYN} reject with tcp reset", False),
    "prohibited": ("{rule} reject with icmp type admin-prohibited", True),
    "no route": ("unreachable", True),
    "swallowed": ("blackhole", True),
}


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def make_nodes(stem: str, hosts: Sequence[str], ports: Sequence[str], bare: tuple[str, int]) -> None:
    """Namespaces whose ports of one name are on one bridge. `bare`: a port, and the number of its host, that has no
    address."""
    for place in range(len(ports)):
        run("ip", "link", "add", f"{stem}b{place}", "type", "bridge", "forward_delay", "0")
        run("ip", "link", "set", f"{stem}b{place}", "up")
    for number, host in enumerate(hosts):
        run("ip", "netns", "add", host)
        run(
            "ip",
            "netns",
            "exec",
            host,
            "nft",
            "add table ip t; add chain ip t c { type filter hook input priority 0; }",
        )
        for place, port in enumerate(ports):
            near = ("ip", "link", "add", f"{host}p{place}", "master", f"{stem}b{place}", "up")
            run(*near, "type", "veth", "peer", "name", port, "netns", host)
            run("ip", "-n", host, "link", "set", port, "up")
            if (port, number) != bare:
                run("ip", "-n", host, "addr", "add", f"198.51.{100 + place}.{number + 1}/24", "dev", port)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("seed", range(effort(6, share=6)))
def test_all_pairs_of_ports_that_cannot_talk_are_named_and_no_others(tmp_path: Path, seed: int) -> None:
    """Real network namespaces on a bridge for each port name. One node may be cut off from all others, and one may have
    a port without an address."""
    rng = np.random.default_rng(seed)
    count, ports = int(rng.integers(2, 6)), [f"hsn{number}" for number in range(rng.integers(1, 3))]
    stem = f"f{os.getpid() % 10_000}s{seed}"
    hosts = [f"{stem}n{number}" for number in range(count)]
    pairs = [(port, *pair) for port in ports for pair in permutations(range(count), 2)]
    kinds = [str(kind) for kind in rng.choice([*FAULTS], len(pairs))]
    chosen = rng.permutation(len(pairs))[: rng.integers(4)]
    cut = int(rng.integers(count)) if rng.random() < 0.3 else -1
    planted = {number: kinds[number] for number in chosen}
    planted |= {number: "dropped" for number, (_, source, _) in enumerate(pairs) if source == cut}
    bare = (str(rng.choice(ports)), int(rng.integers(count))) if rng.random() < 0.4 else ("", -1)
    expected = set()

    try:
        make_nodes(stem, hosts, ports, bare)
        for which, kind in planted.items():
            port, source, to = pairs[which]
            if (port, source) == bare:
                continue
            how, both = FAULTS[kind]
            network = f"198.51.{100 + ports.index(port)}"
            if how.startswith("{"):
                rule = how.format(rule=f"add rule ip t c ip saddr {network}.{source + 1}")
                run("ip", "netns", "exec", hosts[to], "nft", rule)
            else:
                run("ip", "-n", hosts[source], "route", "replace", how, f"{network}.{to + 1}/32")
            expected |= {(hosts[source], port, hosts[to]), *([(hosts[to], port, hosts[source])] if both else [])}
        if bare[0]:
            without = hosts[bare[1]]
            expected = {path for path in expected if path[:2] != (without, bare[0])}
            expected |= {(host, bare[0], without) for host in hosts if host != without}
        script = (
            "import sys; from pathlib import Path; from fabricheck.state import nics; print(flush=True); input(); "
            f"own = nics.own_addresses({ports}); print([(sys.argv[2], way.port, way.to) for way in "
            f"nics.missing_connections(Path(sys.argv[1]), sys.argv[2], own, {count}, {ports})])"
        )
        jobs = [
            subprocess.Popen(
                ["ip", "netns", "exec", host, sys.executable, "-c", script, str(tmp_path), host],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for host in hosts
        ]
        # Nodes that begin more than two seconds after the others are not asked, and imports can take longer.
        for job in jobs:
            assert job.stdout and job.stdout.readline()
        for job in jobs:
            print(file=job.stdin, flush=True)
        missing = [ast.literal_eval(job.communicate(timeout=60)[0]) for job in jobs]
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False)
        for place in range(len(ports)):
            subprocess.run(["ip", "link", "del", f"{stem}b{place}"], check=False)
    assert {path for paths in missing for path in paths} == expected, planted
