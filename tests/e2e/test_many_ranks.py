"""Nothing in fabricbench or the judge counts on four ranks: as many as an 8-GPU node has, and twice that."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fabricheck.judge.metrics import expected_metric_names, metrics_of
from fabricheck.judge.system import SystemJudge
from fabricheck.results.fabricbench import read_run
from fabricheck.results.fabricbench_format import (
    GROUP_PATTERNS,
    SPARSE,
    STRIPING,
    VICTIMS,
)
from fabricheck.results.records import Groups, Verdict
from fabricheck.topology.judged import COLLECTIVES, PAIRS
from tests.e2e.test_patterns import MATRIX, Bench, openmpi

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.timeout(600)]

__all__ = ["openmpi"]
SHORT = "--sizes=1KiB,64KiB --iterations=8 --warmup=2 --output=result.jsonl --quiet"


@pytest.mark.parametrize("ranks", [8, 16])
def test_every_pair_and_collective(openmpi: Bench, tmp_path: Path, ranks: int) -> None:
    job = openmpi.run(tmp_path, f"--operations={','.join([*PAIRS, *COLLECTIVES])} {SHORT}", ranks=ranks)
    assert job.returncode == 0, job.stdout + job.stderr
    run = read_run(tmp_path / "result.jsonl")
    assert run.problems == ()
    assert {each.wrong_bytes for each in run.samples} == {0}
    assert [metric.name for metric in metrics_of(run)] == list(expected_metric_names(run.header))
    for operation in PAIRS:
        ordered = ranks * (ranks - 1)
        wanted = ordered // 2 if operation == "bidirectional" else ordered
        found = Counter((each.schedule, each.bytes) for each in run.samples if each.operation == operation)
        assert set(found.values()) == {wanted}, operation
        # In each round of the contended schedule every rank has one partner.
        rounds: dict[tuple[int, int], list[int]] = {}
        for each in run.samples:
            if each.operation == operation and each.schedule == "contended":
                rounds.setdefault((each.round, each.bytes), []).extend(each.ranks)
        assert all(sorted(members) == list(range(ranks)) for members in rounds.values())
    judged = SystemJudge.of("local").judge(run)
    assert judged.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE), judged.problems


@pytest.mark.parametrize(("ranks", "groups"), [(8, (2, 4)), (16, (2, 8)), (16, (4, 4))])
def test_every_pattern_between_groups(openmpi: Bench, tmp_path: Path, ranks: int, groups: tuple[int, int]) -> None:
    number, size = groups
    patterns = [*GROUP_PATTERNS, *sorted(STRIPING), *sorted(SPARSE), *VICTIMS]
    if number > 2:
        patterns = [each for each in GROUP_PATTERNS if not each.startswith("asymmetric")]
    shapes = {Groups(number, size, active) for active in range(1, size + 1)}
    options = f"--operations={','.join(patterns)} --groups={','.join(map(str, shapes))} --group-size={size}"
    job = openmpi.run(tmp_path, f"{options} --matrix={MATRIX} {SHORT}", ranks=ranks)
    assert job.returncode == 0, job.stdout + job.stderr
    run = read_run(tmp_path / "result.jsonl")
    assert run.problems == ()
    assert {each.operation for each in run.samples} == set(patterns)
    assert {each.wrong_bytes for each in run.samples} == {0}
    assert {each.groups for each in run.samples if each.operation == "rail_unidirectional"} == shapes
    judged = SystemJudge.of("local").judge(run)
    assert judged.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE), judged.problems
