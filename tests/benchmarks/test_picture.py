"""The picture of README.md names the GPU that was made slower."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.picture import RESULTS, SLOW_GPU, judged
from fabricheck.diagnosis.causes import diagnose
from fabricheck.suites.sources import extract


@pytest.mark.full
def test_the_first_cause_is_the_gpu_that_was_made_slower(tmp_path: Path) -> None:
    extract(RESULTS, tmp_path)
    found = judged(tmp_path / "raw" / "acceptance")
    first, *_ = diagnose(found.runs, found.problems, found.findings).causes
    assert first.finding.code == "slow-gpu"
    assert f"gpu{SLOW_GPU}" in {component.name for component in first.finding.components}
