"""Is a number of a NIC normal? And the answer to a paste, which `normal` gives of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.judge.compare_part import NodeDescription, nics_of
from fabricheck.records.finding import Finding
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import TELLING, Verdict
from fabricheck.units import apart, format_size, parse_rate
from fabricheck.yardsticks.nic_values import KnownNic, judge_nic

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
    """The answer to what crossed a NIC alone. Raises UserError for a part that is not a known NIC."""
    latency = output.samples[0].operation == "pingpong"
    sample = (min if latency else max)(output.samples, key=lambda row: row.bytes)
    value = float(sample.latency_us[0] if latency else sample.goodput_gbps[0])
    unit = "us" if latency else "Gb/s"
    what = f"{output.tool}, {output.memory} memory, {format_size(sample.bytes)}: {value:.4g} {unit}"
    nic = _known_nic(asked, nics)
    known = ", ".join(dict.fromkeys(each.nic for each in nics))
    if nic is None and asked.part is not None:
        raise UserError(f"{path}: is a result of a NIC: give --part, one of {known}")
    problem = worst_problem(output.problems)
    if problem is not None:
        return Normal(
            problem.verdict, (f"{problem.verdict.value}  {path}: {what}", f"  problem      {problem.message}")
        )
    if nic is None:
        missing = f"  missing      {command} --part NIC  # one of {known}"
        return Normal(Verdict.INCOMPLETE, (f"INCOMPLETE  {path}: {what}", missing))
    verdict, bounds = judge_nic(nic, output.tool, output.memory, layer, value=value, unit=unit)
    lines = [f"{verdict.value}  {path}: {what} of {nic.nic}"]
    if not latency:
        rate = parse_rate(nic.rate)
        share = f"{100 * value / rate:.3g}% of {rate:g} Gb/s a port ({nic.source})"
        lines.append(f"  large        {share}; payload {nic.payload}")
    lines += [f"{ALERT}{apart(value, bound.value)} the {bound.source}" for bound in bounds[:2]]
    if verdict is Verdict.DEGRADED:
        lines.append("  likely       the NIC, its slot, its cable or the memory: fabricheck explain slow-nic")
        lines.append("  next         lspci -vv: LnkSta of the NIC; ibstat: rate; and the NUMA node of the tool")
    return Normal(verdict, tuple(lines))


def _known_nic(asked: NodeDescription, nics: Sequence[KnownNic]) -> KnownNic | None:
    """The NIC that is requested, such as `ConnectX-7` or `7`, of the rate that is, where one is."""
    wanted = (asked.part or "").lower().replace(" ", "")
    rates = {each.rate_gbps for each in nics_of(asked.nics)}
    for nic in nics if wanted else ():
        named = nic.nic.lower().replace(" ", "") in (wanted, f"connectx-{wanted}")
        if named and (not rates or parse_rate(nic.rate) in rates):
            return nic
    return None
