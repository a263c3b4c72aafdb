from __future__ import annotations

import copy
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.records.metrics import (
    SMALLEST_GOODPUT_BYTES,
    PlannedSeries,
    expected_metric_names,
    metrics_of,
    parse_metric_name,
)
from fabricheck.results.fabricbench import read_run
from tests.support.result_files import CUDA, HOST, PATTERNS, Line, changed, lines_of, said, write


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


@pytest.mark.parametrize("path", [HOST, CUDA, PATTERNS])
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
    names = [PlannedSeries(operation, "uncontended", ranks).name(4, 8, "latency") for ranks in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)


def _same_pair_again(lines: list[Line]) -> None:
    """Round 1 measures the first pair of round 0 again."""
    for line in (*lines[0]["plan"]["series"], *lines[1:-1]):
        if line["round"] == 1 and line["ranks"] == [0, 2]:
            line["ranks"] = [0, 3]
        elif line["round"] == 1:
            line["ranks"] = [1, 2]


def test_a_pair_in_two_rounds_is_two_metrics_where_the_rounds_were_given(tmp_path: Path) -> None:
    def change(lines: list[Line]) -> None:
        _same_pair_again(lines)
        lines[0]["plan"]["rounds"] = "screen.rounds"

    run = changed(tmp_path, change, CUDA)
    assert run.problems == ()
    names = [metric.name for metric in metrics_of(run)]
    assert names == list(expected_metric_names(run.header))
    assert len(set(names)) == 14
    assert "pingpong_contended_0_3_round1_1gib_goodput" in names
    assert "pingpong_contended_0_1_1gib_goodput" in names


def test_a_pair_in_two_rounds_is_a_mistake_where_no_rounds_were_given(tmp_path: Path) -> None:
    assert "the plan has a measurement twice" in said(changed(tmp_path, _same_pair_again, CUDA))


def test_metrics_of_patterns_have_names_of_their_own() -> None:
    run = read_run(PATTERNS)
    names = [metric.name for metric in metrics_of(run)]
    assert len(set(names)) == len(names) == len(run.samples)
    for name in (
        "rail_bidirectional_uncontended_2x2x1_256kib_goodput",
        "asymmetric_unidirectional_uncontended_2x2x2_1kib_latency",
        "striping_pipelined_uncontended_2x2x2_256kib_goodput",
        "sparse_inter_uncontended_all4_103550b_goodput",
        "victim_pingpong_incast_contended_0_3_1kib_latency",
        "pingpong_contended_0_1_round1_1kib_latency",
    ):
        assert name in names
        assert parse_metric_name(name).operation in name


def test_a_train_is_part_of_the_name() -> None:
    name = PlannedSeries("unidirectional", "uncontended", (0, 1), train=True).name(4, 2 << 20, "goodput")
    assert name == "unidirectional_uncontended_0_1_2mib_train_goodput"
    assert parse_metric_name(name).train
    assert not parse_metric_name(name.replace("_train", "")).train
