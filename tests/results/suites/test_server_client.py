"""Outputs of fi_pingpong and ucx_perftest, as the job of a check has them; recorded on one machine (Debian's libfabric
1.17 and UCX 1.13, 2026-11-26) with the addresses taken out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.records.verdict import Verdict
from fabricheck.results.proof_logs import read_log
from fabricheck.results.server_client import parse_server_client
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.suites.benchmarks import BenchmarkRequest, benchmark, server_script

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
LAST = "Final:                    10 705963.242       inf 710855.854        0.00      11.25           0           1\n"


def codes(output: VendorOutput) -> list[tuple[str, Verdict]]:
    return [(problem.code, problem.verdict) for problem in output.problems]


def test_a_ping_pong_is_a_round_trip() -> None:
    output = parse_server_client(FI, tool="fi_pingpong", sizes=(8, 1 << 20))
    assert codes(output) == []
    assert [(one.operation, one.bytes, one.ranks) for one in output.samples] == [
        ("pingpong", 8, (0, 1)),
        ("pingpong", 1 << 20, (0, 1)),
    ]
    assert [one.times_ns.tolist() for one in output.samples] == [[2 * 6824030], [2 * 123551380]]
    assert [one.wrong_bytes for one in output.samples] == [0, 0]
    unchecked = parse_server_client(FI.replace(" -c", " -v"), tool="fi_pingpong")
    assert [one.wrong_bytes for one in unchecked.samples] == [-1, -1]


def test_a_stream_is_from_message_to_message() -> None:
    """The average of the last interval, which may be `inf`, is not the one of the run."""
    latency = parse_server_client(UCX, tool="ucx_perftest", sizes=(8,))
    (sample,) = latency.samples
    assert (codes(latency), sample.operation, sample.times_ns.tolist()) == ([], "pingpong", [2 * 11237569])
    stream = UCX.replace("tag_lat -s 8", "tag_bw -s 8388608")
    (sample,) = parse_server_client(stream[: stream.index("Final")] + LAST, tool="ucx_perftest").samples
    assert (sample.operation, sample.bytes, sample.times_ns.tolist()) == ("unidirectional", 8388608, [710855854])


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
        ("ucx_perftest", UCX.replace("tag_lat", "am_bw"), (8,), Verdict.INVALID),
        ("ucx_perftest", UCX.replace("11237.569 11237.569", "11237.569 11237,569"), (8,), Verdict.INVALID),
    ],
)
def test_damage_is_told(tool: str, text: str, sizes: tuple[int, ...], found: Verdict) -> None:
    assert found in [verdict for _, verdict in codes(parse_server_client(text, tool=tool, sizes=sizes))]


def test_the_provider_is_what_fi_pingpong_says() -> None:
    """As `fi_pingpong -v` prints it."""
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
