"""Is my number normal: outputs of tools as people paste them, against parts and what others measured of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.cli import cli
from fabricheck.errors import UserError
from fabricheck.judge.compare_part import KnownParts, NodeDescription
from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.records.verdict import Verdict
from fabricheck.report import normal
from fabricheck.report.normal_nic import Normal
from fabricheck.topology.graph import node_graph
from fabricheck.vendor.paste import read_paste
from fabricheck.yardsticks.nic_values import load_nics
from tests.support.nodes import ROOT

DATA = ROOT / "tests" / "data"
OPTIONS = (
    "# nThread 1 nGpus 8 minBytes 17179869184 maxBytes 17179869184 step: 2(factor) "
    "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"
)
NCCL = """\
# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
{options}
#
# Using devices
{devices}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
 17179869184    4294967296     float     sum      -1  {half}  {half}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {bus:.4f}
#
"""
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    5000             {rate:.2f}             {rate:.2f}             0.005825
---------------------------------------------------------------------------------------
"""
# As HPE's documentation has it (HewlettPackard/shs-docs, cxi_diags_bandwidth.md), shortened.
CXI = """\
    CXI Loopback Bandwidth Test
TX Mem           : GPU 0
RX Mem           : GPU 2
---------------------------------------------------
RDMA Size[B]      Writes  BW[Gb/s]  PktRate[Mpkt/s]
      524288      204800    {rate:.2f}        11.390468
---------------------------------------------------
"""
TRANSFERBENCH = """\
TransferBench v1.59.00
Test 1:
 Executor: GPU 00    |   {rate:.3f} GB/s |    1.418 ms |     67108864 bytes | 47.9 GB/s (sum)
     Transfer 00     |   {rate:.3f} GB/s |    1.418 ms |     67108864 bytes | G0 -> GFX:0:4 -> G1
"""


def is_normal(text: str, path: str, asked: NodeDescription, root: Path) -> Normal:
    return normal.is_normal(read_paste(text, path), text, path, asked, root)


def nccl(bus: float, gpu: str = "NVIDIA H200") -> str:
    size = 17179869184
    time = round(size / (bus / 1.75) / 1e3)
    algbw = size / time / 1e3
    lines = [f"#  Rank  {n} Group  0 Pid   1 on  vm device  {n} [0000:00:0{n}] {gpu}" for n in range(8)]
    half = f"{time:.0f}  {algbw:.2f}  {algbw * 1.75:.2f}  0"
    return NCCL.format(options=OPTIONS, devices="\n".join(lines), half=half, bus=algbw * 1.75)


@pytest.mark.parametrize(
    ("text", "asked", "verdict", "code"),
    [
        (nccl(480), NodeDescription("H200", 8), Verdict.PASS, None),
        (nccl(480), NodeDescription(None, None), Verdict.PASS, None),
        (nccl(367), NodeDescription("H200", 8), Verdict.DEGRADED, "nvls-not-used"),
        (nccl(200, "NVIDIA A100-SXM4-80GB"), NodeDescription("A100", 8), Verdict.DEGRADED, "slower-than-part"),
        (nccl(840, "NVIDIA GB300"), NodeDescription("GB300", 4, 2), Verdict.PASS, None),
        (nccl(180, "NVIDIA GB300"), NodeDescription("GB300", 4, 2), Verdict.FAIL, "below-floor"),
        (PERFTEST.format(rate=391), NodeDescription("ConnectX-7", None), Verdict.PASS, None),
        (CXI.format(rate=186.62), NodeDescription("Cassini", None), Verdict.PASS, None),
        (CXI.format(rate=150), NodeDescription("Cassini", None), Verdict.DEGRADED, "slow-nic"),
        (PERFTEST.format(rate=300), NodeDescription("ConnectX-7", None), Verdict.DEGRADED, "slow-nic"),
        (TRANSFERBENCH.format(rate=48.2), NodeDescription("MI300X", 8), Verdict.PASS, None),
        (TRANSFERBENCH.format(rate=40), NodeDescription("MI300X", 8), Verdict.DEGRADED, "under-alarm"),
    ],
)
def test_a_number_is_held_against_the_part(
    text: str, asked: NodeDescription, verdict: Verdict, code: str | None
) -> None:
    found = is_normal(text, "mail.txt", asked, ROOT)
    assert found.verdict is verdict, found.lines
    assert len(found.lines) <= 6
    told = [word for line in found.lines for word in line.split() if word in CATALOGUE]
    assert told == ([code] if code else [])


def test_what_only_a_floor_judged_is_not_called_normal() -> None:
    """Of nodes whose NICs nobody says it is not known what they carry."""
    asked = NodeDescription("H200", 4, 2, "4 x 100 Gb/s Omni-Path"), NodeDescription("H200", 8)
    floor, known = (is_normal(nccl(level), "mail.txt", of, ROOT) for level, of in zip((48, 480), asked, strict=True))
    assert (floor.verdict, known.verdict) == (Verdict.INCOMPLETE, Verdict.PASS)


def test_of_several_numbers_the_worst_counts() -> None:
    """One direction of the recorded pair has half of the other's."""
    text = (DATA / "field_reports" / "nvbandwidth.txt").read_text()
    assert is_normal(text, "mail.txt", NodeDescription(None, None), ROOT).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        ("hello", NodeDescription("H200", 8), "has no readable result"),
        (nccl(480), NodeDescription("H2000", 8), "H2000: no values"),
        (nccl(480), NodeDescription("H200", 4), "8 ranks.* 1 x 4"),
        (nccl(480), NodeDescription("H200", 16), "at most 8"),
        (nccl(480), NodeDescription("H200", 8, 1, "many"), "8 x 400 Gb/s"),
        (PERFTEST.format(rate=300), NodeDescription("H200", 8), "give --part"),
    ],
)
def test_what_cannot_be_answered_is_one_line(text: str, asked: NodeDescription, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        is_normal(text, "mail.txt", asked, ROOT)
    assert "\n" not in str(error.value)


def test_the_command_says_it_without_a_site(tmp_path: Path) -> None:
    file = tmp_path / "mail.txt"
    file.write_text(nccl(367), encoding="utf-8")
    found = CliRunner().invoke(cli, ["judge", str(file), "--part", "H200", "--gpus", "8"])
    assert found.exit_code == 1
    assert 4 <= len(found.output.splitlines()) <= 6
    assert "OCI" in found.output and "nvls-not-used" in found.output


@pytest.mark.parametrize(
    ("text", "part", "nics", "verdict"),
    [
        # Measured over Ethernet, by the text: not the bound of InfiniBand.
        (
            PERFTEST.replace("Dual-port", "Link type : Ethernet\n Dual-port").format(rate=384.5),
            "ConnectX-7",
            None,
            "PASS",
        ),
        (
            PERFTEST.replace("Dual-port", "Link type : Ethernet\n Dual-port").format(rate=382),
            "ConnectX-7",
            None,
            "DEGRADED",
        ),
        (
            PERFTEST.replace("Dual-port", "Link type : IB\n Dual-port").format(rate=384.5),
            "ConnectX-7",
            None,
            "DEGRADED",
        ),
        (PERFTEST.format(rate=193), "ConnectX-7", "1 x 200 Gb/s", "PASS"),
        (PERFTEST.format(rate=500), "ConnectX-7", None, "INVALID"),
        (PERFTEST.format(rate=390), "BlueField-3", None, "INCOMPLETE"),
    ],
)
def test_a_nic_is_held_to_the_bounds_of_its_link_layer(text: str, part: str, nics: str | None, verdict: str) -> None:
    assert is_normal(text, "mail.txt", NodeDescription(part, None, 1, nics), ROOT).verdict.value == verdict


# Of a board's pair of GPUs the widest path in Gb/s, as its maker draws it.
@pytest.mark.parametrize(
    ("part", "pair", "gbps"),
    [
        ("MI300A", (0, 1), 2 * 64 * 8),
        ("MI300X", (0, 7), 64 * 8),
        ("GH200", (0, 1), 6 * 25 * 8),
        ("H100 PCIe", (0, 1), 12 * 25 * 8),
        ("H100 PCIe", (1, 2), 64 * 8),
        ("A100 PCIe", (0, 2), 32 * 8),
        ("H800", (0, 7), 8 * 25 * 8),
        ("L40S", (0, 1), 32 * 8),
        ("V100 DGX", (0, 3), 2 * 25 * 8),
        ("V100 DGX", (0, 1), 25 * 8),
        ("MI250X", (0, 1), 4 * 50 * 8),
        ("Max 1550", (0, 1), 4 * 64 * 8),
    ],
)
def test_a_board_is_as_its_maker_draws_it(part: str, pair: tuple[int, int], gbps: float) -> None:
    known = KnownParts.of(ROOT)
    node = known.node(known.part(NodeDescription(part, None), ""), None, ())
    first, other = (node.gpu(one) for one in pair)
    assert node_graph(node).widest_path(first, other).rate_gbps == gbps


def test_every_nic_of_today_has_a_rate_and_its_payload() -> None:
    nics = load_nics(ROOT / "reference_values" / "nics" / "known.yaml")
    assert {one.nic for one in nics} >= {*(f"ConnectX-{n}" for n in range(5, 9)), "Cassini", "EFA", "Thor 2"}
