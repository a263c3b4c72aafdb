"""The page: what it says to a reader who runs no script, and that nothing in it can do harm."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import Reference, RunJudgement
from fabricheck.report.html import render_html, write_html
from fabricheck.results.records import Problem, Run, Verdict
from tests.unit.report.synthetic import GIB, judged, judgement, pair_run, rank, samples

REFERENCE = Reference(1100.0, -0.05, None, "Gb/s", "run1: measured 2026-11-21: made up")
KNOWN = {
    *("html", "head", "meta", "link", "title", "style", "body", "header", "main", "section", "h1", "h2", "h3", "p"),
    *("span", "b", "a", "ul", "li", "dl", "dt", "dd", "code", "pre", "details", "summary", "div", "figure"),
    *(
        "figcaption",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "script",
        "svg",
        "g",
        "line",
        "rect",
        "text",
    ),
}


class Page(HTMLParser):
    """Elements, their attributes, and the text that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(*runs: RunJudgement, title: str = "Acceptance", **more: Any) -> Page:
    return Page(render_html(runs, title=title, system="hgx-h200", **more))


def test_everything_about_a_metric_is_in_its_row() -> None:
    bad = judgement(
        samples((0, 3), GIB),
        verdict=Verdict.DEGRADED,
        reference=REFERENCE,
        reason="900 Gb/s is -18.2% of the reference 1100 Gb/s",
        value=900.0,
    )
    page = page_of(judged([bad, judgement(samples((0, 1), GIB))]))
    text = page.text
    assert "0→3DEGRADED900.0891.0 to 909.0120075.0 %1100 (-5 %, unbounded)900 Gb/s is -18.2%" in text.replace(" \n", "")
    assert "uncalibrated" in text
    assert "Reference: run1: measured 2026-11-21: made up (for 0→3)" in text
    assert "Expected: widest path gpu0-gpu3 (De Sensi §III-D)" in text
    assert "pingpong_uncontended_…_1gib_goodput" in text


def test_what_is_not_pass_stands_on_top_with_a_link() -> None:
    problem = Problem(Verdict.INCOMPLETE, "out/result.jsonl:7: pingpong is missing")
    source = render_html([pair_run(), pair_run(bad={(2, 1): Verdict.FAIL}, problems=[problem])], title="t", system="s")
    top = source[: source.index("<section")]
    assert "<title>INCOMPLETE: t</title>" in top
    assert "line 7: pingpong is missing" in top
    assert "2→1" in top
    assert "96 Gb/s is what it is (FAIL" in top
    assert top.index("line 7") < top.index("2→1")
    assert top.index('href="#run1"') > 0
    # A group that has something bad is open, one that has not is closed.
    groups = re.findall(r'<details class="group"( open)?><summary><span class="verdict ([A-Z]+)', source)
    assert set(groups) == {(" open", "FAIL"), ("", "PASS")}


def test_many_findings_are_counted() -> None:
    runs = [pair_run(bad={(a, b): Verdict.FAIL for a in range(4) for b in range(4)}) for _ in range(4)]
    top = render_html(runs, title="t", system="s").split("<section")[0]
    assert top.count("is what it is (FAIL") == 30
    assert "And more, below at each run: 18 FAIL." in top


def test_the_facts_of_a_run_are_there() -> None:
    run = pair_run(
        environment={"NCCL_NVLS_ENABLE": "0"},
        environment_differences=[{"rank": 2, "name": "NCCL_NVLS_ENABLE", "value": None}],
    )
    text = page_of(run).text
    for each in (
        "4 ranks on nid001 with 4 x NVIDIA H200",
        "Open MPI 5.0.11, CUDA 13.0 (driver 580.159)",
        "NCCL_NVLS_ENABLE=0; other ranks differ: rank 2: without NCCL_NVLS_ENABLE",
        "env NCCL_NVLS_ENABLE=0 fabricbench --output result.jsonl",
        "with 4 ranks on one node",
        "P2P/CUMEM (24)",
        "GPU-00000003",
        "out/result.jsonl",
    ):
        assert each in text


def test_every_figure_has_a_name_and_a_table_that_is_open_without_scripts() -> None:
    source = render_html([pair_run()], title="t", system="s")
    figures = re.findall(r"<figure>.*?</figure>", source, re.DOTALL)
    assert len(figures) == 6
    for figure in figures:
        assert 'role="img" aria-label="' in figure
        assert "<details open><summary>The same as a table" in figure
        assert figure.count("<tr>") > 3
        assert "the table below says the same" in figure


def kind_of(plot: Any) -> str:
    if plot["data"][0]["type"] == "heatmap":
        return "matrix"
    axis = plot["layout"]["xaxis"]
    if axis.get("type") == "date":
        return "history"
    if "change in %" in axis.get("title", {}).get("text", ""):
        return "changes"
    return "curves" if axis.get("type") == "log" else "distributions"


def test_the_figures_are_packed_in_the_order_of_their_places() -> None:
    page = page_of(pair_run(), pair_run(bad={(0, 1): Verdict.FAIL}))
    plotly, figures, drawing = page.scripts
    assert gzip.decompress(base64.b64decode(plotly)).startswith(b"/**\n* plotly.js")
    plots = json.loads(gzip.decompress(base64.b64decode(figures)))
    kinds = [kind_of(each) for each in plots]
    places = [each["class"] for each in page.all("div") if str(each.get("class", "")).startswith("plot")]
    assert places == [f"plot {kind}" for kind in kinds]
    assert "DecompressionStream" in drawing


def test_the_browser_is_told_which_scripts_to_run_and_to_load_nothing() -> None:
    page = page_of(pair_run())
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src")).split()[1:]
    drawn = [page.scripts[2].encode(), gzip.decompress(base64.b64decode(page.scripts[0]))]
    hashes = [base64.b64encode(hashlib.sha256(each).digest()).decode() for each in drawn]
    assert scripts == [f"'sha256-{each}'" for each in hashes]
    assert [each.get("type") for each in page.all("script")] == ["application/octet-stream"] * 2 + [None]


def test_a_host_named_as_a_script_does_no_harm() -> None:
    evil = "<script>alert(1)</script>"
    page = page_of(pair_run(path=evil, command=["fabricbench", evil]), judged([], ranks=[rank(0, evil)]), title=evil)
    assert len(page.scripts) == 3
    assert not any("alert" in each for each in page.scripts)
    assert evil in page.text


NASTY = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["<script>x</script>", "</title><b>", '" onload="x', "' onclick='x", "<!--", "]]>", "{{ 1 }}", "\ud800", "&lt;"]
    ),
)


@settings(max_examples=40, deadline=None)
@given(name=NASTY)
def test_no_name_makes_an_element_or_an_attribute(name: str) -> None:
    run = judged(
        [judgement(samples((0, 1), GIB), verdict=Verdict.FAIL, reason=name)],
        ranks=[rank(number, name) for number in range(4)],
        problems=[Problem(Verdict.FAIL, name)],
        path=name,
        command=[name],
        environment={name: name},
        environment_differences=[{"rank": 1, "name": name, "value": name}],
        libraries={"mpi": {"name": name, "version": name}},
        transport=name,
        started_utc=name,
        program=name,
    )
    source = render_html([run], title=name, system=name, problems=[Problem(Verdict.FAIL, name)])
    source.encode("utf-8")
    page = Page(source)
    assert {tag for tag, _ in page.elements} <= KNOWN
    assert len(page.scripts) == 3
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    plain = Page(
        render_html(
            [
                judged(
                    [judgement(samples((0, 1), GIB), verdict=Verdict.FAIL, reason="a")],
                    ranks=[rank(number, "a") for number in range(4)],
                    problems=[Problem(Verdict.FAIL, "a")],
                    path="a",
                    command=["a"],
                    environment={"a": "a"},
                    environment_differences=[{"rank": 1, "name": "a", "value": "a"}],
                    libraries={"mpi": {"name": "a", "version": "a"}},
                    transport="a",
                    started_utc="a",
                    program="a",
                )
            ],
            title="a",
            system="a",
            problems=[Problem(Verdict.FAIL, "a")],
        )
    )
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]


def test_no_colour_but_that_of_pass_is_green() -> None:
    style = render_html([], title="t", system="s").split("<style>")[1].split("</style>")[0]
    greens = set()
    for name, red, green, blue in re.findall(r"--(\w+): #(\w\w)(\w\w)(\w\w)\b", style):
        if int(green, 16) > max(int(red, 16), int(blue, 16)) + 20:
            greens.add(name)
    assert greens == {"PASS"}


def test_a_run_without_anything_is_shown_as_what_it_is() -> None:
    empty = RunJudgement(Run("x", {}, (), (), None), Verdict.PASS, (), ())
    page = page_of(empty)
    assert "INVALID" in page.text
    assert "the run has no metric" in page.text
    assert "no valid header" in page.text


def full_run(number: int, *, degraded: bool) -> RunJudgement:
    """400 records of 1000 iterations, as 200 pairs at two sizes; no two numbers in it are the same."""
    reason = (
        "104.5 Gb/s is -5.1% of the reference 110 Gb/s, beyond its bound of 104.5 Gb/s; the 95% interval of the median,"
        " 98.1 to 98.5 Gb/s, lies wholly beyond it"
    )
    verdict = Verdict.DEGRADED if degraded else Verdict.PASS
    pairs = [(a, b) for a in range(21) for b in range(21) if a != b][:200]
    found = []
    for place, pair in enumerate(pairs):
        rate, start = 900 + 13.7 * number + 0.731 * place, 3 + 0.37 * number + 0.0137 * place
        for size in (8, GIB):
            line = samples(pair, size, gbps=rate, latency_us=start, iterations=1000)
            found.append(
                judgement(
                    line,
                    quantity="latency" if size == 8 else "goodput",
                    verdict=verdict,
                    reference=REFERENCE,
                    reason=reason,
                    world=21,
                )
            )
    return judged(found, ranks=[rank(each) for each in range(21)])


@pytest.mark.parametrize("degraded", [False, True])
def test_twenty_full_runs_stay_under_five_megabytes(degraded: bool) -> None:
    runs = [full_run(number, degraded=degraded) for number in range(20)]
    assert [len(run.run.samples) for run in runs] == [400] * 20
    source = render_html(runs, title="t", system="s")
    assert len(source.encode()) < 5_000_000
    # What is left out is counted.
    assert source.count(f"Further rows, none of them worse: 136 {'DEGRADED' if degraded else 'PASS'}") == 40


def test_the_same_runs_give_the_same_page() -> None:
    assert render_html([pair_run()], title="t", system="s") == render_html([pair_run()], title="t", system="s")


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html cannot be written: "):
        write_html([pair_run()], tmp_path / "report.html", title="t", system="s")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
