"""How collectives split the ranks, here and in fabricbench: two definitions of the same."""

from __future__ import annotations

import json
import subprocess

import pytest

from fabricheck.errors import UserError
from fabricheck.records.metrics import PlannedSeries, parse_metric_name
from fabricheck.records.split import Split
from tests.support.bench import built

SPLITS = [("nodes", 4, 8), ("rails", 4, 8), ("rails", 2, 6), ("2x2", 1, 8), ("3x1", 1, 9), ("2x8", 1, 32)]


@pytest.mark.parametrize(("name", "group", "ranks"), SPLITS)
def test_fabricbench_has_the_same_groups(name: str, group: int, ranks: int) -> None:
    options = ["--operations=allreduce", "--schedules=contended", f"--group-size={group}", f"--split={name}"]
    command = [str(built("openmpi").program), *options, f"--list-pairs={ranks}"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    split = Split.of(said["pairs"][0])
    assert split is not None and split.fits(name, ranks)
    assert [list(group) for group in split.groups(ranks)] == said["pairs"]


def test_a_group_of_a_collective_has_a_short_name_that_is_read_again() -> None:
    ranks = range(3, 3 + 64 * 8, 8)
    name = PlannedSeries("allreduce", "contended", tuple(ranks)).name(512, 1 << 30, "goodput")
    assert name == "allreduce_contended_3_64x8_1gib_goodput"
    assert parse_metric_name(name).ranks == tuple(ranks)
    assert Split.of([0, 1, 3]) is None
    for wrong in ("allreduce_contended_0_4x0_8b_latency", "allreduce_contended_0_9999999x999_8b_latency"):
        with pytest.raises(UserError, match="no run has"):
            parse_metric_name(wrong)
