"""A run over a fleet that goes on where an earlier one ended: `srun` and `squeue` on the path are shell scripts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.fleet.node_verdicts import verdict_of_fleet
from fabricheck.fleet.record import FOLDER, TROUBLES, Fleet, did_not_start, not_run, read_findings, write_findings
from fabricheck.fleet.resume import carry_on, is_taken_over
from fabricheck.fleet.sweep import sweep
from fabricheck.topology.network import unfold

NODES = unfold("nid[001-004]")
TEST = "site/gpu/openmpi/Smoke_0a1b2c3d"
PROGRAM = ["sh", "-c", 'echo new > "${1#--output=}"', "fabricbench", "--output=result.jsonl"]
# It writes down on which nodes steps are started; {fails} may end it.
SRUN = """\
#!/bin/sh
while :; do
  case $1 in --nodelist=*) node=${{1#*=}};; sh) break;; esac
  shift
done
echo "$node" >> {log}
{fails}
exec "$@"
"""


def script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def make_run(runs: Path, number: int, place: str = "stage", **values: object) -> Fleet:
    """A run with the folder of one test, which is the current one from then on."""
    run = runs / f"site-{number}"
    (run / FOLDER).mkdir(parents=True)
    (run / place / TEST).mkdir(parents=True)
    fleet = Fleet(run / FOLDER, "site", "site:gpu", "all", "17", NODES, began=f"2026-11-2{number}T00:00:00+00:00")
    fleet = replace(fleet, **values)  # type: ignore[arg-type]
    fleet.write()
    os.chdir(run / place / TEST)
    return fleet


def left(node: str, status: str, content: str = "old\n") -> None:
    folder = Path("nodes") / node
    folder.mkdir(parents=True)
    (folder / "result.jsonl").write_text(content)
    if status:
        (folder / "exit-status").write_text(status)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    script(tmp_path / "bin", "srun", SRUN.format(log=tmp_path / "log", fails=""))
    return tmp_path / "log"


@pytest.mark.parametrize("place", ["output", "stage"])
def test_what_is_whole_is_taken_over_and_the_rest_is_measured(log: Path, tmp_path: Path, place: str) -> None:
    before = make_run(tmp_path, 1, place)
    left("nid001", "0\n")
    left("nid002", "")  # nobody waited for its end
    left("nid003", "0\n", "")  # and this is empty
    write_findings(Path(TROUBLES), [not_run("nid001", "once"), not_run("nid004", "once")])
    fleet = make_run(tmp_path, 2, earlier=(str(before.folder.parent),))
    asks = PROGRAM[:-1]
    for command in (asks, PROGRAM, asks):
        assert sweep(fleet, 1, (20.0, 1.0), ("srun",), command)
    assert sorted(log.read_text().split()) == sorted(3 * ["nid002", "nid003", "nid004"])
    texts = {file.parent.name: file.read_text() for file in Path("nodes").glob("*/result.jsonl")}
    assert texts == {"nid001": "old\n", "nid002": "new\n", "nid003": "new\n", "nid004": "new\n"}
    assert [node for node in NODES if is_taken_over(Path(f"nodes/{node}/result.jsonl"))] == ["nid001"]
    assert read_findings(Path(TROUBLES)) == (not_run("nid001", "once"),)
    # A third run has what both had, also of tests that the second did not come to.
    third = make_run(tmp_path, 3, earlier=(str(fleet.folder.parent), str(before.folder.parent)))
    log.unlink()
    assert sweep(third, 1, (20.0, 1.0), ("srun",), PROGRAM)
    assert not log.exists()


def test_what_was_proved_guilty_is_not_tried_again(log: Path, tmp_path: Path) -> None:
    before = make_run(tmp_path, 1)
    before.exclude([did_not_start("nid002", "it failed twice"), did_not_start("nid009", "is not in this job")])
    fleet = make_run(tmp_path, 2, earlier=(str(before.folder.parent),))
    carry_on(fleet)
    assert [each.node for each in fleet.excluded] == ["nid002"]
    assert sweep(fleet, 1, (20.0, 1.0), ("srun",), PROGRAM)
    assert sorted(log.read_text().split()) == ["nid001", "nid003", "nid004"]


def test_a_job_that_ends_is_no_nodes_fault(log: Path, tmp_path: Path) -> None:
    fails = "case $node in nid003) exit 1;; esac"
    script(tmp_path / "bin", "srun", SRUN.format(log=log, fails=fails))
    # Slurm knows nothing more of a job that is over.
    script(
        tmp_path / "bin", "squeue", '#!/bin/sh\necho "slurm_load_jobs error: Invalid job id specified" >&2\nexit 1\n'
    )
    fleet = make_run(tmp_path, 1)
    assert sweep(fleet, 1, (20.0, 1.0), ("srun",), PROGRAM)
    assert (fleet.excluded, read_findings(Path(TROUBLES))) == ((), ())
    assert "job 17 ended before all was measured" in fleet.ended
    found = verdict_of_fleet(fleet, (), (), ())
    assert found.message == "0 of 4 nodes good, 0 bad, 4 not checked"
    assert set(found.unchecked.values()) == {fleet.ended}
    # The tests after it start no step.
    log.unlink()
    assert not sweep(fleet, 1, (20.0, 1.0), ("srun",), PROGRAM)
    assert not log.exists()


def test_where_slurm_is_silent_the_node_is_to_blame(log: Path, tmp_path: Path) -> None:
    script(tmp_path / "bin", "srun", SRUN.format(log=log, fails="case $node in nid003) exit 1;; esac"))
    script(tmp_path / "bin", "squeue", '#!/bin/sh\necho "error: Unable to contact slurm controller" >&2\nexit 1\n')
    fleet = make_run(tmp_path, 1)
    assert sweep(fleet, 1, (20.0, 1.0), ("srun",), PROGRAM)
    assert ([each.node for each in fleet.excluded], fleet.ended) == (["nid003"], "")


def test_the_nodes_of_a_run_that_resumes() -> None:
    fleet = Fleet(Path(), "site", "site:gpu", "all", "17", NODES, {"nid005": "its state in Slurm is down"})
    assert fleet.wanted == "nid[001-005]"
    assert replace(fleet, asked="idle").wanted == "nid[001-004]"
