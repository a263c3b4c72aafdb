"""Which of several launches counts, and when one more could still change that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import LAUNCHES, Launched, is_open, read_launched, that_counts, write_launched

P, D, N, F = Verdict.PASS, Verdict.DEGRADED, Verdict.INCOMPLETE, Verdict.FAIL


@pytest.mark.parametrize(
    ("verdicts", "counts"),
    [((D,), D), ((D, P), D), ((D, P, P), P), ((D, P, D), D), ((D, N, P), D), ((D, N, N), D), ((D, P, F), F)],
)
def test_most_of_those_that_ended_decide(verdicts: tuple[Verdict, ...], counts: Verdict) -> None:
    assert that_counts(verdicts) is counts


@given(st.lists(st.sampled_from(list(Verdict)), max_size=4), st.sampled_from([1, 3, 5]))
def test_what_is_settled_no_later_launch_that_measures_speed_changes(later: list[Verdict], most: int) -> None:
    verdicts = [D, *later][:most]
    if not is_open(verdicts, most):
        counts = that_counts(verdicts)
        for more in range(most - len(verdicts) + 1):
            for one in (P, D, N):
                assert that_counts([*verdicts, *[one] * more]) is counts


def test_what_was_launched_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_launched(tmp_path) == ()
    launched = (Launched("A @s:p+e", ("DEGRADED", "on other nodes", "PASS"), "DEGRADED"),)
    write_launched(tmp_path, launched)
    assert read_launched(tmp_path) == launched


@pytest.mark.parametrize("text", ["", "3", "[3]", '[{"case": "A"}]', '[{"case": 1, "said": 2}]'])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / LAUNCHES).write_text(text)
    with pytest.raises(UserError, match=LAUNCHES):
        read_launched(tmp_path)
