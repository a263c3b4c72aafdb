"""The report in a real browser: every figure is drawn, nothing is loaded, nothing goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from fabricheck.judge.system import SystemJudge
from fabricheck.report.html import write_html
from fabricheck.results.fabricbench import read_run
from tests.unit.result_files import CUDA, HOST

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium; on Debian `make test` as root installs it")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_drawn_and_nothing_is_loaded(browser: Browser, tmp_path: Path, scheme: str) -> None:
    judge = SystemJudge.of("hgx-h200")
    report = tmp_path / "report.html"
    write_html([judge.judge(read_run(file)) for file in (CUDA, HOST)], report, title="in a browser", system="hgx-h200")
    page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")
    assert page.locator("html").get_attribute("data-drawn") == "yes"
    assert complaints == []
    assert requests == [report.as_uri()]
    places = page.locator(".plot").count()
    assert places > 0
    assert page.locator(".plot.js-plotly-plot").count() == places
    assert page.locator(".plot.matrix .heatmaplayer image").count() == page.locator(".plot.matrix").count() > 0
    assert page.locator(".plot.curves .scatterlayer .trace").count() > 0
    # By keyboard: the table behind a figure opens.
    details = page.locator("details", has_text="The same as a table").first
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    assert details.get_attribute("open") is not None
    page.close()
