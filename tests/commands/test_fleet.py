"""`fabricheck run --nodes` chooses its nodes: `sinfo` on the path is a shell script."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fabricheck.commands.fleet import Wanted, fleet_of, nodes_wanted
from fabricheck.errors import UserError
from fabricheck.fleet.allocation import allocated
from fabricheck.fleet.nodes import choose
from fabricheck.fleet.record import Fleet
from fabricheck.session.reframe import Selection
from fabricheck.store.session import NodeRecord
from fabricheck.suite import Suite
from tests.support.sessions import ROOT, add

SINFO = """\
#!/bin/sh
echo "nid001 idle"
echo "nid002 idle"
echo "nid003 drained"
echo "nid004 idle"
echo "nid005 allocated"
"""
SALLOC = """\
#!/bin/sh
echo "$@" >> {log}
echo "salloc: Granted job allocation 17"
"""
SQUEUE = """\
#!/bin/sh
echo nid[001-002]
"""


@pytest.fixture
def site(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite whose store knows two of the five nodes of a partition of Slurm, nid001 the longest."""
    shutil.copytree(ROOT / "site_configs" / "emulated", root / "site_configs" / "emulated")
    monkeypatch.chdir(root)
    monkeypatch.setenv("FABRICHECK_SUITE", str(root))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    log = tmp_path / "salloc.log"
    (tmp_path / "bin").mkdir()
    for name, text in {
        "sinfo": SINFO,
        "salloc": SALLOC.format(log=log),
        "squeue": SQUEUE,
        "scancel": "#!/bin/sh\n",
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    for night, node in enumerate(("nid004", "nid001")):
        own = {node: NodeRecord(verdict="PASS")}
        add(root, root / "output" / "store", night, system="emulated", level="nightly", nodes=own)
    return root


def chosen(site: Path, asked: str, store: Path) -> Fleet:
    wanted, selection = Wanted(asked, None, 5), Selection("emulated:two-leaves", tags=("smoke",))
    with fleet_of(Suite(site), selection, wanted, None, store) as fleet:
        assert fleet is not None
        return fleet


def test_idle_nodes_are_those_that_waited_longest(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = chosen(site, "idle:2", site / "output" / "store")
    words = (tmp_path / "salloc.log").read_text().split()
    assert {"--nodes=2", "--nodelist=nid[002,004]", "--time=5"} <= set(words)
    assert 200 < fleet.seconds_left <= 300
    assert "3 of 5 nodes of emulated:two-leaves are idle, and the job uses 2" in capsys.readouterr().err
    # Those that were taken meanwhile are not waited for as long as others.
    with allocated(choose("idle", {"nid001": "idle"}, "site:gpu"), {"scheduler": "slurm"}, 5):
        assert "--immediate=60" in (tmp_path / "salloc.log").read_text().splitlines()[-1]
    # Where there is no store yet, Slurm's order is as good as any.
    chosen(site, "idle:2", tmp_path / "none")
    assert "--nodelist=nid[001-002]" in (tmp_path / "salloc.log").read_text().splitlines()[-1]
    assert "idle nodes are taken in Slurm's order" in capsys.readouterr().err
    with pytest.raises(UserError, match="idle:x is not among"):
        chosen(site, "idle:x", site / "output" / "store")


def test_a_list_says_which_nodes_a_run_would_take_and_asks_for_no_job(site: Path, tmp_path: Path) -> None:
    suite, selection = Suite(site), Selection("emulated:two-leaves", tags=("smoke",))
    Wanted("all", None, 5).check(only_list=True)
    assert "nid[002" in nodes_wanted(suite, selection, Wanted("nid[002,004]", None, 5))
    assert nodes_wanted(suite, selection, Wanted(None, None, None)) == ""
    with pytest.raises(UserError, match="idle:x is not among"):
        nodes_wanted(suite, selection, Wanted("idle:x", None, 5))
    assert not (tmp_path / "salloc.log").exists()


def test_a_job_that_gets_fewer_nodes_says_which_it_did_not_get(site: Path, tmp_path: Path) -> None:
    fleet = chosen(site, "nid[001-005]", tmp_path / "none")
    assert fleet.nodes == ("nid001", "nid002")
    assert fleet.unchecked == {
        "nid003": "its state in Slurm is drained",
        "nid004": "not allocated to the job",
        "nid005": "not allocated to the job",
    }


@pytest.mark.parametrize(("asked", "count"), [("nid001", 1), ("nid[001-002]", 2), ("nid[001-002],nid004", 3)])
def test_one_or_two_nodes_are_told_that_they_have_no_equals(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str, count: int
) -> None:
    chosen(site, asked, tmp_path / "none")
    assert ("with one or two nodes there are no peers" in capsys.readouterr().err) == (count < 3)
