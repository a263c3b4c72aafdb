"""Launches over many nodes, with real processes: `srun` on the path is a shell script that fails as nodes do."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from fabricheck.fleet.record import LAUNCHES, TROUBLES, Fleet, read_findings
from fabricheck.fleet.screen import Screen
from fabricheck.records.node_state import BlockedPath, asked_by
from fabricheck.records.verdict import Verdict
from fabricheck.results.node_state import FOLDER, read_states
from fabricheck.suite import suite_root
from fabricheck.topology.model import load_topology
from fabricheck.topology.network import unfold
from tests.support.states import nic, node

NODES = unfold("nid[001-008]")
PROGRAM = ["fabricbench", "--operations=unidirectional", "--sizes=2MiB", "--timeout=20", "--output=result.jsonl"]
# Which nodes it was to start on stands in a file, a line a launch; {fails} ends it.
SRUN = """\
#!/bin/sh
for word; do case $word in --nodelist=*) nodes=${{word#*=}};; --output=*) file=${{word#*=}};; esac; done
[ -n "$file" ] || {{ echo "$nodes" >> asked; exit 0; }}  # the state of the nodes
echo "$nodes $file" >> launched
[ -e "$file" ] && exit 2  # as fabricbench, which writes over no result
echo partial > "$file"
{fails}
exit 0
"""


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    topology = load_topology(suite_root() / "site_configs" / "emulated" / "topology.yaml")
    assert topology.network is not None
    fleet = Fleet(tmp_path, "emulated", "emulated:two-leaves", "all", "1", NODES)
    return Screen(fleet, 1, 60, 10, ("srun",), PROGRAM, topology.network, topology)


def plant(fails: str) -> None:
    program = Path("bin/srun")
    program.parent.mkdir()
    program.write_text(SRUN.format(fails=fails))
    program.chmod(0o755)


def test_a_node_that_stops_the_others_is_excluded_and_the_others_are_measured(screen: Screen) -> None:
    plant('case $nodes in *nid006*) echo "fabricbench: MPI did not start" >&2; exit 1;; esac')
    assert screen.run()
    assert [(each.node, each.verdict) for each in read_findings(Path(TROUBLES))] == [("nid006", Verdict.FAIL)]
    assert screen.fleet.good == tuple(node for node in NODES if node != "nid006")
    launches = json.loads(Path(LAUNCHES).read_text())
    assert [(each["file"], each["nodes"]) for each in launches] == [("screen.jsonl", 7), ("together.jsonl", 7)]
    assert Path("screen.jsonl.failed1").exists()


def test_nodes_leave_their_state_as_in_any_test(screen: Screen) -> None:
    plant("")
    Path("bin/srun").write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done; exec "$@"\n')
    screen._ask_nodes("before")
    assert len(read_states(Path("result.jsonl").absolute()).before) == 1


def test_a_node_that_slurm_names_is_tried_first(screen: Screen) -> None:
    plant('case $nodes in *nid006*) echo "srun: error: Node failure on nid006" >&2; exit 1;; esac')
    assert screen.run()
    launched = [line.split() for line in Path("launched").read_text().splitlines()]
    # The launch, the others, the node twice with them, and then what is left to do.
    files = ["screen.jsonl", "start", "start", "start", "screen.jsonl", "together.jsonl"]
    assert [file for _, file in launched] == files
    assert ["nid006" in nodes for nodes in Path("asked").read_text().splitlines()] == [True, False]
    assert ["nid006" in nodes for nodes, _ in launched] == [True, False, True, True, False, False]
    assert screen.fleet.good == tuple(node for node in NODES if node != "nid006")


def test_a_node_that_starts_and_does_not_get_to_the_end_is_excluded(screen: Screen) -> None:
    said = "fabricbench: no progress for 20 s: nid006 (rank 5) did not report"
    plant(f'case "$nodes $file" in *nid006*screen.jsonl) echo "{said}" >&2; exit 1;; esac')
    assert screen.run()
    (found,) = read_findings(Path(TROUBLES))
    assert (found.node, found.verdict) == ("nid006", Verdict.FAIL)
    assert "did not complete" in found.message
    assert said in found.message


def test_what_fabricbench_refuses_is_no_nodes_fault(screen: Screen) -> None:
    plant('echo "fabricbench: give a whole number" >&2; exit 2')
    assert not screen.run()
    assert len(Path("launched").read_text().splitlines()) == 1
    assert screen.fleet.good == NODES


def test_a_library_without_collectives_for_the_memory_is_asked_for_none(screen: Screen) -> None:
    plant("")
    screen.program = [*PROGRAM, "--implementation=transfers"]
    assert screen.run()
    launches = json.loads(Path(LAUNCHES).read_text())
    assert [each["operations"] for each in launches] == [["unidirectional"], ["alltoall"]]


@pytest.mark.parametrize(("blocked", "excluded"), [("nid006", ("nid006",)), ("leaf0--spine0", ())])
def test_nodes_that_nothing_reaches_are_found_before_anything_is_launched(
    screen: Screen, blocked: str, excluded: tuple[str, ...]
) -> None:
    """Where it may be several nodes, nothing is launched at all."""
    plant("")
    Path(FOLDER).mkdir()
    for host in NODES:
        ways = {to: screen.network.routes(host, to)[0].components for to in asked_by(host, NODES)}
        lost = tuple(BlockedPath("hsn0", to, 60, 0) for to in ways if blocked in (host, to, *ways[to]))
        state = node(host, nics=(nic("hsn0"),), blocked=lost)
        Path(FOLDER, f"{host}.before.json").write_text(json.dumps(asdict(state)))
        Path(FOLDER, f"{host}.unconnected").touch()
    assert screen.run() is Path(LAUNCHES).exists() is bool(excluded)
    assert [(each.node, each.code) for each in screen.fleet.excluded] == [(each, "no-connection") for each in excluded]
