from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.records.component import Component
from fabricheck.records.metrics import expected_metric_names, metrics_of
from fabricheck.records.order_statistics import kept_ranks
from fabricheck.records.pair_rule import PairRule
from fabricheck.records.run import Groups
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.guards import Requested, require
from tests.session.test_damaged import places
from tests.support.effort import effort
from tests.support.result_files import CUDA, HOST, PATTERNS, Line, changed, lines_of, said, settle, verdicts

FAIL, INCOMPLETE, INVALID = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.INVALID


@pytest.mark.parametrize("path", [HOST, CUDA, PATTERNS], ids=lambda path: path.stem)
def test_a_valid_file_has_no_problem(path: Path) -> None:
    run = read_run(path)
    lines = lines_of(path)
    assert run.problems == ()
    assert run.header == lines[0]
    assert run.footer == lines[-1]
    assert [each.times_ns.tolist() for each in run.samples] == [line["times_ns"] for line in lines[1:-1]]
    assert [rank.rank for rank in run.ranks] == list(range(len(lines[0]["ranks"])))


def test_samples_are_typed_and_frozen() -> None:
    first = read_run(HOST).samples[0]
    assert first.times_ns.dtype == np.int64
    assert first.ranks == (0, 1)
    assert np.median(first.latency_us) == pytest.approx(0.412)  # half the round trip of 824 ns
    with pytest.raises(ValueError, match="read-only"):
        first.times_ns[0] = 1


def test_a_cold_latency_is_beside_the_metrics_and_of_each_iteration(tmp_path: Path) -> None:
    count = len(lines_of(HOST)[1]["times_ns"])
    run = changed(tmp_path, _line(1, cold_times_ns=[3000] * count))
    assert not run.problems
    assert [each.cold_us for each in run.samples[:2]] == [1.5, 0.0]
    assert verdicts(changed(tmp_path, _line(1, cold_times_ns=[3000]))) == {INVALID}


def test_devices_are_read() -> None:
    device = read_run(CUDA).ranks[3].device
    assert device is not None
    assert (device.index, device.name, device.bus_id) == (3, "NVIDIA H200", "00000000:04:00.0")


def test_a_processor_in_the_place_of_gpus_is_no_gpu(tmp_path: Path) -> None:
    """So nobody holds it against a GPU's model, and a check that wanted GPUs says that none was driven."""
    run = changed(tmp_path, _line(0, backend="sycl", platform="cpu"), CUDA)
    assert [each.device for each in run.ranks] == [None] * 4 and not run.on_gpus
    operations, transport = run.header["plan"]["operations"], run.header["transport"]
    found = require(
        run,
        Requested(
            transport=transport, backend="sycl", ranks=4, nodes=1, devices=True, exit_code=0, operations=operations
        ),
    )
    assert any("used no device" in each.message for each in found)


def test_a_file_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path, Path("a\0b")):
        with pytest.raises(UserError, match="cannot be read"):
            read_run(path)


def _line(number: int, **fields: Any) -> Callable[[list[Line]], None]:
    return lambda lines: lines[number].update(fields)


def _header(change: Callable[[Line], None]) -> Callable[[list[Line]], None]:
    return lambda lines: change(lines[0])


def _plan(**fields: Any) -> Callable[[list[Line]], None]:
    return lambda lines: lines[0]["plan"].update(fields)


def _wrong_data(lines: list[Line]) -> None:
    lines[2]["wrong_bytes"] = 4
    lines[-1]["wrong_bytes"] = 4


def _fewer_iterations(lines: list[Line]) -> None:
    del lines[1]["times_ns"][-1]
    settle(lines)


def _error(lines: list[Line], at: int = -1, **fields: Any) -> None:
    """In place of the lines from `at` on."""
    error = {"record": "error", "run_id": lines[0]["run_id"], "kind": "timeout", "message": "stuck"}
    lines[at:] = [{**error, "operation": "pingpong", "bytes": 8, "missing_ranks": [1], **fields}]


def _not_measured(lines: list[Line]) -> None:
    del lines[2]
    lines[-1].update(records=1, samples=8, timed_ns=sum(lines[1]["times_ns"]))


def _measured_twice(lines: list[Line]) -> None:
    lines.insert(3, {**lines[2], "index": 2})
    settle(lines)


def _in_mode(
    mode: str, proven: Mapping[str, list[int]], unproven: Mapping[str, list[int]]
) -> Callable[[list[Line]], None]:
    """Of a run in a mode of *CCL, with what its footer says of that."""

    def change(lines: list[Line]) -> None:
        lines[0]["plan"]["ccl_mode"] = mode
        lines[-1]["proof"]["ccl_modes"] = {mode: {"evidence": "a line", "proven": proven, "unproven": unproven}}

    return change


_SIZES = [8, 1 << 20]


# Those that no random change of one value makes, or makes and finds by chance alone: with the line that is named.
DEFECTS: dict[str, tuple[Callable[[list[Line]], object], Verdict, int]] = {
    "two headers": (lambda lines: lines.insert(1, lines[0]), INVALID, 2),
    "unknown format": (_line(0, format=3), INVALID, 1),
    "format of another type": (_line(0, format=True), INVALID, 1),
    "bad time": (_line(0, started_utc="yesterday"), INVALID, 1),
    "no footer": (lambda lines: lines.pop(), INCOMPLETE, 3),
    "error record": (_error, INCOMPLETE, 4),
    "error record of another run": (lambda lines: _error(lines, run_id="f" * 32), INVALID, 4),
    "a time changed": (lambda lines: lines[1]["times_ns"].__setitem__(3, 819), INVALID, 4),
    "more time than the run": (_line(-1, wall_ns=1), INVALID, 4),
    "proof without evidence": (_line(-1, proof={"paths": {"SHM": 1}, "evidence": None}), INVALID, 4),
    "mode without proof": (_plan(ccl_mode="symmetric"), INVALID, 4),
    "mode not in effect at one size": (
        _in_mode("symmetric", {"pingpong": _SIZES[1:]}, {"pingpong": _SIZES[:1]}),
        INVALID,
        4,
    ),
    "buffers registered for small messages alone": (
        _in_mode("registered", {"pingpong": _SIZES[:1]}, {"pingpong": _SIZES[1:]}),
        INVALID,
        4,
    ),
    "buffers never registered": (_in_mode("registered", {}, {"pingpong": _SIZES}), INVALID, 4),
    "mode that hangs": (
        lambda lines: [change(lines) for change in (_in_mode("registered", {}, {}), _error)],
        INCOMPLETE,
        4,
    ),
    "mode whose operation nobody looked at": (_in_mode("graph-20", {}, {}), INVALID, 4),
    "fewer lines than planned": (_not_measured, INCOMPLETE, 3),
    "measured twice": (_measured_twice, INVALID, 4),
    "time of zero": (_line(1, times_ns=[0] * 8), INVALID, 2),
    "time as a float": (_line(1, times_ns=[840.0] * 8), INVALID, 2),
    "time as a truth": (_line(1, times_ns=[True] * 8), INVALID, 2),
    "time beyond 64 bits": (_line(1, times_ns=[1 << 63] * 8), INVALID, 2),
    "time of NaN": (_line(1, times_ns=[float("nan")] * 8), INVALID, 2),
    "fewer iterations than fixed": (_fewer_iterations, INVALID, 2),
    "less warm-up than fixed": (_line(1, warmup=1), INVALID, 2),
    "wrong data": (_wrong_data, FAIL, 3),
    "not verified": (_line(2, wrong_bytes=-1), INVALID, 3),
    "planted defect": (_plan(injected="hang"), INVALID, 1),
    "difference of no rank": (
        _line(0, environment_differences=[{"rank": 7, "name": "A", "value": "b"}]),
        INVALID,
        1,
    ),
    "GPU platform of the host backend": (_line(0, platform="nvidia"), INVALID, 1),
    "GPU backend without devices": (_line(0, backend="cuda", platform="nvidia"), INVALID, 1),
    "plan with impossible iterations": (
        _plan(iterations={"mode": "fixed", "minimum": 7, "maximum": 8, "budget_s": None}),
        INVALID,
        1,
    ),
}


@pytest.mark.parametrize(
    "change",
    [
        _in_mode("symmetric", {"pingpong": _SIZES}, {}),
        # NCCL has small messages go through its own buffers.
        _in_mode("registered", {"pingpong": _SIZES[1:]}, {"pingpong": _SIZES[:1]}),
    ],
)
def test_a_run_in_a_mode_that_is_proven_has_no_problem(tmp_path: Path, change: Callable[[list[Line]], None]) -> None:
    assert changed(tmp_path, change).problems == ()


def test_a_planted_defect_is_found(tmp_path: Path) -> None:
    for name, (change, verdict, line) in DEFECTS.items():
        problems = changed(tmp_path, change).problems
        at_line = [problem for problem in problems if f"/changed.jsonl:{line}: " in problem.message]
        assert verdict in {problem.verdict for problem in at_line}, name
        assert all("\n" not in problem.message for problem in problems), name


def _series(number: int, **fields: Any) -> Callable[[list[Line]], None]:
    return lambda lines: lines[0]["plan"]["series"][number].update(fields)


# Of the patterns: series 4 is a rail, 13 sparse, 17 a victim.
PATTERN_DEFECTS: dict[str, Callable[[list[Line]], object]] = {
    "no messages": lambda lines: lines[0]["plan"]["series"][13].pop("messages"),
    "other bytes": _series(13, messages=[[0, 2, 402]]),
    "a message to itself": _series(13, messages=[[2, 2, 403]]),
    "a message to nobody": _series(13, messages=[[2, 4, 403]]),
    "a message without a step": _series(13, messages=[[0, 2, 403, 1, 1]]),
    "training of some": _series(4, operation="training_step", groups=[2, 2, 1]),
    "training alone": _series(4, operation="training_step", groups=[4, 1, 1]),
    "messages of a rail": _series(4, messages=[[0, 2, 8]]),
    "a victim alone": lambda lines: lines[0]["plan"]["series"][17].pop("aggressors"),
    "a victim among its aggressors": _series(17, aggressors=[1, 3]),
    "an aggressor from outside": _series(17, aggressors=[1, 4]),
    "no rounds": lambda lines: lines[0]["plan"].pop("rounds"),
}


def test_a_planted_defect_of_a_pattern_is_found(tmp_path: Path) -> None:
    for name, change in PATTERN_DEFECTS.items():
        run = changed(tmp_path, change, PATTERNS)
        assert any(each.verdict is INVALID and "/changed.jsonl:1: " in each.message for each in run.problems), name
        assert SystemJudge.of("local").judge_alone(run).verdict is INVALID, name  # also where its plan makes no sense


def test_a_text_that_is_no_result_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("# A title\n\nand a text\n" * 100)
    (problem,) = read_run(file).problems
    assert problem.verdict is INVALID and "unknown format" in problem.message


def test_of_many_lines_that_cannot_be_read_some_are_told(tmp_path: Path) -> None:
    file = tmp_path / "changed.jsonl"
    header, *others = PATTERNS.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([header, *[b"srun: a warning\n"] * 50, *others]))
    messages = [each.message for each in read_run(file).problems]
    assert len(messages) == 6 and "50 of its lines could not be read" in messages[-1]


def test_patterns_are_read() -> None:
    run = read_run(PATTERNS)
    by_name = {(each.operation, each.schedule, each.bytes): each for each in run.samples}
    assert by_name["rail_bidirectional", "uncontended", 1024].groups == Groups(2, 2, 2)
    assert by_name["sparse_inter", "uncontended", 403].messages == ((1, 2, 211), (1, 3, 1), (2, 1, 190), (3, 1, 1))
    assert by_name["pingpong", "contended", 1024].groups is None
    victim = by_name["victim_pingpong_incast", "contended", 1024]
    assert victim.one_way_ns.tolist() == [each / 2 for each in victim.times_ns.tolist()]
    other = by_name["victim_alltoall_alltoall", "contended", 1024]
    assert other.one_way_ns.tolist() == other.times_ns.tolist()


@pytest.mark.parametrize(
    ("operation", "size", "messages"),
    [("victim_pingpong_incast", 2048, ((2, 1, 2048),)), ("victim_alltoall_alltoall", 2048, ())],
)
def test_what_went_on_beside_a_victim_is_a_measurement(
    tmp_path: Path, operation: str, size: int, messages: tuple[tuple[int, int, int], ...]
) -> None:
    def beside(lines: list[Line]) -> None:
        for line in lines:
            if line.get("operation") == operation and line.get("schedule") == "contended":
                line["aggressor"] = {"ranks": [1, 2], "bytes": 2048, "times_ns": [100, 200, 300]}

    run = changed(tmp_path, beside, PATTERNS)
    (aggressor, *_) = [each.aggressor for each in run.samples if each.operation == operation and each.aggressor]
    assert not run.problems and (aggressor.bytes, aggressor.messages) == (size, messages)
    assert aggressor.goodput_gbps.tolist() == [8 * size / each for each in (100, 200, 300)]


def test_the_error_record_names_who_is_missing_and_where(tmp_path: Path) -> None:
    def hang(lines: list[Line]) -> None:
        lines[0]["ranks"][2]["host"] = lines[0]["ranks"][3]["host"] = "nid007"
        _error(lines, 5, message="no progress for 60 s", missing_ranks=[2, 3])

    run = changed(tmp_path, hang, CUDA)
    assert verdicts(run) == {INCOMPLETE}
    gpus = ", ".join(f"GPU {each.device.index} at {each.device.bus_id}" for each in run.ranks[2:] if each.device)
    assert f"no progress for 60 s; ranks 2-3 (on nid007, {gpus}) did not arrive" in said(run)
    assert [each.components for each in run.problems] == [(Component.of_node("nid007"),)]
    assert len(run.samples) == 4
    assert run.footer is None


@pytest.mark.parametrize("name", ["NCCL", "RCCL"])
def test_the_error_record_tells_what_the_library_says(tmp_path: Path, name: str) -> None:
    dead = "DEAD: 1 job process is considered dead; Process 4242 on node 10.0.0.7 managing GPU 1"

    def hang(lines: list[Line]) -> None:
        lines[0]["libraries"]["ccl"]["name"] = name
        _error(lines, 5, message="no progress for 60 s", operation="allreduce", missing_ranks=[], library=dead)

    (problem,) = changed(tmp_path, hang, CUDA).problems
    assert problem.verdict is INCOMPLETE
    assert problem.message.endswith(f"during allreduce of 8 B: no progress for 60 s; {name} says: {dead}")


def test_a_rank_that_nccl_lost_names_its_node(tmp_path: Path) -> None:
    """What NCCL 2.28.3 said on two nodes, of a process that was stopped on the second of them."""
    lost = (
        "INCOMPLETE: Missing communicator data from 1 job process; Process 7054 on node 10.78.0.2 managing GPU 0 (NVML "
        "1). #0-0 (e0ddf10888842ff1) INCOMPLETE: Missing communicator data from 1 rank; Rank 3 -- GPU 0 (NVML 1) "
        "managed by process 7054 on node 10.78.0.2"
    )

    def hang(lines: list[Line]) -> None:
        lines[0]["ranks"][3]["host"] = "nid002"
        _error(lines, 5, missing_ranks=[], library=lost)

    (problem,) = changed(tmp_path, hang, CUDA).problems
    assert (problem.code, problem.components) == ("rank-hangs", (Component.of_node("nid002"),))


def test_a_run_that_ended_before_its_header_says_why(tmp_path: Path) -> None:
    """A GPU that hangs while buffers are filled: the benchmark's own words, and not that the file is another's."""
    message = "no progress for 8 s: rank 2 did not arrive (on nid001, GPU 2 at 0000:28:00.0)"

    def hang(lines: list[Line]) -> None:
        _error(lines, 0, message=message, operation=None, bytes=None, missing_ranks=[2])

    run = changed(tmp_path, hang, CUDA)
    (problem,) = run.problems
    assert problem.verdict is INCOMPLETE
    assert problem.message.endswith(f":1: the benchmark timed out: {message}")


def test_wrong_data_is_the_only_verdict_where_the_planted_defect_was_found(tmp_path: Path) -> None:
    def plant(lines: list[Line]) -> None:
        _wrong_data(lines)
        lines[0]["plan"]["injected"] = "wrong-byte"

    assert verdicts(changed(tmp_path, plant)) == {FAIL}


def test_two_ranks_on_one_device(tmp_path: Path) -> None:
    def share(lines: list[Line]) -> None:
        lines[0]["ranks"][1]["device"] = lines[0]["ranks"][0]["device"]

    run = changed(tmp_path, share, CUDA)
    assert verdicts(run) == {INVALID}
    assert ":1: ranks 0 and 1 used the same device GPU-00000000" in said(run)

    def share_on_purpose(lines: list[Line]) -> None:
        share(lines)
        lines[0]["plan"]["shared_devices"] = True

    assert changed(tmp_path, share_on_purpose, CUDA).problems == ()

    def same_uuid_elsewhere(lines: list[Line]) -> None:
        share(lines)
        lines[0]["ranks"][1]["host"] = "nid002"

    # No two of NVIDIA's have one; others number theirs by node.
    assert ":1: ranks 0 and 1 used the same device GPU-00000000" in said(changed(tmp_path, same_uuid_elsewhere, CUDA))

    def of_amd(lines: list[Line]) -> None:
        same_uuid_elsewhere(lines)
        lines[0] |= {"backend": "hip", "platform": "amd"}

    assert "used the same device" not in said(changed(tmp_path, of_amd, CUDA))


@pytest.mark.parametrize(
    ("fields", "fine"),
    [
        ({"stopped": "budget"}, True),
        ({"stopped": "maximum"}, False),
        ({"stopped": "fixed"}, False),
        ({"warmup": 1}, True),
        ({"warmup": 3}, False),
    ],
)
def test_adaptive_iterations(tmp_path: Path, fields: Line, fine: bool) -> None:
    run = changed(tmp_path, _line(1, **fields), CUDA)
    assert (run.problems == ()) is fine


def test_groups_of_collectives_are_those_of_the_split(tmp_path: Path) -> None:
    """Of 4 ranks: a split that was asked for and not measured, and groups of which one is not there."""

    def groups(*ranks: list[int], split: str | None = "nodes") -> Callable[[list[Line]], object]:
        def change(lines: list[Line]) -> None:
            plan = lines[0]["plan"]
            first = next(series for series in plan["series"] if series["operation"] == "allreduce")
            others = [series for series in plan["series"] if series["operation"] != "allreduce"]
            plan["series"] = [*others, *({**first, "ranks": members} for members in ranks)]
            plan |= {"split": split} if split else {}

        return change

    wrong = "the groups of allreduce uncontended are not"
    assert wrong not in said(changed(tmp_path, groups([0, 1], [2, 3]), CUDA))
    assert wrong not in said(changed(tmp_path, groups([0, 2], [1, 3], split="rails"), CUDA))
    for mistake in (
        groups([0, 1, 2, 3], split="2x1"),
        groups([0, 1]),
        groups([0, 2], [1, 3]),
        groups([0, 1], split=None),
    ):
        assert wrong in said(changed(tmp_path, mistake, CUDA))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[0]["plan"]["iterations"].update(maximum=7), "at most 7"),
        (_line(1, ranks=[0, 1, 2]), ":2: pingpong is between two ranks, not 3"),
        (_line(0, backend="host", platform="host"), "rank 0 names a device in the host backend"),
    ],
)
def test_a_contradiction_is_told(tmp_path: Path, change: Callable[[list[Line]], None], why: str) -> None:
    assert why in said(changed(tmp_path, change, CUDA))


def test_a_file_without_the_repeated_count_is_read(tmp_path: Path) -> None:
    assert changed(tmp_path, lambda lines: lines[1].pop("iterations")).problems == ()


def test_many_complaints_of_a_kind_are_shortened(tmp_path: Path) -> None:
    def lose(lines: list[Line]) -> None:
        del lines[1:-1]

    run = changed(tmp_path, lose, CUDA)
    assert "14 in all" in said(run)
    assert INCOMPLETE in verdicts(run)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"{",
        b"[]",
        b"null\n",
        b"\xff\xfe\n",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"record":' + b"[" * 900 + b"]" * 900 + b"}\n",
        b'{"record":"header","format":' + b"9" * 5000 + b"}\n",
        b'{"record":"header","format":1e999}\n',
        b'{"record":"\\ud800"}\n',
        b'{"record":"header","format":1,"\\ud800\\n\\u2028":1}\n',
        b'{"record":"footer"}\n' * 3,
        b"\xef\xbb\xbf" + HOST.read_bytes(),
    ],
    ids=range(16),
)
def test_nonsense_is_never_a_run(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "nonsense.jsonl"
    path.write_bytes(content)
    run = read_run(path)
    assert run.problems
    assert run.header == {}
    for problem in run.problems:
        assert problem.verdict in (INCOMPLETE, INVALID)
        assert problem.message.splitlines() == [problem.message]
        problem.message.encode()


@pytest.mark.parametrize("field", ["operation", "times_ns", "record"])
def test_a_field_given_twice_is_found(tmp_path: Path, field: str) -> None:
    raw = HOST.read_text().splitlines()
    value = json.dumps(json.loads(raw[1])[field])
    raw[1] = raw[1][:-1] + f',"{field}":{value}}}'
    path = tmp_path / "twice.jsonl"
    path.write_text("\n".join(raw) + "\n")
    assert f":2: the line has the field '{field}' twice" in said(read_run(path))


def test_every_cut_of_a_file_is_incomplete(tmp_path: Path) -> None:
    whole = HOST.read_bytes()
    path = tmp_path / "cut.jsonl"
    # All but the last line feed, whose loss leaves every record whole.
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        assert verdicts(read_run(path)) == {INCOMPLETE}, length


# What no second place in the file repeats: a change here cannot be seen from the file alone.
FREE = {
    "version", "program", "started_utc", "command", "host", "local_rank", "pid", "cpus", "numa_node", "name", "bus_id",
    "uuid", "memory_bytes", "local_rank_source", "oversubscribed", "libraries", "environment",
    "environment_differences", "clock", "host_copy_gbps", "sizes", "implementation", "budget_s", "minimum", "maximum",
    "warmup", "datatype", "verify", "shared_devices", "stopped", "wall_ns", "setup_ns", "verify_ns", "recording_ns",
    "proof", "transport", "platform", "backend", "device", "times_ns", "rounds", "matrix", "messages", "aggressors",
}  # fmt: skip


def _bound(value: Any) -> Any:
    """`value` without what is free: two files that agree in this are the same result."""
    if isinstance(value, dict):
        # The count of a samples line may be left out; a wrong one is found. What format 1 can say, 2 says alike.
        left_out = {"samples": {"iterations"}, "header": {"format"}}.get(str(value.get("record")), set())
        return {name: _bound(each) for name, each in value.items() if name not in FREE | left_out}
    return [_bound(each) for each in value] if isinstance(value, list) else value


def _parsed(content: bytes) -> Any:
    try:
        # A line ends with a line feed and nothing else; a carriage return is white space to JSON.
        return [json.loads(line) for line in content.removesuffix(b"\n").split(b"\n")]
    except (ValueError, RecursionError):
        return None


OTHER = CUDA.read_bytes().splitlines(keepends=True)


@st.composite
def mutations(draw: st.DrawFn, source: Path) -> bytes:
    lines = source.read_bytes().splitlines(keepends=True)
    n = len(lines)
    at = draw(st.integers(0, n - 1))
    kinds = ["delete", "double", "swap", "cut", "join", "insert", "interleave", "bytes", "field", "graft"]
    kind = draw(st.sampled_from(kinds))
    if kind == "delete":
        del lines[at]
    elif kind == "double":
        lines.insert(draw(st.integers(0, n)), lines[at])
    elif kind == "swap":
        other = draw(st.integers(0, n - 1))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "cut":
        lines[at] = lines[at][: draw(st.integers(0, len(lines[at]) - 2))] + b"\n"
    elif kind == "join":
        lines[at] = lines[at].rstrip(b"\n")
    elif kind == "insert":
        lines.insert(at, draw(st.sampled_from([b"\n", b"NCCL INFO Channel 00/0\n", b"{}\n", b'{"record":"x"}\n'])))
    elif kind == "interleave":
        lines.insert(at, draw(st.sampled_from(OTHER)))
    elif kind == "bytes":
        line = bytearray(lines[at])
        start = draw(st.integers(0, len(line) - 1))
        line[start : start + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
        lines[at] = bytes(line)
    else:
        record = json.loads(lines[at])
        container, name = draw(st.sampled_from([*places(record)]))
        value: Any = draw(st.sampled_from([None, True, -1, 0, 1, 2, 1.5, "", "x", [], {}, [1], float("nan"), "remove"]))
        if kind == "graft":  # what stands under the same name elsewhere
            other = json.loads(lines[draw(st.integers(0, n - 1))])
            value = draw(st.sampled_from([here[key] for here, key in places(other) if key == name] or [value]))
        if value == "remove":
            del container[name]
        else:
            container[name] = value
        lines[at] = json.dumps(record).encode() + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize("source", [HOST, CUDA, PATTERNS], ids=lambda path: path.stem)
@settings(max_examples=effort(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutation_is_harmless_or_found(tmp_path: Path, source: Path, data: st.DataObject) -> None:
    content = data.draw(mutations(source))
    original = source.read_bytes()
    assume(content != original)
    path = tmp_path / "mutated.jsonl"
    path.write_bytes(content)
    run = read_run(path)
    if not run.problems:
        assert _bound(_parsed(content)) == _bound(_parsed(original))
        # Times are free one by one only where another pair was slower: their sum is not.
        if source == HOST:
            assert [each.times_ns.sum() for each in run.samples] == [
                sum(line["times_ns"]) for line in lines_of(source)[1:-1]
            ]


def _by_rule(lines: list[Line], **rule: Any) -> None:
    """The pairs of the file, which are all that there are, as bidirectional ones by a rule."""
    pairs = PairRule(4, 1, 1, True)
    for line in lines[1:-1]:
        if line["operation"] == "pingpong":
            line.update(operation="bidirectional", ranks=sorted(line["ranks"]))
    plan = lines[0]["plan"]
    listed = [each for each in plan["series"] if each["operation"] != "pingpong"]
    same = {name: plan["series"][0][name] for name in ("implementation", "schedule", "bytes")}
    described = {"ranks": 4, "group": 1, "directions": 1, "hash": pairs.hash_text(), **rule}
    plan["series"] = [{"operation": "bidirectional", **same, "rule": described}, *listed]
    plan["operations"] = ["bidirectional", "allreduce"]
    lines[0]["format"] = 2


def test_pairs_by_a_rule_are_those_of_a_list(tmp_path: Path) -> None:
    run = changed(tmp_path, _by_rule, CUDA)
    assert run.problems == ()
    names = expected_metric_names(run.header)
    assert names == tuple(metric.name for metric in metrics_of(run))
    assert [name for name in names if name.startswith("bidirectional")] == [
        f"bidirectional_contended_{pair}_{size}"
        for pair in ("0_3", "1_2", "0_2", "1_3", "0_1", "2_3")
        for size in ("1gib_goodput", "8b_latency")
    ]


def _by_rule_of_old(lines: list[Line]) -> None:
    _by_rule(lines)
    lines[0]["format"] = 1


def _without_a_pair(lines: list[Line]) -> None:
    _by_rule(lines)
    del lines[3]
    for index, line in enumerate(lines[1:-1]):
        line["index"] = index
    settle(lines)


def _in_another_round(lines: list[Line]) -> None:
    _by_rule(lines)
    lines[3]["round"] = 2


RULE_DEFECTS: dict[str, tuple[Callable[[list[Line]], object], Verdict]] = {
    "other pairs": (lambda lines: _by_rule(lines, hash="0" * 16), INVALID),
    "other ranks": (lambda lines: _by_rule(lines, ranks=8), INVALID),
    "groups not full": (lambda lines: _by_rule(lines, group=3), INVALID),
    "twice": (lambda lines: _by_rule(lines, directions=2), INVALID),
    "no hash": (lambda lines: _by_rule(lines, hash=""), INVALID),
    "the old format": (_by_rule_of_old, INVALID),
    "a pair missing": (_without_a_pair, INCOMPLETE),
    "a pair that is not in its round": (_in_another_round, INVALID),
}


@pytest.mark.parametrize("name", RULE_DEFECTS)
def test_a_planted_defect_of_a_rule_is_found(tmp_path: Path, name: str) -> None:
    change, verdict = RULE_DEFECTS[name]
    assert verdict in verdicts(changed(tmp_path, change, CUDA))


def _between_nodes(lines: list[Line], **changes: Any) -> None:
    """A host for each two of the four ranks, and the first line with the order statistics of 1,000 iterations."""
    _by_rule(lines)
    for rank in lines[0]["ranks"]:
        rank["host"] = f"nid{rank['rank'] // 2:03}"
    lines[0]["plan"]["iterations"] = {"mode": "adaptive", "minimum": 8, "maximum": 1000, "budget_s": 1.0}
    for line in lines[1:-1]:
        line["stopped"] = "budget"
    kept = {"times_ns": list(range(1000, 1000 + len(kept_ranks(1000)))), "iterations": 1000, "stopped": "maximum"}
    lines[1].update(kept | changes)
    lines[-1]["samples"] = sum(len(line["times_ns"]) for line in lines[1:-1])


def test_order_statistics_of_a_pair_of_nodes_are_read(tmp_path: Path) -> None:
    run = changed(tmp_path, lambda lines: _between_nodes(lines, rank_error=25.5), CUDA)
    assert run.problems == ()
    kept = run.samples[0]
    assert kept.rank_error == 25.5
    assert (kept.kept_of, kept.count, kept.one_way_ns.size) == (1000, 1000, 1000)
    assert np.median(kept.one_way_ns) == np.median(kept.times_ns)


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": 999},
        {"iterations": 1 << 40},
        {"ranks": [0, 1]},  # on one node they are kept whole
        {"times_ns": [*range(1000, 1044), 1046, 1045]},
        {"times_ns": list(range(1, 46))},
    ],
)
def test_what_cannot_be_order_statistics_is_invalid(tmp_path: Path, changes: Line) -> None:
    assert INVALID in verdicts(changed(tmp_path, lambda lines: _between_nodes(lines, **changes), CUDA))


NIC = {"name": "mlx5_0", "provider": "verbs;ofi_rxm", "bus_id": "0000:12:00.0", "gbps": 400.0}


def _by_nics(**of_nic: Any) -> Callable[[list[Line]], object]:
    """A run by libfabric, over a NIC with these fields."""

    def change(header: Line) -> None:
        header["transport"] = "fabric"
        header["libraries"]["fabric"] = {"name": "libfabric", "version": "1.22"}
        header["plan"].update(access="send", nic="mlx5_0,mlx5_1")
        for rank in header["ranks"]:
            rank["nics"] = [{**NIC, **of_nic}]

    return _header(change)


def test_a_run_by_libfabric_names_its_nics(tmp_path: Path) -> None:
    assert changed(tmp_path, _by_nics()).problems == ()
    assert changed(tmp_path, _by_nics(device_memory="staged")).problems == ()


@pytest.mark.parametrize("of_nic", [{"device_memory": "copied"}, {"name": ""}, {"gbps": 0.0}, {"rail": 0}])
def test_a_nic_is_described_as_the_format_says(tmp_path: Path, of_nic: Mapping[str, Any]) -> None:
    assert verdicts(changed(tmp_path, _by_nics(**of_nic))) == {INVALID}
