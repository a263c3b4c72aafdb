"""What a run over many nodes comes to that was ended, and what is stored of the one that resumes it."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from fabricheck.fleet.record import FOLDER, Fleet
from fabricheck.records.case import NODES
from fabricheck.records.verdict import Verdict
from fabricheck.session.abandoned import RUN, Started, read_abandoned
from fabricheck.session.outcome import judge_session
from fabricheck.session.reading import level_of
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
    assert "--resume" in outcome.fleet.unchecked[-1].why


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
    assert f"2 of 3 result files were taken over from {first}, not measured again" in [
        each.message for each in outcome.findings
    ]
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
