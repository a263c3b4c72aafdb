"""Which sizes a check asks for, where the partition has room for all of them and where it has not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fabricheck.extras import Effort
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.paths import goes_by_host
from fabricheck.rfm.suite_parts import SuiteParts
from fabricheck.suites.benchmarks import benchmark

SIZES = {"host": "8B,1GiB", "staging": "1B:64MiB:4", "other": "1MiB,64MiB,1GiB"}


def check(backend: str, transport: str, extras: dict[str, object], **more: Any) -> Any:
    """What `chosen_sizes` reads of a test."""
    given: dict[str, Any] = {"backend": backend, "transport": transport, "sizes": SIZES, **more}
    return SimpleNamespace(effort=lambda: Effort.of(extras, 1), **given)


@pytest.mark.parametrize(
    ("backend", "transport", "whole", "bounded"),
    [
        ("host", "mpi", "8B,1GiB", "8B,1MiB"),
        ("cuda", "staging", "1B:64MiB:4", "1B:1MiB:4"),
        ("cuda", "ccl", "1MiB,64MiB,1GiB", "1MiB"),
    ],
)
def test_no_size_is_above_the_partitions_limit(backend: str, transport: str, whole: str, bounded: str) -> None:
    assert FabricbenchCheck.chosen_sizes(check(backend, transport, {})) == whole
    assert FabricbenchCheck.chosen_sizes(check(backend, transport, {"most_bytes": 1 << 20})) == bounded


@pytest.mark.parametrize(
    ("transport", "step", "coarser"),
    [
        ("staging", 64, "1B,64B,4KiB,256KiB,64MiB"),
        ("staging", 2, "1B:64MiB:4"),
        ("ccl", 64, "1MiB,64MiB,1GiB"),
    ],
)
def test_sizes_of_a_range_are_no_closer_than_the_partition_asks_for(transport: str, step: int, coarser: str) -> None:
    assert FabricbenchCheck.chosen_sizes(check("cuda", transport, {"size_step": step})) == coarser


@pytest.mark.parametrize(
    ("test", "by_host"),
    [
        ({"transport": "staging", "operations": ["pingpong"]}, True),
        ({"transport": "copy", "operations": ["unidirectional"]}, False),
        ({"transport": "copy", "operations": ["host_to_device"]}, True),
        ({"transport": "mpi", "operations": ["pingpong"], "buffers": "host-device"}, True),
        ({"transport": "mpi", "buffers": "D H"}, True),
        ({"transport": "mpi", "buffers": "D D"}, False),
        ({"transport": "mpi", "buffers": "H H"}, False),
    ],
)
def test_on_the_way_to_the_host_sizes_have_a_limit_of_their_own(test: dict[str, Any], by_host: bool) -> None:
    assert goes_by_host(SimpleNamespace(**test)) is by_host
    extras = {"most_bytes": 1 << 20, "most_bytes_by_host": 1 << 16, "most_bytes_between_nodes": 4 << 20}
    assert Effort.of(extras, 1, by_host=by_host).sizes("1GiB") == ("64KiB" if by_host else "1MiB")
    assert Effort.of({"most_bytes": 1 << 20}, 1, by_host=by_host).sizes("1GiB") == "1MiB"
    assert Effort.of(extras, 2, by_host=by_host).sizes("1GiB") == "4MiB"


def test_the_messages_of_aggressors_are_not_too_large_either() -> None:
    """They have 1 MiB where nothing else is said; there are none without victims."""
    victims = ["victim_pingpong_incast"]
    assert Effort(most_bytes=1 << 18).aggressors(victims) == {"aggressor_size": "262144"}
    assert Effort(most_bytes=1 << 18).aggressors(["pingpong"]) == {}
    assert Effort(most_bytes=4 << 20).aggressors(victims) == Effort().aggressors(victims) == {}


@pytest.mark.parametrize(
    ("tool", "bench", "most"),
    [("osu", "bw", 1 << 20), ("osu", "alltoall", 1 << 20), ("nccl-tests", "all_reduce", 1 << 20)],
)
def test_nor_is_one_of_a_vendor_suite(tool: str, bench: str, most: int) -> None:
    def largest(extras: dict[str, object]) -> int:
        parts = check("cuda", "mpi", extras, benchmark=benchmark(tool, bench), tool=tool, num_tasks=4, buffers="D D")
        parts.sizes, parts.iterations = {"other": "8B:1GiB"}, 100
        parts.chosen_sizes = lambda: FabricbenchCheck.chosen_sizes(parts)
        return max(SuiteParts.asked(parts).planned_bytes)

    assert largest({}) > most
    assert most // 4 < largest({"most_bytes": most}) <= most
    # Smaller than the least that the tool can be asked for: that.
    assert largest({"most_bytes": 8}) <= 64


@pytest.mark.parametrize(
    "launcher",
    [
        "srun: error: nid001: task 0: Exited with exit code 1\nsrun: Force Terminated StepId=1.1\n",
        f"{74 * '-'}\nPrimary job  terminated normally, but 1 process returned\n{74 * '-'}\n",
        f"\n{83 * '='}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n",
        "",
    ],
)
def test_the_last_words_of_a_vendor_tool_are_its_own(launcher: str, tmp_path: Path) -> None:
    parts = cast("Any", SimpleNamespace(stagedir=str(tmp_path)))
    (tmp_path / "vendor.err").write_text(f"Did not detect devices\n Unable to find the device\n{launcher}")
    assert SuiteParts.last_words(parts) == ": Unable to find the device"
    (tmp_path / "vendor.err").write_text("srun: error: nid001: task 0: Killed\n")
    assert SuiteParts.last_words(parts) == ": srun: error: nid001: task 0: Killed"
