"""What README.md shows is what the command makes of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.picture import RESULTS, ROOT, judged
from fabricheck.suites.sources import extract
from tests.support.pages import render


@pytest.mark.full
def test_the_sample_of_the_readme_is_what_the_command_prints(tmp_path: Path) -> None:
    extract(RESULTS, tmp_path)
    found = judged(tmp_path / "raw" / "acceptance")
    text = render(found.runs, width=80, color=False, problems=found.problems, system="hgx-h200")
    readme = (ROOT / "README.md").read_text()
    sample = [line for line in readme.split("SUSPECT", 1)[1].split("```", 1)[0].splitlines() if line.strip()]
    assert len(sample) == 4
    for line in sample:
        assert line.strip() in text
