"""A run on emulated GPUs is known as a rehearsal, whatever its file says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.result_files import CUDA, Line, changed, said, verdicts


def _emulated(line: Line, ranks: Iterable[int] = range(4)) -> None:
    for rank in ranks:
        line["ranks"][rank]["device"]["name"] = "emulated NVIDIA H200"


def test_emulated_gpus_make_a_rehearsal_by_name_or_uuid_whatever_the_header_says(tmp_path: Path) -> None:
    def uuids(lines: list[Line]) -> None:
        for rank, each in enumerate(lines[0]["ranks"]):
            each["device"]["uuid"] = f"GPU-656d756c-0000-0000-0000-00000000000{rank}"

    for change in (lambda lines: _emulated(lines[0]), uuids):
        run = changed(tmp_path, change, CUDA)
        assert not run.problems
        assert run.header["platform"] == "emulated"
        assert is_rehearsal(run)
    real = read_run(CUDA)
    assert real.header["platform"] == "nvidia"
    assert not is_rehearsal(real)


def test_emulated_and_real_gpus_in_one_run_are_invalid_and_a_rehearsal(tmp_path: Path) -> None:
    run = changed(tmp_path, lambda lines: _emulated(lines[0], [0, 2]), CUDA)
    (problem,) = run.problems
    assert problem.verdict is Verdict.INVALID
    assert "ranks 1,3 used real GPUs in a run on emulated ones" in problem.message
    assert is_rehearsal(run)


def test_a_rehearsal_that_no_emulated_gpu_shows_is_invalid(tmp_path: Path) -> None:
    def claims(lines: list[Line]) -> None:
        lines[0]["platform"] = "emulated"

    assert "ranks 0-3 used real GPUs" in said(changed(tmp_path, claims, CUDA))
    assert verdicts(changed(tmp_path, claims)) == {Verdict.INVALID}
