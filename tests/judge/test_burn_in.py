from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.node_state import GpuProcess, States
from fabricheck.records.verdict import Verdict
from fabricheck.report.lines import steps
from fabricheck.results.fabricbench import read_run
from tests.support.burn_ins import Change, burn_in_lines, gpus_of, slower, windows_of, write_burn_in
from tests.support.result_files import Line
from tests.support.states import gpu, node

GPU1, GPU2 = (Component(Kind.GPU, f"gpu{number}", "nid001") for number in (1, 2))
NODE2 = Component.of_node("nid002")
THROTTLED = {("gpu-throttled", Component(Kind.GPU, f"gpu{number}", "nid002")) for number in range(4)}


def judged(folder: Path, change: Change = lambda lines: None, nodes: int = 1, system: str = "hgx-h200") -> RunJudgement:
    """The run as its session has it, with its peers' word."""
    lines = burn_in_lines(nodes=nodes)
    change(lines)
    judge = SystemJudge.of(system)
    compared = judge.compare([judge.judge_alone(read_run(write_burn_in(folder, lines)))])
    (run,) = compared.runs
    named = diagnose([replace(run, problems=())], compared.problems).problems
    return run.with_problems(named)


def found(run: RunJudgement) -> set[tuple[str, Component]]:
    return {(problem.code, component) for problem in run.problems for component in problem.components}


def test_a_healthy_one_passes(tmp_path: Path) -> None:
    run = judged(tmp_path)
    assert run.final_verdict is Verdict.PASS
    assert run.problems == ()
    assert not [metric.name for metric in run.judgements if metric.unjudged]
    told = [one.code for one in SystemJudge.of("hgx-h200").compare([run]).findings]
    assert told.count("slowdown") == 1  # the overlap


def wrong_product(lines: list[Line]) -> None:
    products = windows_of(lines)[30]["products"]
    products["wrong_words"][2], products["first_wrong"][2] = 1, [12345, 77]


def hidden(lines: list[Line]) -> None:
    """The same where the launcher shows each rank its own GPU alone, which the rank calls 0."""
    wrong_product(lines)
    for rank in lines[0]["ranks"]:
        rank["device"]["index"] = 0


def throttles(lines: list[Line]) -> None:
    slower(lines, [4, 5, 6, 7], 1.3, first=40)
    for place in range(4):
        for own in gpus_of(lines, "nid002", place, first=18 + 40):
            own |= {"throttle": {"sw_power_cap": 1, "hw_thermal_slowdown": 1}, "temperature_c": [90, 91, 92]}


def ecc(lines: list[Line]) -> None:
    for own in gpus_of(lines, "nid001", 2, first=50):
        own["counters"]["ecc_uncorrected"] = 4


def xid(lines: list[Line]) -> None:
    next(line for line in lines if line["record"] == "node" and line["window"] == 40)["xids"] = [["0000:03:00.0", 63]]


def late(milliseconds: float) -> Change:
    def change(lines: list[Line]) -> None:
        for window in windows_of(lines):
            window["ring"]["median_ns"][2] = int(milliseconds * 1e6)

    return change


@pytest.mark.parametrize(
    ("change", "nodes", "codes", "verdict"),
    [
        (wrong_product, 1, {("wrong-arithmetic", GPU2)}, Verdict.FAIL),
        (hidden, 1, {("wrong-arithmetic", GPU2)}, Verdict.FAIL),
        (lambda lines: lines[2]["wrong_rows"].__setitem__(2, 9), 1, {("wrong-arithmetic", GPU2)}, Verdict.FAIL),
        (throttles, 3, {*THROTTLED, ("slow-node", NODE2)}, None),
        (xid, 1, {("gpu-xid", GPU2)}, Verdict.DEGRADED),
        # A cap of power that its peers have too explains nothing.
        (lambda lines: slower(lines, [1], 4.0), 1, {("slow-gpu", GPU1)}, Verdict.DEGRADED),
        (ecc, 1, {("gpu-memory-errors", GPU2)}, Verdict.DEGRADED),
        (lambda lines: slower(lines, [1], 1.1), 1, {("slow-gpu", GPU1)}, Verdict.DEGRADED),
        # One of sixteen, under load alone.
        (lambda lines: slower(lines, [9], 1.1), 4, {("slow-gpu", Component(Kind.GPU, "gpu1", "nid003"))}, None),
        (lambda lines: slower(lines, [1], 1.1, first=55), 1, {("drifts", GPU1)}, Verdict.DEGRADED),
        (lambda lines: slower(lines, [4, 5, 6, 7], 1.2, first=30), 3, {("drifts", NODE2), ("slow-node", NODE2)}, None),
        (late(5), 1, {("straggler", GPU2)}, Verdict.DEGRADED),
        (late(3), 1, set(), Verdict.PASS),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_planted_is_named(
    change: Change, nodes: int, codes: set[tuple[str, Component]], verdict: Verdict | None, tmp_path: Path
) -> None:
    run = judged(tmp_path, change, nodes)
    assert found(run) == codes
    assert verdict in (None, run.final_verdict)


@pytest.mark.parametrize(("factor", "codes"), [(2.8, []), (3.2, ["no-overlap"])])
def test_three_that_take_more_than_three_times_as_long_would_be_faster_in_turns(
    factor: float, codes: list[str], tmp_path: Path
) -> None:
    lines = burn_in_lines(alone=10)
    for phase, name in (("compute", "products"), ("traffic", "traffic"), ("copies", "copies")):
        alone = windows_of(lines, phase)[0][name]["median_ns"]
        for window in windows_of(lines):
            window[name]["median_ns"] = [int(factor * time) for time in alone]
    run = SystemJudge.of("hgx-h200").judge_alone(read_run(write_burn_in(tmp_path, lines)))
    assert [problem.code for problem in run.problems] == codes


def test_older_gpus_may_be_later(tmp_path: Path) -> None:
    def of_h100(milliseconds: float) -> Callable[[list[Line]], None]:
        def change(lines: list[Line]) -> None:
            late(milliseconds)(lines)
            for rank in lines[0]["ranks"]:
                rank["device"]["name"] = "NVIDIA H100 80GB HBM3"

        return change

    assert "straggler" not in {code for code, _ in found(judged(tmp_path, of_h100(7), system="hgx-h100"))}
    assert "straggler" in {code for code, _ in found(judged(tmp_path, of_h100(9), system="hgx-h100"))}


def test_traffic_that_falls_is_told_where_no_product_explains_it(tmp_path: Path) -> None:
    def change(lines: list[Line]) -> None:
        for window in windows_of(lines, first=41):
            window["traffic"]["median_ns"] = [int(1.2 * time) for time in window["traffic"]["median_ns"]]

    (drift,) = judged(tmp_path, change).problems
    assert (drift.code, drift.components) == ("drifts", ())
    assert drift.metrics == ("traffic_contended_all4_1gib_goodput",)


@pytest.mark.parametrize(
    ("change", "counter", "code"),
    [
        (lambda gpu: gpu["counters"].update(ecc_uncorrected=4), "ecc_uncorrected", "gpu-memory-errors"),
        (lambda gpu: gpu["throttle"].update(sw_thermal_slowdown=1), "throttled_ns_thermal", "gpu-throttled"),
    ],
)
def test_what_the_driver_also_counts_is_told_once(
    change: Callable[[Line], None], counter: str, code: str, tmp_path: Path
) -> None:
    """The driver's counters before and after the run have the same errors."""
    lines = burn_in_lines()
    for own in gpus_of(lines, "nid001", 2, first=50):
        change(own)
    run = read_run(write_burn_in(tmp_path, lines))
    before, after = (
        node("nid001", when, gpus=(gpu(2, bus_id="0000:03:00.0", counters={counter: count}),))
        for when, count in (("before", 0), ("after", 50_000_000))
    )
    states = States({"nid001": before}, {"nid001": after}, asked=True)
    alone = SystemJudge.of("hgx-h200").judge_alone(replace(run, states=states))
    assert [(one.code, one.components) for one in alone.problems] == [(code, (GPU2,))]


def test_why_no_library_multiplies_is_one_note(tmp_path: Path) -> None:
    lines = burn_in_lines(gpus=2)
    lines[2] |= {"by": ["kernel"] * 2, "why_no_library": "libcublas.so.13: no such file"}
    judge = SystemJudge.of("hgx-h200")
    compared = judge.compare([judge.judge_alone(read_run(write_burn_in(tmp_path, lines)))])
    (note,) = (one for one in compared.findings if one.code == "library-remark")
    assert note.verdict is Verdict.PASS and "libcublas.so.13" in note.message


def test_a_gpu_has_one_name_whatever_number_cuda_gives_it(tmp_path: Path) -> None:
    """With CUDA_VISIBLE_DEVICES=3,2 CUDA calls 0 what nvidia-smi calls 3: so do neither findings nor next steps."""
    lines = burn_in_lines(gpus=2)
    windows_of(lines)[7]["products"]["wrong_words"][0] = 1
    slower(lines, [0], 1.5)
    for place, rank in enumerate(lines[0]["ranks"]):
        rank["device"]["bus_id"] = f"00000000:0{4 - place}:00.0"
    run = read_run(write_burn_in(tmp_path, lines))
    users = (GpuProcess(4242, "hog", 1 << 30),)
    gpus = [gpu(place, bus_id=f"0000:0{place + 1}:00.0", processes=users if place == 3 else ()) for place in range(4)]
    states = States({"nid001": node("nid001", "before", gpus=tuple(gpus))}, {}, asked=True)
    judge = SystemJudge.of("hgx-h200")
    compared = judge.compare([judge.judge_alone(replace(run, states=states))])
    found = diagnose([replace(compared.runs[0], problems=())], compared.problems).problems
    problems = [*found, *compared.runs[0].problems]
    for code in ("gpu-in-use", "slow-gpu", "wrong-arithmetic"):
        (problem,) = (one for one in problems if one.code == code)
        assert problem.components == (Component(Kind.GPU, "gpu3", "nid001"),)
        assert " -i 0000:04:00.0" in " ".join(steps(problem))
    assert "gpu-order" in {one.code for one in problems}
