"""Generated pages are those of today's code; the tests of commands and findings hold theirs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
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


def test_a_finding_is_written_with_the_fields_of_its_class() -> None:
    """The page lists those of the class, since a finding leaves out the figures that it has not."""
    gpu = Component(Kind.GPU, "gpu0", "nid001")
    finding = Finding("slow-gpu", Verdict.DEGRADED, "slow", (gpu,), 1, 2, "Gb/s", ("metric",), ("file",), 0.1)
    assert finding.as_json().keys() == formats_page.fields_of(Finding).keys()
