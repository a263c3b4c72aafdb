"""The report in a real browser: every figure is drawn, nothing is loaded, nothing goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.browsers import Open, Shown
from tests.support.burn_ins import burn_in_lines, write_burn_in
from tests.support.findings import bad_finding
from tests.support.pages import render_html
from tests.support.result_files import CUDA, HOST
from tests.support.synthetic import pair_run, rank

pytestmark = pytest.mark.browser


def wait_until(page: Page, expression: str) -> None:
    """Playwright's own wait_for_function needs `eval`, which the page forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def draw_all(page: Page) -> int:
    """Opens every run, scrolls to every figure, which is drawn when it comes near, and returns how many there are."""
    page.evaluate("document.querySelectorAll('details.run, details.group').forEach((one) => { one.open = true; })")
    places = page.locator(".plot")
    for place in places.all():
        place.scroll_into_view_if_needed()
        place.locator(".main-svg").first.wait_for()
    return places.count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_drawn_and_nothing_is_loaded(open_page: Open, scheme: str, tmp_path: Path) -> None:
    judge = SystemJudge.of("hgx-h200")
    load = write_burn_in(tmp_path, burn_in_lines(nodes=2, together=20))
    runs = [*(judge.judge(read_run(file)) for file in (CUDA, HOST, load)), pair_run()]
    opened = open_page(runs, color_scheme=scheme)
    page = opened.page
    places = draw_all(page)
    assert places > 0
    assert page.locator(".plot.js-plotly-plot").count() == places
    assert page.locator(".undrawn").count() == 0
    assert page.locator(".legend").count() > 0
    assert page.locator(".plot.curves .scatterlayer .trace").count() > 0
    assert page.locator(".plot.load").count() == 2  # a node each, below each other, on one time axis
    lefts = {place.bounding_box()["x"] for place in page.locator(".plot.load").all()}  # type: ignore[index]
    assert len(lefts) == 1
    assert opened.complaints == []
    assert opened.requests == []
    # By keyboard: the table behind a figure opens.
    details = page.locator("figure details", has_text="The same as a table").first
    assert details.get_attribute("open") is None
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert details.get_attribute("open") is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_history_comparison_and_drawing_are_shown_and_can_be_reached_by_keyboard(
    open_page: Open, everything: Shown, scheme: str
) -> None:
    run = pair_run(bad={pair: Verdict.FAIL for pair in ((0, 2), (2, 0), (1, 2), (2, 1), (3, 2), (2, 3))})
    opened = open_page([run], shown=everything, color_scheme=scheme)
    page = opened.page
    places = draw_all(page)
    assert page.locator(".plot.js-plotly-plot").count() == places
    assert page.locator(".plot.history").count() == 2
    for kind in ("changes", "history", "distributions"):
        assert page.locator(f".plot.{kind} .scatterlayer .trace").count() > 0
    # The software that changed is a line with its name.
    assert "nccl 2.29.1" in page.locator(".plot.history .annotation-text").all_text_contents()
    assert page.locator(".plot.history .shapelayer path").count() == 2
    assert opened.complaints == []
    assert opened.requests == []
    # The link of the slow GPU has another colour than the others; in both schemes it is told from the paper.
    drawing = page.locator(".node svg")
    assert drawing.is_visible()
    colors = drawing.locator("path[class^=c]").evaluate_all(
        "lines => lines.map((line) => getComputedStyle(line).stroke)"
    )
    assert len(colors) == 4 and len(set(colors)) >= 2 and colors.count(colors[-1]) == 1
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    outlines = drawing.locator(".outline").evaluate_all("lines => lines.map((line) => getComputedStyle(line).stroke)")
    labels = drawing.locator("text").evaluate_all("texts => texts.map((text) => getComputedStyle(text).fill)")
    assert paper not in {*outlines, *labels, *colors}
    # From the suspect to its section and its table, without a mouse.
    link = page.locator("#suspects a", has_text="history")
    link.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#incident1"
    for summary in page.locator("section[aria-labelledby=history] details > summary").all():
        summary.focus()
        page.keyboard.press("Enter")
        assert summary.evaluate("one => one.parentElement.open")
    assert page.locator("section[aria-labelledby=history] table").first.is_visible()


def test_no_button_and_no_link_leads_to_another_host(open_page: Open, everything: Shown) -> None:
    """plotly's own toolbar would send the site's data to a cloud service, and has its maker's address as a logo."""
    opened = open_page(
        [pair_run(bad={(0, 3): Verdict.FAIL})], shown=everything, viewport={"width": 1200, "height": 800}
    )
    page, opened_pages = opened.page, list[str]()
    page.context.on("page", lambda other: opened_pages.append(other.url))
    figures = draw_all(page)
    addresses = page.locator("[href], [src], [action]").evaluate_all(
        "places => places.flatMap((place) => ['href', 'src', 'action'].map((name) => place.getAttribute(name)))"
    )
    assert {address.partition(":")[0] for address in addresses if address and not address.startswith("#")} == {"data"}
    buttons = page.locator(".modebar-btn")
    assert buttons.count() >= 7 * figures
    titles = {button.get_attribute("data-title") for button in buttons.all()}
    assert titles == {"Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Autoscale", "Reset axes"}
    figure = page.locator(".plot.curves").first
    for button in figure.locator(".modebar-btn").all():
        figure.hover(force=True)
        button.click()
    page.wait_for_timeout(500)
    assert page.locator(".plotly-cloud-dialog, .js-link-to-tool").count() == 0
    assert opened_pages == []
    assert {address.partition(":")[0] for address in opened.requests} <= {"blob", "data"}
    assert (
        page.evaluate("Plotly.newPlot(document.createElement('div'), []).then((plot) => plot._context.plotlyServerURL)")
        == ""
    )


def test_without_scripts_the_past_can_be_read(open_page: Open, everything: Shown) -> None:
    page = open_page([pair_run()], shown=everything, java_script_enabled=False).page
    for figure in page.locator(
        "section[aria-labelledby=history] figure, section[aria-labelledby=comparison] figure"
    ).all():
        assert figure.locator("table").is_visible()
    page.locator("details.run > summary").click()
    assert page.locator(".node svg").is_visible()


def test_a_matrix_has_its_cells_and_says_more_of_each(open_page: Open) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})]).page
    draw_all(page)
    table = page.locator("figure table", has_text="from").first
    cells = [text for text in table.locator("td").all_text_contents() if text.strip()]
    assert len(cells) == 12
    assert sum("FAIL" in text for text in cells) == 1
    bad = table.locator("td.FAIL")
    title = bad.get_attribute("title") or ""
    assert "rank 0: nid001 GPU 0" in title
    assert "96.00 Gb/s" in title
    assert "minimum 600.0 Gb/s" in title
    colour = "one => getComputedStyle(one).backgroundColor"
    assert bad.evaluate(colour) != table.locator("td.PASS").first.evaluate(colour)


def test_curves_have_lines_bands_and_a_legend(open_page: Open) -> None:
    page = open_page([pair_run(ranks=8, bad={(6, 2): Verdict.DEGRADED})]).page
    draw_all(page)
    figure = page.locator(".plot.curves").first
    names = figure.locator(".legendtext").all_text_contents()
    assert names[0] == "expected 1,200 Gb/s"
    assert names[1] == "6→2"
    assert names[-1] == "51 others"
    assert figure.locator(".scatterlayer .js-line").count() >= 7
    assert figure.locator(".js-fill").count() >= 6


def test_without_scripts_everything_can_be_read(open_page: Open) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})], java_script_enabled=False).page
    for summary in page.locator("details.run > summary, .group > summary").all():
        if not summary.evaluate("one => one.parentElement.open"):
            summary.click()
    figures = page.locator("figure")
    assert figures.count() == 5
    for figure in figures.all():
        assert figure.locator("table").is_visible()
    assert page.locator(".plot .undrawn").count() == 3
    assert page.locator("h1 .verdict").inner_text() == "FAIL"


def test_a_browser_that_cannot_unpack_says_so_and_shows_the_tables(open_page: Open, tmp_path: Path) -> None:
    source = render_html([pair_run()], title="t", system="s")
    place = source.index('id="figures">') + len('id="figures">')
    damaged = tmp_path / "damaged.html"
    damaged.write_text(f"{source[:place]}AAAA{source[place + 4 :]}")
    page = open_page(damaged, expect="no").page
    page.evaluate("document.querySelectorAll('details.run, details.group').forEach((one) => { one.open = true; })")
    for figure in page.locator("figure").all():
        if figure.locator(".plot").count():
            assert "This browser cannot draw the figure" in figure.locator(".undrawn").inner_text()
        assert figure.locator("table").is_visible()


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
    draw_all(opened.page)
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
    draw_all(opened.page)
    assert len(opened.complaints) >= 3  # the script, the handler, the image
    assert all("Content Security Policy" in each for each in opened.complaints)
    # Playwright also tells of requests that were refused before they were sent.
    assert set(opened.requests) == set(opened.refused) == {"http://127.0.0.1:9/x"}


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_screen(open_page: Open, everything: Shown, width: int) -> None:
    run, viewport = pair_run(bad={(0, 3): Verdict.FAIL}), {"width": width, "height": 800}
    page = open_page([run], shown=everything, viewport=viewport).page
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for place in page.locator(".plot .main-svg").all():
        box = place.bounding_box()
        assert box is None or box["x"] + box["width"] <= width + 1


def test_the_colours_follow_the_scheme(open_page: Open) -> None:
    page = open_page([pair_run()], color_scheme="light").page
    draw_all(page)
    ink = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ink), page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{ink} !== '{light[0]}'")
    assert page.evaluate(paper) != light[1]


def test_on_paper_what_was_opened_is_drawn_and_dark_on_white(open_page: Open, everything: Shown) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL})], shown=everything, color_scheme="dark").page
    page.evaluate("document.querySelector('details.run').open = true")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    places = page.locator(".plot")
    assert page.locator(".plot.js-plotly-plot").count() == places.count() == 6
    assert page.evaluate("getComputedStyle(document.querySelector('.node text')).fill") == "rgb(0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill") == "rgb(0, 0, 0)"
    for table in page.locator("details.run table").all():
        assert table.is_visible()
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_until(page, "getComputedStyle(document.querySelector('.plot .xtick text')).fill !== 'rgb(0, 0, 0)'")


def test_a_packed_run_opens_by_its_link_and_draws_then(open_page: Open) -> None:
    runs = [pair_run(ranks=8) for _ in range(6)]
    page = open_page(runs).page
    packed = page.locator("details.run[data-packed]")
    assert packed.count() > 0
    last = packed.last.get_attribute("id")
    page.evaluate(f"location.hash = '#{last}'")
    run = page.locator(f"#{last}")
    run.locator("figure table").first.wait_for()
    assert run.locator("h3", has_text="Metrics").is_visible()
    assert run.get_attribute("data-packed") is None


def test_the_filter_hides_what_was_not_asked_for(open_page: Open) -> None:
    page = open_page([pair_run(bad={(0, 3): Verdict.FAIL}), pair_run(), pair_run(transport="mpi")]).page
    assert page.locator(".filter output").inner_text() == "3 of 3 runs"
    page.get_by_label("Verdict").select_option("FAIL")
    assert page.locator("details.run:visible").count() == 1
    page.get_by_label("Verdict").select_option("")
    page.get_by_label("Transport").select_option("mpi")
    assert page.locator("details.run:visible").count() == 1
    page.get_by_label("Node").fill("nid9")
    assert page.locator(".filter output").inner_text() == "0 of 3 runs"


@pytest.mark.full
def test_it_prints_what_is_open(open_page: Open) -> None:
    page = open_page([pair_run()]).page
    closed = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", closed)) == 1
    page.get_by_role("button", name="Open all").click()
    page.locator("figure table").first.wait_for()
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) > 2
    # Chromium tells the page of the print, so figures that were never near are drawn for it.
    assert page.locator(".plot.js-plotly-plot").count() == page.locator(".plot").count()
