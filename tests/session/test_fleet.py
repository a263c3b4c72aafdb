"""What a run over many nodes comes to that was ended, and what is stored of the one that resumes it."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.fleet import allocation
from fabricheck.fleet.record import FILE, FOLDER, Fleet
from fabricheck.fleet.resume import JOB_ID
from fabricheck.records.case import NODES
from fabricheck.records.verdict import Verdict
from fabricheck.session.abandoned import (
    LAST,
    RUN,
    Started,
    chosen_by,
    end_jobs,
    find_earlier,
    read_abandoned,
)
from fabricheck.session.outcome import judge_session
from fabricheck.session.reframe_report import level_of
from fabricheck.session.run_folders import VERDICT
from fabricheck.session.storing import store_session
from fabricheck.store.reading import entries_of
from fabricheck.store.session import NodeRecord, read_record
from fabricheck.suite import Suite
from tests.support.sessions import make_suite, result_file


def make_run(folder: Path, name: str, results: dict[str, int], *earlier: str) -> Path:
    """The folder of a run over nodes that was killed in the middle of its only test, with a result of some nodes."""
    run = folder / name
    (run / FOLDER).mkdir(parents=True)
    Fleet(run / FOLDER, "local", "local:default", "all", "17", ("nid001", "nid002", "nid003"), earlier=earlier).write()
    (run / RUN).write_text(json.dumps(asdict(Started.now("local", 1))))
    test = run / "stage" / "local" / "default" / "openmpi" / "SmokeHost_0a1b2c3d"
    for node, number in results.items():
        result_file(test / NODES / node, 1, number).rename(test / NODES / node / "result.jsonl")
    return run


def test_of_a_killed_run_is_judged_what_each_node_left(tmp_path: Path) -> None:
    run = make_run(tmp_path, "local-1", {"nid001": 1, "nid002": 2})
    session = read_abandoned(run)
    (case,) = session.cases
    assert (case.name, len(session.files)) == ("SmokeHost", 2)
    outcome = judge_session(session, Suite(make_suite(tmp_path / "suite")), "local")
    assert outcome.fleet is not None
    assert (outcome.fleet.good, outcome.verdict) == ((), Verdict.INCOMPLETE)
    assert "--resume" in list(outcome.fleet.unchecked.values())[-1]


@pytest.mark.parametrize("job", ["--name=other", "1 2", "17,18", 17, None])
def test_a_job_is_a_number(tmp_path: Path, job: object) -> None:
    """It becomes a word of scancel, which may be root's."""
    run = make_run(tmp_path, "local-1", {})
    content = json.loads((run / FOLDER / FILE).read_text())
    (run / FOLDER / FILE).write_text(json.dumps({**content, "job": job}))
    with pytest.raises(UserError, match=r"fleet\.json: is damaged: job"):
        Fleet.of_run(run)


def test_what_was_taken_over_is_judged_again_and_stored_once(tmp_path: Path) -> None:
    suite, store = Suite(make_suite(tmp_path / "suite")), tmp_path / "store"
    first = make_run(tmp_path, "local-1", {"nid001": 1, "nid002": 2})
    second = make_run(tmp_path, "local-2", {"nid001": 1, "nid002": 2, "nid003": 3}, str(first))
    for node in ("nid001", "nid002"):
        (taken,) = second.glob(f"stage/**/{node}")
        (taken / "taken-over").write_text(str(first))
    for run in (first, second):
        session = read_abandoned(run)
        outcome = judge_session(session, suite, "local")
        store_session(store, session, outcome, suite, "local")
    (told,) = (each.message for each in outcome.findings if each.code == "taken-over")
    assert told.startswith("2 of 3 ")
    assert len(outcome.judged) == 3
    stored = [read_record(entry) for entry in entries_of(store, "local")]
    assert sorted(len(each.runs) for each in stored) == [1, 2]
    # Neither came to its end: nobody is verified, though each left a result.
    assert [each.nodes for each in stored] == [{"nid001": NodeRecord(verdict="INCOMPLETE")}] * 2


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("reframe --system=site:gpu --tag=nightly --prgenv=gnu --run", "nightly"),
        ("reframe --tag=smoke --tag=vendor -r", "smoke+vendor"),
        ("reframe --tag=nightly --name=PeerCopies", "nightly, in part"),
        ("reframe -n 'Smoke Libraries' -r", "all checks, in part"),
        ("reframe --tag nightly", "all checks, in part"),
        ("reframe -c checks --run", "all checks"),
        ("", None),
    ],
)
def test_what_a_node_was_verified_by_is_what_was_asked_for(words: str, level: str | None) -> None:
    assert level_of(shlex.split(words)) == level


def leave_job(run: Path, *words: str) -> None:
    folder = run / "stage" / "local" / "default" / "openmpi" / "shared-job-1"
    folder.mkdir(parents=True)
    (folder / JOB_ID).write_text(json.dumps(words))


def test_the_job_of_a_killed_run_is_cancelled_by_its_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(allocation, "ask_slurm", asked.append)
    leave_job(tmp_path, "slurm", "fabricheck-1", "17")
    end_jobs(tmp_path)
    assert asked == [["scancel", "--quiet", "--name=fabricheck-1", "17"]]


def test_a_process_that_has_the_number_of_an_ended_job_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as other:
        leave_job(tmp_path, "local", "fabricheck-1", str(other.pid))
        end_jobs(tmp_path)
        assert other.poll() is None
        other.kill()


def test_which_run_is_resumed(tmp_path: Path) -> None:
    over_nodes = make_run(tmp_path, "local-20261120T030000Z", {"nid001": 1})
    plain, open_ = (tmp_path / f"local-20261120T0{hour}0000Z" for hour in (4, 5))
    for run in (plain, open_):
        run.mkdir()
        (run / RUN).write_text(json.dumps(asdict(Started.now("local", 1))))
    for run in (over_nodes, plain):
        (run / VERDICT).write_text("{}")
    assert find_earlier(tmp_path, "local", LAST, over_nodes=False) == plain
    assert not any(chosen_by(plain).values())
    (plain / RUN).write_text(json.dumps(asdict(Started.now("local", 1, {"tags": ("smoke",)}))))
    assert chosen_by(plain) == {"tags": ("smoke",), "names": (), "environments": ()}
    assert find_earlier(tmp_path, "local", LAST, over_nodes=True) == over_nodes
    for named in (over_nodes.name, str(over_nodes)):
        assert find_earlier(tmp_path, "local", named, over_nodes=False) == over_nodes
    for system, named in (("other", LAST), ("local", "local-9"), ("local", open_.name)):
        with pytest.raises(UserError):
            find_earlier(tmp_path, system, named, over_nodes=False)
