"""The page: what it says to a reader who runs no script, and that nothing in it can do harm."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fabricheck.history.text import watch_lines
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Reference
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.report.past import Past
from fabricheck.topology.model import Topology
from tests.support.effort import effort
from tests.support.findings import bad_finding, note
from tests.support.histories import Made, normal
from tests.support.nodes import node
from tests.support.pages import render_html
from tests.support.pasts import past_with_everything, watched
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples

REFERENCE = Reference(1100.0, -0.05, None, "Gb/s", "run1: measured 2026-11-21: made up")
BAD = judgement(
    samples((0, 3), GIB),
    verdict=Verdict.DEGRADED,
    reference=REFERENCE,
    reason="900 Gb/s is -18.2% of the reference 1100 Gb/s",
    value=900.0,
)
_KNOWN = """
html head meta link title style body header main section small h1 h2 h3 p span b a form label input button output i
ul ol li dl dt dd code pre details summary div figure figcaption table thead tbody tr th td script
svg g line text polyline polygon
"""
KNOWN = set(_KNOWN.split())


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
    page = page_of(judged([BAD, judgement(samples((0, 1), GIB))]))
    text = page.text
    row = "0_3_1gib_goodputDEGRADED900.0 Gb/s891.0 to 909.01,20081.8 %reference 1,100 (bound 1,045)900 Gb/s is -18.2%"
    assert row in text.replace(" \n", "")
    assert "(1 against references, 1 only against the minimum)" in text
    assert "Reference: run1: measured 2026-11-21: made up" in text
    assert "Expected: widest path gpu0-gpu3 (De Sensi §III-D)" in text


@settings(max_examples=effort(10), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4, unique=True), min_size=1, max_size=5), st.sets(st.integers(0, 3))
)
def test_each_finding_is_told_once_and_with_what_to_do(of_runs: list[list[int]], of_session: set[int]) -> None:
    """In whatever place, and however many runs have it."""
    code = "node-did-not-report"
    problems = [bad_finding(Verdict.INCOMPLETE, f"run problem {chr(97 + each)}", code=code) for each in range(10)]
    session = [bad_finding(Verdict.FAIL, f"session problem {each}", code=code) for each in of_session]
    runs = [pair_run(problems=[problems[each] for each in some]) for some in of_runs]
    source = render_html(runs, title="t", system="s", problems=session)
    shown = {*session, *(problems[each] for some in of_runs for each in some)}
    page = Page(source)
    assert {each.message: page.text.count(each.message) for each in shown} == {each.message: 1 for each in shown}
    assert source.count('<details class="why">') == source.count("<ol>") == len(shown)


def test_a_finding_is_no_problem() -> None:
    problems, findings = [bad_finding(Verdict.FAIL, "a part is slow")], [note("it scales")]
    source = render_html([pair_run()], title="t", system="s", problems=problems, findings=findings)
    wrong, found = source.index('id="what-is-wrong"'), source.index('id="findings"')
    assert wrong < source.index("a part is slow") < found < source.index("it scales")
    assert "what-is-wrong" not in render_html([pair_run()], title="t", system="s", findings=findings)


def test_a_history_of_one_session_has_no_curve() -> None:
    first, second = (
        render_html([], title="t", system="s", past=Past(watched([Made("m", normal(1, sessions))])))
        for sessions in (1, 2)
    )
    assert "1 session up to" in first
    assert "All metrics of" not in first
    assert "All metrics of" in second


def test_the_browser_is_told_which_scripts_to_run_and_to_load_nothing() -> None:
    source = render_html([pair_run()], title="t", system="s")
    assert set(re.findall(r'(?:src|href|action)="(?!#)[^"]*"', source)) == {'href="data:,"'}
    assert not re.search(r"https?:|@import|url\(", source)
    page = Page(source)
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src")).split()[1:]
    digest = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert scripts == [f"'sha256-{digest}'"]
    assert [each.get("type") for each in page.all("script")] == [None]


SQUARE = node(4, [(a, b, 1, 100.0) for a in range(4) for b in range(a)], nics=1)


def test_the_history_says_what_the_commands_say() -> None:
    past = past_with_everything()
    assert past.watched is not None
    text = page_of(pair_run(), past=past).text
    assert next(watch_lines(past.watched.result)) in text
    assert text.count("n2:nic0 or n2") == 1
    assert "nccl: 2.28.3 -> 2.29.1" in text


NASTY = st.one_of(
    st.text(min_size=1, max_size=30),
    st.sampled_from(
        ["<script>x</script>", "</title><b>", '" onload="x', "' onclick='x", "<!--", "]]>", "{{ 1 }}", "\ud800", "&lt;"]
    ),
)


def past_named(name: str) -> Past:
    """A past in which everything that comes from elsewhere has this name."""
    metrics = [
        Made(
            f"{name}{each}",
            normal(each, 40, spread=0.01, drop=0.2, onset=30),
            test=name,
            components=[name],
            nodes=[name],
            unit="Gb/s",
        )
        for each in range(2)
    ]
    more = {"software": {0: {"a": "b"}, 30: {name: name}}, "tuning": {0: {"a": "b"}, 30: {name: name}}}
    found = watched(metrics, **more, partition=name, environment=name)
    assert found.result.open_incidents
    return Past(found, (name,))


@settings(max_examples=effort(40), deadline=None)
@given(name=NASTY)
@example(name="nid001.site.org")
def test_no_name_makes_an_element_or_an_attribute(name: str) -> None:
    page = page_named(name)
    assert {tag for tag, _ in page.elements} <= KNOWN
    assert len(page.scripts) == 1
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert outside_charts(page) == outside_charts(page_named("a"))


def outside_charts(page: Page) -> list[str]:
    """The software that changed decides what is in a chart."""
    return [tag for tag, _ in page.elements if tag not in ("div", "g", "line", "text", "title")]


@cache
def page_named(name: str) -> Page:
    """A page in which everything that comes from elsewhere has this name; a store has names that can be printed."""
    ranks = tuple(rank(number, name) for number in range(4))
    run = judged(
        [judgement(samples((0, 1), GIB), verdict=Verdict.FAIL, reason=name)],
        ranks=ranks,
        problems=[bad_finding(Verdict.FAIL, name)],
        path=name,
        command=[name],
        environment={name: name},
        environment_differences=[{"rank": 1, "name": name, "value": name}],
        libraries={"mpi": {"name": name, "version": name}},
        transport=name,
        started_utc=name,
        program=name,
    )
    slow = pair_run(bad={(0, 1): Verdict.FAIL, (1, 0): Verdict.FAIL})
    slow = replace(slow, topology=named_square(name), run=replace(slow.run, ranks=ranks))
    problem = replace(bad_finding(Verdict.FAIL, name), components=(Component(Kind.SWITCH, name or "x"),))
    past = past_named(name if name.isprintable() else "b")
    source = render_html([run, slow], title=name, system=name, past=past, problems=[problem])
    source.encode("utf-8")
    return Page(source)


def named_square(name: str) -> Topology:
    def renamed(device: str) -> str:
        return device.replace("gpu", f"{name}gpu")

    return replace(
        SQUARE,
        system=name,
        gpus=tuple(replace(each, name=renamed(each.name)) for each in SQUARE.gpus),
        links=tuple(replace(each, ends=(renamed(each.ends[0]), renamed(each.ends[1]))) for each in SQUARE.links),
    )


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


@cache
def twenty_runs(*, degraded: bool) -> list[RunJudgement]:
    return [full_run(number, degraded=degraded) for number in range(20)]


def full_run(number: int, *, degraded: bool) -> RunJudgement:
    """400 records of 1000 iterations, as 200 pairs at two sizes; no two numbers in it are the same."""
    reason = (
        "104.5 Gb/s is -5.1% of the reference 110 Gb/s, beyond its bound of 104.5 Gb/s; the 95% interval of the median,"
        " 98.1 to 98.5 Gb/s, is entirely beyond it"
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


@pytest.mark.parametrize("degraded", [pytest.param(False, marks=pytest.mark.full), True])
def test_twenty_full_runs_stay_under_one_and_a_half_megabytes(degraded: bool) -> None:
    runs = twenty_runs(degraded=degraded)
    assert [len(run.run.samples) for run in runs] == [400] * 20
    source = render_html(runs, title="t", system="s")
    assert len(source.encode()) < 1_500_000
    # What is left out is counted.
    shown = source.count("And 272 more, none worse")
    assert shown + source.count("Not in this page") == 20 and shown >= 5


def test_so_does_the_map_of_many_nodes() -> None:
    """512 nodes by 12 checks: what is not shown is counted, and none of it is worse than what is."""
    ranks = [rank(number, f"nid{number:04}") for number in range(512)]
    pairs = [judgement(samples((number, number + 1), GIB), world=512) for number in range(0, 512, 2)]
    bad = judgement(samples((510, 511), GIB), verdict=Verdict.FAIL, world=512)
    runs = [
        replace(
            judged([*pairs[:-1], bad if each == 7 else pairs[-1]], ranks=ranks), test=f"Check{each} @s:p+e", nodes=512
        )
        for each in range(12)
    ]
    source = render_html(runs, title="t", system="s")
    assert len(source.encode()) < 1_500_000
    assert "171 more nodes" in source
    (first, *_) = re.findall(r'<th scope="row">(nid\w+)', source)
    assert first in ("nid0510", "nid0511")
