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
from fabricheck.records.verdict import Verdict
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
RECORDED = (DATA / "nccl_tests" / "h200x4_all_reduce.txt").read_text()


def test_one_sided_benchmarks_of_osu() -> None:
    (output,) = read_all(PUT_BW)
    assert (output.tool, output.ranks, output.problems) == ("osu_put_bw", 2, ())
    assert [each.operation for each in output.samples] == 5 * ["put_stream"]
    assert output.samples[-1].times_ns.tolist() == [round(1e3 * 16 / 28.65)]


def test_non_blocking_collectives_are_refused_by_name() -> None:
    outputs = read_all(IALLGATHER, "x.txt", ranks=16)
    assert [each.path for each in outputs] == ["x.txt, output 1", "x.txt, output 2"]
    assert all(each.problems and not each.samples for each in outputs)


def test_collectives_with_a_vector_of_counts() -> None:
    (output,) = read_all(ALLTOALLV, ranks=384)
    assert (output.tool, output.version, output.problems) == ("osu_alltoallv", "7.5", ())
    assert output.samples[0].times_ns.tolist() == [474050]
    (without,) = read_all(ALLTOALLV)
    assert "does not print the number of ranks" in without.problems[0].message


@pytest.mark.parametrize(
    "change",
    [
        lambda text: re.sub(r"(?m)^#  +out-of-place +in-place\n", "", text),
        lambda text: re.sub(r"(?m)^(#  +out-of-place) +in-place$", r"\1", text),
        lambda text: re.sub(r"(?m)^# ?", "", text),
    ],
    ids=["no heading", "cut heading", "no signs"],
)
def test_all_to_all_however_it_was_pasted(change: object) -> None:
    assert callable(change)
    (output,) = read_all(change(ALLTOALL_MPI), tool="alltoall_perf")
    assert [each.message for each in output.problems] == []
    assert (output.tool, output.ranks, len(output.samples)) == ("alltoall_perf", 8, 6)
    assert output.samples[-2].times_ns.tolist() == [59350]


def test_a_version_with_its_commit() -> None:
    text = re.sub(r"(# nccl-tests version \S+)", r"\1 (b4d5bee)", RECORDED)
    assert read_one(text).version == read_one(RECORDED).version is not None


def test_pairs_at_the_same_time_of_imb_are_refused() -> None:
    output = read_one((DATA / "imb" / "host_imb_multi.txt").read_text(), ranks=4)
    assert {problem.verdict for problem in output.problems} == {Verdict.INVALID}


def test_different_tools_in_one_file_are_all_read(tmp_path: Path) -> None:
    file = tmp_path / "mail.txt"
    file.write_text(f"Dear all,\n{PUT_BW}\n{RECORDED}{(DATA / 'imb' / 'host_imb_zero.txt').read_text()}")
    done = CliRunner().invoke(judge, [str(file), "--json"])
    assert done.exit_code == 0  # of the one whose GPUs are known
    content = json.loads(done.stdout)
    assert [each["tool"] for each in content] == ["osu_put_bw", "all_reduce_perf", "IMB-MPI1 PingPong"]
    assert not any(each["problems"] for each in content)
