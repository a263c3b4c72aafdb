"""A paper's figure beside what was measured here."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.system import SystemJudge
from fabricheck.records.operations import OPERATIONS
from fabricheck.report.figures.paper import draw
from fabricheck.report.paper_figures import answer, load_figures, measured
from fabricheck.yardsticks.policy import Policy
from tests.rfm.test_checks import CHECKS
from tests.support.commands import run
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import ROOT, system
from tests.support.result_files import CUDA

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))
H200 = SystemJudge(system("hgx-h200"), None, Policy())
FIGURES = load_figures(ROOT / "reference_values" / "published")


@given(
    st.dictionaries(st.sampled_from(["mpi", "ccl", "copy"]), st.lists(st.floats(1, 3000), min_size=1, max_size=4)),
    st.booleans(),
)
def test_a_row_has_all_pairs_of_a_transport(rates: dict[str, list[float]], apart: bool) -> None:
    figure, other = (FIGURES[name].figure for name in (("sc24-7", "sc24-3") if apart else ("sc24-3", "sc24-7")))
    hosts = [f"n{rank}" for rank in range(4)] if apart else ["n0"] * 4
    runs = [
        made_run(
            hosts,
            [made_samples(figure.operations[0], pair, MIB, rate) for pair, rate in zip(PAIRS, own, strict=False)],
            transport=transport,
            devices=True,
        )
        for transport, own in rates.items()
    ]
    judge = replace(H200, topology=None) if apart else H200
    rows = measured(figure, "goodput", runs, judge)
    assert {row.name: row.medians for row in rows} == {
        transport: pytest.approx(own, rel=0.01) for transport, own in rates.items()
    }
    assert all(len(row.models) == (0 if apart else len(row.medians)) for row in rows)
    assert measured(other, "goodput", runs, judge) == []


def test_inside_a_node_and_between_nodes_stand_apart() -> None:
    cited, sizes = FIGURES["commbench-9"], {"in a node": MIB, "between nodes": 4 * MIB}
    runs = [
        made_run(["n0", last], [made_samples("striping", (0, 1), size, 8.0)])
        for last, size in zip(("n0", "n1"), sizes.values(), strict=True)
    ]
    rows = measured(cited.figure, "time", runs, replace(H200, topology=None))
    assert {row.series: row.medians for row in rows} == {
        f"mpi, {where}": [pytest.approx(size / 1e3)] for where, size in sizes.items()
    }
    chart = draw(cited, "time", rows).chart
    assert len({*chart.path(chart.lines[0].points).split()}) == 2


@given(st.floats(0.5, 2).filter(lambda ratio: abs(ratio - 1) > 0.05), st.integers(0, 1000))
def test_a_conclusion_holds_where_it_does(ratio: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    runs = []
    for transport, rate in (("ccl", 100.0), ("mpi", 100.0 * ratio)):
        samples = made_samples("pingpong", (0, 1), MIB, rate)
        times = samples.times_ns[0] * random.normal(1, 0.01, 50)
        runs.append(made_run(["n0"] * 2, [replace(samples, times_ns=times.astype(np.int64))], transport=transport))
    cited = FIGURES["sc24-3"]
    assert cited.figure.holds is not None and cited.figure.holds.series == "mpi"
    judge = replace(H200, topology=None)
    said = answer(cited.figure, measured(cited.figure, "goodput", runs, judge))
    assert ("That holds here" in said) == (ratio > 1)
    assert ("does not hold here" in said) == (ratio < 1)


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_its_tests_and_points(name: str) -> None:
    cited = FIGURES[name]
    assert cited.figure.tests or cited.figure.not_here
    assert set(cited.figure.tests) <= CHECKS.keys()
    assert set(cited.figure.operations) <= set(OPERATIONS)
    drawn = [draw(cited, shown, []) for shown in cited.figure.quantities]
    assert sum(len(figure.chart.points) for figure in drawn) >= len(cited.figure.points)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(FIGURES)
    out, none, cut = tmp_path / "out", tmp_path / "none", tmp_path / "cut.jsonl"
    assert run("reproduce", "sc24-6", "--from", CUDA, "--system", "hgx-h200", "--output", out) == 0
    assert (out / "sc24-6.html").stat().st_size < 1_500_000
    head, *rows = csv.reader((out / "sc24-6.csv").read_text(encoding="utf-8").splitlines())
    assert rows and {len(row) for row in rows} == {len(head)}
    cut.write_text(CUDA.read_text()[:2000])
    for figure, source in (("sc24-99", CUDA), ("sc24-5", CUDA), ("sc24-6", cut), ("sc24-6", tmp_path / "x")):
        capsys.readouterr()
        assert run("reproduce", figure, "--from", source, "--output", none) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err
    assert run("reproduce", "sc24-3") == 2
    assert not list(none.glob("*"))
