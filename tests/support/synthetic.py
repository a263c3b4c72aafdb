"""Judged runs made up from numbers: deterministic, of any size, with any verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Expectation, Judgement, Reference, Yardstick
from fabricheck.records.metrics import UNITS, PlannedSeries, Quantity
from fabricheck.records.run import Device, Rank, Run, Samples
from fabricheck.records.verdict import Verdict

MIB, GIB = 1 << 20, 1 << 30


def rank(number: int, host: str = "nid001") -> Rank:
    device = Device(
        number % 4, "NVIDIA H200", f"00000000:{number % 256:02X}:00.0", f"GPU-{number:08x}", number % 2, 150 << 30
    )
    return Rank(number, host, number % 4, 4000 + number, f"{number}", number % 2, device)


def samples(
    ranks: Sequence[int],
    size: int,
    *,
    operation: str = "pingpong",
    schedule: str = "uncontended",
    gbps: float = 1000.0,
    latency_us: float = 4.0,
    iterations: int = 20,
) -> Samples:
    """A start-up time and a rate; the iterations spread by up to 2%, always in the same way."""
    one_way = 1000 * latency_us + 8 * size / gbps
    spread = 1 + 0.02 * ((np.arange(iterations) * 7 % 11) / 10 - 0.5)
    times = np.rint(one_way * spread * (2 if operation == "pingpong" else 1)).astype(np.int64)
    implementation = "transfers" if len(ranks) == 2 else "library"
    return Samples(operation, implementation, schedule, -1, tuple(ranks), size, 2, "fixed", 0, times)


def judgement(
    of: Samples,
    *,
    quantity: Quantity = "goodput",
    verdict: Verdict = Verdict.PASS,
    expected: float | None = 1200.0,
    reference: Reference | None = None,
    reason: str = "",
    world: int = 4,
    value: float | None = None,
) -> Judgement:
    values = of.goodput_gbps if quantity == "goodput" else of.latency_us
    median = float(np.median(values)) if value is None else value
    source = "widest path gpu0-gpu3 (De Sensi §III-D); floor: SC24 paper, section III-D, 70% of nominal on LUMI"
    return Judgement(
        name=PlannedSeries(of.operation, of.schedule, of.ranks).name(world, of.bytes, quantity),
        unit=UNITS[quantity],
        better="higher" if quantity == "goodput" else "lower",
        value=median,
        interval=(median * 0.99, median * 1.01),
        verdict=verdict,
        reason=reason or f"{median:.4g} {UNITS[quantity]} is what it is ({verdict.value}; {source})",
        calibrated=reference is not None,
        expectation=Expectation(expected, expected, None, 0.5, source),
        reference=reference,
        samples=of,
        yardstick=_yardstick(expected, reference, quantity),
    )


def with_yardstick(judged: Judgement, kind: str, value: float) -> Judgement:
    return replace(judged, yardstick=Yardstick(kind, value, 0.9 * value, "made up"))


def _yardstick(expected: float | None, reference: Reference | None, quantity: Quantity) -> Yardstick | None:
    if reference is None:
        return Yardstick("floor", expected / 2, expected / 2, "made up") if expected is not None else None
    bound = reference.lower if quantity == "goodput" else reference.upper
    return Yardstick("reference", reference.value, reference.value * (1 + (bound or 0.0)), reference.provenance)


def header(ranks: Sequence[Rank], records: Iterable[Samples], **changes: Any) -> dict[str, Any]:
    series = [
        {
            "operation": each.operation,
            "implementation": each.implementation,
            "schedule": each.schedule,
            "round": -1,
            "ranks": list(each.ranks),
            "bytes": [each.bytes],
        }
        for each in records
    ]
    return {
        "program": "fabricbench",
        "version": "0.1.0",
        "backend": "cuda",
        "platform": "nvidia",
        "transport": "ccl",
        "started_utc": "2026-11-21T05:54:06Z",
        "command": ["fabricbench", "--output", "result.jsonl"],
        "oversubscribed": False,
        "libraries": {
            "mpi": {"name": "Open MPI", "version": "5.0.11"},
            "gpu": {"name": "CUDA", "version": "13.0", "driver": "580.159"},
        },
        "environment": {"NCCL_NVLS_ENABLE": "0", "OMPI_MCA_num_procs": str(len(ranks))},
        "environment_differences": [],
        "clock": {"source": "CLOCK_MONOTONIC", "resolution_ns": 1, "overhead_ns": 21},
        "plan": {"operations": ["pingpong"], "series": series, "injected": None, "shared_devices": False},
        "expected_records": len(series),
        **changes,
    }


def judged(
    judgements: Sequence[Judgement],
    records: Sequence[Samples] | None = None,
    *,
    ranks: Sequence[Rank] | None = None,
    problems: Sequence[Finding] = (),
    planned: Sequence[Samples] | None = None,
    path: str = "out/result.jsonl",
    **header_changes: Any,
) -> RunJudgement:
    """A judged run; its records are those of the judgements where no others are given."""
    if records is None:
        records = list({id(each.samples): each.samples for each in judgements}.values())
    ranks = [rank(number) for number in range(4)] if ranks is None else ranks
    plan = records if planned is None else planned
    footer = {"proof": {"paths": {"P2P/CUMEM": 24}, "evidence": "NCCL_DEBUG"}}
    run = Run(path, header(ranks, plan, **header_changes), tuple(ranks), tuple(records), footer, tuple(problems))
    order = list(Verdict)
    verdicts = [*(each.verdict for each in judgements), *(each.verdict for each in problems)]
    verdict = max(verdicts, key=order.index, default=Verdict.INVALID)
    return RunJudgement(run, verdict, tuple(problems), tuple(judgements))


def pair_run(
    *,
    ranks: int = 4,
    sizes: Sequence[int] = (8, 1024, MIB, GIB),
    schedules: Sequence[str] = ("uncontended",),
    bad: dict[tuple[int, int], Verdict] | None = None,
    iterations: int = 20,
    expected: float | None = 1200.0,
    **changes: Any,
) -> RunJudgement:
    """Ping-pongs of all ordered pairs; a pair of `bad` is at 8% of what it should be and has that verdict."""
    bad = bad or {}
    records, found = [], []
    for schedule in schedules:
        for a in range(ranks):
            for b in (each for each in range(ranks) if each != a):
                verdict = bad.get((a, b), Verdict.PASS)
                gbps = 1100.0 + a - b / 10 if verdict is Verdict.PASS else 96.0
                line = [samples((a, b), size, schedule=schedule, gbps=gbps, iterations=iterations) for size in sizes]
                records += line
                found.append(judgement(line[-1], verdict=verdict, expected=expected, world=ranks))
                if sizes[0] < 64 << 10:
                    found.append(judgement(line[0], quantity="latency", expected=None, world=ranks))
    return judged(found, records, ranks=[rank(number) for number in range(ranks)], **changes)
