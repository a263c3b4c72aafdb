"""What people paste: whole outputs as launchers, pods, mails and web pages leave them, and those of other tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.judge.compare_part import NodeDescription
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.report.normal import is_normal
from fabricheck.report.normal_nic import Normal
from fabricheck.results.fabricbench import read_run
from tests.support.nodes import ROOT
from tests.vendor.reading import read_all

DATA = ROOT / "tests" / "data" / "field_reports"
TOOL = "all_reduce_perf"


def text_of(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


COMPOSE = text_of("nccl-tests_compose.txt")
PLAIN = COMPOSE.replace("worker-1  | ", "")
RCCL = text_of("rccl-tests.txt")
NCCL = "# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707\n"


def judged(text: str, tool: str | None = None) -> Normal:
    return is_normal(read_all(text, "mail.txt", tool=tool), text, "mail.txt", NodeDescription(None, None), ROOT)


def read(text: str, tool: str | None = TOOL) -> VendorOutput:
    (output,) = read_all(text, tool=tool)
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
    first, second = read_all(ORDERS[order] * 2)
    assert (first.ranks, second.ranks) == (8, 8) and not first.problems and not second.problems


def with_log(*lines: str) -> VendorOutput:
    return read("".join(f"n1:1:2 [0] NCCL INFO {line}\n" for line in lines) + PLAIN)


def test_the_log_in_the_paste_says_which_path_it_was() -> None:
    sockets = read(text_of("nccl-tests_sockets.txt"))
    assert codes(sockets) == {"path-forbidden"} and sockets.facts["paths"] == "NET/Socket/0"
    assert {(each.kind, each.line) for each in sockets.remarks} >= {("path", 3), ("library", 1)}
    tcp = with_log(
        "NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "Channel 00/0 : 8[0] -> 0[0] via NET/OFI/0"
    )
    assert codes(tcp) == {"path-forbidden"}
    disabled = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    lost = with_log(disabled, "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0")
    assert not lost.problems and [(each.kind, each.line) for each in lost.remarks] == [("path", 2), ("library", 1)]
    fine = with_log("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA")
    assert not fine.problems and fine.facts == {**read(PLAIN).facts, "paths": "NET/IB/0/GDRDMA"}
    assert "paths" not in read(PLAIN).facts


def test_variables_of_any_library_are_read_and_secrets_are_not() -> None:
    text = "export NCCL_TOPO_FILE=/opt/x.xml\nmpirun -x UCX_TLS=rc,cuda -x HSA_NO_SCRATCH_RECLAIM=1 -x FI_API_KEY=abc\n"
    (output,) = read_all(text + PLAIN, tool=TOOL)
    assert output.variables == {"NCCL_TOPO_FILE": "/opt/x.xml", "UCX_TLS": "rc,cuda", "HSA_NO_SCRATCH_RECLAIM": "1"}


def test_wrong_data_are_told_whatever_else_is_not_known() -> None:
    wrong = PLAIN.replace("234.43      0", "234.43 237858").replace("values : 0 OK", "values : 1 FAILED")
    (output,) = read_all(wrong, tool=TOOL)
    assert output.facts["validation"] == "failed"
    assert judged(wrong, TOOL).verdict is Verdict.FAIL


def test_each_rank_a_run_of_its_own() -> None:
    """nccl-tests without MPI, started by mpirun."""
    lines = PLAIN.splitlines(keepends=True)
    alone = "".join(line for line in lines if "  Rank " not in line or "Rank  0" in line)
    outputs = read_all(alone * 8, tool=TOOL)
    assert len(outputs) == 8 and all(each.ranks == 1 and each.problems and not each.samples for each in outputs)


#: As the tools' sources print them, shortened.
OTHERS = {
    "gdrcopy": "GPU id:0; name: NVIDIA H100; Bus id: 0000:1b:00\nselecting device 0\n",
    "dcgmi": '{"DCGM GPU Diagnostic":{"test_categories":[]}}',
    "iperf3": '{"start":{"version":"iperf 3.9"},"end":{}}',
    "bandwidthTest": "[CUDA Bandwidth Test] - Starting...\nRunning on...\n",
}


@pytest.mark.parametrize("tool", OTHERS)
def test_other_tools_are_refused_by_their_names(tool: str) -> None:
    (output,) = read_all(OTHERS[tool])
    assert output.tool.startswith(tool) and codes(output) == {"other-tool"}
    assert judged(OTHERS[tool]).verdict is Verdict.INVALID


def test_json_that_only_looks_like_nvbandwidths_has_no_number() -> None:
    tiny = text_of("nvbandwidth.json").replace("196.10", "1e-320").replace("393.34", "NaN")
    for text in (
        tiny,
        '{"nvbandwidth": 1}',
        '{"nvbandwidth": {"testcases": [{"name": "a_ce"}, 2]}}',
        '{"nvbandwidth": [',
    ):
        outputs = read_all(text)
        assert not any(output.samples for output in outputs) and any(output.problems for output in outputs)


LOGS = {
    "NCCL has no room": (
        "n1:9:30 [3] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-a: No space left on device\n",
        "library",
    ),
    "sockets": ("n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] via NET/Socket/0\n", "path"),
    "a variable": ("n1:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n", "variable"),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_by_itself_says_something(case: str) -> None:
    text, kind = LOGS[case]
    (output,) = read_all(text)
    assert [(each.kind, each.line) for each in output.remarks] == [(kind, 1)]
    assert judged(text).verdict in (Verdict.INCOMPLETE, Verdict.INVALID)


def test_a_healthy_log_of_efa_gives_no_problem() -> None:
    provider = "n1:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)\n"
    channel = "n1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA/Shared\n"
    (output,) = read_all(provider + channel)
    assert not output.problems


@pytest.mark.parametrize(
    "text", ["srun: error: Unable to create step\n", '{"gpus":[{"id":0}]}\n', '{"a":1}\n{"b":2}\n', "\n" * 100_000]
)
def test_what_nobody_knows_is_no_result_that_was_cut_off(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    assert read_all(text) == ()
    assert {problem.verdict for problem in read_run(file).problems} <= {Verdict.INVALID, Verdict.INCOMPLETE}
