"""Which NIC a GPU uses, inferred from goodput between nodes (CommBench, sections 2.1.2 and 5.2.1).

With more and more GPUs of a node active, the goodput of a group pattern rises in another way for each association:

    packed        f (1 + max(0, k - p) / p)   GPUs fill one NIC after another, p on each
    round-robin   f k / ceil(k / r)           GPUs are dealt out to r NICs in turn
    one-to-one    f k                         a NIC for each
    dynamic       more than f for one GPU     not bound to NICs
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fabricheck.errors import UserError
from fabricheck.judge.constants import LEAST_EFFICIENCY, TOLERANCE
from fabricheck.judge.statistics import median_interval
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import one_to_one, packed, round_robin
from fabricheck.topology.of_metric import MARGIN

Scheme = Literal["packed", "round-robin", "one-to-one", "dynamic"]

# The pattern in which a NIC has one direction of traffic, and a GPU one partner.
_RAIL = "rail_unidirectional"


@dataclass(frozen=True)
class MeasuredAssociation:
    """What the measurements say. `scheme` is None where they cannot tell; `reason` says why in one line.

    `nics`: how many NICs of a node were in use, None where that cannot be told. `efficiency`: share of their nominal
    rate that was reached. `deviation`: the largest relative distance of a measurement from the model.
    """

    scheme: Scheme | None
    nics: int | None
    efficiency: float | None
    deviation: float | None
    reason: str


@dataclass(frozen=True)
class _Candidate:
    scheme: Scheme
    nics: int
    efficiency: float
    deviation: float


def infer_association(
    goodput_gbps: Mapping[int, float], *, nic_gbps: float, gpus: int, noise: float = 0.0
) -> MeasuredAssociation:
    """The association that explains the goodput by the number k of active GPUs, of `gpus` on each of two nodes.

    `goodput_gbps`: of one direction in Gb/s, by k. `nic_gbps`: nominal rate of one NIC. `noise`: relative half-width
    of the interval of the medians. One scheme has to fit, and no other: else `scheme` is None.
    Raises UserError for k outside 1…`gpus`, or values that are not measurements.
    """
    points = dict(sorted(goodput_gbps.items()))
    if not points or not all(1 <= k <= gpus for k in points):
        raise UserError(f"active GPUs are 1 to {gpus}, not {', '.join(map(str, points)) or 'none'}")
    if not all(math.isfinite(value) and value > 0 for value in (*points.values(), nic_gbps)):
        raise UserError("an association needs goodputs and a NIC's rate above 0")
    if points.get(1, 0.0) > nic_gbps * (MARGIN + noise):
        share = points[1] / nic_gbps
        why = f"one GPU reaches {share:.2f} x the rate of a NIC, so it uses more than one NIC"
        return MeasuredAssociation("dynamic", None, None, None, why)
    if len(points) < 2:
        return MeasuredAssociation(
            None, None, None, None, "only one number of active GPUs was measured: measure with more numbers"
        )
    candidates = list(_candidates(points, nic_gbps, gpus))
    fitting = [
        each
        for each in candidates
        if each.deviation <= TOLERANCE + noise and LEAST_EFFICIENCY <= each.efficiency <= MARGIN + noise
    ]
    return _decide(fitting, candidates)


def _decide(fitting: list[_Candidate], candidates: list[_Candidate]) -> MeasuredAssociation:
    if not fitting:
        best = min(candidates, key=lambda each: each.deviation)
        why = (
            f"no association fits: the nearest ({best.scheme} over {best.nics} NICs, {best.efficiency:.0%} of their "
            f"rate) differs by {best.deviation:.0%}"
        )
        return MeasuredAssociation(None, None, None, best.deviation, why)
    best = min(fitting, key=lambda each: each.deviation)
    if len({each.scheme for each in fitting}) > 1:
        names = ", ".join(f"{each.scheme} over {each.nics}" for each in fitting)
        return MeasuredAssociation(None, None, None, best.deviation, f"several associations fit: {names} NICs")
    nics = best.nics if len(fitting) == 1 else None
    over = f"over {nics} NIC{'s' if nics != 1 else ''}" if nics else "over an unknown number of NICs"
    why = f"{best.scheme} {over} at {best.efficiency:.0%} of their rate (largest difference {best.deviation:.1%})"
    return MeasuredAssociation(best.scheme, nics, best.efficiency, best.deviation, why)


def _candidates(points: Mapping[int, float], nic_gbps: float, gpus: int) -> Iterator[_Candidate]:
    for scheme, nics, model in _models(nic_gbps, gpus):
        ratios = [value / model(k) for k, value in points.items()]
        # The middle of the range, from which the farthest point is as near as can be.
        efficiency = (min(ratios) + max(ratios)) / 2
        yield _Candidate(scheme, nics, efficiency, max(abs(ratio / efficiency - 1) for ratio in ratios))


def _models(nic_gbps: float, gpus: int) -> Iterator[tuple[Scheme, int, Callable[[int], float]]]:
    """Every association of a node's GPUs to up to as many NICs; those that are the same appear once."""
    yield "one-to-one", gpus, lambda k: one_to_one(nic_gbps, k)
    for nics in range(1, gpus):
        if gpus % nics == 0:
            yield "packed", nics, lambda k, p=gpus // nics: packed(nic_gbps, k, p)  # type: ignore[misc]
        if nics > 1:
            yield "round-robin", nics, lambda k, r=nics: round_robin(nic_gbps, k, r)  # type: ignore[misc]


def _goodput_by_active(run: Run) -> dict[int, Samples]:
    """The samples of the rail pattern between two groups, by the number k of active ranks, each at its largest size.
    Raises UserError where there is none."""
    by_active: dict[int, Samples] = {}
    for samples in run.samples:
        if samples.operation != _RAIL or samples.groups is None or samples.groups.count != 2:
            continue
        if samples.groups.active not in by_active or by_active[samples.groups.active].bytes < samples.bytes:
            by_active[samples.groups.active] = samples
    return dict(sorted(by_active.items()))


def find_associations(run: Run, topology: Topology) -> Iterator[Finding]:
    """Which GPU uses which NIC, by the rail pattern of a run between two nodes; nothing for other runs.

    A problem where the topology says otherwise: DEGRADED. A run whose ranks do not drive devices says the same of
    ranks.
    """
    hosts = Counter(each.host for each in run.ranks)
    if len(hosts) != 2 or len(set(hosts.values())) != 1 or not topology.nics or run.footer is None:
        return
    rate = min(nic.rate_gbps for nic in topology.nics)
    samples = _goodput_by_active(run)
    if not samples:
        return
    goodput = {active: float(np.median(each.goodput_gbps)) for active, each in samples.items()}
    noise = max(_half_width(each) for each in samples.values())
    association = infer_association(goodput, nic_gbps=rate, gpus=min(hosts.values()), noise=noise)
    ranks, declared = min(hosts.values()), topology.nic_scheme
    wrong = None not in (association.scheme, declared) and _alike(
        association.scheme, association.nics, ranks
    ) != _alike(declared, len(topology.nics), ranks)
    text = f"{_RAIL}: association to NICs: {association.reason}"
    if wrong:
        yield Finding("nic-association", Verdict.DEGRADED, f"{text}; in the topology: {topology.nic_scheme}")
    else:
        yield Finding("nic-association", Verdict.PASS, text)


def _alike(scheme: str | None, nics: int | None, ranks: int) -> str | None:
    """The scheme by one name, where several are the same: a NIC for each rank, or one for all."""
    if nics is None or scheme not in ("packed", "round-robin"):
        return scheme
    return "one-to-one" if nics >= ranks else "packed" if nics == 1 else scheme


def _half_width(samples: Samples) -> float:
    low, high = median_interval(samples.goodput_gbps, in_order=samples.in_order, rank_error=samples.rank_error)
    return (high - low) / 2 / float(np.median(samples.goodput_gbps))
