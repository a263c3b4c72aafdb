"""A paper's figure beside what was measured here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.policy import Policy
from fabricheck.judge.system import SystemJudge
from fabricheck.report.paper_figures import FIGURES, papers_values, rows_of
from tests.support.commands import run
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import ROOT, system
from tests.support.result_files import CUDA

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))
H200 = SystemJudge(system("hgx-h200"), None, Policy())


@given(
    st.dictionaries(st.sampled_from(["mpi", "ccl", "copy"]), st.lists(st.floats(1, 3000), min_size=1, max_size=4)),
    st.booleans(),
)
def test_a_row_has_all_pairs_of_a_transport(rates: dict[str, list[float]], apart: bool) -> None:
    hosts = [f"n{rank}" for rank in range(4)] if apart else ["n0"] * 4
    runs = [
        made_run(
            hosts,
            [made_samples("pingpong", pair, MIB, rate) for pair, rate in zip(PAIRS, own, strict=False)],
            transport=transport,
            devices=True,
        )
        for transport, own in rates.items()
    ]
    judge = replace(H200, topology=None) if apart else H200
    rows = rows_of(FIGURES["sc24-7" if apart else "sc24-3"], runs, judge)
    assert {row.transport: row.medians for row in rows} == {
        transport: pytest.approx(own, rel=0.01) for transport, own in rates.items()
    }
    assert all(len(row.shares) == (0 if apart else len(row.medians)) for row in rows)
    assert rows_of(FIGURES["sc24-3" if apart else "sc24-7"], runs, judge) == []


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_values_of_its_paper(name: str) -> None:
    values = list(papers_values(FIGURES[name], ROOT / "reference_values" / "published"))
    assert values
    assert all(value.source.startswith(FIGURES[name].cited) for _, value in values)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(FIGURES)
    assert run("reproduce", "sc24-6", CUDA, "--system", "hgx-h200") == 0
    cut = tmp_path / "cut.jsonl"
    cut.write_text(CUDA.read_text()[:2000])
    for words in (["sc24-99"], ["sc24-3"], ["sc24-5", CUDA], ["sc24-6", cut]):
        capsys.readouterr()
        assert run("reproduce", *words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err
