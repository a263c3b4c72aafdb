"""First steps by symptom: each has its section on the page of the documentation, and fits the lines of real faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fabricheck.report.advice import ADVICE, PAGE, advice_for

ROOT = Path(__file__).resolve().parents[2]


def test_every_symptom_has_its_section() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / PAGE).read_text(), re.MULTILINE)
    assert {each.section for each in ADVICE} <= set(sections)


@pytest.mark.parametrize(
    "line,step",
    [
        ("result.jsonl: nid003 (rank 2) did not report when the other nodes gave up waiting", "sinfo -R"),
        ("the data went by NET/Socket (2), which this check forbids: P2P", "module list"),
        (
            "NCCL_X was unset and not '1' on all ranks: the tuning that was asked for was not in effect",
            "the job script",
        ),
        ("pingpong brought 11 wrong bytes: the data are not what was sent", "take the node out"),
        ("12 test cases were selected and 11 were run", "fabricheck run"),
        ("something that nobody foresaw", f"see {PAGE}"),
    ],
)
def test_the_first_step_fits_the_line(line: str, step: str) -> None:
    assert advice_for(line).startswith(step)
