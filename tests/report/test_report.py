"""The report of runs: what it says, that nothing in a result file can harm it, and that it stays small."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.findings import bad_finding
from tests.support.pages import render, render_html, write_html
from tests.support.result_files import CUDA, HOST, Line, lines_of, settle, write


def judged(
    source: Path = HOST, change: Callable[[list[Line]], object] | None = None, path: Path | None = None
) -> RunJudgement:
    if change is not None:
        assert path is not None
        lines = copy.deepcopy(lines_of(source))
        change(lines)
        source = write(path / "changed.jsonl", lines)
    return SystemJudge.of("hgx-h200" if source == CUDA else "local").judge(read_run(source))


def test_the_verdict_comes_first() -> None:
    page = render_html([judged()], title="a title", system="local")
    assert page.index('class="verdict PASS"') < page.index("a title</span></h1>")
    assert "uncalibrated" in page
    assert "<title>PASS, uncalibrated: a title</title>" in page


def test_a_red_run_makes_the_page_red(tmp_path: Path) -> None:
    def spoil(lines: list[Line]) -> None:
        lines[1]["wrong_bytes"] = 3
        settle(lines)

    page = render_html([judged(), judged(HOST, spoil, tmp_path)], title="t", system="local")
    assert "<title>FAIL: t</title>" in page
    assert "2 runs: 1 FAIL, 1 PASS" in page


def test_no_runs_are_no_pass() -> None:
    assert "<title>INCOMPLETE: t</title>" in render_html([], title="t", system="local")
    assert render([], width=100, color=False).startswith("INCOMPLETE")


def test_problems_of_the_whole_count() -> None:
    problem = bad_finding(Verdict.INCOMPLETE, "3 test cases were selected and 2 were run")
    page = render_html([judged()], title="t", system="local", problems=[problem])
    assert "<title>INCOMPLETE: t</title>" in page
    assert problem.message in page
    assert problem.message in render([judged()], width=100, color=False, problems=[problem])


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_names_in_a_result_file_do_no_harm(tmp_path: Path) -> None:
    def rename(lines: list[Line]) -> None:
        for rank in lines[0]["ranks"]:
            rank["host"] = EVIL
        lines[0]["command"] = ["fabricbench", EVIL, "\x1b[2J"]
        lines[0]["environment"] = {"NCCL_DEBUG": EVIL}
        lines[0]["libraries"]["mpi"]["name"] = EVIL

    run = judged(HOST, rename, tmp_path)
    page = render_html([run], title=EVIL, system=EVIL)
    assert "alert(1)</script>" not in page
    assert "<img" not in page
    assert "\x1b" not in page + render([run], width=100, color=False)
    # Plotly, the figures' data, packed runs, and the script that draws; the browser runs what the policy names.
    assert len(re.findall(r"<script", page)) == 4
    assert "script-src 'sha256-" in page


def test_a_page_loads_nothing() -> None:
    page = render_html([judged()], title="t", system="local")
    assert set(re.findall(r'(?:src|href|action)="(?!#)[^"]*"', page)) == {'href="data:,"'}
    assert not re.search(r"https?:|@import|url\(", page)
    assert "default-src 'none'" in page


def test_pair_matrix_and_curves_have_tables() -> None:
    page = render_html([judged(CUDA)], title="t", system="local")
    assert page.count('class="note legend"') >= 1
    assert page.count('class="plot distributions"') >= 1
    drawings = page.count('class="plot ') + page.count('<figure class="node">')
    assert page.count("The same as a table") == drawings


def test_a_large_report_stays_small(tmp_path: Path) -> None:
    """20 runs of 400 records; the samples themselves are not in it, so their number does not matter."""

    def enlarge(lines: list[Line]) -> None:
        header, footer = lines[0], lines[-1]
        sample, series = lines[1], header["plan"]["series"][0]
        sizes = [8 << power for power in range(20)]
        header["plan"]["sizes"] = sizes
        header["ranks"] = [{**header["ranks"][0], "rank": rank, "local_rank": rank} for rank in range(5)]
        pairs = [[a, b] for a in range(5) for b in range(5) if a != b]
        header["plan"]["series"] = [{**series, "ranks": pair, "bytes": sizes} for pair in pairs]
        header["expected_records"] = len(pairs) * len(sizes)
        times = {size: [1000 + 10 * size + 7 * each for each in range(20)] for size in sizes}
        lines[1:-1] = [
            {**sample, "index": number, "ranks": pair, "bytes": size, "times_ns": times[size]}
            for number, (pair, size) in enumerate((pair, size) for pair in pairs for size in sizes)
        ]
        lines[-1] = footer
        settle(lines)

    run = judged(HOST, enlarge, tmp_path)
    assert len(run.run.samples) == 400
    assert len(render_html([run] * 20, title="t", system="local")) < 3_000_000
    assert len(render([run] * 20, width=100, color=False).splitlines()) <= 40


def test_a_report_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_html([judged()], tmp_path / "no" / "report.html", title="t", system="local")
    target = tmp_path / "report.html"
    write_html([judged()], target, title="t", system="local")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert target.read_text() == render_html([judged()], title="t", system="local")
