"""Which of several launches counts, and when one more could still change that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.records.case import NODES
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import LAUNCHES, Launch, Launched, is_open, read_launched, that_counts, write_launched
from fabricheck.session.reading import Session
from tests.support.sessions import case

P, N, F = (Launch(each) for each in (Verdict.PASS, Verdict.INCOMPLETE, Verdict.FAIL))
# Slow by one thing, by another, and by both.
A, B, AB = (Launch(Verdict.DEGRADED, frozenset(each)) for each in ("a", "b", "ab"))


@pytest.mark.parametrize(
    ("launches", "counts"),
    [
        ((A,), 0),
        ((A, P), 0),
        ((A, P, P), 2),
        ((A, P, A), 2),
        ((A, N, P), 0),
        ((A, N, N), 0),
        ((A, P, F), 2),
        ((A, B, P), 2),
        ((A, P, B), 1),
        ((A, B, AB), 2),
        ((A, B), 0),
    ],
)
def test_most_of_those_that_ended_decide(launches: tuple[Launch, ...], counts: int) -> None:
    assert that_counts(launches) == counts


def test_what_is_slow_by_something_else_each_time_is_not_green() -> None:
    other = Launch(Verdict.DEGRADED, frozenset("c"))
    assert (A, B, other)[that_counts((A, B, other))].verdict is Verdict.DEGRADED


@given(st.lists(st.sampled_from([P, N, F, A, B, AB]), max_size=4), st.sampled_from([1, 3, 5]))
def test_what_is_settled_no_later_launch_that_measures_speed_changes(later: list[Launch], most: int) -> None:
    launches = [A, *later][:most]
    if not is_open(launches, most):
        verdict = launches[that_counts(launches)].verdict
        for one in (P, A, B, AB, N):
            more = [*launches, *[one] * (most - len(launches))]
            assert more[that_counts(more)].verdict is verdict


def test_what_was_launched_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_launched(tmp_path) == ()
    launched = (Launched("A @s:p+e", ("DEGRADED", "on other nodes", "PASS"), "DEGRADED", "", "nid001"),)
    write_launched(tmp_path, launched)
    assert read_launched(tmp_path) == launched


@pytest.mark.parametrize("text", ["", "3", "[3]", '[{"case": "A"}]', '[{"case": 1, "said": 2}]'])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / LAUNCHES).write_text(text)
    with pytest.raises(UserError, match=LAUNCHES):
        read_launched(tmp_path)


def test_of_a_fleet_the_files_of_one_node_are_those_of_another_launch(tmp_path: Path) -> None:
    first, second = (tmp_path / each / "stage" / "Smoke" for each in ("run", "run/launch-2"))
    for folder, nodes in ((first, ("nid001", "nid002")), (second, ("nid002",))):
        for node in nodes:
            (folder / NODES / node).mkdir(parents=True)
            (folder / NODES / node / "result.jsonl").write_text("{}\n")
    why = "performance error: DEGRADED: nid002: slow"
    slow = case(name="Smoke", folder=first, result="fail", phase="performance", reason=why)
    session = Session.of(tmp_path / "run", [slow], 1)
    assert [each.verdict for each in session.problems] == [Verdict.DEGRADED]
    again = session.instead(case(name="Smoke", folder=second), "nid002")
    assert [file.relative_to(tmp_path / "run").parts[0] for file in again.files] == ["launch-2", "stage"]
    assert again.problems == ()
    # What else is wrong with the test stays.
    hung = case(name="Smoke", folder=first, result="fail", phase="performance", reason="INCOMPLETE: nid001: hung")
    session = Session.of(tmp_path / "run", [hung], 1)
    assert session.instead(case(name="Smoke", folder=second), "nid002").problems == session.problems
