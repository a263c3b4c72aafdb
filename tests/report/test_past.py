"""What a store adds to a report: a session judged again, its history, and no failure because of either."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.history import store_tables
from fabricheck.history.folders import remove_samples
from fabricheck.history.writing import append
from fabricheck.records.verdict import Verdict
from fabricheck.report.past import past_of, stored_session
from tests.support.findings import bad_finding, note
from tests.support.result_files import CUDA
from tests.support.sessions import NOW, add, result_file, session_of


def session(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000"


def test_the_latest_session_is_judged_again(root: Path, store: Path) -> None:
    add(root, store, 0)
    problem = bad_finding(Verdict.INCOMPLETE, "12 test cases were selected and 11 were run")
    _, judged = add(root, store, 1, runs=2, problems=[problem], findings=[note("it scales")])
    found = stored_session(store, "local", None, root)
    assert (found.session, found.started) == (session(1), "2026-09-02T02:00:00Z")
    assert [store_tables.judgement_bytes(each) for each in found.judged] == [
        store_tables.judgement_bytes(each) for each in judged
    ]
    assert found.problems == (problem,)
    assert found.findings == (note("it scales"),)
    assert found.notes == ()
    assert stored_session(store, "local", "00000000", root).session == session(0)


def test_another_yardstick_is_said(root: Path, store: Path) -> None:
    add(root, store, 0)
    file = root / "config" / "policy.yaml"
    file.write_text(file.read_text() + "# a comment\n")
    (note,) = stored_session(store, "local", None, root).notes
    assert note == "Changed since the session was stored: policy"


def test_a_session_without_samples_is_one_line(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    remove_samples(entry, "2026-11-21T00:00:00Z")
    with pytest.raises(
        UserError, match=r"the samples of session 00000000-.* were pruned, so it cannot be judged again"
    ):
        stored_session(store, "local", None, root)


def test_sessions_that_are_not_there(root: Path, store: Path) -> None:
    with pytest.raises(UserError, match="there is no store"):
        stored_session(store, "local", None, root)
    add(root, store, 0)
    with pytest.raises(UserError, match="has no runs of the system 'hgx-h200'"):
        stored_session(store, "hgx-h200", None, root)
    with pytest.raises(UserError, match="no session '7'"):
        stored_session(store, "local", "7", root)


def test_the_history_ends_with_the_session(root: Path, store: Path) -> None:
    for number in range(3):
        add(root, store, number)
    past = past_of(store, "local", root, session=session(1))
    assert past.watched is not None and past.notes == () and past.comparison is None
    assert [each.session for each in past.watched.result.sessions] == [session(0), session(1)]
    assert past.watched.result.count("warming up") == len(past.watched.result.states) > 0


def test_what_changed_since_another_session(root: Path, store: Path) -> None:
    for number in range(3):
        add(root, store, number)
    found = past_of(store, "local", root, session=session(1), base=session(0)).comparison
    assert found is not None
    assert (found.base.sessions, found.candidate.sessions) == ((session(0),), (session(1),))
    found = past_of(store, "local", root, session=session(1), base=session(0), candidate=session(2)).comparison
    assert found is not None and found.candidate.sessions == (session(2),)


def test_a_selection_that_means_nothing_is_a_mistake(root: Path, store: Path) -> None:
    add(root, store, 0)
    for base, candidate, message in (
        ("tag:none", None, "no run with the tag 'none' in the history"),
        (session(0), "2030-01-01..", "no 2030-01-01"),
    ):
        with pytest.raises(UserError, match=message):
            past_of(store, "local", root, session=session(0), base=base, candidate=candidate)


def test_what_cannot_be_compared_is_a_note(root: Path, store: Path) -> None:
    add(root, store, 0)
    past = past_of(store, "local", root, session=session(0), base=session(0))
    assert past.watched is not None and past.comparison is None
    (note,) = past.notes
    assert note.startswith("No comparison is shown: ") and "share 1 runs" in note


def test_a_refused_history_is_a_note(root: Path, store: Path) -> None:
    """A run whose clock was ahead by a year when it was stored with a clock that was too."""
    add(root, store, 0)
    later = session_of(root, 9999, [result_file(root / "later", 9999)])
    append(store, later, later.ended)
    past = past_of(store, "local", root, session=session(0), base=session(0))
    assert (past.watched, past.comparison) == (None, None)
    (note,) = past.notes
    assert note.startswith("No history is shown: ") and "is in the future" in note


def test_a_damaged_neighbour_is_a_note(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    add(root, store, 1)
    (entry.path / "metrics.parquet").write_bytes(b"")
    assert stored_session(store, "local", None, root).session == session(1)
    (note,) = past_of(store, "local", root, session=session(1)).notes
    assert "metrics.parquet" in note


def test_accepted_changes_that_cannot_be_read_are_a_note(root: Path, store: Path) -> None:
    add(root, store, 0)
    file = root / "reference_values" / "accepted" / "local.yaml"
    file.parent.mkdir()
    file.write_text("- since: tomorrow\n")
    past = past_of(store, "local", root, session=session(0), base=session(0))
    assert past.watched is None
    assert "accepted/local.yaml" in past.notes[0]


def test_a_session_that_measured_nothing_right_has_no_history(root: Path, store: Path) -> None:
    (root / "broken.jsonl").write_text("")
    append(store, session_of(root, 0, [root / "broken.jsonl"]), NOW)
    append(store, session_of(root, 1, [result_file(root, 1, source=CUDA)], system="hgx-h200"), NOW)
    found = stored_session(store, "local", None, root)
    assert [each.verdict for each in found.judged] == [Verdict.INCOMPLETE]
    (note,) = past_of(store, "local", root, session=session(0)).notes
    assert note.startswith("No history is shown: ")
