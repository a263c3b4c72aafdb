"""Whether all pairs of nodes have less than their NICs carry of data."""

from __future__ import annotations

from fabricheck.expectation.payload import least_payload
from fabricheck.judge.part_values import Facts, is_comparable
from fabricheck.judge.policy import Policy
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import LADDER
from fabricheck.records.operations import ORDERED_PAIRS, PAIRS
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology

_LEAST_BYTES = 256 << 20
_STRONGER = LADDER[: LADDER.index("siblings")]


def nics_not_filled(judged: RunJudgement, topology: Topology, policy: Policy) -> Finding | None:
    """DEGRADED where even the best pair of nodes by GPU-aware MPI or NCCL is under what the NIC carries of data.

    Distance and the load of others slow some pairs, and speed none up. Of NCCL and RCCL over Slingshot nobody says that
    every GPU fills its NIC with a single pair: CSCS has 54% of it with A100 and MI250X, and 96% with GH200.
    """
    run = judged.run
    mover = {"mpi": "nic", "ccl": "ccl nic pair"}.get(run.header["transport"]) if is_comparable(run) else None
    data = least_payload([nic.model for nic in topology.nics], mover) if mover is not None else None
    if data is None or run.header["plan"].get("buffers") is not None or run.header["plan"].get("ccl_mode"):
        return None
    facts = Facts(run, topology)
    pairs = [
        (each.value / each.expectation.expected, each)
        for each in judged.judgements
        if each.samples.operation in (PAIRS if mover == "ccl nic pair" else ORDERED_PAIRS)
        and each.better == "higher"
        and each.samples.bytes >= _LEAST_BYTES
        and each.expectation.expected
        and each.expectation.achievable is None
        and facts.nodes(each.samples) > 1
    ]
    if not pairs or any(each.judged_by in _STRONGER for _, each in pairs):
        return None
    share, best = max(pairs, key=lambda pair: pair[0])
    if share >= data.share * (1 - (policy.achievable_margin if data.margin is None else data.margin)):
        return None
    text = (
        f"the best of {len(pairs)} pairs between nodes has {best.value:.4g} {best.unit}, {share:.0%} of its NIC, which "
        f"can carry {data.share:.0%} ({data.source}); look at software, settings and what all of them share"
    )
    expected = data.share * (best.expectation.expected or 0.0)
    return Finding("all-slow", Verdict.DEGRADED, text, (), best.value, expected, best.unit, metrics=(best.name,))
