"""The picture of README.md: of today's page, and made by one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.picture import IMAGES, main, page, sum_of
from tests.support.browsers import started

SIZE = slice(16, 24)  # of a PNG file's header


def test_the_picture_is_of_todays_page() -> None:
    """`python -m benchmarks.picture` makes it again."""
    assert sum_of(page()) in (IMAGES / "report.png").read_bytes()


@pytest.mark.browser
@pytest.mark.full
def test_the_picture_is_made_by_one_command(tmp_path: Path) -> None:
    with started("chromium"):
        pass  # skips, or fails in CI, where there is no browser
    made = main(tmp_path).read_bytes()
    assert made[SIZE] == (IMAGES / "report.png").read_bytes()[SIZE]
    assert sum_of(page()) in made
