"""fabricbench's patterns with real MPI: data arrive, planted defects are found, mistakes in files are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.judge.system import SystemJudge
from fabricheck.records.metrics import expected_metric_names, metrics_of
from fabricheck.records.operations import GROUP_PATTERNS, SPARSE, STRIPING, TRAINING, VICTIMS
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.bench import Bench, right
from tools import build

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

MATRIX = build.ROOT / "src" / "data" / "irregular48.mtx"
MOE = ",".join(str(MATRIX.with_name(f"moe-58-{way}.mtx")) for way in ("dispatch", "combine"))
PATTERNS = [*GROUP_PATTERNS, *sorted(STRIPING), *sorted(TRAINING), *sorted(SPARSE), *VICTIMS]


def test_every_pattern_brings_the_right_data(bench: Bench, tmp_path: Path) -> None:
    job = bench.run(
        tmp_path,
        f"--operations={','.join(PATTERNS)}",
        f"--matrix={MATRIX}",
        "--sizes=4KiB,64KiB --iterations=8 --warmup=2 --verify=every --output=result.jsonl",
    )
    run = right(tmp_path, job)
    assert {each.operation for each in run.samples} == set(PATTERNS)
    assert [metric.name for metric in metrics_of(run)] == list(expected_metric_names(run.header))
    beside = {each.operation for each in run.samples if each.aggressor is not None and each.schedule == "contended"}
    assert beside == set(VICTIMS)


def test_matrices_are_steps_one_after_another(openmpi: Bench, tmp_path: Path) -> None:
    job = openmpi.run(
        tmp_path,
        f"--operations=sparse,sparse_alltoallv,sparse_inter --matrix={MOE} --group-size=2",
        "--sizes=64KiB --iterations=8 --warmup=2 --verify=every --quiet --output=result.jsonl",
    )
    run = right(tmp_path, job)
    whole, _, between = run.samples
    sent: list[dict[tuple[int, int], int]] = [{}, {}]
    for source, destination, size, *step in whole.messages:
        sent[step[0] if step else 0][source, destination] = size
    there, back = sent
    # What was dispatched comes back, in numbers of about twice the bytes; and one rank has far more than the others.
    assert there.keys() == {(destination, source) for source, destination in back} and len(there) == 12
    assert all(size / there[b, a] == pytest.approx(14336 / 7392, rel=0.01) for (a, b), size in back.items())
    received = [sum(size for (_, rank), size in there.items() if rank == one) for one in range(4)]
    assert max(received) > 1.2 * sum(received) / 4
    assert {len(each) for each in between.messages} == {3, 4}
    assert SystemJudge.of("local").judge(run).verdict is not Verdict.INVALID


# Rank 2 receives something in each but one: it is the first of the second group, and an aggressor or a victim.
@pytest.mark.parametrize(
    ("rank", "operations"), [(1, {"striping_split"}), (2, {*PATTERNS} - {"striping_split"})], ids=["split", "others"]
)
def test_a_wrong_byte_is_found_in_every_pattern(
    openmpi: Bench, tmp_path: Path, rank: int, operations: set[str]
) -> None:
    job = openmpi.brief.run(
        tmp_path,
        f"--operations={','.join(sorted(operations))} --matrix={MATRIX} --victims=0,2 --groups=2x2x2",
        f"--sizes=64KiB --iterations=8 --quiet --inject=wrong-byte:{rank} --output=result.jsonl",
    )
    assert job.returncode == 5
    run = read_run(tmp_path / "result.jsonl")
    assert {each.verdict for each in run.problems} == {Verdict.FAIL}
    assert {each.operation for each in run.samples if each.wrong_bytes} == operations


def test_an_aggressor_that_hangs_ends_the_run(bench: Bench, tmp_path: Path) -> None:
    job = bench.run(
        tmp_path,
        "--operations=victim_pingpong_incast --sizes=1KiB,2KiB --iterations=8 --timeout=3 --quiet",
        "--inject=hang:1 --output=result.jsonl",
    )
    assert job.returncode != 0
    run = read_run(tmp_path / "result.jsonl")
    assert {each.verdict for each in run.problems} == {Verdict.INCOMPLETE}
    assert len(run.samples) == 2


def test_rounds_of_a_file_are_measured_as_they_stand(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "screen.rounds").write_text("# screen\n0-3 2-1\n1-0\n0-3\n")
    job = bench.run(
        tmp_path,
        "--operations=pingpong,unidirectional,bidirectional --rounds=screen.rounds",
        "--sizes=1KiB --iterations=8 --quiet --output=result.jsonl",
    )
    assert job.returncode == 0, job.stdout + job.stderr
    run = read_run(tmp_path / "result.jsonl")
    assert run.problems == ()
    for operation in ("pingpong", "unidirectional", "bidirectional"):
        found = [(each.round, each.ranks) for each in run.samples if each.operation == operation]
        assert found == [(0, (0, 3)), (0, (2, 1)), (1, (1, 0)), (2, (0, 3))]


# The others are those of the unit tests.
@pytest.mark.parametrize("content", ["0-1\n2-4\n", "\x00\x01\xff", None])
def test_a_mistake_in_a_file_is_one_line(openmpi: Bench, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "f").write_text(content, encoding="latin-1")
    job = openmpi.brief.run(tmp_path, "--rounds=f --sizes=8 --output=result.jsonl")
    assert job.returncode == 2
    assert job.stderr.count("fabricbench:") == 1, job.stderr
    assert not (tmp_path / "result.jsonl").exists()
