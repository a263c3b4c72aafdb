from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.guards import (
    Requested,
    _management_mistakes,
    least_sent,
    require,
    require_arrival,
    require_fresh,
)
from fabricheck.topology.model import find_topology
from fabricheck.topology.transport_paths import nic_paths
from tests.support.made_runs import made_run, made_samples
from tests.support.nodes import ROOT
from tests.support.result_files import CUDA, HOST, lines_of, write

OF_HOST = set(lines_of(HOST)[0]["plan"]["operations"])

ASKED: dict[str, Any] = {
    "transport": "ccl",
    "backend": "cuda",
    "ranks": 4,
    "nodes": 1,
    "devices": True,
    "exit_code": 0,
    "operations": {"pingpong", "allreduce"},
    "environment": {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": None},
    "paths_forbidden": [r"NET/Socket", r"^SHM"],
    "paths_required": [r"^P2P/"],
}


def messages(problems: tuple[Finding, ...]) -> str:
    return "\n".join(problem.message for problem in problems)


def cuda_run(tmp_path: Path, **footer: Any) -> Run:
    lines = lines_of(CUDA)
    lines[-1].update(footer)
    return read_run(write(tmp_path / "run.jsonl", lines))


def test_the_run_that_was_asked_for_has_no_problem() -> None:
    assert require(read_run(CUDA), Requested(**ASKED)) == ()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"transport": "mpi"}, "wrong-plan"),
        ({"backend": "hip"}, "wrong-plan"),
        ({"ranks": 8}, "wrong-ranks"),
        ({"nodes": 2}, "wrong-ranks"),
        ({"devices": False}, "wrong-ranks"),
        ({"operations": {"pingpong"}}, "wrong-plan"),
        ({"operations": {"pingpong", "allreduce", "alltoall"}}, "wrong-plan"),
        ({"environment": {"NCCL_NVLS_ENABLE": "1"}}, "setting-not-in-effect"),
        ({"environment": {"NCCL_PROTO": "LL"}}, "setting-not-in-effect"),
        ({"environment": {"NCCL_NVLS_ENABLE": None}}, "setting-not-in-effect"),
        ({"paths_forbidden": ["P2P"]}, "path-forbidden"),
        ({"paths_required": ["NET/IB"]}, "path-forbidden"),
        ({"mpi_library": "MPICH"}, "wrong-library"),
        ({"plan": {"datatype": "float64"}}, "wrong-plan"),
        ({"plan": {"host_memory": "pinned"}}, "wrong-plan"),
    ],
)
def test_something_else_than_asked_for_is_found(asked: dict[str, Any], code: str) -> None:
    (problem,) = require(read_run(CUDA), Requested(**(ASKED | asked)))
    assert (problem.verdict, problem.code) == (Verdict.INVALID, code)


@pytest.mark.parametrize("asked", [{"mpi_library": "Open MPI"}, {"plan": {"datatype": "float32"}}])
def test_library_and_plan_are_those_of_the_check(asked: dict[str, Any]) -> None:
    assert require(read_run(CUDA), Requested(**(ASKED | asked))) == ()


@pytest.mark.parametrize("exit_code", [1, -9])
def test_a_program_that_failed_left_a_part(exit_code: int) -> None:
    (problem,) = require(read_run(CUDA), Requested(**(ASKED | {"exit_code": exit_code})))
    assert (problem.verdict, problem.code) == (Verdict.INCOMPLETE, "benchmark-failed")


def test_a_rank_without_the_tuning_is_named(tmp_path: Path) -> None:
    lines = lines_of(CUDA)
    lines[0]["environment_differences"] = [
        {"rank": 2, "name": "NCCL_NVLS_ENABLE", "value": None},
        {"rank": 3, "name": "NCCL_NVLS_ENABLE", "value": "1"},
        {"rank": 1, "name": "SLURM_CPU_BIND", "value": "x"},
    ]
    problems = require(read_run(write(tmp_path / "run.jsonl", lines)), Requested(**ASKED))
    assert "NCCL_NVLS_ENABLE was unset instead of '0' on ranks 2-3" in messages(problems)
    assert len(problems) == 1


def test_a_variable_that_only_rank_0_lacks(tmp_path: Path) -> None:
    lines = lines_of(CUDA)
    del lines[0]["environment"]["NCCL_NVLS_ENABLE"]
    lines[0]["environment_differences"] = [
        {"rank": rank, "name": "NCCL_NVLS_ENABLE", "value": "0"} for rank in (1, 2, 3)
    ]
    problems = require(read_run(write(tmp_path / "run.jsonl", lines)), Requested(**ASKED))
    assert "was unset instead of '0' on ranks 0:" in messages(problems)


def test_a_path_that_not_all_nodes_took_is_told_with_its_ranks(tmp_path: Path) -> None:
    """By node, and the GPUs by index and PCI address; of many ranks the first are named."""
    lines = lines_of(CUDA)
    for rank in lines[0]["ranks"][1:]:
        rank["host"] = "nid002"
    paths = {"NET/Socket/0": 2, "NET/IB/0/GDRDMA": 2}
    lines[-1]["proof"] |= {"paths": paths, "only": {"NET/Socket/0": [1, 2, 3], "NET/IB/0/GDRDMA": [0]}}
    run = read_run(write(tmp_path / "run.jsonl", lines))
    asked = ASKED | {"nodes": 2, "paths_required": []}
    (message,) = (each.message for each in require(run, Requested(**asked)))
    gpus = [f"GPU {each.device.index} at {each.device.bus_id}" for each in run.ranks if each.device]
    told = f"the data took NET/Socket/0 on nid002, {gpus[1]}, {gpus[2]}, 1 more, which this check forbids"
    assert message == f"{run.path}: {told}: a fall-back"


def test_a_gpu_whose_data_libfabric_stages_is_named(tmp_path: Path) -> None:
    """By the same provider as the others, whose NICs reach the memory of their GPUs themselves."""
    lines = lines_of(CUDA)
    lines[0] |= {"transport": "fabric", "environment": {"FI_HMEM_DISABLE_P2P": "1", "OMPI_MCA_pml": "ob1"}}
    lines[0]["libraries"]["fabric"] = {"name": "libfabric", "version": "2.5"}
    lines[0]["plan"] |= {"access": "write", "nic": "near"}
    ways = ["registered", "registered", "staged", "registered"]
    for rank, memory in zip(lines[0]["ranks"], ways, strict=True):
        rank["host"] = f"nid00{rank['rank'] // 2 + 1}"
        rank["nics"] = [{"name": "cxi0", "provider": "cxi", "device_memory": memory}]
    paths = {"OFI provider cxi registered": 3, "OFI provider cxi staged": 1}
    lines[-1]["proof"] = {"paths": paths, "evidence": "libfabric", "only": {"OFI provider cxi staged": [2]}}
    run = read_run(write(tmp_path / "run.jsonl", lines))
    wanted = nic_paths(find_topology("alps", ROOT / "site_configs"))
    more = {"paths_required": wanted.required, "paths_forbidden": wanted.forbidden, "described": wanted.described}
    (problem,) = require(run, Requested(**(ASKED | {"transport": "fabric", "nodes": 2, "environment": {}} | more)))
    assert problem.code == "path-forbidden"
    gpu = run.ranks[2].device
    assert gpu is not None
    assert f"OFI provider cxi staged on nid002, GPU {gpu.index} at {gpu.bus_id}," in problem.message
    assert "FI_HMEM_DISABLE_P2P=1" in problem.message and "OMPI" not in problem.message


def test_no_evidence_is_invalid_only_where_a_path_is_required(tmp_path: Path) -> None:
    run = cuda_run(tmp_path, proof={"paths": {}, "evidence": None})
    assert "no library reported the path of the data" in messages(require(run, Requested(**ASKED)))
    assert require(run, Requested(**(ASKED | {"paths_required": []}))) == ()


def test_no_footer_proves_nothing(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "run.jsonl", lines_of(CUDA)[:-1]))
    assert "the path of the data is not proven" in messages(require(run, Requested(**ASKED)))


def test_a_run_without_a_valid_header_is_not_the_right_one(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "run.jsonl", lines_of(CUDA)[1:]))
    problems = require(run, Requested(**(ASKED | {"exit_code": 1})))
    assert [(problem.verdict, problem.code) for problem in problems] == [
        (Verdict.INCOMPLETE, "benchmark-failed"),
        (Verdict.INVALID, "result-damaged"),
    ]


def test_ranks_without_a_device_are_named() -> None:
    run = read_run(HOST)
    asked: dict[str, Any] = {
        "transport": "mpi",
        "backend": "host",
        "ranks": 2,
        "nodes": 1,
        "exit_code": 0,
        "operations": OF_HOST,
    }
    assert require(run, Requested(**asked, devices=False)) == ()
    (problem,) = require(run, Requested(**asked, devices=True))
    assert (problem.verdict, problem.message) == (Verdict.INVALID, f"{HOST}:1: ranks 0-1 used no device")


@pytest.mark.parametrize(
    ("sent", "allowed", "wrong"),
    [
        ({"nid001": {"hsn0": 900, "mgmt0": 100}}, ["hsn0"], 0),  # a tenth is what MPI's start sends beside the data
        ({"nid001": {"hsn0": 899, "mgmt0": 101}}, ["hsn0"], 1),
        # Two that are no business of the data count together, and the first host says it for all.
        ({"nid001": {"hsn0": 1000}, "nid002": {"hsn0": 880, "mgmt0": 50, "lo": 70}}, ["hsn0", "hsn1"], 1),
        ({"nid001": {"mgmt0": 5}, "nid002": {"mgmt0": 5}}, ["hsn0"], 1),
        ({"nid001": {"hsn0": 0, "mgmt0": 0}}, ["hsn0"], 0),
        ({"nid001": {"mgmt0": 5}}, [], 0),  # nobody said which networks the data may take
    ],
)
def test_data_that_took_another_network_are_invalid(
    tmp_path: Path, sent: dict[str, dict[str, int]], allowed: list[str], wrong: int
) -> None:
    run = cuda_run(tmp_path, proof={"paths": {"P2P/CUMEM": 24}, "evidence": "NCCL_DEBUG", "interfaces": sent})
    problems = require(run, Requested(**ASKED, interfaces=allowed))
    assert [(problem.verdict, problem.code) for problem in problems] == [(Verdict.INVALID, "wrong-network")] * wrong


def test_data_have_to_be_verified_unless_the_check_says_so(tmp_path: Path) -> None:
    lines = lines_of(CUDA)
    lines[0]["plan"]["verify"] = "off"
    for line in lines[1:-1]:
        line["wrong_bytes"] = -1
    run = read_run(write(tmp_path / "run.jsonl", lines))
    assert run.problems == ()
    assert "the data were not verified" in messages(require(run, Requested(**ASKED)))
    assert require(run, Requested(**ASKED, verified=False)) == ()


def test_a_bad_pattern_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match="not a regular expression"):
        require(read_run(CUDA), Requested(**(ASKED | {"paths_forbidden": ["("]})))


def test_a_stale_file_is_found() -> None:
    run = read_run(CUDA)
    started = datetime(2026, 11, 21, 5, 54, 6, tzinfo=timezone.utc)
    assert require_fresh(run, not_before=started) == ()
    assert require_fresh(run, not_before=started + timedelta(milliseconds=900)) == ()
    berlin = timezone(timedelta(hours=1))
    assert require_fresh(run, not_before=started.astimezone(berlin)) == ()
    stale = require_fresh(run, not_before=started + timedelta(seconds=1))
    assert messages(stale) == (
        f"{CUDA}:1: the run began at 2026-11-21T05:54:06Z, before this check did: "
        f"the file is of an earlier run, or the clock of {run.ranks[0].host} is behind"
    )
    assert stale[0].verdict is Verdict.INVALID


def test_the_jobs_output_says_whose_file_it_is_and_with_which_library(tmp_path: Path) -> None:
    run = read_run(CUDA)
    started, run_id = datetime(2026, 11, 21, 5, 54, 6, tzinfo=timezone.utc), run.header["run_id"]
    mpi = run.header["libraries"]["mpi"]
    other = "0" * 32
    own = f"[nid001] fabricbench: run {run_id} with {mpi['name']} {mpi['version']}\n"
    both = f"fabricbench: run {other} with MPICH 4.0.2\n{own}"
    assert require_fresh(run, not_before=started + timedelta(seconds=50), output=both) == ()
    (clock,) = require_fresh(run, not_before=started + timedelta(hours=1), output=own)
    assert (clock.verdict, clock.place) == (Verdict.DEGRADED, run.ranks[0].host)
    assert "its clock is 3,600 s behind that of the check" in clock.message
    (stale,) = require_fresh(run, not_before=started, output=f"fabricbench: run {other} with MPICH 4.0.2\n")
    assert stale.verdict is Verdict.INVALID
    assert stale.message.endswith(f"is not that of this job ({other}): the file is of an earlier run")
    (changed,) = require_fresh(run, not_before=started, output=own.replace(mpi["version"], "9.9.9"))
    assert changed.verdict is Verdict.INVALID
    assert changed.message.endswith(f"and {mpi['name']} 9.9.9 by the job's output: the file was changed")


def test_a_run_without_a_header_is_never_fresh(tmp_path: Path) -> None:
    run = read_run(write(tmp_path / "run.jsonl", lines_of(CUDA)[1:]))
    problems = require_fresh(run, not_before=datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert [problem.verdict for problem in problems] == [Verdict.INVALID]
    assert messages(problems) == f"{run.path}:1: the header is not valid, so the time of the run is unknown"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        require_fresh(read_run(CUDA), not_before=datetime(2026, 1, 1))


@pytest.mark.parametrize(("ranks", "text"), [([0, 1, 2], "0-2"), ([3, 0, 1], "3,0-1"), ([5], "5"), ([], "")])
def test_ranks_are_listed_in_their_order(ranks: list[int], text: str) -> None:
    assert list_ranks(ranks) == text


GIB = 1 << 30


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        # RDMA is in no counter, and what else there is is little beside what the run moved.
        ({"mgmt0": 5_000_000, "hsn0": 0}, None),
        ({"mgmt0": 30 * GIB, "hsn0": 1_000_000}, "nid001 sent 32,212 MB over mgmt0, of 21,475 MB of the run"),
        ({"mgmt0": 10 * GIB, "hsn0": 11 * GIB}, "over mgmt0"),
        ({"mgmt0": 1_000_000, "hsn0": 21 * GIB}, None),
        # The adapter's own counters have its own names.
        ({"mlx5_0:1": 21 * GIB, "mgmt0": 1_000_000}, None),
    ],
)
def test_data_over_another_network_than_the_nics(sent: dict[str, int], said: str | None) -> None:
    pair = made_samples("unidirectional", (0, 1), GIB, 100)
    run = made_run(["nid001", "nid002"], [pair])
    found = list(_management_mistakes(run, {"nid001": sent, "nid002": {"mgmt0": 90_000_000}}, ["hsn0", "hsn1"]))
    assert len(found) == (said is not None)
    assert (said or "") in "".join(found)
    # Too little was moved to tell, or nobody says what the NICs are.
    small = made_run(["nid001", "nid002"], [made_samples("unidirectional", (0, 1), 8, 1)])
    assert list(_management_mistakes(small, {"nid001": sent}, ["hsn0"])) == []
    assert list(_management_mistakes(run, {"nid001": sent}, [])) == []


def test_the_least_that_hosts_sent() -> None:
    pairs = [made_samples(one, (0, 2), 100, 1) for one in ("unidirectional", "pingpong")]
    inside, all_ = made_samples("pingpong", (0, 1), 100, 1), made_samples("alltoall", (0, 1, 2, 3), 100, 1)
    run = made_run(["a", "a", "b", "b"], [*pairs, inside, all_])
    assert least_sent(run) == {"a": 20 * (100 + 100 + 25), "b": 20 * (100 + 25)}


def test_ranks_that_hang_are_named_on_all_nodes() -> None:
    run = made_run(["a", "a", "b", "b", "c", "c"], [])
    errors = (
        "fabricbench: no progress for 8 s: all ranks of the node of rank 0 wait for each other inside the operation\n"
        "fabricbench: no progress for 8 s: ranks 4-5 did not arrive\n"
        "fabricbench: no progress for 8 s: rank 3 did not arrive\n"
    )
    assert [(each.code, each.node) for each in require_arrival(run, errors)] == [
        ("rank-hangs", "b"),
        ("rank-hangs", "c"),
    ]
    # Of the first node the file itself says it.
    assert require_arrival(run, "fabricbench: no progress for 8 s: rank 1 did not arrive\n") == ()
    assert require_arrival(run, "fabricbench: no progress for 8 s: ranks 7-8 did not arrive\n") == ()
