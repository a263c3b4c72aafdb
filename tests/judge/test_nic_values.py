"""What owners require of NICs, as a yardstick of writes by libfabric between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.judge.nic_values import load_nics
from fabricheck.judge.policy import Policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Nic
from tests.support.made_runs import made_run, made_samples
from tests.support.nodes import ROOT, system

NICS = load_nics(ROOT / "reference_values" / "nics" / "known.yaml")
GIB = 1 << 30


def run_of(goodput: float, *, size: int = GIB, transport: str = "fabric", access: str = "write") -> Run:
    series = [{"operation": "unidirectional", "schedule": "uncontended", "ranks": [0, 1], "bytes": [size], "round": -1}]
    samples = made_samples("unidirectional", (0, 1), size, [goodput] * 20)
    plan = {"series": series, "access": access}
    run = made_run(
        ["n1", "n2"], [samples], transport=transport, devices=True, plan=plan, ranks=[{"rank": 0}, {"rank": 1}]
    )
    return replace(run, ranks=tuple(replace(rank, nics=("mlx5_0",)) for rank in run.ranks))


@pytest.mark.parametrize(
    ("model", "rate", "run", "required"),
    [
        ("ConnectX-7", 400, run_of(355), 360),
        ("ConnectX-7", 400, run_of(365), 360),
        ("ConnectX-7", 200, run_of(150), None),  # of another rate
        ("ConnectX-9", 400, run_of(355), None),
        ("ConnectX-7", 400, run_of(355, size=1 << 20), None),  # of which one at a time is slower
        ("ConnectX-7", 400, run_of(355, transport="mpi"), None),
        ("ConnectX-7", 400, run_of(355, access="read"), None),
    ],
)
def test_what_owners_require_of_a_nic(model: str, rate: float, run: Run, required: float | None) -> None:
    topology = replace(system("hgx-h200"), nics=(Nic("mlx5_0", model, rate, "made"),))
    (judgement,) = SystemJudge(topology, None, Policy(), nics=NICS).judge_alone(run).judgements
    alarm = judgement.yardstick if judgement.yardstick is not None and judgement.yardstick.alarm else None
    assert (alarm.value if alarm is not None else None) == required
    if required is not None:
        assert (judgement.verdict is Verdict.PASS) == (judgement.value >= required)
        assert judgement.code == ("" if judgement.value >= required else "under-alarm")


@pytest.mark.parametrize(
    ("model", "rate", "latency_us", "required"),
    [
        ("ConnectX-6", 200, 4, 5),
        ("ConnectX-6", 200, 6, 5),
        ("ConnectX-7", 400, 8, 9),  # of GB200
        ("ConnectX-9", 400, 8, None),
    ],
)
def test_what_owners_require_of_a_message(model: str, rate: float, latency_us: float, required: float | None) -> None:
    topology = replace(system("hgx-h200"), nics=(Nic("mlx5_0", model, rate, "made"),))
    series = [{"operation": "pingpong", "schedule": "uncontended", "ranks": [0, 1], "bytes": [8], "round": -1}]
    samples = made_samples("pingpong", (0, 1), 8, [8e-3 * 8 / latency_us] * 20)
    plan = {"series": series, "access": "send"}
    run = made_run(["n1", "n2"], [samples], transport="fabric", plan=plan, ranks=[{"rank": 0}, {"rank": 1}])
    run = replace(run, ranks=tuple(replace(rank, nics=("mlx5_0",)) for rank in run.ranks))
    (judgement,) = SystemJudge(topology, None, Policy(), nics=NICS).judge_alone(run).judgements
    assert judgement.value == pytest.approx(latency_us, rel=0.01)
    alarm = judgement.yardstick if judgement.yardstick is not None and judgement.yardstick.alarm else None
    assert (alarm.value if alarm is not None else None) == required
    if required is not None:
        assert judgement.code == ("" if latency_us <= required else "under-alarm")
