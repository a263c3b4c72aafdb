"""Recordings of healthy machines, each with its part: none is called slow; and what is no measurement is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.judge.compare_part import NodeDescription
from fabricheck.records.verdict import Verdict
from fabricheck.report.normal import is_normal
from tests.support.nodes import ROOT
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_all

RECORDINGS = sorted(file for file in DATA.rglob("*") if file.suffix in (".txt", ".json") and file.parent.name != "logs")
ON_GPUS = [file for file in RECORDINGS if file.name.startswith("h200") and "_HH" not in file.name]
# A crash, and one without its beginning.
REFUSED = {"h200_osu_alltoall_DD_crash.txt", "h200_IMB-MPI1-GPU_PingPong_tail.txt"}
# OSU's validation fails with MPI_CHAR (tests/data/suites/README.md).
WRONG_DATA = {"host_osu_allreduce_full_validate.txt", "host_osu_reduce_scatter.txt"}


def verdict_of(file: Path, part: str) -> Verdict:
    text = file.read_text(encoding="utf-8")
    return is_normal(read_all(text, file.name), text, file.name, NodeDescription(part, None), ROOT).verdict


@pytest.mark.parametrize("file", ON_GPUS, ids=lambda file: str(file.name))
def test_a_healthy_recording_passes_by_its_part(file: Path) -> None:
    if file.name in REFUSED:
        assert verdict_of(file, "H200") in (Verdict.INVALID, Verdict.INCOMPLETE)
    else:
        assert verdict_of(file, "H200") is Verdict.PASS


@pytest.mark.parametrize("file", [file for file in RECORDINGS if file not in ON_GPUS], ids=lambda file: str(file.name))
def test_what_no_gpu_measured_is_never_slow(file: Path) -> None:
    verdict = verdict_of(file, "H200")
    assert verdict is Verdict.FAIL if file.name in WRONG_DATA else verdict in (Verdict.INVALID, Verdict.INCOMPLETE)
