"""What a report says of judged runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.overall import worst_first
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import (
    counts,
    facts_of,
    groups_of,
    number,
    printable,
    ranks_text,
    reason_without_source,
    short_message,
    with_job_script,
)
from tests.support.findings import bad_finding
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples

VERDICTS = st.sampled_from(list(Verdict))


@given(st.text())
def test_text_from_elsewhere_can_be_shown_anywhere(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    if text.isprintable():
        assert shown == text


def test_what_could_move_a_cursor_or_turn_a_line_is_escaped() -> None:
    assert printable("a\x1b[2Jb") == "a\\x1b[2Jb"
    assert printable("a\nb\u202ec\ud800") == "a\\nb\\u202ec\\ud800"
    assert printable("x" * 5000).endswith("(1000 more characters)")


@given(st.floats(min_value=1e-3, max_value=9.99e6))
def test_numbers_have_four_digits_and_no_exponent(value: float) -> None:
    text = number(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4)


@given(VERDICTS, st.lists(VERDICTS, min_size=1, max_size=4), st.lists(st.sampled_from([*Verdict][1:]), max_size=4))
def test_a_run_is_never_better_than_a_part_of_it(own: Verdict, metrics: list[Verdict], problems: list[Verdict]) -> None:
    """Whatever verdict the run itself claims."""
    run = judged(
        [judgement(samples((0, each + 1), GIB), verdict=verdict) for each, verdict in enumerate(metrics)],
        problems=[bad_finding(verdict, "something") for verdict in problems],
    )
    run = RunJudgement(run.run, own, run.problems, run.judgements)
    order = list(Verdict)
    worst = max([own, *metrics, *problems], key=order.index)
    assert run.final_verdict is worst
    assert diagnose([run], ()).verdict is worst
    assert diagnose([pair_run(), run], ()).verdict is worst


def test_nothing_is_no_pass() -> None:
    assert diagnose([], ()).verdict is Verdict.INCOMPLETE
    empty = RunJudgement(Run("x", {}, (), (), None), Verdict.PASS, (), ())
    assert empty.final_verdict is Verdict.INVALID
    assert "no metric to judge" in empty.all_problems[0].message
    found = diagnose([pair_run()], [bad_finding(Verdict.INCOMPLETE, "a check did not run")])
    assert found.verdict is Verdict.INCOMPLETE


def test_the_worst_run_and_group_come_first() -> None:
    fine, bad = pair_run(), pair_run(bad={(0, 3): Verdict.FAIL})
    assert worst_first([fine, bad]) == (bad, fine)
    first = groups_of(bad)[0]
    assert first.verdict is Verdict.FAIL
    assert first.judgements[0].samples.ranks == (0, 3)
    # Among those that pass, the one furthest from what it should be: the rate grows with the source.
    assert first.judgements[1].samples.ranks == (0, 2)
    assert counts(each.verdict for each in first.judgements) == "1 FAIL, 11 PASS"


def test_ranks_have_short_names() -> None:
    assert ranks_text(samples((0, 3), 8), 4) == "0→3"
    assert ranks_text(samples((0, 3), 8, operation="bidirectional"), 4) == "0↔3"
    assert ranks_text(samples((0, 1, 2, 3), 8, operation="allreduce"), 4) == "all 4"
    assert ranks_text(samples((0, 1, 2), 8, operation="allreduce"), 4) == "ranks 0-2"
    assert len(ranks_text(samples(tuple(range(0, 400, 2)), 8, operation="allreduce"), 400)) < 50


def test_facts_say_what_ran_where_and_how_to_do_it_again() -> None:
    run = pair_run(
        environment={"NCCL_NVLS_ENABLE": "0", "UCX_TLS": "a b", "OMPI_MCA_num_procs": "4"},
        environment_differences=[{"rank": 2, "name": "NCCL_NVLS_ENABLE", "value": None}],
    )
    facts = facts_of(run)
    assert facts.where == "4 ranks on nid001 with 4 x NVIDIA H200"
    assert facts.libraries == ("Open MPI 5.0.11", "CUDA 13.0 (driver 580.159)")
    assert facts.environment == (("NCCL_NVLS_ENABLE", "0"), ("UCX_TLS", "a b"))
    assert facts.launcher_environment == (("OMPI_MCA_num_procs", "4"),)
    assert facts.differences == ("rank 2: without NCCL_NVLS_ENABLE",)
    words = ["env", "NCCL_NVLS_ENABLE=0", "UCX_TLS=a b", "fabricbench", "--output", "result.jsonl"]
    assert shlex.split(" ".join(facts.command)) == words
    assert "P2P/CUMEM (24)" in facts.proof


def test_the_command_is_that_of_the_job_script_beside_the_result(tmp_path: Path) -> None:
    (tmp_path / "rfm_job.sh").write_text(
        "#!/bin/bash\n#SBATCH -n 4\nmodule load openmpi\nexport A='b c'\nsrun sh -c collect node-state/before.log\n"
        "srun -n 4 /built/fabricbench --output=other.jsonl\nsrun -n 4 /built/fabricbench --output=result.jsonl\n"
    )
    run = pair_run()
    facts = with_job_script(facts_of(run), tmp_path / "result.jsonl")
    launch = "srun -n 4 /built/fabricbench --output=result.jsonl"
    assert " ".join(facts.command) == f"module load openmpi && export A='b c' && {launch}"


def test_facts_of_several_nodes() -> None:
    ranks = [rank(number, f"nid{number // 4}") for number in range(8)]
    facts = facts_of(judged([judgement(samples((0, 7), GIB))], ranks=ranks))
    assert facts.where == "8 ranks on 2 nodes (nid0 … nid1), each with 4 x NVIDIA H200"
    assert [each.ranks for each in facts.nodes] == ["0-3", "4-7"]


def test_a_file_without_a_valid_header_has_facts_too() -> None:
    facts = facts_of(RunJudgement(Run("x", {}, (), (), None), Verdict.INVALID, (), ()))
    assert facts.what == "nothing measured"
    assert "no valid header" in facts.program
    assert "did not complete" in facts.records
    assert facts.command == ()


def test_messages_leave_out_the_file_that_is_named_already() -> None:
    run = pair_run()
    assert (
        short_message(bad_finding(Verdict.FAIL, "out/result.jsonl:3: wrong bytes: 4"), run) == "line 3: wrong bytes: 4"
    )
    assert short_message(bad_finding(Verdict.FAIL, "out/result.jsonl: no footer"), run) == "no footer"
    assert short_message(bad_finding(Verdict.FAIL, "elsewhere: no footer"), run) == "elsewhere: no footer"


def test_reasons_leave_out_the_source_that_is_shown_once() -> None:
    one = judgement(samples((0, 1), GIB), value=96.0)
    assert one.expectation.source in one.reason
    assert reason_without_source(one) == "96 Gb/s is what it is (PASS)"
