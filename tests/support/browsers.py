"""A real browser, and pages opened in it with all that went wrong and all that they asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.report.past import Past
from fabricheck.topology.model import Topology
from tests.support.nodes import system
from tests.support.pages import write_html
from tests.support.pasts import past_with_everything

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

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
    with started("chromium") as chromium:
        yield chromium


@contextmanager
def started(name: str) -> Iterator[Browser]:
    """The machine's own `chromium` or `firefox-esr`, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    program = shutil.which(name)
    if program is None:
        message = f"there is no {name}; on Debian `make test FULL=1` as root installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        if name == "chromium":
            found = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        else:  # as its maker built it, by WebDriver BiDi
            found = playwright.firefox.launch(executable_path=program, channel="moz-firefox")
        yield found
        found.close()


@dataclass(frozen=True)
class Opened:
    """A page with all that went wrong in it and all that it asked for, besides itself."""

    page: Page
    complaints: list[str]
    requests: list[str]
    refused: list[str]  # by the page's own policy


@dataclass(frozen=True)
class Shown:
    """What a page shows besides its runs."""

    topology: Topology | None = None
    past: Past | None = None
    problems: tuple[Finding, ...] = ()
    system: str = "hgx-h200"


BARE = Shown()
Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def everything() -> Shown:
    return Shown(system("hgx-h200"), past_with_everything())


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a file, or the report of runs, in a context of its own; the options are those of the context."""
    contexts = []

    def open_it(
        source: Path | list[RunJudgement], *, expect: str = "yes", shown: Shown = BARE, **options: Any
    ) -> Opened:
        if isinstance(source, list):
            write_html(
                [replace(each, topology=shown.topology) for each in source],
                tmp_path / "report.html",
                title="in a browser",
                system=shown.system,
                past=shown.past,
                problems=shown.problems,
            )
            source = tmp_path / "report.html"
        context = browser.new_context(**options)
        contexts.append(context)
        opened = Opened(context.new_page(), [], [], [])
        opened.page.on("console", lambda message: opened.complaints.append(message.text))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on("dialog", lambda dialog: opened.complaints.append(dialog.message))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("requestfailed", lambda request: _note_refusal(opened, request))
        opened.page.goto(source.as_uri())
        if source.as_uri() in opened.requests:  # Chromium tells of the page itself, too
            opened.requests.remove(source.as_uri())
        if options.get("java_script_enabled", True):
            opened.page.wait_for_selector("html[data-ready]", state="attached")
            assert opened.page.locator("html").get_attribute("data-ready") == expect
        return opened

    yield open_it
    for context in contexts:
        context.close()


def _note_refusal(opened: Opened, request: Request) -> None:
    if request.failure == "csp":
        opened.refused.append(request.url)
