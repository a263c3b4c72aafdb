"""The emulated cluster itself: it comes up, what is planted is there, and nothing is left of it. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck_lab import faults
from fabricheck_lab.cluster import FOLDER, Cluster, emulated_cluster, require_machine
from tests.support.nodes import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full]

TOPOLOGY = (ROOT / "tests/data/topologies/small_cluster.yaml").read_text(encoding="utf-8")
# Clusters of this test run alone, so that it never meets one of the user's.
NAMES = [f"t{os.getpid()}{letter}" for letter in "abc"]


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        require_machine()
    except UserError as error:
        pytest.skip(str(error))
    file = tmp_path_factory.mktemp("emulated") / "topology.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def shared(topology: Path) -> Iterator[Cluster]:
    with emulated_cluster(topology, NAMES[0]) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """A healthy cluster, and healthy again afterwards."""
    yield shared
    faults.clear(shared)
    assert shared.status().faults == {}


def ip(cluster: Cluster, of: str, *words: str) -> str:
    command = ["ip", "-n", cluster.layout.namespace(of), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rates(cluster: Cluster, link: str) -> list[str]:
    found = []
    for device in cluster.cable(link).ends:
        command = ["tc", "-n", device.namespace, "qdisc", "show", "dev", device.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(said.split(" rate ")[1].split()[0])
    return found


def reaches(cluster: Cluster, node: str, port: str) -> bool:
    """Whether TCP from a node gets an answer, if only a refusal, from another node's port."""
    script = (
        "import errno, socket, sys; s = socket.socket(); s.settimeout(1)\n"
        "sys.exit(s.connect_ex((sys.argv[1], 9)) != errno.ECONNREFUSED)"
    )
    enter = ["nsenter", f"--net=/var/run/netns/{cluster.layout.namespace(node)}"]
    address = cluster.layout.ports[port].address
    command = [*enter, sys.executable, "-c", script, address]
    return subprocess.run(command, check=False).returncode == 0


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 15
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_job_runs_on_all_nodes_and_each_port_is_reached_over_its_own_plane(cluster: Cluster) -> None:
    done = cluster.run(["srun", "--nodes=4", "--time=1", "hostname"], timeout_s=60)
    assert sorted(done.stdout.split()) == ["nid001", "nid002", "nid003", "nid004"], done.stderr
    assert reaches(cluster, "nid001", "nid002:hsn0")
    assert reaches(cluster, "nid001", "nid003:hsn1")
    assert rates(cluster, "nid001:hsn0") == ["50Mbit", "50Mbit"]


def test_two_clusters_do_not_meet(cluster: Cluster, topology: Path) -> None:
    with pytest.raises(UserError, match="there is a cluster"):
        Cluster.up(topology, cluster.layout.name)
    with emulated_cluster(topology, NAMES[1]) as other:
        faults.slow(other, "nid001:hsn0", 50)
        assert rates(cluster, "nid001:hsn0") == ["50Mbit", "50Mbit"]
    assert set(cluster.status().nodes.values()) == {"idle"}
    assert cluster.status().missing == ()


def test_a_flapping_trunk_is_sometimes_up_and_sometimes_down(cluster: Cluster) -> None:
    def routes() -> int:
        return ip(cluster, "spine0", "route").count(" via ")

    whole = routes()
    faults.flap(cluster, "leaf0--spine0", 0.4)
    assert until(lambda: routes() < whole)
    assert until(lambda: routes() == whole)
    assert until(lambda: routes() < whole)
    faults.clear(cluster)
    assert routes() == whole
    assert reaches(cluster, "nid001", "nid003:hsn0")


def test_a_node_and_a_daemon_that_are_gone_are_named_and_come_back(cluster: Cluster) -> None:
    faults.node_down(cluster, "nid002")
    assert "slurmd nid002" in cluster.status().missing
    faults.kill_daemon(cluster, "slurmd nid003")
    assert {"slurmd nid002", "slurmd nid003"} <= set(cluster.status().missing)
    faults.clear(cluster)
    assert cluster.status().missing == ()
    with pytest.raises(UserError, match="there is no daemon 'slurmd nid9'"):
        faults.kill_daemon(cluster, "slurmd nid9")


def mine(name: str) -> list[str]:
    """Command lines of processes that belong to a cluster."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{FOLDER / name}/" in line:
            found.append(line)
    return found


CRASH = """
import os, sys
from pathlib import Path
from fabricheck_lab import cluster, state
left = [int(sys.argv[3])]
def run(words, run=state.subprocess.run, **others):
    done = run(words, **others)
    left[0] -= words[0] == "setsid"
    if left[0] == 0 and words[0] == "setsid":
        os._exit(9)
    return done
state.subprocess.run = run
if sys.argv[3] == "0":
    cluster.Cluster._start = lambda self: os._exit(9)
cluster.Cluster.up(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("daemons", [0, 1, 4], ids=["before the daemons", "munged", "two slurmd"])
def test_down_cleans_up_after_up_died(topology: Path, daemons: int) -> None:
    """It dies between starting the last of that many daemons and hearing of it."""
    name = NAMES[2]
    command = [sys.executable, "-c", CRASH, str(topology), name, str(daemons)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 9
    if daemons:
        assert until(lambda: bool(mine(name)))
    assert Cluster.down(name)
    assert mine(name) == []
    assert not (FOLDER / name).exists()
    assert not list(Path("/var/run/netns").glob(f"fabricheck-{name}-*"))
    assert not Cluster.down(name)
