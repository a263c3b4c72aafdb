"""Outputs as people paste them: other column sets and names, prefixes of launchers, several in one text.

The excerpts were published at the addresses that stand with them; they were shortened.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.commands.judge import judge
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_all, read_one

# https://github.com/open-mpi/ompi/pull/4919
PUT_BW = """\
# OSU MPI_Put Bandwidth Test v5.3
# Window creation: MPI_Win_allocate
# Synchronization: MPI_Win_flush
# Size      Bandwidth (MB/s)
1                       1.78
2                       3.56
4                       7.05
8                      14.09
16                     28.65
"""
# https://github.com/open-mpi/ompi/pull/7735
IALLGATHER = """\

$ mpirun -n 16 --map-by node --bind-to core --mca pml ob1 ./mpi/collective/osu_iallgather -m 1:1

# OSU MPI Non-blocking Allgather Latency Test v5.3.2
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                     216.50            140.95            135.61             44.29

$ mpirun -n 24 --map-by node --bind-to core --mca pml ob1 ./mpi/collective/osu_iallgather -m 1:1

# OSU MPI Non-blocking Allgather Latency Test v5.3.2
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                     305.55            191.38            184.28             38.04
"""
# https://github.com/openucx/ucx/issues/3045
TIMESTAMPED = """\
Sat Nov 17 00:20:52 2018[1,0]<stdout>:
Sat Nov 17 00:20:52 2018[1,0]<stdout>:# OSU MPI Non-blocking Gather Latency Test v5.3.2
Sat Nov 17 00:20:52 2018[1,0]<stdout>:# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait
Sat Nov 17 00:20:52 2018[1,0]<stdout>:
Sat Nov 17 00:20:52 2018[1,0]<stdout>:# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
Sat Nov 17 00:20:52 2018[1,0]<stdout>:1                       1.93              1.11              0.71              0.00
Sat Nov 17 00:20:52 2018[1,0]<stdout>:2                       1.91              1.11              0.70              0.00
Sat Nov 17 00:20:52 2018[1,0]<stdout>:4                       1.94              1.14              0.71              0.00
"""
# https://github.com/pmodels/mpich/issues/7601
ALLTOALLV = """\
# OSU MPI All-to-Allv Personalized Exchange Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations  P50 Tail Lat(us)  P90 Tail Lat(us)
4096                  467.38            460.43            474.05        1000            407.18            584.22
"""
# As https://github.com/nebius/soperator/pull/428 shows its beginning; of the rows of
# https://github.com/NVIDIA/nccl-tests/issues/314, which has no footer, the one below is made up of them.
ALLTOALL_MPI = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid 173504 on  TENCENT64 device  0 [0x03] NVIDIA H20-3e
#  Rank  1 Group  0 Pid 173504 on  TENCENT64 device  1 [0x16] NVIDIA H20-3e
#  Rank  2 Group  0 Pid 173504 on  TENCENT64 device  2 [0x1c] NVIDIA H20-3e
#  Rank  3 Group  0 Pid 173504 on  TENCENT64 device  3 [0x2e] NVIDIA H20-3e
#  Rank  4 Group  0 Pid 173504 on  TENCENT64 device  4 [0x84] NVIDIA H20-3e
#  Rank  5 Group  0 Pid 173504 on  TENCENT64 device  5 [0x9c] NVIDIA H20-3e
#  Rank  6 Group  0 Pid 173504 on  TENCENT64 device  6 [0xb6] NVIDIA H20-3e
#  Rank  7 Group  0 Pid 173504 on  TENCENT64 device  7 [0xbb] NVIDIA H20-3e
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576         32768     float    none      -1    58.14   18.04   15.78      0    57.87   18.12   15.85    N/A
     2097152         65536     float    none      -1    58.94   35.58   31.14      0    58.10   36.10   31.58    N/A
     4194304        131072     float    none      -1    59.35   70.67   61.84      0    59.23   70.81   61.96    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 36.3583
#
"""
# https://github.com/NVIDIA/nccl-tests/issues/78: neither the options nor the devices were pasted.
NO_HEADING = """\
NCCL version 2.8.4+cuda10.1
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608   float     sum   1464.2   22.92   45.65    N/A   1458.1   23.01   45.84    N/A
    67108864      16777216   float     sum   2659.1   25.24   50.28    N/A   3014.6   22.26   44.35    N/A
   134217728      33554432   float     sum   4263.8   31.48   62.71    N/A   4647.4   28.88   57.53    N/A
   268435456      67108864   float     sum   7946.8   33.78   67.29    N/A   7615.2   35.25   70.22    N/A
   536870912     134217728   float     sum    16129   33.29   66.31    N/A    14383   37.33   74.36    N/A
"""
RECORDED = (DATA / "nccl_tests" / "h200x4_all_reduce.txt").read_text()


def test_one_sided_benchmarks_of_osu() -> None:
    (output,) = read_all(PUT_BW)
    assert (output.tool, output.ranks, output.problems) == ("osu_put_bw", 2, ())
    assert [each.operation for each in output.samples] == 5 * ["put_stream"]
    assert output.samples[-1].times_ns.tolist() == [round(1e3 * 16 / 28.65)]
    assert output.facts["synchronization"] == "MPI_Win_flush"
    get = PUT_BW.replace("MPI_Put Bandwidth Test", "MPI_Get-CUDA Latency Test").replace(
        "Bandwidth (MB/s)", "Latency (us)"
    )
    (output,) = read_all(get)
    assert (output.tool, output.facts["accelerator"], output.problems) == ("osu_get_latency", "CUDA", ())
    assert output.samples[0].times_ns.tolist() == [1780]


def test_non_blocking_collectives_and_several_in_a_text() -> None:
    outputs = read_all(IALLGATHER, "x.txt", ranks=16)
    assert [each.tool for each in outputs] == ["osu_iallgather", "osu_iallgather"]
    assert [each.path for each in outputs] == ["x.txt, output 1", "x.txt, output 2"]
    assert [each.problems for each in outputs] == [(), ()]
    assert [each.samples[0].times_ns.tolist() for each in outputs] == [[135610], [184280]]
    assert [(each.samples[0].operation, each.samples[0].bytes) for each in outputs] == 2 * [("allgather", 16)]
    # A digit that became another one.
    for wrong in ("44.19", "54.29", "4.29"):
        (first, _) = read_all(IALLGATHER.replace("44.29", wrong.rjust(5)), ranks=16)
        assert first.problems, wrong
    # One and the same parser still says that two are in one text.
    assert read_one(IALLGATHER, ranks=16).problems


def test_a_recorded_non_blocking_one_is_not_the_blocking_one() -> None:
    text = (DATA / "osu" / "host_osu_iallreduce.txt").read_text()
    assert read_one(text, tool="osu_iallreduce", ranks=2).problems == ()
    (problem,) = read_one(text, tool="osu_allreduce", ranks=2).problems
    assert problem.message == "the output: this is the output of osu_iallreduce instead of osu_allreduce"


def test_time_stamps_and_tags_together() -> None:
    (output,) = read_all(TIMESTAMPED, ranks=4)
    assert (output.tool, output.problems) == ("osu_igather", ())
    assert [each.bytes for each in output.samples] == [4, 8, 16]


def test_collectives_with_a_vector_of_counts() -> None:
    (output,) = read_all(ALLTOALLV, ranks=384)
    assert (output.tool, output.version, output.problems) == ("osu_alltoallv", "7.5", ())
    assert output.samples[0].times_ns.tolist() == [474050]
    (without,) = read_all(ALLTOALLV)
    assert "does not print the number of ranks" in without.problems[0].message


def test_threads() -> None:
    text = (
        "# OSU MPI Multi-threaded Latency Test v7.4\n# Number of Sender threads: 1\n# Number of Receiver threads: 2\n"
    )
    (output,) = read_all(f"{text}# Size          Latency (us)\n8                       1.50\n")
    assert (output.tool, output.problems) == ("osu_latency_mt", ())
    assert output.facts["number_of_receiver_threads"] == "2"
    assert output.samples[0].times_ns.tolist() == [3000]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: (
            "# Collective test starting: alltoall_perf_mpi\n"
            + text
            + "# Collective test concluded: alltoall_perf_mpi\n"
        ),
        lambda text: re.sub(r"(?m)^#  +out-of-place +in-place\n", "", text),
        lambda text: re.sub(r"(?m)^(#  +out-of-place) +in-place$", r"\1", text),
        lambda text: re.sub(r"(?m)^", "1: ", text),
        lambda text: re.sub(r"(?m)^", " 1: ", text),
        lambda text: re.sub(r"(?m)^", "[1,0]<stdout>:", text),
        lambda text: re.sub(r"(?m)^", "worker-0: ", text).rstrip(" ").removesuffix("worker-0:"),
        lambda text: re.sub(r"(?m)^# ?", "", text),
    ],
    ids=["as it is", "named", "no heading", "cut heading", "label", "wide label", "tag", "host", "no signs"],
)
def test_all_to_all_however_it_was_pasted(change: object) -> None:
    assert callable(change)
    (output,) = read_all(change(ALLTOALL_MPI), tool="alltoall_perf")
    assert [each.message for each in output.problems] == []
    assert (output.tool, output.ranks, len(output.samples)) == ("alltoall_perf", 8, 6)
    assert output.samples[-2].times_ns.tolist() == [59350]


def test_without_the_columns_of_a_reduction() -> None:
    text = re.sub(r"(?m)    none      -1 |   redop    root ", "", ALLTOALL_MPI)
    assert "redop" not in text
    (output,) = read_all(text, tool="alltoall_perf")
    assert ([each.message for each in output.problems], len(output.samples)) == ([], 6)


def test_ranks_and_program_can_be_said_where_the_text_does_not() -> None:
    (output,) = read_all(NO_HEADING, tool="all_reduce_perf", ranks=256)
    assert output.problems == ()
    assert (output.ranks, len(output.samples), output.facts["options"]) == (256, 10, "not said")
    for ranks in (128, 2):
        (wrong,) = read_all(NO_HEADING, tool="all_reduce_perf", ranks=ranks)
        assert any("busbw does not match" in each.message for each in wrong.problems)
    (without,) = read_all(NO_HEADING, tool="all_reduce_perf")
    assert without.samples == ()


def test_a_version_with_its_commit() -> None:
    text = re.sub(r"(# nccl-tests version \S+)", r"\1 (b4d5bee)", RECORDED)
    assert read_one(text).version == read_one(RECORDED).version is not None


def test_pairs_at_the_same_time_of_imb() -> None:
    text = (DATA / "imb" / "host_imb_multi.txt").read_text()
    output = read_one(text, ranks=4)
    assert (output.problems, output.ranks) == ((), 4)
    assert {(each.operation, each.schedule, each.ranks) for each in output.samples} == {
        ("pingpong", "contended", (0, 1, 2, 3))
    }
    assert output.samples[0].times_ns.tolist() == [2 * 5050]
    assert read_one(text.replace("( 2 groups of 2", "( 3 groups of 2"), ranks=4).problems


def test_different_tools_in_one_file_are_all_read(tmp_path: Path) -> None:
    file = tmp_path / "mail.txt"
    file.write_text(f"Dear all,\n{PUT_BW}\n{RECORDED}{(DATA / 'imb' / 'host_imb_multi.txt').read_text()}")
    done = CliRunner().invoke(judge, [str(file), "--json"])
    assert done.exit_code == 0  # of the one whose GPUs are known
    content = json.loads(done.stdout)
    assert [each["tool"] for each in content] == ["osu_put_bw", "all_reduce_perf", "IMB-MPI1 PingPong"]
    assert not any(each["problems"] for each in content)
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(RECORDED.replace("# Out of bounds values : 0 OK", "# Out of bounds values : 3 FAILED"))
    shown = CliRunner().invoke(judge, [str(wrong)])
    assert "FAIL" in shown.stdout
    assert shown.exit_code == 3
