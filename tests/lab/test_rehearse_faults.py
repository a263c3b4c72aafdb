"""Faults of clusters of GPUs: the table has each of them on each system, red and named. Nothing is brought up here."""

from __future__ import annotations

import shlex

import pytest

from fabricheck.suite import suite_root
from fabricheck_lab import rehearse_faults
from fabricheck_lab.emulate_faults import fault as command
from fabricheck_lab.rehearse_faults import SHAPES, faults_of, grouped

DOCUMENT = suite_root() / "lab" / "faults.md"


def test_every_fault_of_every_system_is_red_and_named_in_the_document() -> None:
    """As `python -m fabricheck_lab.rehearse_faults` recorded it; a row without the line that it has to have says so."""
    cells = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = {(row[0].removeprefix("| "), row[1]): row for row in cells[1:]}
    for shape in SHAPES:
        for each in (one for one in faults_of(shape) if (one.what, shape.system) in found):
            row = found[each.what, shape.system]
            assert row[2].startswith(each.how)
            assert row[3] == each.check
            assert row[4] != "PASS"
            assert int(row[5].rstrip(" |")) > 0, row


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.system)
def test_faults_are_planted_by_commands_that_are_there(shape: rehearse_faults.Shape) -> None:
    faults = list(faults_of(shape))
    assert len({each.what for each in faults}) == len(faults)
    for words in (shlex.split(each) for one in faults for each in one.plant):
        assert words[0] in command.commands


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.system)
def test_what_is_planted_at_once_is_looked_for_with_one_check(shape: rehearse_faults.Shape) -> None:
    faults = list(faults_of(shape))
    together = grouped(faults)
    assert len(together) < len(faults)
    assert sorted(one.what for each in together for one in each) == sorted(each.what for each in faults)
    for each in together:
        assert len({one.check for one in each}) == 1
        assert len(each) == 1 or not any(one.during or one.impatient for one in each)
