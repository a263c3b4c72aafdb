"""Which path is asked for, by where the data of a run went."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabricheck.rfm.guarded import read_guarded
from fabricheck.topology.transport_paths import Paths
from tests.support.nodes import ROOT

MEASURED = ROOT / "tests" / "data" / "fabricbench" / "synthetic_host_2ranks.jsonl"


@pytest.mark.parametrize(("hosts", "inside"), [(("a", "b"), False), (("a", "a"), True)])
def test_data_that_stay_in_their_nodes_take_a_path_inside(tmp_path: Path, hosts: tuple[str, str], inside: bool) -> None:
    """As groups within the nodes of a run on two nodes."""
    header, *records = MEASURED.read_text().splitlines()
    made = json.loads(header)
    for rank, host in zip(made["ranks"], hosts, strict=True):
        rank["host"] = host
    file = tmp_path / "result.jsonl"
    file.write_text("\n".join([json.dumps(made), *records]))
    asked = []

    def paths_of(inside: bool) -> Paths:
        asked.append(inside)
        return Paths()

    read_guarded(_test(tmp_path), file, 0, {}, paths_of)
    assert asked == [inside]


def test_ranks_that_share_a_gpu_have_one(tmp_path: Path) -> None:
    test = _test(tmp_path)
    test.backend, test.num_nodes, test.num_tasks = "cuda", 1, 4
    test.current_environ.extras = {"share_devices": True}
    problems = read_guarded(test, MEASURED.parent / "synthetic_cuda_4ranks.jsonl", 0, {}, lambda _: Paths()).problems
    assert "wrong-ranks" not in {each.code for each in problems}


def _test(folder: Path) -> Any:
    """What is read of a test on two nodes."""
    partition = SimpleNamespace(fullname="emulated:pair", extras={})
    return SimpleNamespace(
        num_nodes=2,
        num_tasks=2,
        transport="mpi",
        backend="host",
        current_environ=SimpleNamespace(extras={}),
        current_partition=partition,
        operations=["pingpong"],
        chosen_settings=dict,
        verified=False,
        away=(),
        stagedir=str(folder),
        started=datetime.now(timezone.utc),
        output=str,
        errors=str,
    )
