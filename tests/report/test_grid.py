"""The map of a node: by GPU, whichever rank drives it."""

from __future__ import annotations

from dataclasses import replace

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.report.grid import grid_of
from tests.support.synthetic import pair_run, rank


def driving(run: RunJudgement, gpus: tuple[int, ...]) -> RunJudgement:
    """The run with a rank for each of `gpus`, in that order."""
    device = rank(0).device
    assert device is not None
    ranks = tuple(replace(rank(place), device=replace(device, index=gpu)) for place, gpu in enumerate(gpus))
    return replace(run, run=replace(run.run, ranks=ranks))


def test_pairs_are_of_gpus_also_where_ranks_share_them() -> None:
    apart = driving(pair_run(), (0, 1, 2, 3))
    shared = driving(pair_run(bad={(1, 2): Verdict.FAIL, (0, 1): Verdict.FAIL}), (0, 0, 1, 1))
    grid = grid_of([shared, apart])
    assert grid is not None
    assert grid.columns == ("GPU 0", "GPU 1", "GPU 2", "GPU 3")
    bad = {(row, column) for row in range(4) for column in range(4) if grid.cells[row][column].verdict is Verdict.FAIL}
    # Ranks 1 and 2 are on GPUs 0 and 1; ranks 0 and 1 are on one GPU, and no pair of two.
    assert bad == {(0, 1)}
    assert all(grid.cells[each][each].verdict is None for each in range(4))
