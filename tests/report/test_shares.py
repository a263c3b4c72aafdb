"""The map of a node, by GPU, whichever rank drives it; and of nodes, by what each of them is to blame for."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from fabricheck.diagnosis.causes import Diagnosis, diagnose
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.shares import grid_of
from tests.support.findings import bad_finding
from tests.support.synthetic import pair_run, rank, with_yardstick


def driving(run: RunJudgement, gpus: tuple[int, ...]) -> RunJudgement:
    """The run with a rank for each of `gpus`, in that order."""
    device = rank(0).device
    assert device is not None
    ranks = tuple(replace(rank(place), device=replace(device, index=gpu)) for place, gpu in enumerate(gpus))
    return replace(run, run=replace(run.run, ranks=ranks))


def on_nodes(run: RunJudgement, hosts: str) -> RunJudgement:
    ranks = tuple(replace(rank(place), host=host) for place, host in enumerate(hosts))
    return replace(run, run=replace(run.run, ranks=ranks))


def verdicts(runs: list[RunJudgement], *problems: Finding) -> dict[str, Verdict | None]:
    grid = grid_of(runs, [f"check {place}" for place in range(len(runs))], diagnose(runs, problems))
    assert grid is not None
    return {row: cells[0].verdict for row, cells in zip(grid.rows, grid.cells, strict=True)}


def test_a_run_of_many_nodes_is_red_at_those_that_its_slow_pairs_share() -> None:
    bad = {pair: Verdict.DEGRADED for pair in permutations(range(4), 2) if 2 in pair}
    found = verdicts([on_nodes(pair_run(bad=bad), "abcd")])
    assert found == {"c": Verdict.DEGRADED, "a": Verdict.PASS, "b": Verdict.PASS, "d": Verdict.PASS}
    # Of a single pair either may be it.
    one = verdicts([on_nodes(pair_run(bad={(1, 2): Verdict.FAIL}), "abcd")])
    assert one == {"b": Verdict.FAIL, "c": Verdict.FAIL, "a": Verdict.PASS, "d": Verdict.PASS}


def test_what_names_no_node_is_told_of_all_and_a_node_without_a_run_has_a_row() -> None:
    run = on_nodes(pair_run(), "abcd")
    for whole in (
        replace(run, problems=(bad_finding(Verdict.INVALID, "another transport"),)),
        replace(run, verdict=Verdict.INVALID),
    ):
        assert set(verdicts([whole]).values()) == {Verdict.INVALID}
    named = replace(run, problems=(bad_finding(Verdict.DEGRADED, "b:gpu0 is slow", "b:gpu0"),))
    trunk = bad_finding(Verdict.DEGRADED, "leaf0--spine0 loses 20%", "leaf0--spine0")
    found = verdicts([named], bad_finding(Verdict.FAIL, "b2: it failed twice", "b2"), trunk)
    assert [*found.items()][:2] == [("b2", None), ("b", Verdict.DEGRADED)]
    assert set([*found.values()][2:]) == {Verdict.PASS}


def test_pairs_are_of_gpus_also_where_ranks_share_them() -> None:
    apart = driving(pair_run(), (0, 1, 2, 3))
    shared = driving(pair_run(bad={(1, 4): Verdict.FAIL, (0, 1): Verdict.FAIL}, ranks=6), (0, 0, 1, 1, 2, 2))
    grid = grid_of([apart, shared], ["one", "other"], Diagnosis())
    assert grid is not None
    assert grid.columns == ("GPU 0", "GPU 1", "GPU 2")
    bad = {(row, column) for row in range(3) for column in range(3) if grid.cells[row][column].verdict is Verdict.FAIL}
    # Ranks 1 and 4 are on GPUs 0 and 2; ranks 0 and 1 are on one GPU, and no pair of two.
    assert bad == {(0, 2)}
    assert all(grid.cells[each][each].verdict is None for each in range(3))
    two = driving(pair_run(), (0, 0, 1, 1))
    assert grid_of([two], ["two"], Diagnosis()) is None


def against(run: RunJudgement, kind: str, value: float) -> RunJudgement:
    """The goodputs of a run, judged so."""
    goodputs = [each for each in run.judgements if each.better == "higher"]
    return replace(run, judgements=tuple(with_yardstick(each, kind, value) for each in goodputs))


def test_the_map_of_gpus_is_that_of_their_links_and_has_the_colour_of_the_share() -> None:
    links = against(pair_run(transport="copy"), "achievable", 1375.0)
    library = against(pair_run(transport="mpi"), "siblings", 2000.0)
    to_host = against(pair_run(transport="mpi", bad={(0, 1): Verdict.FAIL}), "published", 1100.0)
    header = {**to_host.run.header, "plan": {**to_host.run.header["plan"], "buffers": "device-host"}}
    to_host = replace(to_host, run=replace(to_host.run, header=header))
    grid = grid_of([library, to_host, links], ["library", "host", "links"], Diagnosis())
    assert grid is not None
    cell = grid.cells[0][1]
    # 1,099 of 1,375 Gb/s; the MPI library's 55% are its own, and what went to the host passed no link between GPUs.
    assert (cell.verdict, cell.text, cell.shade, cell.link) == (Verdict.PASS, "80.0 %", 3, "")
    assert "over copy" in grid.title and grid.legend.endswith("1,375 Gb/s, the achievable")
    slow = against(pair_run(transport="mpi", bad={(0, 1): Verdict.DEGRADED}), "siblings", 1100.0)
    bad = grid_of([slow, links], ["library", "links"], Diagnosis())
    assert bad is not None
    assert (bad.cells[0][1].verdict, bad.cells[0][1].shade, bad.cells[0][1].link) == (Verdict.DEGRADED, 0, "run1")
    assert "over mpi" in bad.title and bad.legend.endswith("1,100 Gb/s, the peers")


@given(st.lists(st.tuples(st.sampled_from(["siblings", "achievable"]), st.floats(900, 1500)), min_size=12, max_size=12))
def test_equal_rates_have_equal_cells_whatever_judged_them(yardsticks: list[tuple[str, float]]) -> None:
    """A GPU that lost as much both ways shows as much both ways."""
    run = against(pair_run(transport="copy"), "achievable", 1375.0)
    judgements = tuple(
        replace(with_yardstick(each, *yardstick), value=1000.0)
        for each, yardstick in zip(run.judgements, yardsticks, strict=False)
    )
    grid = grid_of([replace(run, judgements=judgements)], ["links"], Diagnosis())
    assert grid is not None
    assert len({cell.text for row in grid.cells for cell in row if cell.verdict}) == 1
