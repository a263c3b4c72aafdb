from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.judge.metrics import SMALLEST_GOODPUT_BYTES, expected_metric_names, metric_name, metrics_of
from fabricheck.results.fabricbench import read_run
from tests.unit.result_files import CUDA, HOST, lines_of, write


def test_the_metrics_of_a_run() -> None:
    goodput, latency = metrics_of(read_run(HOST))
    assert (goodput.name, goodput.unit, goodput.better) == ("pingpong_uncontended_0_1_1mib_goodput", "Gb/s", "higher")
    assert (latency.name, latency.unit, latency.better) == ("pingpong_uncontended_0_1_8b_latency", "us", "lower")
    times = np.array(lines_of(HOST)[2]["times_ns"])
    assert goodput.value == pytest.approx(np.median(8 * (1 << 20) / (times / 2)))
    assert latency.value == pytest.approx(0.412)
    assert goodput.values.shape == (8,)


def test_groups_are_named_by_their_number_of_ranks() -> None:
    names = [metric.name for metric in metrics_of(read_run(CUDA))]
    assert "allreduce_uncontended_all4_1gib_goodput" in names
    assert "allreduce_uncontended_all4_16b_latency" in names
    assert "pingpong_contended_3_1_1gib_goodput" in names
    assert len(names) == 14


@pytest.mark.parametrize("path", [HOST, CUDA])
def test_the_header_alone_tells_the_metrics(path: Path) -> None:
    run = read_run(path)
    assert expected_metric_names(run.header) == tuple(metric.name for metric in metrics_of(run))


def test_what_was_not_measured_is_expected_all_the_same(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "cut.jsonl", lines_of(HOST)[:2]))
    assert [metric.name for metric in metrics_of(run)] == ["pingpong_uncontended_0_1_8b_latency"]
    assert expected_metric_names(run.header) == expected_metric_names(read_run(HOST).header)


def test_without_a_header_there_are_no_metrics(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "cut.jsonl", lines_of(HOST)[1:]))
    assert metrics_of(run) == ()
    assert expected_metric_names(run.header) == ()


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([8], ["8b_latency"]),
        ([8, 4096], ["8b_latency"]),
        ([1 << 30], ["1gib_goodput"]),
        ([SMALLEST_GOODPUT_BYTES], ["64kib_goodput"]),
        ([SMALLEST_GOODPUT_BYTES - 1], ["65535b_latency"]),
        ([1 << 20, 8, 1000], ["1mib_goodput", "8b_latency"]),
    ],
)
def test_each_series_has_a_goodput_of_its_largest_and_a_latency_of_its_smallest_size(
    sizes: list[int], names: list[str]
) -> None:
    header = copy.deepcopy(lines_of(HOST)[0])
    header["plan"]["series"][0]["bytes"] = sizes
    assert expected_metric_names(header) == tuple(f"pingpong_uncontended_0_1_{name}" for name in names)


groups = st.lists(st.integers(0, 40), min_size=2, max_size=5, unique=True).map(tuple)


@given(groups, groups, st.sampled_from(["alltoall", "pingpong"]))
def test_two_groups_never_share_a_name(one: tuple[int, ...], other: tuple[int, ...], operation: str) -> None:
    names = [
        metric_name(operation, "uncontended", ranks, world=4, size=8, quantity="latency") for ranks in (one, other)
    ]
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)
