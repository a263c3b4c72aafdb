"""What owners require of NICs, as a yardstick of writes and messages by libfabric between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Nic
from fabricheck.units import parse_rate
from fabricheck.yardsticks.nic_values import KnownNic, NicValue, load_nics
from fabricheck.yardsticks.policy import Policy
from tests.support.made_runs import GIB, made_run, made_samples
from tests.support.nodes import ROOT, system

NICS = load_nics(ROOT / "reference_values" / "nics" / "known.yaml")


def judged(
    nic: tuple[str, float], value: float, unit: str = "Gb/s", memory: str = "gpu", transport: str = "fabric", **of: str
) -> Judgement:
    """A write or message between two nodes at so many Gb/s, or us of 8 B."""
    operation, size, level = ("unidirectional", GIB, value) if unit == "Gb/s" else ("pingpong", 8, 8e-3 * 8 / value)
    series = [{"operation": operation, "schedule": "uncontended", "ranks": [0, 1], "bytes": [size], "round": -1}]
    plan = {"series": series, "access": "write" if unit == "Gb/s" else "send", **of}
    samples = made_samples(operation, (0, 1), size, [level] * 20)
    ranks = [{"rank": 0}, {"rank": 1}]
    run = made_run(["n1", "n2"], [samples], transport=transport, devices=memory == "gpu", plan=plan, ranks=ranks)
    run = replace(run, ranks=tuple(replace(rank, nics=("mlx5_0",)) for rank in run.ranks))
    topology = replace(system("hgx-h200"), nics=(Nic("mlx5_0", *nic, "made"),))
    (judgement,) = SystemJudge(topology, None, Policy(), nics=NICS).judge_alone(run).judgements
    return judgement


# Loopbacks are of one node: `judge` holds their outputs against these rows (test_compare_part.py).
ROWS = [(nic, row) for nic in NICS for row in nic.values if "loopback" not in row.tool]


@pytest.mark.parametrize(("nic", "row"), ROWS, ids=lambda one: getattr(one, "nic", "") or f"{one.alarm_of} {one.value}")
def test_each_row_is_green_above_the_loosest_bound_and_red_below(nic: KnownNic, row: NicValue) -> None:
    of = (f"{nic.nic} {row.layer or ''}", parse_rate(nic.rate))
    better = 1.01 if row.unit == "Gb/s" else 0.99
    alarms = judged(of, better * row.value, row.unit, row.memory).alarms
    assert any(row.source in alarm.source and alarm.bound == row.value for alarm in alarms)
    bounds = [alarm.bound for alarm in alarms]
    loosest = min(bounds) if row.unit == "Gb/s" else max(bounds)
    assert judged(of, better * loosest, row.unit, row.memory).verdict is Verdict.PASS
    below = judged(of, loosest / better, row.unit, row.memory)
    assert (below.verdict, below.code) == (Verdict.DEGRADED, "under-alarm")


@pytest.mark.parametrize(
    ("nic", "of"),
    [
        (("ConnectX-7", 800), {}),  # of another rate
        (("ConnectX-9", 400), {}),
        (("ConnectX-7", 400), {"transport": "mpi"}),
        (("ConnectX-7", 400), {"access": "read"}),
    ],
)
def test_what_is_not_the_same_is_not_held_to_what_owners_require(nic: tuple[str, float], of: dict[str, str]) -> None:
    assert judged(nic, 355, **of).alarms == ()
