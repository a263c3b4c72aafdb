"""Runs made of numbers: ranks on hosts, with or without GPUs, and what they are to have measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.records.finding import Finding
from fabricheck.records.operations import ROUND_TRIPS
from fabricheck.records.run import Device, Groups, Rank, Run, Samples

MIB = 1 << 20
GIB = 1 << 30

FOOTER = {"records": 1}


def made_ranks(hosts: Sequence[str], *, devices: bool = False) -> tuple[Rank, ...]:
    """A rank on each of `hosts`, in their order; with `devices` the n-th of a host drives its GPU n."""
    ranks = []
    for number, host in enumerate(hosts):
        local = list(hosts[:number]).count(host)
        device = Device(local, "H200", f"0000:{local:02x}:00.0", f"{host}-gpu{local}", 0, 150 << 30)
        ranks.append(Rank(number, host, local, 1, "0", 0, device if devices else None))
    return tuple(ranks)


def made_samples(
    operation: str,
    ranks: Sequence[int],
    size: int,
    gbps: float | Sequence[float],
    *,
    schedule: str = "uncontended",
    implementation: str = "transfers",
    round_: int = -1,
    groups: Groups | None = None,
) -> Samples:
    """One record; `gbps`: goodput in Gb/s of each iteration, or of all of twenty."""
    values = np.full(20, gbps) if np.isscalar(gbps) else np.asarray(gbps)
    trips = 2 if operation in ROUND_TRIPS else 1
    times = np.maximum(1, np.rint(8 * size / values * trips)).astype(np.int64)
    of = (operation, implementation, schedule, round_, tuple(ranks), size, 5, "fixed", 0, times)
    return Samples(*of, groups=groups)


def made_run(
    hosts: Sequence[str],
    samples: Iterable[Samples],
    *,
    transport: str = "mpi",
    devices: bool = False,
    problems: Sequence[Finding] = (),
    plan: dict[str, Any] | None = None,
    **header: Any,
) -> Run:
    """A complete run of fabricbench; `plan` and `header` are added to what it says of itself."""
    made: dict[str, Any] = {
        "program": "fabricbench",
        "transport": transport,
        "backend": "cuda" if devices else "host",
        "environment": {},
        "host_copy_gbps": 80.0,
        "oversubscribed": False,
        "plan": {"injected": None, "shared_devices": False, **(plan or {})},
        **header,
    }
    return Run("made.jsonl", made, made_ranks(hosts, devices=devices), tuple(samples), FOOTER, tuple(problems))


def made_case(run: Run, test: str = "Made", environment: str = "openmpi", **others: Any) -> CaseRun:
    """The run as a test case of a session."""
    return CaseRun(run, test, environment, "made:gpu", **others)


def noisy(value: float, count: int = 40, *, noise: float = 0.01, seed: int = 0) -> list[float]:
    """Values around `value`, which spread by `noise` of it."""
    return list(np.random.default_rng(seed).normal(value, noise * value, count))
