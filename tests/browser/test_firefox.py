"""The report in Firefox, as Debian builds it: it opens, filters, draws and is photographed there.

Colour schemes, printing and accessibility are looked at in Chromium alone: Playwright cannot ask this Firefox for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fabricheck.records.verdict import Verdict
from tests.support.browsers import Open, Shown, started
from tests.support.synthetic import pair_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.full]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started("firefox-esr") as firefox:
        yield firefox


def test_the_report_works_in_firefox(open_page: Open, everything: Shown) -> None:
    runs = [pair_run(bad={(0, 3): Verdict.FAIL}), pair_run(transport="mpi")]
    opened = open_page(runs, shown=everything, viewport={"width": 1440, "height": 900})
    page = opened.page
    assert page.locator("h1 .verdict").inner_text() == "FAIL"
    page.get_by_label("Runs with").fill("over mpi")
    assert page.locator(".filter output").inner_text() == "1 of 2 runs"
    page.get_by_label("Runs with").fill("")
    page.locator("details.run > summary").first.focus()
    page.keyboard.press("Enter")
    figure = page.locator("details.run[open] .chart").first
    figure.scroll_into_view_if_needed()
    assert opened.complaints == []
    assert opened.requests == []
    # A picture of one colour has a few hundred bytes.
    assert len(figure.screenshot()) > 5000
