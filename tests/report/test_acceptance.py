"""The acceptance document: a row for each node and part, none better than its worst metric, the same in CSV."""

from __future__ import annotations

import csv
import re
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.records.verdict import Verdict
from fabricheck.report.acceptance import HEAD, acceptance_rows, write_acceptance
from tests.support.effort import effort
from tests.support.synthetic import pair_run

PAIRS = [*permutations(range(4), 2)]


@settings(max_examples=effort(20), deadline=None)
@given(st.dictionaries(st.sampled_from(PAIRS), st.sampled_from([*Verdict][1:]), max_size=3))
def test_each_part_has_a_row_that_is_red_with_its_worst_pair(bad: dict[tuple[int, int], Verdict]) -> None:
    run = pair_run(bad=bad)
    rows = [row for row in acceptance_rows([run], by_test=True) if "goodput" in row.test]
    assert [(row.node, row.part, row.metrics) for row in rows] == [("nid001", f"GPU {gpu}", 6) for gpu in range(4)]
    for gpu, row in enumerate(rows):
        own = [verdict for pair, verdict in bad.items() if gpu in pair]
        worst = max(own, key=[*Verdict].index, default=Verdict.PASS)
        assert row.verdict == worst.value
    on_paper = acceptance_rows([run], by_test=False)
    assert [(row.part, row.verdict) for row in on_paper[:4]] == [(row.part, row.verdict) for row in rows]
    assert sum(row.metrics for row in on_paper) == sum(row.metrics for row in acceptance_rows([run], by_test=True))


def write(path: Path, verdict: Verdict = Verdict.FAIL) -> Path:
    runs = [pair_run(bad={(0, 3): Verdict.FAIL}, path="<b>x", clock={"overhead_ns": each}) for each in (35, 28)]
    return write_acceptance(
        runs, path, title="s", system="s", verdict=verdict, exclusions=["nid002 was not tested: <b>down</b>"]
    )


def test_the_paper_has_the_worst_rows_of_the_table(tmp_path: Path) -> None:
    table = write(tmp_path / "acceptance.html")
    rows = [*csv.reader(table.read_text(encoding="utf-8").splitlines())]
    assert tuple(rows[0]) == HEAD and len(rows) > 8
    source = (tmp_path / "acceptance.html").read_text()
    cells = [re.findall(r"<td>([^<\n]*)", line) for line in source.splitlines() if line.startswith("<tr")]
    on_paper = [row for row in cells if row]
    assert 0 < len(on_paper) < len(rows) - 1
    assert {(*row[:3], *row[4:]) for row in on_paper} <= {(*row[:3], *row[4:]) for row in rows}
    assert "nid002 was not tested" in source and "<b>down" not in source and "<script" not in source
    assert source.count("fabricbench ") == 1  # of two runs, whose clocks took different times
    assert "<details" not in source  # what is closed is not printed


def test_the_document_is_not_written_over_another_file(tmp_path: Path) -> None:
    other = tmp_path / "result.jsonl"
    other.write_text("{}\n")
    with pytest.raises(UserError, match="not an HTML page"):
        write(other)
    with pytest.raises(UserError, match="name the document"):
        write(tmp_path / "rows.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["result.jsonl"]
