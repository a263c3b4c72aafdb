"""Outputs that real runs left (tests/data/suites/README.md says which): their numbers, and their verdicts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_one, read_report

# fmt: off
_SOUND_OSU = (
    "h200_osu_bw_DD", "h200_osu_bw_HH", "h200_osu_latency_DD", "h200_osu_latency_HH", "host_osu_bibw",
    "host_osu_allgather_v", "emulated_fault_nid002_500mbit_mpich_n2_osu_bw",
    "emulated_net1gbit_openmpi_n2_osu_latency", "host_osu_allreduce_float", "host_osu_alltoall_pct",
    "host_osu_bcast_tag", "host_osu_bcast_time", "host_osu_bw_v", "host_osu_latency_v", "host_osu_mbw_mr_2",
    "host_osu_reduce_float",
)
# fmt: on
# fmt: off
_SOUND_IMB = (
    "host_IMB-MPI1_impi2021.19_2ranks", "host_imb_4np2", "host_imb_label", "host_imb_mpich", "host_imb_msgsize",
    "host_imb_zero",
)
# fmt: on


def _text(folder: str, name: str) -> str:
    return (DATA / folder / name).read_text()


def _osu(name: str, ranks: int | None = 2) -> VendorOutput:
    return read_one(_text("osu", f"{name}.txt"), name, ranks=ranks)


def _one(output: VendorOutput, operation: str, size: int, placement: str = "", ranks: int | None = None) -> Samples:
    found = [
        each
        for each in output.samples
        if (each.operation, each.bytes, each.placement) == (operation, size, placement)
        and (ranks is None or len(each.ranks) == ranks)
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", _SOUND_OSU)
def test_osu_outputs_are_read_without_a_problem(name: str) -> None:
    output = _osu(name)
    assert output.problems == ()
    rows = [line for line in _text("osu", f"{name}.txt").splitlines() if line.rpartition(">:")[2].strip()[:1].isdigit()]
    assert len(output.samples) == len(rows) > 0
    assert all(each.statistic == "mean" and each.times_ns.shape == (1,) for each in output.samples)


@pytest.mark.parametrize("name", _SOUND_IMB)
def test_imb_outputs_are_read_without_a_problem(name: str) -> None:
    output = read_one(_text("imb", f"{name}.txt"), name)
    assert output.problems == ()
    assert output.version == "2021.11"
    assert output.samples


@pytest.mark.parametrize("test", ["all_gather", "all_reduce", "alltoall", "sendrecv"])
def test_nccl_tests_say_the_same_as_text_and_as_json(test: str) -> None:
    text = read_one(_text("nccl_tests", f"h200x4_{test}.txt"), ranks=4, tool=f"{test}_perf")
    file = read_report(_text("nccl_tests", f"h200x4_{test}.json"), ranks=4, tool=f"{test}_perf")
    assert text.problems == file.problems == ()
    assert text.tool == file.tool == f"{test}_perf"
    assert (text.version, text.ranks, file.ranks) == ("2.19.6", 4, 4)
    assert len(text.samples) == len(file.samples) == (28 if test in ("all_reduce", "sendrecv") else 24)
    for one, other in zip(text.samples, file.samples, strict=True):
        assert (one.operation, one.bytes, one.placement, one.ranks) == (
            (other.operation, other.bytes, other.placement, other.ranks)
        )
        assert (one.statistic, other.statistic, len(other.times_ns)) == ("mean", "iterations", 20)
        assert one.wrong_bytes == other.wrong_bytes


def test_the_numbers_of_osu_on_the_h200_node() -> None:
    # goodput in GB/s and latency in us as the tool printed them
    assert _one(_osu("h200_osu_bw_DD"), "unidirectional", 1 << 28).goodput_gbps[0] / 8 == pytest.approx(
        394.86897, rel=1e-6
    )
    latency = _osu("h200_osu_latency_DD")
    assert _one(latency, "pingpong", 8).times_ns.tolist() == [28460]
    assert _one(latency, "pingpong", 8).latency_us.tolist() == [14.23]
    assert (latency.tool, latency.version, latency.ranks) == ("osu_latency", "7.4", 2)
    assert latency.facts == {"library": "MPI", "accelerator": "CUDA", "datatype": "MPI_CHAR", "validation": "off"}


def test_pairs_are_averaged() -> None:
    pairs = read_one(_text("osu", "host_osu_mbw_mr_4.txt"), ranks=4)
    assert pairs.problems == ()
    row = next(line for line in _text("osu", "host_osu_mbw_mr_4.txt").splitlines() if line.startswith("16384"))
    mean = _one(pairs, "multi_pair", 16384)
    assert (mean.ranks, mean.schedule, mean.wrong_bytes) == ((0, 1, 2, 3), "contended", 0)
    assert mean.goodput_gbps[0] / 8 * 1e3 == pytest.approx(float(row.split()[1]) / 2, rel=2e-3)


def test_collectives_take_the_largest_time_and_the_whole_buffer() -> None:
    output = read_one(_text("osu", "host_osu_alltoall_v4.txt"), ranks=4)
    assert output.problems == ()
    row = next(line for line in _text("osu", "host_osu_alltoall_v4.txt").splitlines() if line.startswith("4096 "))
    assert _one(output, "alltoall", 4 * 4096).times_ns.tolist() == [round(1e3 * float(row.split()[3]))]
    assert output.facts["time_over_ranks"] == "maximum"
    assert output.facts["validation"] == "passed"
    assert _osu("host_osu_bcast_tag").facts["time_over_ranks"] == "average"


def test_the_numbers_of_nccl_tests() -> None:
    output = read_one(_text("nccl_tests", "h200x4_all_reduce.txt"))
    largest = _one(output, "allreduce", 1 << 29, "out-of-place")
    assert largest.times_ns.tolist() == [2320350]
    assert largest.goodput_gbps[0] / 8 == pytest.approx(231.37, abs=0.005)
    assert (largest.implementation, largest.wrong_bytes) == ("library", 0)
    assert output.facts["devices"] == "4 x NVIDIA H200"
    iterations = _one(read_report(_text("nccl_tests", "h200x4_all_reduce.json")), "allreduce", 8, "out-of-place")
    assert iterations.times_ns[:3].tolist() == [29312, 31584, 21760]
    ring = _one(read_one(_text("nccl_tests", "h200x4_sendrecv.txt")), "sendrecv", 1 << 29, "in-place")
    assert (ring.wrong_bytes, ring.implementation) == (-1, "transfers")


def test_the_numbers_of_imb() -> None:
    output = read_one(_text("imb", "host_IMB-MPI1_impi2021.19_2ranks.txt"), ranks=2)
    assert output.tool == "IMB-MPI1 PingPong,Sendrecv,Allreduce,Alltoall"
    four = read_one(_text("imb", "host_imb_4np2.txt"))
    assert four.ranks == 4
    assert _one(four, "sendrecv", 256).ranks == (0, 1, 2, 3)
    assert _one(four, "alltoall", 1024, ranks=4).times_ns.tolist() == [6941740]


def test_a_killed_run_of_osu_is_incomplete_where_the_sizes_are_known() -> None:
    text = _text("osu", "host_osu_bw_killed.txt")
    output = read_one(text, sizes=[1 << power for power in range(21)])
    assert [each.verdict for each in output.problems] == [Verdict.INCOMPLETE]


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("host_imb_timeout", Verdict.INCOMPLETE),
        ("host_imb_mem", Verdict.INCOMPLETE),
        ("host_imb_1", Verdict.INVALID),
        ("host_imb_typo", Verdict.INVALID),
        ("host_imb_2", Verdict.INVALID),
        ("h200_IMB-MPI1-GPU_PingPong_tail", Verdict.INVALID),
    ],
)
def test_imb_runs_that_went_wrong(name: str, verdict: Verdict) -> None:
    problems = read_one(_text("imb", f"{name}.txt"), name).problems
    assert verdict in {each.verdict for each in problems}


def test_wrong_elements_are_a_fail() -> None:
    text = _text("nccl_tests", "h200x4_all_reduce.txt")
    row = next(line for line in text.splitlines() if line.strip().startswith("2048 "))
    output = read_one(text.replace(row, row.replace("0.14       0", "0.14      12", 1)))
    assert [each.verdict for each in output.problems] == [Verdict.FAIL]
    assert _one(output, "allreduce", 2048, "out-of-place").wrong_bytes == 12
    bounds = read_one(text.replace("values : 0 OK", "values : 1 FAILED"))
    assert [each.verdict for each in bounds.problems] == [Verdict.FAIL]
    file = read_report(_text("nccl_tests", "h200x4_all_reduce.json").replace('"nwrong": 0.0', '"nwrong": 3.0', 1))
    assert [each.verdict for each in file.problems] == [Verdict.FAIL]


def test_defects_of_an_earlier_benchmark_are_not_forgotten() -> None:
    lines = _text("imb", "host_imb_msgsize.txt").split("\n")
    lines = [f"{line}      defects" if "#bytes" in line else line for line in lines]
    lines = [line + "0.00".rjust(13) if line.strip()[:1].isdigit() else line for line in lines]
    clean = read_one("\n".join(lines))
    assert clean.problems == () and {each.wrong_bytes for each in clean.samples} == {0}
    output = read_one("\n".join(lines).replace("2.53         0.00", "2.53         1.00"))
    assert output.facts["validation"] == "failed" and [each.verdict for each in output.problems] == [Verdict.FAIL]


def test_every_recorded_output_says_where_it_comes_from() -> None:
    """And nothing is described that is not there; each kind of output has been recorded."""
    described = set(re.findall(r"`([\w.-]+\.(?:txt|json))`", "".join(_rows(DATA / "README.md"))))
    recorded = {path.name for path in DATA.glob("*/*")}
    assert recorded == described
    assert {path.parent.name for path in DATA.glob("*/*")} == {"imb", "logs", "matrices", "nccl_tests", "oneccl", "osu"}


def _rows(document: Path) -> list[str]:
    """First cell of each row of its table."""
    lines = [line for line in document.read_text().splitlines() if line.startswith("| `")]
    return [line.split("|")[1] for line in lines]
