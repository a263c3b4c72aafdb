"""What people paste: whole outputs as launchers, pods, mails and web pages leave them, and those of other tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.commands.vendor_judgement import judge_vendor_file
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.other_tools import other_tool
from fabricheck.results.vendor import not_judged, vendor_outputs
from fabricheck.results.vendor_output import VendorOutput
from tests.support.nodes import ROOT

DATA = ROOT / "tests" / "data" / "field_reports"
TOOL = "all_reduce_perf"


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


COMPOSE = text_of("nccl-tests_compose.txt")
PLAIN = COMPOSE.replace("worker-1  | ", "")
RCCL = text_of("rccl-tests.txt")
NCCL = "# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707\n"


def read(text: str, tool: str | None = TOOL) -> VendorOutput:
    (output,) = vendor_outputs(text, tool=tool)
    return output


def codes(output: VendorOutput) -> set[str]:
    return {each.code for each in output.problems}


VERSION = "rccl-tests: Version develop:83d38d9\n"
START = RCCL.splitlines(keepends=True)[0]
BARE = RCCL.replace(VERSION, "")
ORDERS = {
    "the version after the options": RCCL,
    "the version first": VERSION + BARE,
    "the test after the version": VERSION + START + BARE.removeprefix(START),
    "nccl-tests' own line": RCCL.replace(VERSION, NCCL),
}


@pytest.mark.parametrize("order", ORDERS)
def test_an_output_is_one_whatever_the_order_of_its_lines(order: str) -> None:
    output = read(ORDERS[order], tool=None)
    assert (output.tool, output.ranks, len({each.bytes for each in output.samples})) == (TOOL, 8, 4)
    assert not output.problems
    first, second = vendor_outputs(ORDERS[order] * 2)
    assert (first.ranks, second.ranks) == (8, 8) and not first.problems and not second.problems


PREFIXES = {
    "none": "",
    "kubectl logs --prefix": "[pod/nccl-launcher-x1/launcher] ",
    "docker compose logs": "worker-1  | ",
    "pdsh": "node01: ",
    "stern": "nccl-launcher-x7k2p launcher ",
    "srun --label": "0: ",
    "Open MPI": "[1,0]<stdout>:",
    "kubectl logs --timestamps": "2026-11-25T12:00:00.123456789Z ",
}


@pytest.mark.parametrize("launcher", PREFIXES)
@pytest.mark.parametrize("stripped", [False, True], ids=["", "trailing blanks are lost"])
def test_what_launchers_put_before_each_line(launcher: str, stripped: bool) -> None:
    lines = [PREFIXES[launcher] + line for line in PLAIN.splitlines()]
    output = read("\n".join(line.rstrip() if stripped else line for line in lines) + "\n")
    assert (output.ranks, len(output.samples), codes(output)) == (8, 8, set())


@pytest.mark.parametrize("blank", ["\u00a0", "\u2007", "\u202f"])
def test_blanks_of_a_web_page(blank: str) -> None:
    assert read(PLAIN.replace(" ", blank)).samples and not read(PLAIN.replace(" ", blank)).problems


@pytest.mark.parametrize(
    "text", [text_of("nccl-tests_collapsed.txt"), "\n".join(" ".join(line.split()) for line in RCCL.split("\n"))]
)
def test_blanks_that_a_chat_lost_are_said_once(text: str) -> None:
    output = read(text)
    assert [(each.code, each.verdict) for each in output.problems] == [("output-damaged", Verdict.INCOMPLETE)]
    assert "blanks" in output.problems[0].message


def with_log(*lines: str) -> VendorOutput:
    return read("".join(f"n1:1:2 [0] NCCL INFO {line}\n" for line in lines) + PLAIN)


def test_the_log_in_the_paste_says_which_path_it_was() -> None:
    sockets = read(text_of("nccl-tests_sockets.txt"))
    assert codes(sockets) == {"path-forbidden"} and sockets.facts["paths"] == "NET/Socket/0"
    assert "no device found" in sockets.problems[0].message
    tcp = with_log(
        "NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "Channel 00/0 : 8[0] -> 0[0] via NET/OFI/0"
    )
    assert codes(tcp) == {"path-forbidden"}
    disabled = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    lost = with_log(disabled, "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0")
    assert not lost.problems and "NET/IB/0" in not_judged(lost).message and "HCA 0" in not_judged(lost).message
    fine = with_log("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA")
    assert not fine.problems and fine.facts == {**read(PLAIN).facts, "paths": "NET/IB/0/GDRDMA"}
    assert "paths" not in read(PLAIN).facts


def test_each_rank_a_run_of_its_own() -> None:
    """nccl-tests without MPI, started by mpirun."""
    lines = PLAIN.splitlines(keepends=True)
    alone = "".join(line for line in lines if "  Rank " not in line or "Rank  0" in line)
    outputs = vendor_outputs(alone * 8, tool=TOOL)
    assert len(outputs) == 8 and all("wrong-ranks" in codes(each) for each in outputs)
    assert "wrong-ranks" not in codes(read(alone))


#: As the tools' sources print them, shortened.
OTHERS = {
    "nvbandwidth": [text_of("nvbandwidth.txt"), text_of("nvbandwidth.json")],
    "p2pBandwidthLatencyTest": ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA L40S\n"],
    "TransferBench": ["TransferBench v1.62.00 (with NIC support)\n=====\n"],
    "rocm_bandwidth_test": ["....\n          RocmBandwidthTest Version: 2.6.0\n"],
    "perftest": [
        "-----\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n",
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]\n 65536      5000   392.11   392.10\n",
    ],
    "gdrcopy": ["GPU id:0; name: NVIDIA H100; Bus id: 0000:1b:00\nselecting device 0\n"],
    "ucx_perftest": ["+------+\n| API:          protocol layer     |\n| Test:         tag match bandwidth     |\n"],
    "dcgmi": ['{"DCGM GPU Diagnostic":{"test_categories":[]}}', "Successfully ran diagnostic for group.\n"],
    "iperf3": ['{"start":{"version":"iperf 3.9"},"end":{}}', "Connecting to host node02, port 5201\n"],
    "bandwidthTest": ["[CUDA Bandwidth Test] - Starting...\nRunning on...\n"],
}


@pytest.mark.parametrize("tool", OTHERS)
def test_other_tools_are_refused_by_their_names_in_one_line(tool: str, tmp_path: Path) -> None:
    for number, text in enumerate(OTHERS[tool]):
        assert (other_tool(text) or "").startswith(tool)
        file = tmp_path / f"{number}.txt"
        file.write_text(text, encoding="utf-8")
        (judged,) = judge_vendor_file(file, None, None)
        assert [(each.code, each.verdict) for each in judged.problems] == [("other-tool", Verdict.INVALID)]


@pytest.mark.parametrize("text", ['{"gpus":[{"id":0}]}\n', '{"a":1}\n{"b":2}\n'])
def test_json_of_a_tool_that_nobody_knows_is_no_result_that_was_cut_off(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    assert judge_vendor_file(file, None, None) == ()
    (problem,) = read_run(file).problems
    assert problem.verdict is Verdict.INVALID and "cut off" not in problem.message
