"""The first screen of a report: for five planted faults it says what is broken, where, and what to do next.

And axe-core finds no serious accessibility error in the page."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib import resources
from importlib.util import find_spec
from typing import Any

import pytest
from playwright.sync_api import Page

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import plain
from tests.support.browsers import Open, Shown
from tests.support.findings import bad_finding
from tests.support.nodes import node
from tests.support.pages import cards_of
from tests.support.synthetic import pair_run

pytestmark = pytest.mark.browser

STAR = node(4, [], switch={each: 100.0 for each in range(4)}, nics=2)
PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]
# What can be read without scrolling: every text whose last line ends within the screen.
VISIBLE = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const words = [];
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.height > 0 && box.bottom <= 900) words.push(walker.currentNode.textContent);
  }
  return words.join(" ").replace(/\\s+/g, " ");
}"""


def slow(*pairs: tuple[int, int]) -> RunJudgement:
    return replace(
        pair_run(bad=dict.fromkeys(pairs, Verdict.FAIL)), test="PeerCopies %mover=copy @alps:gpu+gnu", nodes=4
    )


NIC = "nid002:nic0 loses 50% (50% to 51%) in 6 pairs (p = 8e-27); check link state and cables there"
MISSING = "out/result.jsonl: nid003 (rank 2) did not report before the others timed out: hung, killed or down"
FAULTS: dict[str, tuple[RunJudgement, tuple[Finding, ...]]] = {
    "gpu": (slow(*(pair for pair in PAIRS if 2 in pair)), ()),
    "link": (slow((1, 3), (3, 1)), ()),
    "nic": (slow(), (bad_finding(Verdict.FAIL, NIC, "nid002:nic0"),)),
    "library": (slow(*PAIRS), ()),
    "node missing": (
        replace(
            pair_run(problems=[bad_finding(Verdict.INCOMPLETE, MISSING, code="node-did-not-report")]),
            test="NodePairs @alps:gpu+gnu",
            nodes=4,
        ),
        (),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_screen_says_what_is_broken_where_and_what_next(open_page: Open, fault: str) -> None:
    run, problems = FAULTS[fault]
    (card,) = cards_of([replace(run, topology=STAR)], problems=problems, system="alps")
    shown, viewport = Shown(STAR, problems=problems, system="alps"), {"width": 1440, "height": 900}
    text = open_page([run], shown=shown, viewport=viewport).page.evaluate(VISIBLE).replace(" ", "")
    for words in (card.verdict.value, card.part, card.loss, *map(plain, card.next_)):
        assert words.replace(" ", "") in text


def test_the_first_screen_of_a_good_session_has_its_numbers_and_its_map(open_page: Open) -> None:
    page = open_page([slow()], shown=Shown(STAR, system="alps"), viewport={"width": 1440, "height": 900}).page
    text = page.evaluate(VISIBLE)
    for each in ("PASS", "uncalibrated", " of 4 nodes", "pingpong in a node", "from \\ to"):
        assert each in text
    assert "What is wrong" not in text


# Where the keyboard is: its place among all that it can reach, whether it is seen, and whether it is a run.
FOCUS = """() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
    .filter((each) => each.tabIndex >= 0 && each.checkVisibility());
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const within = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  const place = all.indexOf(one), run = Boolean(one.closest("details.run"));
  const seen = within && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2;
  return {place, run, seen, text: one.outerHTML.slice(0, 120)};
}"""


def press(page: Page, key: str) -> None:
    page.keyboard.press(key)


def focused(page: Page, place: int) -> bool:
    """The keyboard is at this place and is seen there, once the browser has shown it; whether that is in a run."""
    for _ in range(40):
        focus = page.evaluate(FOCUS)
        if (focus["place"], focus["seen"]) == (place, True):
            break
        page.wait_for_timeout(50)
    assert (focus["place"], focus["seen"]) == (place, True), focus["text"]
    return bool(focus["run"])


@pytest.mark.full
def test_the_keyboard_alone_reaches_everything_and_is_seen(open_page: Open, everything: Shown) -> None:
    """In the order of the page, few stops before the runs; a run opens, and what is in it is reached too."""
    page = open_page([slow((1, 3)) for _ in range(43)], shown=everything).page
    stops = 0
    while True:
        press(page, "Tab")
        if focused(page, stops):
            break
        stops += 1
    assert 0 < stops < 60
    page.keyboard.press("Enter")
    page.locator("details.run[open]").first.wait_for(state="attached")
    press(page, "Tab")
    assert focused(page, stops + 1)
    press(page, "Shift+Tab")
    page.keyboard.press("Enter")
    page.locator("details.run[open]").wait_for(state="detached")


def axe() -> str:
    if find_spec("axe_playwright_python") is None:
        message = "axe-playwright-python is not installed; `make test` does it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "width,scheme",
    [(1440, "light"), *(pytest.param(*each, marks=pytest.mark.full) for each in ((1440, "dark"), (390, "light")))],
)
def test_axe_finds_no_serious_error(open_page: Open, everything: Shown, width: int, scheme: str) -> None:
    """The page's own policy keeps axe out, like any other script, so it looks from outside of that."""
    runs = [slow(*(pair for pair in PAIRS if 2 in pair)), slow()]
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}, "bypass_csp": True}
    page = open_page(runs, shown=everything, **options).page
    page.evaluate("document.querySelectorAll('details.run').forEach((one) => { one.open = true; })")
    page.evaluate(axe())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        (each["id"], each["help"], [one["html"][:200] for one in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == [], json.dumps(serious, indent=2)
