"""A vendor tool's output as a result file: what was planned, what is refused, and that no secret is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.records.run import Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.proof_logs import TransportProof
from fabricheck.suite import suite_root
from fabricheck.suites.benchmarks import (
    BenchmarkRequest,
    benchmark,
    find_peer,
    nccl_report_command,
    options,
    sizes_between,
)
from fabricheck.suites.outputs import proof_of
from fabricheck.suites.runs import (
    Job,
    VendorRun,
    check_output,
    choose_samples,
    drop_environment,
    verified_by,
    write_result,
)

PLACE = suite_root() / "tests" / "data" / "fabricbench" / "synthetic_host_2ranks.jsonl"


def asked(tool: str = "osu", name: str = "latency", **others: object) -> BenchmarkRequest:
    return replace(BenchmarkRequest(benchmark(tool, name), (8, 16), 2), **others)  # type: ignore[arg-type]


def sample(size: int, **others: object) -> Samples:
    plain = Samples(
        "pingpong", "transfers", "uncontended", -1, (0, 1), size, -1, "fixed", 0, np.array([900]), statistic="mean"
    )
    return replace(plain, **others)  # type: ignore[arg-type]


def output(*samples: Samples, ranks: int | None = 2) -> VendorOutput:
    return VendorOutput("osu_latency", "7.5", "vendor.out", ranks, {"datatype": "MPI_CHAR"}, samples, ())


def job() -> Job:
    return Job(("osu_latency", "-c"), "mpi", datetime(2026, 11, 21, tzinfo=timezone.utc), 10**9, TransportProof())


def written(tmp_path: Path, what: BenchmarkRequest, made: VendorOutput) -> Path:
    file = tmp_path / "result.jsonl"
    measured = VendorRun(read_run(PLACE), what, made, choose_samples(made, what), job())
    write_result(file, measured, check_output(made, what))
    return file


def test_a_complete_output_is_a_run_without_problems(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, asked(), output(sample(8), sample(16))))
    assert run.problems == ()
    assert (run.header["program"], run.header["version"]) == ("osu_latency", "7.5")
    assert [each.host for each in run.ranks] == [each.host for each in read_run(PLACE).ranks]
    assert [(each.bytes, each.latency_us.tolist(), each.statistic) for each in run.samples] == [
        (8, [0.45], "mean"),
        (16, [0.45], "mean"),
    ]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (output(sample(8), sample(16), ranks=3), "3 ranks instead of 2"),
        (output(sample(8), sample(16, wrong_bytes=-1)), "must run with validation"),
        (output(sample(8, operation="bidirectional")), "bidirectional instead of pingpong"),
    ],
)
def test_what_was_not_asked_for_is_invalid_and_leaves_no_footer(made: VendorOutput, said: str, tmp_path: Path) -> None:
    problems = check_output(made, asked(check=True))
    assert [each.verdict for each in problems] == [Verdict.INVALID]
    assert said in problems[0].message
    assert read_run(written(tmp_path, asked(check=True), made)).footer is None


def test_a_run_that_only_times_need_not_check() -> None:
    made = output(sample(8, wrong_bytes=-1), sample(16, wrong_bytes=-1))
    assert check_output(made, asked()) == ()
    assert check_output(made, asked("nccl-tests", "sendrecv")) != ()


def test_wrong_data_in_place_count(tmp_path: Path) -> None:
    in_place = sample(8, placement="in-place", wrong_bytes=2)
    chosen = choose_samples(output(sample(8, placement="out-of-place"), in_place, sample(16)), asked())
    assert [each.wrong_bytes for each in chosen] == [2, 0]
    unchecked = sample(8, placement="in-place", wrong_bytes=-1)
    assert [each.wrong_bytes for each in choose_samples(output(sample(8), unchecked), asked())] == [0]


def test_a_second_run_verifies_only_its_own_sizes() -> None:
    timed = (sample(8, wrong_bytes=-1), sample(16, wrong_bytes=-1))
    assert [each.wrong_bytes for each in verified_by(timed, output(sample(8, wrong_bytes=1)))] == [1, -1]


def test_each_of_many_pairs_has_the_mean(tmp_path: Path) -> None:
    what = asked("osu", "mbw_mr", ranks=4)
    all_pairs = sample(8, operation="multi_pair", schedule="contended", ranks=(0, 1, 2, 3))
    chosen = choose_samples(output(all_pairs, ranks=4), what)
    assert [(each.operation, each.ranks) for each in chosen] == [
        ("unidirectional", (0, 2)),
        ("unidirectional", (1, 3)),
    ]
    assert check_output(output(all_pairs, ranks=4), what) == ()


@given(ranks=st.integers(2, 64), size=st.integers(1, 1 << 30), name=st.sampled_from(["all_gather", "alltoall"]))
def test_nccl_tests_shares_are_whole_and_aligned(ranks: int, size: int, name: str) -> None:
    planned = benchmark("nccl-tests", name).buffer_bytes(size, ranks)
    assert planned % (16 * ranks) == 0
    assert size - 16 * ranks < planned <= size


def test_shares_are_told_and_buffers_planned() -> None:
    assert asked("osu", "alltoall", ranks=4).planned_bytes == (32, 64)
    assert asked("osu", "reduce_scatter", ranks=4).planned_bytes == (8, 16)
    assert asked("imb", "Alltoall", ranks=4).planned_bytes == (32, 64)


@pytest.mark.parametrize(("smallest", "largest", "factor"), [(0, 8, 2), (8, 4, 2), (8, 16, 1)])
def test_sizes_that_are_none_are_refused(smallest: int, largest: int, factor: int) -> None:
    with pytest.raises(ValueError, match="no sizes"):
        sizes_between(smallest, largest, factor)


def test_every_tool_is_asked_to_check_its_data() -> None:
    assert "-c" in options(asked("osu", "bw").checking)
    assert "-c" not in options(asked("osu", "bw"))
    assert options(asked("nccl-tests", "sendrecv"))[-2:] == ["-c", "1"]


def test_buffers_of_osu() -> None:
    device = asked(backend="cuda", buffers="H D")
    assert options(device)[-4:] == ["-d", "cuda", "H", "D"]
    assert options(replace(device, backend="hip"))[-3:] == ["rocm", "H", "D"]
    assert options(replace(device, backend="sycl"))[-3:] == ["sycl", "H", "D"]
    collective = asked("osu", "allreduce", backend="cuda", buffers="D D")
    assert options(collective)[-2:] == ["-d", "cuda"]
    assert options(collective)[options(collective).index("-T") + 1] == "mpi_float"


def test_imb_is_not_cut_at_its_own_limits() -> None:
    found = options(asked("imb", "PingPong", sizes=(8, 1 << 25)))
    assert found[found.index("-msglog") + 1] == "0:25"
    assert int(found[found.index("-iter") + 1].split(",")[1]) * 10**6 > 100 * (1 << 25)


def test_a_peer_of_every_operation() -> None:
    assert find_peer("nccl-tests", "bidirectional").name == "sendrecv"
    assert find_peer("osu", "pingpong").name == "latency"
    with pytest.raises(UserError):
        find_peer("imb", "reduce_scatter")
    with pytest.raises(UserError, match="choose from"):
        benchmark("osu", "no_such")
    assert benchmark("rccl-tests", "all_reduce").program == "all_reduce_perf"


def test_a_report_of_nccl_tests_keeps_no_environment(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    recorded = json.loads((suite_root() / "tests/data/suites/nccl_tests" / "h200x4_all_reduce.json").read_text())
    file.write_text(json.dumps({**recorded, "env": [*recorded["env"], "SECRET_TOKEN=not-a-real-one"]}))
    drop_environment(file)
    assert "SECRET" not in file.read_text()
    kept = [each["out_of_place_per_iter"]["times_us"] for each in json.loads(file.read_text())["results"]]
    assert kept == [each["out_of_place_per_iter"]["times_us"] for each in recorded["results"]]


@pytest.mark.parametrize("text", ['{"env": ["SECRET_TOKEN=not-a-real-one"', "[]", "", '"env"'])
def test_a_report_that_was_cut_off_keeps_nothing(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    drop_environment(file)
    assert "SECRET" not in file.read_text()


def test_nccl_tests_are_asked_what_they_can_report(tmp_path: Path) -> None:
    import subprocess

    program = tmp_path / "all_reduce_perf"
    for help_text, expected in (
        ("[-J,--output_file <file>] [-I,--per_iter_timing <0/1>]", "-J report.json -I 1"),
        ("[-J,--output_file <file>]", "-J report.json"),
        ("[-J,--jitter <0/1>]", ""),
    ):
        program.write_text(f"#!/bin/sh\necho '{help_text}'\nexit 1\n")
        program.chmod(0o755)
        script = f'{nccl_report_command(str(program))}; echo "$REPORT"'
        answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
        assert answer.strip() == expected


def test_the_logs_of_all_ranks_prove_together(tmp_path: Path) -> None:
    for rank in (0, 1):
        line = f"vm:1:{rank} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/CUMEM\n"
        (tmp_path / f"vm-{rank}").write_text(line)
    assert proof_of("nccl-tests", tmp_path, "").paths == {"P2P/CUMEM": 2}
    assert proof_of("nccl-tests", tmp_path / "nowhere", "").evidence is None


def test_oneccls_log_is_in_its_output(tmp_path: Path) -> None:
    log = (suite_root() / "tests" / "data" / "suites" / "logs" / "host_oneccl_info.txt").read_text()
    assert proof_of("oneccl", tmp_path, log).paths == {"SHM/MPI": 1}
    assert proof_of("oneccl", tmp_path, "options:\n").evidence is None
