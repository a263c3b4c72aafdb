"""The table on a terminal: worst first, and never longer than a screen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabricheck.records.verdict import Verdict
from fabricheck.report.lines import summary
from tests.report.test_html import BAD, REFERENCE
from tests.support.effort import effort
from tests.support.findings import bad_finding, note
from tests.support.nodes import system
from tests.support.pages import render
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples

VERDICTS = st.sampled_from(list(Verdict))
OF_PROBLEMS = st.sampled_from([each for each in Verdict if each is not Verdict.PASS])


def test_pairs_that_pass_are_one_row() -> None:
    text = render([pair_run()], width=140, color=False)
    assert text.startswith("PASS")
    assert "all only against the minimum" in text.splitlines()[0]
    (row,) = [line for line in text.splitlines() if " 1GiB " in line and "worst" in line]
    assert "12, worst 0→3" in row
    assert "of 600.0" in row
    assert "183.2 %" in row
    assert row.endswith("minimum")


def test_a_bad_pair_has_a_row_and_its_reason() -> None:
    fine = [judgement(samples((0, each), GIB), reference=REFERENCE) for each in (1, 2)]
    lines = render([judged([*fine, BAD])], width=120, color=False).splitlines()
    assert lines[0].startswith("DEGRADED    1 run: 1 DEGRADED; 3 metrics: 1 DEGRADED, 2 PASS")
    row = next(number for number, line in enumerate(lines) if "0→3" in line)
    wanted = r"^DEGRADED +pingpong 1GiB +0→3 +900.0 Gb/s +112.5 GB/s +81.8 %  of 1,100  reference$"
    assert re.search(wanted, lines[row])
    assert lines[row + 1].strip() == BAD.reason
    assert "2, worst 0→1" in lines[row + 2]
    assert "(3 against references)" in lines[0]


def test_a_collective_has_the_bus_bandwidth_of_nccl_tests() -> None:
    """algbw times 2(n-1)/n of n = 4 ranks; nccl-tests, doc/PERFORMANCE.md."""
    allreduce = judgement(samples((0, 1, 2, 3), GIB, operation="allreduce"), value=1600.0)
    (row,) = [line for line in render([judged([allreduce])], width=120, color=False).splitlines() if "1,600" in line]
    assert "1,600 Gb/s  300.0 GB/s bus" in row


@pytest.mark.parametrize("ranks", [4, 8])
def test_the_pairs_of_a_node_are_a_matrix_as_nvbandwidth_prints_it(ranks: int) -> None:
    devices = [replace(rank(each), device=replace(rank(each).device, index=each + 1)) for each in range(ranks)]  # type: ignore[type-var]
    run = pair_run(ranks=ranks, bad={(0, 1): Verdict.FAIL})
    run = replace(run, run=replace(run.run, ranks=tuple(devices)))
    lines = render([run], width=80, color=False).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("GPU to GPU: pingpong"))
    assert lines[start + 1].split() == [str(each + 1) for each in range(ranks)]
    rows = [line.split() for line in lines[start + 2 : start + 2 + ranks]]
    assert [row[0] for row in rows] == [str(each + 1) for each in range(ranks)]
    values = {each.samples.ranks: each.value / 8 for each in run.judgements if each.better == "higher"}
    for source, row in enumerate(rows):
        for destination, cell in enumerate(row[1:]):
            if source == destination:
                assert cell == "N/A"
            else:
                assert cell.endswith("*") is ((source, destination) == (0, 1))
                assert float(cell.rstrip("*")) == pytest.approx(values[source, destination], abs=0.005)
    assert lines[start + 2 + ranks] == "    * is not PASS"


def test_what_a_suspect_has_as_evidence_is_no_line_again() -> None:
    bad = {pair: Verdict.DEGRADED for pair in ((0, 2), (2, 0), (1, 2), (2, 1), (3, 2), (2, 3))}
    run = replace(pair_run(bad=bad), topology=system("hgx-h200"))
    slow = bad_finding(Verdict.DEGRADED, "nid001:gpu2 is slow: 6 metrics are slower than their equals", "nid001:gpu2")
    other = bad_finding(Verdict.DEGRADED, "something else is slow")
    text = render([run], width=120, color=False, problems=[slow, other])
    assert text.count("SUSPECT     nid001 GPU 2") == 1
    assert slow.message not in text
    assert other.message in text


def test_what_a_run_failed_by_has_a_line_and_is_told_once() -> None:
    """A run that has nothing slow is counted; one with a metric of its own is shown with that."""
    shared = bad_finding(Verdict.INCOMPLETE, "out/result.jsonl: no path is proven", code="path-unproven")
    own = bad_finding(Verdict.INCOMPLETE, "out/result.jsonl:3: a line is missing", code="result-damaged")
    same = [pair_run(problems=[shared])] * 20
    red = pair_run(problems=[shared], bad={(0, 1): Verdict.FAIL})
    for height in (40, 1000):
        text = render([*same, pair_run(problems=[own]), red], width=200, color=False, height=height, system="s")
        lines = text.splitlines()
        (line,) = [line for line in lines if "no path is proven" in line]
        assert line.endswith("(21 runs)")
        assert any("and 21 more runs: 21 INCOMPLETE" in line for line in lines)
        assert f"INCOMPLETE  {summary(own, system='s', message='line 3: a line is missing')}" in lines
        assert any(line.startswith("FAIL") and "0→1" in line for line in lines)


def test_red_runs_are_shown_in_full_before_green_ones() -> None:
    """Twenty runs that pass may not push the reason of the one that fails off the screen."""
    bad = pair_run(bad={(2, 1): Verdict.FAIL})
    text = render([*[pair_run()] * 20, bad], width=120, color=False)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert any(line.startswith("FAIL") and "2→1" in line for line in lines)
    assert "96 Gb/s is what it is (FAIL" in text
    assert "20 PASS" in lines[0]


def test_only_pass_is_green() -> None:
    problems = [bad_finding(verdict, "something") for verdict in Verdict if verdict is not Verdict.PASS]
    runs = [pair_run(problems=[each]) for each in problems]
    text = render([pair_run(), *runs], width=100, color=True)
    green = re.findall(r"\x1b\[(?:32|92)[^m]*m(?:\x1b\[1m)?([A-Z]+)", text)
    assert set(green) == {"PASS"}
    colors = {verdict: set(re.findall(rf"\x1b\[(\d+)m(?:\x1b\[1m)?{verdict.value}", text)) for verdict in Verdict}
    assert all(len(found) == 1 for found in colors.values())
    assert len(set.union(*colors.values())) == len(Verdict)
    assert "\x1b" not in render(runs, width=100, color=False)


def test_colour_changes_nothing_else() -> None:
    runs = [pair_run(bad={(0, 1): Verdict.FAIL}), pair_run()]
    coloured = render(runs, width=90, color=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render(runs, width=90, color=False)


def test_names_cannot_move_the_cursor() -> None:
    run = pair_run(command=["\x1b[2J"], transport="\x1b]0;owned\x07")
    assert "\x1b" not in render([run], width=100, color=False)


@settings(max_examples=effort(60), deadline=None)
@given(
    bad=st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1]),
            VERDICTS,
            max_size=12,
        ),
        max_size=12,
    ),
    problems=st.lists(st.tuples(OF_PROBLEMS, st.text(max_size=400)), max_size=30),
    findings=st.lists(st.text(max_size=400), max_size=30),
    width=st.integers(40, 160),
    height=st.integers(24, 60),
)
@example(
    bad=[dict(zip([(0, 1), (0, 2), (1, 0), (2, 3)], list(Verdict), strict=False))] * 11 + [{}],
    problems=[(Verdict.INVALID, "something"), (Verdict.FAIL, "else")],
    findings=["something", "else"],
    width=47,
    height=24,
)
def test_it_fits_the_screen_and_says_the_worst(
    bad: list[dict[tuple[int, int], Verdict]],
    problems: list[tuple[Verdict, str]],
    findings: list[str],
    width: int,
    height: int,
) -> None:
    notes = list(map(note, findings))
    found = [bad_finding(verdict, message) for verdict, message in problems]
    runs = [pair_run(bad=each, problems=found if number % 3 == 0 else ()) for number, each in enumerate(bad)]
    text = render(runs, width=width, color=False, height=height, problems=found, findings=notes)
    lines = text.splitlines()
    assert sum(max(-(-len(line) // width), 1) for line in lines) <= height
    assert max(len(line) for line in lines if not re.search("(fabricheck|nvidia-smi|amd-smi) ", line)) <= width
    order = list(Verdict)
    verdicts = [each for pairs in bad for each in pairs.values()] + [verdict for verdict, _ in problems]
    worst = max([*verdicts, Verdict.PASS if runs else Verdict.INCOMPLETE], key=order.index)
    assert lines[0].split()[0] == worst.value


def test_a_pass_says_how_much_it_means_and_what_makes_it_mean_more() -> None:
    """A share of a guess beside a bound of 2% of it reads as if one were the other."""
    host = judgement(samples((0, 1), GIB, operation="allreduce"), value=90000.0)
    known = judgement(samples((0, 3), GIB), reference=REFERENCE)
    text = render([judged([host])], width=120, color=False, system="mysite")
    (row,) = [line for line in text.splitlines() if "allreduce" in line and "90,000" in line]
    assert row.split()[-5:] == ["150.0", "x", "of", "600.0", "minimum"]
    assert "fabricheck calibrate --system mysite" in text
    assert "fabricheck calibrate" not in render([judged([known])], width=120, color=False, system="mysite")
