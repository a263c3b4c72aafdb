"""Network ports as sysfs shows them: trees as the kernel's documentation describes, and this machine's own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from fabricheck.records.node_state import MOST_NODES, BlockedPath, asked_by
from fabricheck.state import nics
from fabricheck.state.nics import nic_states, tcp_counters


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


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_node_that_no_connection_reaches_is_named(tmp_path: Path) -> None:
    """Four real network namespaces on a bridge; what goes to the third is dropped in its firewall."""
    hosts = [f"fab{os.getpid() % 10_000}n{number}" for number in (1, 2, 3, 4)]
    bridge = f"fabr{os.getpid() % 10_000}"

    def run(*words: str) -> None:
        subprocess.run(words, check=True)

    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for number, host in enumerate(hosts, 1):
            run("ip", "netns", "add", host)
            run("ip", "link", "add", host, "master", bridge, "type", "veth", "peer", "name", "hsn0", "netns", host)
            run("ip", "link", "set", host, "up")
            run("ip", "-n", host, "link", "set", "hsn0", "up")
            run("ip", "-n", host, "addr", "add", f"198.51.100.{number}/24", "dev", "hsn0")
        forwards = [Path(f"/sys/class/net/{host}/brport/state") for host in hosts]
        while {file.read_text().strip() for file in forwards} != {"3"}:
            time.sleep(0.05)
        rules = "add table ip t; add chain ip t in { type filter hook input priority 0; }; add rule ip t in drop"
        run("ip", "netns", "exec", hosts[2], "nft", rules)
        script = (
            "import sys; from pathlib import Path; from fabricheck.state import nics; print(flush=True); input(); "
            "folder, host = Path(sys.argv[1]), sys.argv[2]; "
            "print([way.to for way in nics.missing_connections(folder, host, nics.own_addresses(['hsn0']), 4)])"
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
        missing = [ast.literal_eval(job.communicate(timeout=30)[0]) for job in jobs]
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], check=False)
        subprocess.run(["ip", "link", "del", bridge], check=False)
    silent = hosts[2]
    assert [missing[number] for number in (0, 1, 3)] == [[silent]] * 3
    assert set(missing[2]) == {hosts[0], hosts[1], hosts[3]}
