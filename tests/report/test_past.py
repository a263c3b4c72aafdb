"""What a store adds to a report: a session judged again, its history, and no failure because of either."""

from __future__ import annotations

from pathlib import Path

from fabricheck.report.past import past_of
from fabricheck.store.writing import append
from tests.support.result_files import CUDA
from tests.support.sessions import NOW, add, result_file, session_of


def session(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000"


def test_the_history_ends_with_the_session(root: Path, store: Path) -> None:
    for number in range(3):
        add(root, store, number)
    past = past_of(store, "local", root, session=session(1))
    assert past.watched is not None and past.notes == ()
    assert [each.session for each in past.watched.result.sessions] == [session(0), session(1)]
    assert past.watched.result.count("warming up") == len(past.watched.result.states) > 0


def test_a_refused_history_is_a_note(root: Path, store: Path) -> None:
    """A run whose clock was ahead by a year when it was stored with a clock that was too."""
    add(root, store, 0)
    later = session_of(root, 9999, [result_file(root / "later", 9999)])
    append(store, later, later.ended)
    past = past_of(store, "local", root, session=session(0))
    assert past.watched is None
    (note,) = past.notes
    assert note.startswith("No history is shown: ") and "is in the future" in note


def test_a_damaged_neighbour_is_a_note(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    add(root, store, 1)
    (entry.path / "metrics.parquet").write_bytes(b"")
    (note,) = past_of(store, "local", root, session=session(1)).notes
    assert "metrics.parquet" in note


def test_accepted_changes_that_cannot_be_read_are_a_note(root: Path, store: Path) -> None:
    add(root, store, 0)
    file = root / "reference_values" / "accepted" / "local.yaml"
    file.parent.mkdir()
    file.write_text("- since: tomorrow\n")
    past = past_of(store, "local", root, session=session(0))
    assert past.watched is None
    assert "accepted/local.yaml" in past.notes[0]


def test_a_session_that_measured_nothing_right_has_no_history(root: Path, store: Path) -> None:
    (root / "broken.jsonl").write_text("")
    append(store, session_of(root, 0, [root / "broken.jsonl"]), NOW)
    append(store, session_of(root, 1, [result_file(root, 1, source=CUDA)], system="hgx-h200"), NOW)
    (note,) = past_of(store, "local", root, session=session(0)).notes
    assert note.startswith("No history is shown: ")
