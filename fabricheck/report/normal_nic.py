"""Is a number of a NIC normal? And the answer to a paste, which `normal` gives of GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.judge.compare_part import NodeDescription, nics_of
from fabricheck.judge.nic_values import KnownNic
from fabricheck.records.finding import Finding
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import TELLING, Verdict
from fabricheck.units import apart, format_size, parse_rate

#: The worst first.
#: How a line of a limit begins that somebody requires.
ALERT = "  alert limit  "


@dataclass(frozen=True)
class Normal:
    """The answer: a verdict, and the lines that say why, six at most."""

    verdict: Verdict
    lines: tuple[str, ...]


def worst_problem(problems: Sequence[Finding]) -> Finding | None:
    """The first of those with the worst verdict; None of none."""
    return min(problems, key=lambda problem: TELLING.index(problem.verdict), default=None)


def of_nic(
    output: VendorOutput,
    path: str,
    asked: NodeDescription,
    layer: str | None,
    nics: Sequence[KnownNic],
    *,
    command: str,
) -> Normal:
    """The answer to what crossed a NIC alone, by the loosest bound of its memory and link layer.

    Raises UserError for a part that is not a known NIC.
    """
    latency = output.samples[0].operation == "pingpong"
    sample = (min if latency else max)(output.samples, key=lambda row: row.bytes)
    value = float(sample.latency_us[0] if latency else sample.goodput_gbps[0])
    unit = "us" if latency else "Gb/s"
    what = f"{output.tool}, {output.memory} memory, {format_size(sample.bytes)}: {value:.4g} {unit}"
    wanted = (asked.part or "").lower().replace(" ", "")
    names = (wanted, f"connectx-{wanted}") if wanted else ()
    rates = {each.rate_gbps for each in nics_of(asked.nics)}
    named = [each for each in nics if each.nic.lower().replace(" ", "") in names]
    nic = next((each for each in named if not rates or parse_rate(each.rate) in rates), None)
    known = ", ".join(dict.fromkeys(each.nic for each in nics))
    if nic is None and asked.part is not None:
        raise UserError(f"{path}: is a result of a NIC: give --part, one of {known}")
    problem = worst_problem(output.problems)
    if nic is None or problem is not None:
        verdict = problem.verdict if problem is not None else Verdict.INCOMPLETE
        line = f"{verdict.value}  {path}: {what}"
        missing = f"  missing      {command} --part NIC  # one of {known}"
        return Normal(verdict, (line, missing if problem is None else f"  problem      {problem.message}"))
    rows = [one for one in nic.values if (one.tool, one.memory, one.unit) == (output.tool, output.memory, unit)]
    sign = -1 if latency else 1
    bounds = [one for one in rows if one.alarm_of is not None and (layer is None or one.layer in (None, layer))]
    loosest = min(bounds, key=lambda one: sign * one.value, default=None)
    broken = loosest is not None and sign * value < sign * loosest.value
    beyond = not latency and value > parse_rate(nic.rate) * 1.05
    verdict = Verdict.DEGRADED if broken else Verdict.PASS if bounds else Verdict.INCOMPLETE
    verdict = Verdict.INVALID if beyond or not math.isfinite(value) else verdict
    lines = [f"{verdict.value}  {path}: {what} of {nic.nic}"]
    if not latency:
        rate = parse_rate(nic.rate)
        share = f"{100 * value / rate:.3g}% of {rate:g} Gb/s a port ({nic.source})"
        lines.append(f"  large        {share}; payload {nic.payload}")
    for limit in sorted(bounds, key=lambda one: sign * one.value)[:2]:
        side = apart(value, limit.value)
        required = f"{limit.value:g} {limit.unit} that {limit.alarm_of} requires: {limit.conditions}"
        lines.append(f"{ALERT}{side} the {required} ({limit.source})")
    if broken:
        lines.append("  likely       the NIC, its slot, its cable or the memory: fabricheck explain slow-nic")
        lines.append("  next         lspci -vv: LnkSta of the NIC; ibstat: rate; and the NUMA node of the tool")
    return Normal(verdict, tuple(lines))
