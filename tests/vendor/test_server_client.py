"""Outputs of fi_pingpong, ucx_perftest and perftest, as the job of a check has them.

The first two were recorded on one machine (Debian's libfabric 1.17 and UCX 1.13, 2026-11-26) with the addresses taken
out. Of perftest the tables are published ones, by mlx5 and soft RoCE, below the line of the job's script.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.proof_logs import read_log
from fabricheck.suites.benchmarks import BenchmarkRequest, benchmark, options, server_script
from tests.vendor.reading import read_calls

FI = """\
# /usr/bin/fi_pingpong -c -e rdm -m tagged -I 100 -S 8
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       100     =100     1.5k        1.36s      0.00    6824.03       0.00
# /usr/bin/fi_pingpong -c -e rdm -m tagged -I 20 -S 1048576
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      20      =20      40m         4.94s      8.49  123551.38       0.00
"""
UCX = """\
# /usr/bin/ucx_perftest -t tag_lat -s 8 -n 100 -w 10
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
Final:                   100      0.872 11237.569 11237.569       88.99      88.99          89          89
"""
WRITES = """\
# /usr/bin/ib_write_bw -F -s 65536 -n 5000 --report_gbits
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Link type       : IB
 local address: LID 0x01 QPN 0x0048 PSN 0xf5aed1
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             392.11             391.00\t\t   0.745773
---------------------------------------------------------------------------------------
"""
SENDS = """\
# /usr/bin/ib_send_lat -F -s 2 -n 1000
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : rxe_server
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          2.85           75.69        2.95     \t       3.19        \t1.52   \t\t8.92    \t\t75.69
"""  # noqa: E501


def codes(output: VendorOutput) -> list[tuple[str, Verdict]]:
    return [(problem.code, problem.verdict) for problem in output.problems]


def test_a_ping_pong_is_a_round_trip() -> None:
    output = read_calls(FI, tool="fi_pingpong", sizes=(8, 1 << 20))
    assert codes(output) == []
    assert [(one.operation, one.bytes, one.ranks) for one in output.samples] == [
        ("pingpong", 8, (0, 1)),
        ("pingpong", 1 << 20, (0, 1)),
    ]
    assert [one.times_ns.tolist() for one in output.samples] == [[2 * 6824030], [2 * 123551380]]
    assert [one.wrong_bytes for one in output.samples] == [0, 0]
    unchecked = read_calls(FI.replace(" -c", " -v"), tool="fi_pingpong")
    assert [one.wrong_bytes for one in unchecked.samples] == [-1, -1]


@pytest.mark.parametrize(
    ("backend", "buffers", "options_"),
    [
        ("host", "H", ["-F", "-s", "SIZE", "-n", "100", "--report_gbits"]),
        ("cuda", "D D", ["-F", "-s", "SIZE", "-n", "100", "--report_gbits", "--use_cuda=0"]),
        ("hip", "D D", ["-F", "-s", "SIZE", "-n", "100", "--report_gbits", "--use_rocm=0"]),
    ],
)
def test_what_perftest_is_asked_for(backend: str, buffers: str, options_: list[str]) -> None:
    request = BenchmarkRequest(benchmark("perftest", "write_bw"), (8,), 2, backend=backend, buffers=buffers)
    assert options(request) == options_


@pytest.mark.parametrize(
    ("tool", "text", "sizes", "found"),
    [
        ("fi_pingpong", "", (8,), Verdict.INCOMPLETE),
        ("fi_pingpong", FI, (8, 16, 1 << 20), Verdict.INCOMPLETE),
        ("fi_pingpong", FI, (8,), Verdict.INVALID),
        ("fi_pingpong", FI.replace("=100 ", "=99  "), (8, 1 << 20), Verdict.INVALID),
        ("fi_pingpong", FI.replace("6824.03", "6824.3x"), (8, 1 << 20), Verdict.INVALID),
        ("fi_pingpong", FI.replace("6824.03", "   0.00"), (8, 1 << 20), Verdict.INVALID),
        ("fi_pingpong", FI + "Error at iteration=0 size=8 byte=3\n", (8, 1 << 20), Verdict.FAIL),
        ("ucx_perftest", UCX[UCX.index("+") :], (8,), Verdict.INVALID),
        ("ucx_perftest", UCX.replace("tag_lat", "add_mr"), (8,), Verdict.INVALID),
        ("ib_write_bw", WRITES[: WRITES.index(" #bytes")], (65536,), Verdict.INCOMPLETE),  # it found no device
        ("ib_write_bw", WRITES.replace("-s 65536", "-s 8"), (8,), Verdict.INVALID),
        ("ib_write_bw", WRITES.replace("391.00", "  0.00").replace("0.745773", "0.000000"), (65536,), Verdict.INVALID),
        ("ib_send_lat", SENDS.replace("3.19", "3,19"), (2,), Verdict.INVALID),
        ("ucx_perftest", UCX.replace("11237.569 11237.569", "11237.569 11237,569"), (8,), Verdict.INVALID),
    ],
)
def test_damage_is_told(tool: str, text: str, sizes: tuple[int, ...], found: Verdict) -> None:
    assert found in [verdict for _, verdict in codes(read_calls(text, tool=tool, sizes=sizes))]


def test_the_provider_is_what_fi_pingpong_says_and_the_device_what_perftest_does() -> None:
    """As `fi_pingpong -v` prints it."""
    assert read_log("perftest", WRITES).paths == {"rc_verbs/mlx5_0": 1}
    assert read_log("libfabric", "    fi_fabric_attr:\n        prov_name: tcp;ofi_rxm\n").paths == {
        "OFI provider tcp;ofi_rxm": 1
    }


def test_the_client_comes_when_the_server_listens(tmp_path: Path) -> None:
    """A program in the place of fi_pingpong that needs it: a server at its port, and the other end of a connection."""
    request = BenchmarkRequest(benchmark("libfabric", "pingpong"), (8, 64), 2)
    (tmp_path / "script.sh").write_text(server_script(request))
    (tmp_path / "tool.py").write_text(
        "import socket, sys, time\n"
        "time.sleep(0.2)\n"
        "if len(sys.argv) == 3:\n"
        "    sock = socket.create_server(('', 47592))\n"
        "    sock.accept()[0].close()\n"
        "else:\n"
        "    socket.create_connection((sys.argv[3], 47592)).close()\n"
        "    print('met', sys.argv[2])\n"
    )
    command = ["sh", "script.sh", sys.executable, "tool.py", "-S", "SIZE"]
    ranks = [
        subprocess.Popen(command, cwd=tmp_path, env={"OMPI_COMM_WORLD_RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in ("1", "0")
    ]
    printed = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert [line for line in printed[0].splitlines() if not line.startswith("#")] == ["met 8", "met 64"]
    assert printed[1] == ""


def start(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_server_that_ends_before_it_listens_is_not_waited_for(tmp_path: Path) -> None:
    """The launcher then ends the client, and the server's own words are the last."""
    request = BenchmarkRequest(benchmark("libfabric", "pingpong"), (8,), 2)
    (tmp_path / "script.sh").write_text(server_script(request))
    (tmp_path / "tool.sh").write_text("echo no provider >&2\n")
    done = start(["sh", "script.sh", "sh", "tool.sh"], tmp_path, SLURM_PROCID="0")
    assert (done.returncode, done.stderr) == (1, "no provider\n")
    assert not list(tmp_path.glob("server-of-*"))


@pytest.mark.skipif(any(Path("/sys/class").glob("infiniband/*")), reason="this machine has an RDMA device")
@pytest.mark.parametrize("rank", ["0", "1"])
def test_perftest_is_not_started_on_a_node_without_a_device(rank: str, tmp_path: Path) -> None:
    request = BenchmarkRequest(benchmark("perftest", "write_bw"), (8,), 2)
    (tmp_path / "script.sh").write_text(server_script(request))
    done = start(["sh", "script.sh", "touch", "started"], tmp_path, PMI_RANK=rank)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{socket.gethostname()} has no ")
    assert not (tmp_path / "started").exists()
