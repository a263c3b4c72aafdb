"""The report in a real browser: charts can be seen, nothing is loaded, nothing goes wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.report.acceptance import write_acceptance
from fabricheck.results.fabricbench import read_run
from tests.support.browsers import Open, Shown
from tests.support.findings import bad_finding
from tests.support.pages import render_html
from tests.support.result_files import CUDA, HOST
from tests.support.synthetic import pair_run, rank

pytestmark = pytest.mark.browser


def open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_can_be_told_from_the_paper_and_nothing_is_loaded(
    open_page: Open, everything: Shown, scheme: str
) -> None:
    judge = SystemJudge.of("hgx-h200")
    runs = [*(judge.judge(read_run(file)) for file in (CUDA, HOST)), pair_run(bad={(0, 3): Verdict.FAIL})]
    opened = open_page(runs, shown=everything, color_scheme=scheme)
    page = opened.page
    open_all(page)
    assert page.locator(".chart").count() == 2
    assert opened.complaints == []
    assert opened.requests == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for look, attribute in ((".chart g polyline", "stroke"), (".chart text", "fill"), (".chart .tick", "stroke")):
        colors = page.locator(look).evaluate_all(f"all => all.map((one) => getComputedStyle(one).{attribute})")
        assert colors and paper not in colors
    # The software that changed is a bar with its name.
    assert "nccl 2.29.1" in page.locator(".bars div").all_text_contents()
    addresses = page.locator("[href], [src], [action]").evaluate_all(
        "places => places.flatMap((place) => ['href', 'src', 'action'].map((name) => place.getAttribute(name)))"
    )
    assert {address.partition(":")[0] for address in addresses if address and not address.startswith("#")} == {"data"}


def test_from_a_card_to_the_history_by_keyboard(open_page: Open, everything: Shown) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})], shown=everything).page
    link = page.locator("#suspects a", has_text="history")
    link.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#history"
    for summary in page.locator("section[aria-labelledby=history] details > summary").all():
        summary.focus()
        page.keyboard.press("Enter")
        assert summary.evaluate("one => one.parentElement.open")
    assert page.locator("section[aria-labelledby=history] table").first.is_visible()


def test_without_scripts_everything_can_be_read(open_page: Open, everything: Shown) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})], shown=everything, java_script_enabled=False).page
    for summary in page.locator("details > summary").all():
        if summary.is_visible() and not summary.evaluate("one => one.parentElement.open"):
            summary.click()
    figures = page.locator("figure")
    assert figures.count() == 2
    for figure in figures.all():
        assert figure.locator("table").is_visible()
    assert page.locator(".chart").count() == 2
    assert page.locator("h1 .verdict").inner_text() == "FAIL"


def test_a_host_named_as_a_script_does_no_harm(open_page: Open) -> None:
    evil = "<script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    run = pair_run(
        bad={(0, 1): Verdict.FAIL},
        problems=[bad_finding(Verdict.FAIL, evil)],
        path=evil,
        command=[evil],
        environment={"NCCL_DEBUG": evil},
    )
    ranks = tuple(rank(number, evil) for number in range(4))
    run = RunJudgement(
        run=type(run.run)(run.run.path, run.run.header, ranks, run.run.samples, run.run.footer, run.run.problems),
        verdict=run.verdict,
        problems=run.problems,
        judgements=run.judgements,
    )
    opened = open_page([run])
    open_all(opened.page)
    assert opened.complaints == []
    assert opened.requests == []
    assert opened.page.locator("img").count() == 0


def test_the_policy_stops_a_script_that_slipped_through(open_page: Open, tmp_path: Path) -> None:
    """The second fence: were something not escaped, the browser would not run it, and would load nothing."""
    source = render_html([pair_run()], title="t", system="s")
    planted = "<script>alert(1)</script><img src='http://127.0.0.1:9/x' onerror='alert(2)'></main>"
    file = tmp_path / "planted.html"
    file.write_text(source.replace("</main>", planted))
    opened = open_page(file)
    open_all(opened.page)
    assert len(opened.complaints) >= 3  # the script, the handler, the image
    assert all("Content Security Policy" in each for each in opened.complaints)
    # Playwright also tells of requests that were refused before they were sent.
    assert set(opened.requests) == set(opened.refused) == {"http://127.0.0.1:9/x"}


@pytest.mark.parametrize("width", [360, 1920])
def test_the_page_is_as_wide_as_the_screen(open_page: Open, everything: Shown, width: int) -> None:
    run, viewport = pair_run(bad={(0, 3): Verdict.FAIL}), {"width": width, "height": 800}
    page = open_page([run], shown=everything, viewport=viewport).page
    open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.getBoundingClientRect().width") >= 0.9 * width


def test_on_paper_it_is_dark_on_white(open_page: Open, everything: Shown) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})], shown=everything, color_scheme="dark").page
    open_all(page)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.chart text')).fill") == "rgb(0, 0, 0)"
    for table in page.locator("details.run table").all():
        assert table.is_visible()


def test_a_link_opens_its_run(open_page: Open) -> None:
    page = open_page([pair_run(ranks=8) for _ in range(4)]).page
    page.evaluate("location.hash = '#run4'")
    run = page.locator("#run4")
    run.locator(".chart").first.wait_for()
    assert run.locator("h3", has_text="Metrics").is_visible()


def test_the_filter_hides_what_was_not_asked_for(open_page: Open) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL}), pair_run(), pair_run(transport="mpi")]).page
    assert page.locator(".filter output").inner_text() == "3 of 3 runs"
    for words, shown in (("FAIL", 1), ("over mpi", 1), ("CCL nid001", 2), ("nid9", 0)):
        page.get_by_label("Runs with").fill(words)
        assert page.locator(".filter output").inner_text() == f"{shown} of 3 runs"
        assert page.locator("details.run:visible").count() == shown


@pytest.mark.full
def test_it_prints_what_is_open(open_page: Open) -> None:
    page = open_page([pair_run()]).page
    closed = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", closed)) == 1
    page.get_by_role("button", name="Open all").click()
    page.locator(".chart").first.wait_for()
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) > 2


@pytest.mark.full
def test_an_acceptance_document_is_a_page_to_sign_and_its_rows(open_page: Open, tmp_path: Path) -> None:
    run, pages = pair_run(), []
    opened = open_page([run]).page
    for nodes in (1, 60):
        hosts = [f"nid{node:06}.hsn.cm.site.example" for node in range(nodes)]
        own = [tuple(rank(number, host) for number in range(4)) for host in hosts]
        runs = [replace(run, run=replace(run.run, ranks=ranks)) for ranks in own]
        write_acceptance(
            runs, tmp_path / "a.html", title="s", system="s", verdict=Verdict.PASS, exclusions=["nid2: down"]
        )
        opened.goto((tmp_path / "a.html").as_uri())
        printed = opened.pdf(prefer_css_page_size=True)
        pages.append(len(re.findall(rb"/Type\s*/Page\b", printed)))
    assert pages[0] == 2 and pages[1] < 20
