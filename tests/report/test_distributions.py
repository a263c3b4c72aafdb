"""Distributions of the iterations: quantiles alone, and what is odd in them can be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.report.figures.curves import SHARES, figures_of
from fabricheck.report.figures.tables import Figure, Rows
from tests.report.test_figures import distribution, plot
from tests.support.synthetic import GIB, judged, judgement, pair_run, samples


def rows_of(figure: Figure) -> dict[str, tuple[str, ...]]:
    assert isinstance(figure.table, Rows)
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in figure.table.rows}


def two_modes(of: Samples, share: float) -> Samples:
    """A share of the iterations takes a tenth longer."""
    slow = np.arange(of.times_ns.size) < share * of.times_ns.size
    return replace(of, times_ns=np.where(slow, (of.times_ns * 1.1).astype(np.int64), of.times_ns))


def test_the_table_has_the_quantiles_in_the_unit_of_the_metric() -> None:
    run = pair_run(bad={(0, 3): Verdict.FAIL}, iterations=200)
    figure = distribution(run, "pingpong uncontended 1GiB goodput")
    assert isinstance(figure.table, Rows)
    assert figure.table.head[2:] == (
        "minimum, Gb/s", "1%", "5%", "25%", "median", "75%", "95%", "99%", "maximum", "iterations",
    )  # fmt: skip
    line = next(each for each in run.run.samples if (each.ranks, each.bytes) == ((1, 2), GIB))
    found = rows_of(figure)["1→2"]
    wanted = np.percentile(line.goodput_gbps, [0, 1, 5, 25, 50, 75, 95, 99, 100])
    assert [float(each.replace(",", "")) for each in found[1:-1]] == pytest.approx(wanted, rel=1e-3)
    assert found[-1] == "200"


def test_curves_are_in_per_cent_of_their_own_median_and_rise_to_a_hundred() -> None:
    figure = distribution(pair_run(iterations=200), "pingpong uncontended 1GiB goodput")
    for trace in plot(figure)["data"]:
        if trace["name"].endswith("others"):
            continue
        assert trace["y"] == list(SHARES)
        assert len(SHARES) <= 43
        assert trace["x"] == sorted(trace["x"])
        assert trace["x"][SHARES.index(50.0)] == 100


def test_what_is_not_pass_comes_first_and_then_what_varies_most() -> None:
    run = pair_run(ranks=8, bad={(6, 2): Verdict.FAIL}, iterations=200)
    odd = two_modes(next(each for each in run.run.samples if (each.ranks, each.bytes) == ((3, 4), GIB)), 0.3)
    judgements = [replace(each, samples=odd) if each.samples.ranks == (3, 4) else each for each in run.judgements]
    figure = distribution(replace(run, judgements=tuple(judgements)), "pingpong uncontended 1GiB goodput")
    assert list(rows_of(figure))[:2] == ["6→2", "3→4"]
    assert "the widest is 3→4" in figure.summary
    traces = {each["name"]: each for each in plot(figure)["data"]}
    assert list(traces)[-2:] == ["3→4", "6→2"]
    # Both modes are there: 30% of the iterations are a tenth slower, and the axis goes to them.
    shown = dict(zip(traces["3→4"]["y"], traces["3→4"]["x"], strict=True))
    assert shown[25.0] < 93 and shown[35.0] > 98
    assert plot(figure)["layout"]["xaxis"]["range"][0] < shown[5.0]


def test_few_grey_curves_and_rows_and_the_rest_is_counted() -> None:
    figure = distribution(pair_run(ranks=12), "pingpong uncontended 1GiB goodput")
    assert "132 distributions" in figure.summary and "45 of them are drawn" in figure.summary
    assert isinstance(figure.table, Rows)
    assert len(figure.table.rows) == 32
    assert figure.table.note == "More rows, none worse: 100 metrics."


def test_a_mean_has_no_distribution_and_neither_has_what_was_not_measured() -> None:
    mean = replace(samples((0, 1), GIB, iterations=1), statistic="mean")
    zero = replace(samples((0, 2), GIB), times_ns=np.zeros(20, dtype=np.int64))
    for odd in (mean, zero, samples((0, 3), GIB, iterations=1)):
        run = judged([replace(judgement(samples(odd.ranks, GIB)), samples=odd)])
        assert [each.kind for each in figures_of(run)] == ["matrix"]


def test_collectives_are_together() -> None:
    everyone = (0, 1, 2, 3)
    lines = [samples(everyone, GIB, operation=operation) for operation in ("allreduce", "alltoall")]
    figure = distribution(judged([judgement(each) for each in lines]), "collectives uncontended goodput")
    assert list(rows_of(figure)) == ["allreduce 1GiB all 4", "alltoall 1GiB all 4"]
