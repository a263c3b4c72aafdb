"""How long a plan takes, known before it runs: what of it fits into a time, and the limit of its job.

A measurement (a pair, a round or a group at one size) ends when its budget is spent, or sooner. With the setting up of
connections, warm-up and checks of data, those of docs/results/h200x4-2026-11-21 took 0.2 to 0.9 of their budget in
runs of 60 measurements and more; here each counts as a budget and a fifth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reframe.core.logging import getlogger

from fabricheck.fleet.record import Fleet
from fabricheck.fleet.settings import KEY
from fabricheck.records.operations import (
    GROUP_PATTERNS,
    HOST_PATHS,
    MEMORY_PATHS,
    PAIRS,
    STRIPING,
    SYMMETRIC_PAIRS,
    VICTIMS,
)
from fabricheck.records.pair_rule import PairRule
from fabricheck.rfm.command_line import MeasurementPlan
from fabricheck.units import coarser_sizes, count_sizes

_OF_BUDGET = 1.2
# MPI, allocations and handles; with thousands of ranks a minute more for each thousand.
_START_S = 60.0
# Beside its budgets a plan with host memory has to lock it, fill it and take it out of caches: 1.5 to 4 s on two H100.
_HOST_MEMORY_S = 2.5
# The job may be so much slower than the plan says, and no shorter than that.
_RESERVE, _LEAST_RESERVE_S = 2.0, 300.0
# As many as a processor judges in some minutes (docs/results/simulated/cost.md).
_MOST_RECORDS = 100_000
_COARSER = (16, 256, 1 << 40)


@dataclass(frozen=True)
class Fitted:
    """A plan that fits, the seconds that it takes at most, and what it leaves out (empty: nothing)."""

    plan: MeasurementPlan
    seconds: float
    left_out: str

    def job_seconds(self, least: float) -> float:
        """The limit of the job; at least `least` seconds."""
        return job_seconds(self.seconds, least)


def seconds_together(plans: Iterable[float]) -> float:
    """How long plans of so many seconds take at most one after the other, which start once."""
    return _START_S + sum(max(seconds - _START_S, 0.0) for seconds in plans)


def job_seconds(seconds: float, least: float = 0.0) -> float:
    """The limit of a job for what takes so many `seconds` at most; at least `least`."""
    return max(least, _RESERVE * seconds + _LEAST_RESERVE_S)


def seconds_of(plan: MeasurementPlan) -> float:
    """How long a plan takes at most where a few iterations fit into a budget; 0 where it has no budget to go by."""
    if plan.budget <= 0:
        return 0.0
    measurements = 0
    for operation in plan.operations:
        schedules = plan.schedules if operation in PAIRS or operation in MEMORY_PATHS else ("",)
        measurements += sum(_rounds(plan, operation, schedule) for schedule in schedules)
    measurements *= count_sizes(plan.sizes)
    start = _START_S * (1 + plan.ranks / 1000)
    host_memory = _HOST_MEMORY_S if any(operation in HOST_PATHS for operation in plan.operations) else 0.0
    return start + host_memory + _OF_BUDGET * plan.budget * measurements + plan.burn_in


def records_of(plan: MeasurementPlan) -> int:
    """How many records of pairs a plan makes."""
    rules = (_rule(plan, operation, each) for operation in plan.operations for each in plan.schedules)
    return sum(len(rule) for rule in rules if rule is not None) * count_sizes(plan.sizes)


def fit(plan: MeasurementPlan, seconds: float) -> Fitted:
    """As much of `plan` as fits into a time, and into records that can be judged in minutes.

    With fewer sizes; else without pairs one by one, which rounds have too; else with fewer turns of the rounds. The
    first and the last size remain, of which metrics are made. What does not fit even so takes the time that it takes.
    """

    def fits(smaller: MeasurementPlan) -> bool:
        return plan.budget <= 0 or (seconds_of(smaller) <= seconds and records_of(smaller) <= _MOST_RECORDS)

    chosen = plan
    for chosen in _smaller(plan):
        if fits(chosen):
            break
    else:
        rules = [_rule(chosen, operation, "contended") for operation in chosen.operations]
        most = max((rule.all_turns for rule in rules if rule is not None), default=0)
        if chosen.schedules == ["contended"] and most > 1:
            screens = (replace(chosen, turns=turns) for turns in range(most - 1, 0, -1))
            chosen = next(filter(fits, screens), replace(chosen, turns=1))
    return Fitted(chosen, seconds_of(chosen), _left_out(plan, chosen, seconds))


def _smaller(plan: MeasurementPlan) -> Iterator[MeasurementPlan]:
    in_rounds = "contended" in plan.schedules and plan.ranks >= 4
    pairs = all(operation in PAIRS for operation in plan.operations)
    yield plan
    for schedules in [plan.schedules, *([["contended"]] if in_rounds and pairs else [])]:
        for step in (1, *_COARSER):
            yield replace(plan, schedules=schedules, sizes=coarser_sizes(plan.sizes, step))


def _left_out(plan: MeasurementPlan, smaller: MeasurementPlan, seconds: float) -> str:
    parts = []
    if len(smaller.schedules) < len(plan.schedules):
        parts.append("pairs are measured only in rounds")
    if (few := count_sizes(smaller.sizes)) < (many := count_sizes(plan.sizes)):
        parts.append(f"{few} of {many} sizes are measured")
    if smaller.turns:
        parts.append(f"each rank meets {smaller.turns} others instead of all")
    if not parts:
        return ""
    whole = f"all would take {seconds_of(plan) / 60:,.0f} minutes and {records_of(plan):,} records"
    most = f"the limits are {seconds / 60:,.0f} minutes and {_MOST_RECORDS:,} records"
    return f"{', and '.join(parts)}: {whole}; {most}"


def _rule(plan: MeasurementPlan, operation: str, schedule: str) -> PairRule | None:
    """Which pairs an operation measures; None where it is none of pairs, or of a few that were chosen."""
    if operation not in PAIRS or any(each.startswith("--pairs=") for each in plan.more):
        return None
    group = plan.ranks // plan.nodes if plan.pairs == "rails" else 1
    rule = PairRule(plan.ranks, group, 1 if operation in SYMMETRIC_PAIRS else 2, schedule == "contended")
    if not rule.is_possible:
        return None
    return replace(rule, turns=plan.turns if rule.in_rounds and plan.turns < rule.all_turns else 0)


def _rounds(plan: MeasurementPlan, operation: str, schedule: str) -> int:
    """How many measurements of one size an operation is."""
    if operation in PAIRS:
        rule = _rule(plan, operation, schedule)
        return rule.round_count if rule is not None else 2
    if operation in MEMORY_PATHS:
        together = plan.together.count(",") + 1 if plan.together else max(plan.ranks - 1, 1)
        return plan.ranks if schedule == "uncontended" else together
    if operation in GROUP_PATTERNS or operation in STRIPING:
        # Each number of active ranks between two groups, and all of them between more and more groups.
        own = plan.ranks // plan.nodes if plan.nodes > 1 else plan.ranks // 2
        return own + plan.nodes.bit_length()
    return 2 if operation in VICTIMS else 1


def fitted_plan(test: Any, plan: MeasurementPlan) -> MeasurementPlan:
    """As much of the plan of a test as fits into its `minutes`, and over a fleet into half of what is left of its job;
    tells its time and the time limit of its job, which it sets where neither test nor partition has one."""
    extras = test.current_partition.extras
    left = Fleet.read(Path(extras[KEY])).seconds_left if KEY in extras else math.inf
    fitted = fit(plan, min(60 * test.minutes + plan.burn_in, left / 2))
    test.shortened = fitted.left_out
    limit = float(test.time_limit)
    if not test.is_limit_given:
        test.time_limit = limit = fitted.job_seconds(limit)
    test.planned_seconds = fitted.seconds
    told = f"takes {fitted.seconds:.0f} s at most by its plan"
    more = f"; {fitted.left_out}" if fitted.left_out else ""
    getlogger().info(f"{test.display_name}: {told}; its job is limited to {limit / 60:.0f} minutes{more}")
    return fitted.plan
