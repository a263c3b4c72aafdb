"""Generated pages are those of today's code; the tests of commands and findings hold theirs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.paper_figures import load_figures
from tools import formats_page, metrics_page

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("page", "render"),
    [(formats_page.PAGE, formats_page.render), (metrics_page.PAGE, metrics_page.render)],
    ids=["formats", "metrics"],
)
def test_the_page_is_that_of_the_code(page: Path, render: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` writes it again."""
    monkeypatch.chdir(ROOT)
    assert page.read_text(encoding="utf-8") == render()


def test_the_papers_page_has_each_figure_and_its_drawings() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\S+):", page, re.MULTILINE) == list(load_figures(ROOT / "reference_values" / "published"))
    linked = set(re.findall(r"\]\(results/papers/(\S+)\)", page))
    assert linked == {file.name for file in (ROOT / "docs" / "results" / "papers").iterdir()}


def test_a_finding_is_written_with_the_fields_of_its_class() -> None:
    """The page lists those of the class, since a finding leaves out the figures that it has not."""
    gpu = Component(Kind.GPU, "gpu0", "nid001")
    finding = Finding("slow-gpu", Verdict.DEGRADED, "slow", (gpu,), 1, 2, "Gb/s", ("metric",), ("file",), 0.1)
    assert finding.as_json().keys() == formats_page.fields_of(Finding).keys()
