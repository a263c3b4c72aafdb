"""Figures and the tables that say the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.report.figures.chart import Figure, axis_of
from fabricheck.report.figures.curves import curves_of
from tests.support.synthetic import GIB, MIB, judged, judgement, pair_run, samples


def find(run: RunJudgement, title: str) -> Figure:
    (found,) = [each for each in curves_of(run) if each.title.startswith(title)]
    return found


def rows_of(figure: Figure) -> list[tuple[str, ...]]:
    return list(figure.rows)


def test_curves_hold_the_quartiles_of_the_iterations() -> None:
    run = pair_run(sizes=(8, 1024, MIB, GIB))
    rows = rows_of(find(run, "pingpong uncontended: goodput over size"))
    assert len(rows) == 48
    for row, line, size in zip(rows, run.run.samples, ("8 B", "1 KiB", "1 MiB", "1 GiB") * 12, strict=False):
        assert row[:3] == (f"{line.ranks[0]}→{line.ranks[1]}", size.replace(" ", ""), "20")
        quartiles = np.percentile(line.goodput_gbps, [25, 50, 75])
        assert [float(each.replace(",", "")) for each in row[3:]] == pytest.approx(quartiles, rel=1e-3)


def test_latency_is_shown_for_small_sizes_only_with_the_cold_one() -> None:
    run = pair_run(sizes=(8, 64, 512, 1024, MIB))
    run = replace(run, run=replace(run.run, samples=tuple(replace(each, cold_us=1.5) for each in run.run.samples)))
    rows = rows_of(find(run, "pingpong uncontended: latency over size"))
    assert {row[1] for row in rows} == {"8B", "64B", "512B", "1KiB"}
    assert all(row[4].endswith("(cold: 1.500)") for row in rows)


@pytest.mark.parametrize("sizes", [(GIB,), (1024, MIB, GIB)])
def test_few_sizes_make_no_curve(sizes: tuple[int, ...]) -> None:
    assert list(curves_of(pair_run(sizes=sizes))) == []


def test_collectives_share_a_figure() -> None:
    everyone = (0, 1, 2, 3)
    records = [
        samples(everyone, size, operation=operation)
        for operation in ("allreduce", "alltoall")
        for size in (8, MIB, 2 * MIB, GIB)
    ]
    run = judged([judgement(records[1]), judgement(records[5])], records)
    rows = rows_of(find(run, "collectives uncontended: goodput over size"))
    assert list(dict.fromkeys(row[0] for row in rows)) == ["allreduce all 4", "alltoall all 4"]


def test_the_worst_is_the_first_line_and_what_is_expected_of_all_a_level() -> None:
    run = pair_run(ranks=8)
    slow = tuple(replace(each, times_ns=each.times_ns * (2 if each.ranks == (6, 2) else 1)) for each in run.run.samples)
    figure = find(replace(run, run=replace(run.run, samples=slow)), "pingpong uncontended: goodput over size")
    assert (figure.chart.lines[0].label, len(figure.chart.lines)) == ("6→2", 56)
    assert figure.chart.expected == 1200
    assert len({row[0] for row in rows_of(figure)}) == 56


POSITIVE = st.floats(1e-3, 1e9)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_all_of_a_line_is_inside_its_axes_and_ticks_are_in_order(
    points: list[tuple[float, float]], is_log: bool, from_zero: bool
) -> None:
    values = tuple(y for _, y in points)
    axis = axis_of("y", values, is_log=is_log, from_zero=from_zero and not is_log)
    assert axis.low <= min(values) * (1 + 1e-9) and max(values) <= axis.high * (1 + 1e-9)
    ticks = [tick for tick, _ in axis.ticks]
    assert ticks == sorted(set(ticks)) and 2 <= len(ticks) <= 15
    shares = [axis.share(value) for value in sorted(values)]
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
