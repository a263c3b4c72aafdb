"""Paths between memories: result files with them, and what the judge makes of what was measured."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.judge import judge_run
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.limits.memory import placements
from fabricheck.records.metrics import metrics_of, parse_metric_name
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.launch import reasons_not_to_run
from fabricheck.yardsticks.policy import load_policy
from tests.rfm.test_checks import CHECKS
from tests.support.nodes import ROOT, system
from tests.support.result_files import CUDA, Line, lines_of, said, settle, verdicts, write

MIB = 1 << 20
POLICY = load_policy(ROOT / "config" / "policy.yaml")


def result(
    tmp_path: Path,
    operation: str = "host_to_device",
    *,
    gbytes: float = 50.0,
    ranks: tuple[int, ...] = (0,),
    transport: str = "copy",
    kind: str | None = "pinned",
    buffers: str | None = None,
    change: Callable[[list[Line]], object] = lambda lines: None,
) -> Run:
    """A run of four H200 that measured one operation at `gbytes` GB/s; `change` may plant a defect."""
    header, *_, footer = lines_of(CUDA)
    size = 256 * MIB
    series: dict[str, Any] = {
        "operation": operation,
        "implementation": "transfers",
        "schedule": "contended" if len(ranks) > 2 else "uncontended",
        "round": -1,
        "ranks": list(ranks),
    }
    header["transport"] = transport
    header["libraries"].pop("ccl", None)
    plan = header["plan"]
    plan |= {"operations": [operation], "schedules": [series["schedule"]], "sizes": [size], "access": "write"}
    plan["series"] = [{**series, "bytes": [size]}]
    header["expected_records"] = 1
    if buffers is not None:
        plan["buffers"] = buffers
    if kind is not None:
        plan |= {"host_memory": kind, "host_numa": "any"}
        allocation = "managed" if kind == "migrated" else kind
        for rank in header["ranks"]:
            rank["host_memory"] = {"allocation": allocation, "numa_node": 0, "wanted_numa_node": -1}
    ns = round(size / gbytes) * (2 if operation == "pingpong" else 1)
    samples = {
        "record": "samples",
        "index": 0,
        **series,
        "bytes": size,
        "warmup": 2,
        "stopped": "converged",
        "wrong_bytes": 0,
        "times_ns": [ns + i % 3 for i in range(8)],
    }
    footer["proof"] = {"paths": {}, "evidence": None}
    lines = [header, samples, footer]
    change(lines)
    settle(lines)
    return read_run(write(tmp_path / "result.jsonl", lines))


def judged(run: Run) -> RunJudgement:
    assert run.problems == ()
    return judge_run(run, expect_from_topology(run, system("hgx-h200"), POLICY), {}, POLICY)


def test_a_path_of_one_rank_is_a_valid_file(tmp_path: Path) -> None:
    run = result(tmp_path)
    assert run.problems == ()
    (metric,) = metrics_of(run)
    assert metric.name == "host_to_device_uncontended_0_256mib_goodput"
    assert metric.value == pytest.approx(8 * 50, rel=1e-6)
    assert parse_metric_name(metric.name).ranks == (0,)


def _rank(**fields: Any) -> Callable[[list[Line]], object]:
    return lambda lines: lines[0]["ranks"][2]["host_memory"].update(fields)


def _plan(**fields: Any) -> Callable[[list[Line]], object]:
    return lambda lines: lines[0]["plan"].update(fields)


DEFECTS = {
    "another kind": (_rank(allocation="pageable"), "rank 2 was pageable instead of pinned"),
    "far from the GPU": (_rank(wanted_numa_node=1), "was on NUMA node 0 instead of 1"),
    "a NUMA node that nobody knows": (
        lambda lines: [_plan(host_numa="local")(lines), _rank(wanted_numa_node=1, numa_node=-1)(lines)],
        "was on NUMA node -1 instead of 1",
    ),
    "not placed": (_plan(host_numa="remote"), "no library placed the host memory of rank 0"),
    "no proof": (lambda lines: lines[0]["ranks"][1].pop("host_memory"), "the host memory of rank 1"),
    "no kind": (lambda lines: lines[0]["plan"].pop("host_memory"), "their kind is not given"),
    "an unknown kind": (_plan(host_memory="warm"), "host_memory"),
    "nobody": (lambda lines: lines[1].update(ranks=[]), "ranks"),
}


@pytest.mark.parametrize(("change", "message"), DEFECTS.values(), ids=DEFECTS)
def test_other_memory_than_the_plan_says_is_invalid(
    tmp_path: Path, change: Callable[[list[Line]], object], message: str
) -> None:
    run = result(tmp_path, change=change)
    assert Verdict.INVALID in verdicts(run)
    assert message in said(run)


def test_host_memory_that_nothing_uses_is_invalid(tmp_path: Path) -> None:
    assert "no measurement uses it" in said(result(tmp_path, "local_copy"))
    assert result(tmp_path, "local_copy", kind=None, gbytes=2000).problems == ()


def test_only_memory_paths_are_for_a_rank_alone(tmp_path: Path) -> None:
    assert "not only rank 0" in said(result(tmp_path, "allreduce", kind=None))


# GB/s, each beside what has to be found wanting. Of the H200 node: nvbandwidth 0.8, 2026-11-21. The shares of the link
# of managed and migrated memory and of MPI are those of Schieffer et al., section IV-A, and of the OpenPOWER paper,
# section 5.3, on the link of an H200.
EVERYONE = (0, 1, 2, 3)
HEALTHY = [
    ("host_to_device", {}, 55.57),
    ("device_to_host", {}, 55.45),
    ("host_to_device", {"ranks": EVERYONE}, 215.83),
    ("device_to_host", {"ranks": EVERYONE}, 162.01),
    ("local_copy", {"kind": None}, 2094.08),
    ("unidirectional", {"ranks": (0, 1), "transport": "kernel", "kind": None}, 376.28),
    ("host_to_device", {"transport": "kernel", "kind": "managed"}, 64 * 25.5 / 36),
    # 297 of the 450 GB/s of NVLink-C2C (Schieffer et al., ICPP 2024).
    ("host_to_device", {"transport": "kernel", "kind": "pageable"}, 64 * 297 / 450),
    ("unidirectional", {"ranks": (0, 1), "transport": "mpi", "buffers": "host-device"}, 64 * 0.31),
]


@pytest.mark.parametrize(("operation", "given", "gbytes"), HEALTHY)
def test_a_healthy_path_passes_and_a_fifth_or_ten_times_of_it_do_not(
    tmp_path: Path, operation: str, given: dict[str, Any], gbytes: float
) -> None:
    assert judged(result(tmp_path, operation, gbytes=gbytes, **given)).verdict is Verdict.PASS
    assert judged(result(tmp_path, operation, gbytes=gbytes / 5, **given)).verdict is Verdict.FAIL
    assert judged(result(tmp_path, operation, gbytes=gbytes * 10, **given)).verdict is Verdict.INVALID


C2C = {"host_link": ast.literal_eval(CHECKS["PageableZeroCopy"]["host_link"])}


@pytest.mark.parametrize(
    ("needs", "where", "fits"),
    [
        (C2C, "alps:normal", True),
        (C2C, "hgx-h200:node", False),
        ({"datatype": "float8_e4m3"}, "alps:normal", True),
        ({"datatype": "float8_e4m3"}, "leonardo:boost", False),
        ({"datatype": "bfloat16"}, "leonardo:boost", True),
        ({"nic": "3"}, "alps:normal", True),
        ({"nic": "4"}, "alps:normal", False),
        ({"nic": "hsn1"}, "alps:normal", True),
        ({"nic": "hsn0+hsn1"}, "alps:normal", True),
        ({"nic": "0"}, "hgx-h200:node", False),
        ({"nic": "0"}, "emulated:cpu", False),
        ({"transport": "fabric", "backend": "cuda"}, "emulated:cpu", False),  # sockets
        ({"transport": "fabric", "backend": "cuda"}, "alps:normal", True),
        ({"transport": "fabric", "backend": "cuda"}, "hgx-h200:node", True),  # its NICs are not known
        ({"transport": "fabric", "backend": "cuda", "buffers": "host-host"}, "emulated:cpu", True),
        ({"transport": "fabric"}, "emulated:cpu", True),
        ({"transport": "fabric", "tool": "perftest"}, "emulated:cpu", False),  # nor over Slingshot
        ({"transport": "fabric", "tool": "perftest"}, "alps:normal", False),
        ({"transport": "fabric", "tool": "perftest", "backend": "cuda"}, "leonardo:boost", True),
    ],
)
def test_what_the_gpus_and_nics_of_a_system_do_not_have_is_left_out(
    needs: dict[str, str], where: str, fits: bool
) -> None:
    test = SimpleNamespace(
        current_environ=SimpleNamespace(extras={}),
        current_partition=SimpleNamespace(fullname=where, extras={}),
        **{"backend": "host", "transport": "kernel", **needs},
    )
    assert [described for _, described in reasons_not_to_run(cast("Any", test))] == [True] * (not fits)


def test_placements_of_gpus_with_two_parts() -> None:
    found = placements(system("lumi"), 8)
    assert found.same_gpu == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert found.spread[:3] == ((0, 2), (0, 2, 4), (0, 2, 4, 6))
    assert found.spread[-1] == tuple(range(8))


def test_placements_of_the_gpus_that_a_partition_has() -> None:
    assert placements(system("hgx-h200"), 4).spread == ((0, 1), (0, 1, 2), (0, 1, 2, 3))
    assert placements(system("hgx-h200"), 1).spread == ()
    assert placements(system("lumi"), 3).same_gpu == ((0, 1),)
    assert placements(system("lumi"), 3).spread == ((0, 2), (0, 1, 2))
