"""Steps with real processes: `srun` on the path is a shell script that fails as a node would."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.fleet.record import TROUBLES, Fleet, read_findings
from fabricheck.fleet.steps import Ended
from fabricheck.fleet.sweep import findings_of, sweep
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import unfold

NODES = unfold("nid[001-007]")
# What it is called with before the command does not matter here, but for the node.
SRUN = """\
#!/bin/sh
while :; do
  case $1 in --nodelist=*) node=${1#*=};; sh) break;; esac
  shift
done
case $node in
nid002) echo "srun: error: Task launch for StepId=1.2 failed on node nid002: Socket timed out"; exit 1;;
nid003) exec sleep 60;;
nid004) [ -e once ] || { touch once; exit 9; };;
esac
exec "$@"
"""


# By the launcher, the word that names the node. No PBS or Flux is to be had here: these stand in for their launchers.
WORDS = {"srun": "--nodelist=*", "mpirun": "*:2", "mpiexec": "nid*", "flux": "--requires=host:*"}
NAME = "$(expr $1 : '.*\\(nid...\\)')"


@pytest.fixture(params=WORDS)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    program = tmp_path / "bin" / request.param
    program.parent.mkdir()
    program.write_text(SRUN.replace("--nodelist=*", WORDS[request.param]).replace("${1#*=}", NAME))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_node_costs_its_own_result_only(place: Path) -> None:
    (launcher,) = [program.name for program in (place / "bin").iterdir()]
    fleet = Fleet(place, "site", "site:gpu", "all", "1", NODES)
    program = ["sh", "-c", 'echo measured > "${1#--output=}"', "fabricbench", "--output=result.jsonl"]
    good = ("nid001", "nid004", "nid005", "nid006", "nid007")
    assert sweep(fleet, 2, (60.0, 1.0), (launcher,), program)
    assert sorted(each.parent.name for each in place.glob("nodes/*/result.jsonl")) == list(good)
    found = {each.node: each for each in read_findings(place / TROUBLES)}
    assert {node: each.code for node, each in found.items()} == {
        "nid002": "node-did-not-start",
        "nid003": "node-did-not-start",
        "nid004": "node-did-not-run",
    }
    assert "Task launch for StepId=1.2 failed on node nid002" in found["nid002"].message
    assert "no result" in found["nid003"].message
    assert "failed once and then worked" in found["nid004"].message
    assert Fleet(place, "site", "site:gpu", "all", "1", NODES).good == good


def test_where_most_fail_no_node_is_excluded() -> None:
    ended = dict.fromkeys(NODES[:3], Ended(127, 0.1, "fabricbench: not found"))
    assert not any(each.verdict is Verdict.FAIL for each in findings_of(ended, ended, 5))
    assert all(each.verdict is Verdict.FAIL for each in findings_of(ended, ended, 6))
