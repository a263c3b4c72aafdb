"""Faults of a cluster: planted on real Slurm nodes with shaped links, and found by the checks of the network."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.records.verdict import Verdict
from fabricheck_lab import faults
from fabricheck_lab.layout import Device
from fabricheck_lab.network_suite import Finished, Site
from tests.faults.matrix import Outcome, settle
from tests.support.cluster import run_and
from tests.support.effort import is_full
from tests.support.files import replace

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

LEAF, ALL = "one-leaf", "two-leaves"


def expect(done: Finished, fault: str, how: str, verdict: Verdict, *said: str) -> None:
    assert done.status != 0, done.output
    line = next((each for each in done.problems if said[0] in each), "\n".join(done.problems))
    for word in said:
        assert word in line, done.output
    settle(Outcome(fault, how, done.verdict, done.status, line), verdict, said[0])


def test_the_healthy_cluster_is_green(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two leaves; one of them was green while it was calibrated."""
    monkeypatch.setattr(site, "asks_nodes", True)
    monkeypatch.setattr(site, "size", "512KiB")
    done = until(lambda: site.run(ALL), lambda done: done.status == 0)
    assert done.status == 0, done.output


@pytest.mark.matrix
def test_a_slow_second_port(site: Site) -> None:
    """A rank for each port where the environment binds them, and both ports at once."""
    faults.slow(site.cluster, "nid002:hsn1", 60)
    done = site.run("two-ports", environment="openmpi-round-robin")
    fault, how = "the second port of a node is 60% slower", "fault slow nid002:hsn1"
    expect(done, fault, how, Verdict.FAIL, "unidirectional_contended_1_3_1mib_goodput")
    assert not any("_0_2_1mib" in line for line in done.problems)
    pairs = {name.rpartition("_1mib")[0] for name in done.metrics if name.endswith("_1mib_goodput")}
    assert pairs == {f"unidirectional_contended_{pair}" for pair in ("0_2", "2_0", "1_3", "3_1")}


def test_a_slow_link(site: Site) -> None:
    percent = 5 if is_full() else 10
    faults.slow(site.cluster, "nid002:hsn0", percent)
    done = site.run(LEAF)
    said = "[slow-part nid002 or nid002:hsn0 or nid002:hsn0--leaf0]"
    expect(done, f"a link is {percent}% slower", "fault slow nid002:hsn0", Verdict.DEGRADED, said)


@pytest.mark.matrix
def test_a_slow_link_without_references(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected of the link by its nominal rate is still asked for, of pairs and of the traffic of jobs.

    In jobs of their own: the other tests have a shared one.
    """
    monkeypatch.setattr(site, "size", "512KiB")
    (site.root / "reference_values/emulated.yaml").write_text("$uncalibrated: {'*': lost}\n", encoding="utf-8")
    faults.slow(site.cluster, "nid002:hsn0", 80)
    how = "fault slow nid002:hsn0, no references"
    small = ("--setvar=MoeDispatch.sizes=host:512KiB", "--setvar=TrainingStep.sizes=host:512KiB")
    done = site.run(LEAF, "--one-by-one", "--launches=1", "--", *small, name="^(NodePairs|MoeDispatch|TrainingStep)")
    assert not [*done.folder.glob("stage/*/*/*/shared-job-*")]
    expect(done, "references are missing, and a link is 80% slower", how, Verdict.FAIL, "[below-floor]")
    assert any("[slow-part nid002 or nid002:hsn0 or nid002:hsn0--leaf0]" in line for line in done.problems), done.output
    for operation in ("sparse", "training_step"):
        lines = [line for line in done.problems if line.startswith(f"FAIL: {operation}_")]
        assert lines and all("[below-floor]" in line for line in lines), done.output


def test_the_port_and_the_direction_of_a_loss_are_named(site: Site) -> None:
    faults.slow(site.cluster, "nid002:hsn0", 30, one_side=True)
    fault, how = "a port is 30% slower in one direction", "fault slow nid002:hsn0 30 --one-side, with references"
    expect(site.run(LEAF), fault, how, Verdict.DEGRADED, "[slow-part nid002:hsn0 sending or nid002 sending]")


def test_a_slow_trunk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "size", "512KiB")
    faults.slow(site.cluster, "leaf0--spine0", 60)
    expect(site.run(ALL), "a trunk is 60% slower", "fault slow leaf0--spine0", Verdict.FAIL, "leaf0--spine0")


@pytest.mark.matrix
def test_a_cable_with_more_delay(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goodput would not show it."""
    monkeypatch.setattr(site, "size", "8B")
    site.let_waiting_ranks_sleep()
    faults.delay(site.cluster, "nid002:hsn0", 400)
    done = until(lambda: site.run(LEAF), lambda done: done.status != 0)
    fault, how = "a cable has 0.4 ms more delay, without references", "fault delay nid002:hsn0 400"
    said = "[slow-part nid002 or nid002:hsn0 or nid002:hsn0--leaf0]"
    expect(done, fault, how, Verdict.DEGRADED, said)
    late = {name for name, value in done.metrics.items() if name.endswith("_8b_latency") and value > 0}
    assert len(late) == 12
    slow = {line.split(": ")[1] for line in done.problems if "_latency" in line}
    assert slow == {name for name in late if "1" in name.split("_")[2:4]}


def until(run: Callable[[], Finished], is_so: Callable[[Finished], bool]) -> Finished:
    """Of three runs the first that is so, else the last: others on the cores hide 0.4 ms, and how ports are used."""
    done = run()
    for _ in range(2):
        done = done if is_so(done) else run()
    return done


@pytest.mark.matrix
def test_a_link_that_flaps(site: Site) -> None:
    faults.flap(site.cluster, "nid002:hsn0", 1.0)
    done = site.run(LEAF, "--", "--setvar=NodePairs.timeout=4")
    expect(done, "a link goes down and up", "fault flap nid002:hsn0", Verdict.INCOMPLETE, "[rank-hangs")


@pytest.mark.matrix
def test_what_nodes_say_of_their_ports(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goodput hardly shows it: packets that are lost on the way to one node, and another MTU on a second."""
    monkeypatch.setattr(site, "asks_nodes", True)
    faults.loss(site.cluster, "nid002:hsn0", 100)
    port = site.cluster.cable("nid003:hsn0").ends[0]
    set_link(port, "mtu", 1400)
    try:
        done = site.run(LEAF)
    finally:
        set_link(port, "mtu", 1500)
    lost = "a node loses 1% of the packets to it", "fault loss nid002:hsn0 100"
    expect(done, *lost, Verdict.DEGRADED, "[packets-lost nid002]")
    mtu = "a node has another MTU", "ip link set hsn0 mtu 1400"
    expect(done, *mtu, Verdict.DEGRADED, "[nodes-differ nid003]")


def test_a_switchs_port_that_drops_large_packets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs, and nothing is slow: probes say where."""
    monkeypatch.setattr(site, "asks_nodes", True)
    ports = [each.device for each in site.cluster.layout.ports.values()]
    port = site.cluster.cable("nid002:hsn0").ends[1]
    set_link(port, "mtu", 1400)
    # Else the bridge follows its ports, and as a router tells some senders.
    set_link(Device(port.namespace, "br-hsn0"), "mtu", 1500)
    # Several segments in one piece pass a veth of any MTU.
    for own in ports:
        set_link(own, "gso_max_segs", 1)
    try:
        done = site.run(LEAF, "--", "--setvar=NodePairs.timeout=4")
    finally:
        set_link(port, "mtu", 1500)
        for own in ports:
            set_link(own, "gso_max_segs", 65535)
    how = "ip link set l1 mtu 1400 on leaf0, the port to nid002"
    said = "[packets-too-large nid002:hsn0 or nid002:hsn0--leaf0 or nid002]"
    expect(done, "a port of a switch has a smaller MTU", how, Verdict.INCOMPLETE, said)


def set_link(device: Device, what: str, value: int) -> None:
    words = ["ip", "-n", device.namespace, "link", "set", device.name, what, str(value)]
    subprocess.run(words, check=True)


@pytest.mark.matrix
def test_a_node_that_is_down_before_the_job(site: Site) -> None:
    faults.node_down(site.cluster, "nid004")
    site.cluster.run(["scontrol", "update", "NodeName=nid004", "State=DOWN", "Reason=test"], timeout_s=20)
    done = site.run(LEAF)
    said = "[node-away nid004]"
    expect(done, "a node is down before the job", "fault node-down nid004", Verdict.INCOMPLETE, said)
    assert sum(name.endswith("_goodput") for name in done.metrics) == 6  # the pairs of the three others


@pytest.mark.parametrize(
    ("fault", "how", "plant", "said"),
    [
        pytest.param(
            "a node goes down during the job",
            "fault node-down nid003",
            lambda site: faults.node_down(site.cluster, "nid003"),
            "nid003",
            marks=pytest.mark.matrix,
        ),
        (
            "a rank of another node is killed",
            "kill -9",
            lambda site: signal_ranks(site, "nid003", signal.SIGKILL),
            "nid003: task 2: Killed",
        ),
        (
            "a rank of another node hangs",
            "kill -STOP",
            lambda site: signal_ranks(site, "nid003", signal.SIGSTOP),
            "nid003 (rank 2) did not report",
        ),
    ],
    ids=["node-down", "killed", "hangs"],
)
def test_what_happens_during_the_job(
    site: Site, fault: str, how: str, plant: Callable[[Site], None], said: str
) -> None:
    # Ranks have to say what they miss before Slurm, which waits ten seconds for a node, ends the job.
    measures = '"samples"', site.root / f"output{site.runs + 1}", "runs/*/stage/**/result.jsonl"
    options = "--setvar=NodePairs.timeout=4", "--setvar=NodePairs.budget=2"
    done = run_and(lambda: site.run(LEAF, "--", *options), lambda: plant(site), *measures)
    expect(done, fault, how, Verdict.INCOMPLETE, said)
    # What was measured before is still there.
    (result,) = done.folder.glob("stage/**/result.jsonl")
    assert sum('"record":"samples"' in line for line in result.read_text().splitlines()) >= 1


def signal_ranks(site: Site, node: str, number: signal.Signals) -> None:
    namespace = site.cluster.layout.namespace(node)
    answer = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    programs = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in answer.stdout.split()}
    ranks = [pid for pid, program in programs.items() if program.endswith(b"/fabricbench")]
    assert ranks, programs
    for pid in ranks:
        os.kill(pid, number)


def test_another_network_and_another_path_than_described(site: Site) -> None:
    """Open MPI takes the management network, and no variable says so: the kernel's counters do. And it is TCP."""
    replace(site.root / "site_configs/emulated/modulefiles/fabricheck-openmpi", "if_include hsn0", "if_include mgmt0")
    replace(site.root / "site_configs/emulated/settings.py", '{"OMPI_MCA_btl_tcp_if_include": "hsn0"}', "{}")
    with (site.root / "site_configs/emulated/topology.yaml").open("a") as file:
        file.write("transport_paths: {network: {mpi: InfiniBand}, source: a test}\n")
    done = site.run("pair")
    how = "another interface in the module"
    expect(done, "MPI takes the management network", how, Verdict.INVALID, "[wrong-network]")
    fault, how = "MPI goes over TCP and not over InfiniBand", "transport_paths of topology.yaml"
    expect(done, fault, how, Verdict.INVALID, "[path-forbidden]")


@pytest.mark.matrix
def test_mpi_without_evidence_and_a_variable_that_the_launcher_does_not_pass_on(site: Site) -> None:
    """The site calls its library by a name of its own, so nobody asks it for its log."""
    settings = site.root / "site_configs/emulated/settings.py"
    replace(settings, '"mpi": name.partition("-")[0],', '"mpi": "a name of its own",')
    replace(settings, 'if "-" in name else []', 'if "-" in name else ["--export=PATH,SLURM_MPI_TYPE"]')
    done = site.run("pair")
    unproven = "MPI does not say over what it sends", "its log is not asked for"
    expect(done, *unproven, Verdict.INVALID, "[path-unproven]")
    lost = "the launcher does not pass a variable on", "srun --export"
    expect(done, *lost, Verdict.INVALID, "[setting-not-in-effect]")


@pytest.mark.matrix
def test_faster_than_the_link(site: Site) -> None:
    for port in ("nid001:hsn0", "nid002:hsn0"):
        faults.unshaped(site.cluster, port)
    done = site.run("pair")
    expect(done, "a value is above the nominal rate", "fault unshaped", Verdict.INVALID, "plausible")


def test_a_full_file_system(site: Site) -> None:
    """The stage directory is on a file system that is full when the results are written."""
    output = site.root / f"output{site.runs + 1}"
    output.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=0755", "tmpfs", str(output)], check=True)
    try:
        command = site.command("pair")
        done = site.cluster.run(command, timeout_s=240)
        assert done.returncode != 0, done.stdout
        line = " ".join(f"{done.stdout} {done.stderr}".split())
        assert "Traceback" not in done.stderr, done.stderr
    finally:
        subprocess.run(["umount", "--lazy", str(output)], check=True)
    full = "the file system is full", "a small tmpfs", Verdict.INCOMPLETE.value
    settle(Outcome(*full, done.returncode, line), Verdict.INCOMPLETE, "No space left on device")
