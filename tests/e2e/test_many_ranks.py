"""Nothing in the suite counts on four ranks: nodes with 1, 2 and 3 GPUs, and eight ranks."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fabricheck.judge.system import SystemJudge
from fabricheck.records.metrics import expected_metric_names, metrics_of
from fabricheck.records.operations import (
    COLLECTIVES,
    GROUP_PATTERNS,
    MEMORY_PATHS,
    PAIRS,
    SPARSE,
    STRIPING,
    SYMMETRIC_PAIRS,
    TRAINING,
    VICTIMS,
)
from fabricheck.records.run import Groups
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.session.reframe import reframe_program
from fabricheck.suite import suite_root
from tests.e2e.test_patterns import MATRIX
from tests.support.bench import Bench, right

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

SHORT = "--sizes=1KiB,64KiB --iterations=8 --warmup=2 --output=result.jsonl --quiet"


def test_every_pair_and_collective(openmpi: Bench, tmp_path: Path) -> None:
    ranks = 8
    job = openmpi.run(tmp_path, f"--operations={','.join([*PAIRS, *COLLECTIVES])} {SHORT}", ranks=ranks)
    run = right(tmp_path, job)
    assert [metric.name for metric in metrics_of(run)] == list(expected_metric_names(run.header))
    for operation in PAIRS:
        ordered = ranks * (ranks - 1)
        wanted = ordered // 2 if operation in SYMMETRIC_PAIRS else ordered
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


@pytest.mark.parametrize(("number", "size"), [(2, 4), pytest.param(4, 2, marks=pytest.mark.matrix)])
def test_every_pattern_between_groups(openmpi: Bench, tmp_path: Path, number: int, size: int) -> None:
    patterns = [*GROUP_PATTERNS, *sorted(STRIPING), *sorted(SPARSE), *VICTIMS]
    if number > 2:
        patterns = [each for each in GROUP_PATTERNS if not each.startswith("asymmetric")]
    patterns += TRAINING
    shapes = {Groups(number, size, active) for active in range(1, size + 1)}
    options = f"--operations={','.join(patterns)} --groups={','.join(map(str, shapes))} --group-size={size}"
    job = openmpi.run(tmp_path, f"{options} --matrix={MATRIX} {SHORT}", ranks=number * size)
    run = right(tmp_path, job)
    assert {each.operation for each in run.samples} == set(patterns)
    assert {each.groups for each in run.samples if each.operation == "rail_unidirectional"} == shapes
    judged = SystemJudge.of("local").judge(run)
    assert judged.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE), judged.problems


@pytest.mark.parametrize(("gpus", "together"), [pytest.param(1, [], marks=pytest.mark.matrix), (3, ["0+1", "0+1+2"])])
def test_every_check_of_a_small_node_has_something_to_measure(
    openmpi: Bench, tmp_path: Path, gpus: int, together: list[str]
) -> None:
    commands = acceptance_of_node(tmp_path, gpus)
    assert {each["expect-ranks"] for name, each in commands.items() if "SharedGpu" not in name} == {str(gpus)}
    assert [each["expect-ranks"] for name, each in commands.items() if "SharedGpu" in name] == [str(max(gpus, 2))] * 2
    sets = [each["together"].split(",") for each in commands.values() if "together" in each]
    assert sets == ([together] * 2 if together else [])
    asked = {one for each in commands.values() for one in each["operations"].split(",")}
    assert {"host_to_device", "local_copy", "pingpong"} <= asked
    if gpus == 1:
        return
    # What each operation is between so few ranks does not depend on the backend.
    operations = sorted(asked - {*MEMORY_PATHS})
    job = openmpi.run(tmp_path, f"--operations={','.join(operations)} --matrix={MATRIX} {SHORT}", ranks=gpus)
    assert job.returncode == 0, job.stdout + job.stderr
    assert {each.operation for each in read_run(tmp_path / "result.jsonl").samples} == set(operations)


def acceptance_of_node(folder: Path, gpus: int) -> dict[str, dict[str, str]]:
    """fabricbench's options in the jobs that an acceptance of hgx-h200 would start with so many GPUs, by job."""
    root = suite_root()
    files = [root / "config" / "common.py", root / "site_configs" / "hgx-h200" / "settings.py"]
    command = [reframe_program(), "--dry-run", "--system=hgx-h200", "--tag=acceptance", "--recursive"]
    command += [f"--checkpath={root / 'checks'}", f"--prefix={folder}", *(f"--config-file={file}" for file in files)]
    environment = {
        **os.environ,
        "FABRICHECK_GPUS": str(gpus),
        "FABRICHECK_OPENMPI_ROOT": str(folder),
        "FABRICHECK_UCX_ROOT": str(folder),
    }
    job = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    scripts = {file.parent.name: file.read_text() for file in folder.glob("stage/**/rfm_job.sh")}
    options = {name: dict(re.findall(r"--([a-z-]+)=(\S+)", text)) for name, text in scripts.items()}
    measuring = {name: each for name, each in options.items() if "operations" in each}
    assert measuring, job.stdout + job.stderr
    return measuring
