"""What is known from elsewhere judges the right metrics: the same part, or a paper's value of this system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.yardsticks.part_values import load_part, load_parts
from fabricheck.yardsticks.published import load_published
from tests.support.equal_runs import judge_of, run_of
from tests.support.made_runs import GIB, MIB
from tests.support.nodes import ROOT

PARTS = ROOT / "reference_values" / "parts"
DIRECTIONS: list[tuple[int, ...]] = [(0, 1), (1, 0)]


def named(run: Run, name: str, gib: float, **header: Any) -> Run:
    """The run, on GPUs of this name."""
    ranks = tuple(
        replace(each, device=replace(each.device, name=name, memory_bytes=int(gib * GIB))) if each.device else each
        for each in run.ranks
    )
    return replace(run, ranks=ranks, header={**run.header, **header})


def judgements(run: Run, name: str = "hgx-h200", parts: bool = True) -> tuple[Judgement, ...]:
    papers = ROOT / "reference_values" / "published" / f"{name}.yaml"
    published = load_published(papers) if papers.exists() else ()
    judge = replace(judge_of(name), parts=load_parts(PARTS) if parts else (), published=published)
    return judge.judge(run).judgements


def h200(level: float = 3160.0, **others: Any) -> Run:
    return named(run_of(["vm"] * 2, DIRECTIONS, level=level, **others), "NVIDIA H200", 139.8)


@pytest.mark.parametrize(("level", "verdict"), [(3160.0, Verdict.PASS), (2690.0, Verdict.DEGRADED)])
def test_two_directions_that_lost_as_much_are_judged_by_the_part(level: float, verdict: Verdict) -> None:
    found = judgements(h200(level))
    assert {(each.judged_by, each.verdict) for each in found} == {("part", verdict)}
    assert "NVIDIA H200, 4 machines" in found[0].reason


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (named(h200(), "NVIDIA H200 NVL", 139.8), "another model"),
        (named(h200(), "NVIDIA H200", 80.0), "less memory"),
        (named(h200(), "emulated NVIDIA H200", 139.8), "a rehearsal"),
        (h200(access="read", bytes_=512 * MIB, operation="bidirectional"), "another size"),
        (h200(buffers="host-device"), "host memory"),
        (h200(datatype="bfloat16"), "other kernels"),
    ],
)
def test_what_is_not_the_same_is_not_judged_by_a_part(run: Run, why: str) -> None:
    assert "part" not in {each.judged_by for each in judgements(run)}, why


def test_a_library_of_another_version_is_another_mover() -> None:
    run = h200(2935.0, transport="ccl", operation="pingpong")
    for version, alarm in (("2.28.3", False), ("2.2", True), ("2.29.1", True)):
        header = {**run.header, "libraries": {"ccl": {"name": "NCCL", "version": version}}}
        found = judgements(replace(run, header=header))
        assert {each.yardstick.alarm for each in found if each.yardstick is not None} == {alarm}


def test_more_than_a_cpu_was_seen_to_give_is_plausible_up_to_what_the_links_carry() -> None:
    def judged(gbytes: float) -> Verdict:
        made = run_of(["n"] * 2, [(0, 1)], operation="host_to_device", level=8 * gbytes, host_memory="pinned")
        (found,) = judgements(made, "dardel")
        assert found.expectation.expected == pytest.approx(8 * 36)
        return found.verdict

    assert [judged(gbytes) for gbytes in (35, 70, 80)] == [Verdict.PASS, Verdict.PASS, Verdict.INVALID]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("source: alcf", "source: nobody", "is not among sources"),
        ("least: 256MiB", "least: much", "least"),
        ("transports: [copy]", "transports: [pigeon]", "transports"),
        ("value: 54", "value: -54", "value"),
        ("machines: 1", "machines: 1\n    range: [60, 70]", "lowest, value, highest"),
        ("part: ", "parts: ", "is missing"),
    ],
)
def test_a_mistake_in_a_part_is_one_line(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = (PARTS / "pvc.yaml").read_text()
    assert before in text
    path = tmp_path / "pvc.yaml"
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(UserError, match=said):
        load_part(path)
