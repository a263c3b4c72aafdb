"""The first screen: how good the verdict is, what was checked, and where nothing is wrong, what was measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabricheck.history.percent import percent as signed_percent
from fabricheck.history.watch import WatchResult
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import COLLECTIVES, MEMORY_PATHS, PAIRS
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import count, in_gigabytes, number, percent, quantity_of, strength, unit_shown
from fabricheck.report.shares import OF_KIND, share_of_yardstick
from fabricheck.suite import program
from fabricheck.units import plural

_MOST_NUMBERS = 4
#: Sessions of a healthy system before `calibrate` (docs/your-system.md).
_SESSIONS = 8


@dataclass(frozen=True)
class Number:
    """One number of a summary, with its unit: what it is of, and a remark such as a share of what is expected."""

    value: str
    of: str
    remark: str


def not_judged(metrics: Sequence[Judgement]) -> str:
    """How many metrics only a minimum bounds; empty where each has a yardstick, or where there is none."""
    count_ = sum(not each.is_judged for each in metrics)
    if not count_:
        return ""
    text = f"{count_:,} of {plural(len(metrics), 'metric')} not judged"
    return f"{text}, less than half is judged" if 2 * count_ > len(metrics) else text


def qualify_pass(verdict: Verdict, runs: Sequence[RunJudgement], watched: WatchResult | None = None) -> str:
    """What a PASS is worth, in words that follow it, such as `uncalibrated`; empty where it needs none, or is red."""
    if verdict is not Verdict.PASS:
        return ""
    metrics = [each for run in runs for each in run.judgements]
    words = [text] if (text := not_judged(metrics)) else []
    incidents = watched.open_incidents if watched is not None else ()
    if incidents:
        first = min(incidents, key=lambda each: each.alerts[0].change).alerts[0]
        words.append(f"today; {signed_percent(first.change)} since {first.first_bad}")
    uncalibrated = sum(not each.calibrated for each in metrics)
    if metrics and uncalibrated == len(metrics):
        words.append("uncalibrated")
    elif uncalibrated:
        words.append(f"{uncalibrated:,} of {len(metrics):,} metrics without a reference")
    return ", ".join(words)


def summarise_counts(runs: Sequence[RunJudgement]) -> str:
    """How many runs and metrics there are, and of each verdict how many."""
    if not runs:
        return "nothing was measured"
    metrics = [each for run in runs for each in run.judgements]
    of_runs = _counts(each.final_verdict for each in runs)
    of_metrics = _counts(each.verdict for each in metrics) + strength(metrics)
    parts = ((plural(len(runs), "run"), of_runs), (plural(len(metrics), "metric"), of_metrics))
    counts = [": ".join(filter(None, part)) for part in parts]
    return "; ".join(filter(None, (not_judged(metrics), *counts)))


def next_of_pass(verdict: Verdict, runs: Sequence[RunJudgement], system: str) -> str:
    """What to do after a PASS: what makes it worth more, or what follows from its history; empty where it is red."""
    metrics = [each for run in runs for each in run.judgements]
    if verdict is not Verdict.PASS or not system:
        return ""
    if all(each.calibrated for each in metrics):
        return f"nothing to fix; {program()} watch --system {system} for trends, {program()} compare after an upgrade"
    return f"run {_SESSIONS} sessions, then {program()} calibrate --system {system}"


def machine(runs: Sequence[RunJudgement]) -> str:
    """On what was measured and when, such as `4 x NVIDIA H200; CUDA 13.0, driver 580.95; 2026-11-22`."""
    headers = [run.run.header for run in runs if run.run.header]
    devices = [rank.device for run in runs for rank in run.run.ranks if rank.device is not None]
    models = Counter({device.uuid: device.name for device in devices}.values())
    libraries = [library for header in headers for library in header["libraries"].values()]
    versions = [
        f"{library['name']} {library['version']}".rstrip()
        + (f", driver {library['driver']}" if library.get("driver") else "")
        for library in libraries
    ]
    days = sorted({str(header["started_utc"])[:10] for header in headers})
    return "; ".join([*(f"{times} x {name}" for name, times in models.items()), *dict.fromkeys(versions), *days[:1]])


def smallest_losses(runs: Iterable[RunJudgement]) -> str:
    """The loss from which on a goodput that passed would not: of half of them, and of all. Empty where none passed."""
    passed = [each for run in runs for each in run.judgements if each.verdict is Verdict.PASS and each.value > 0]
    bounds = [(each.yardstick.bound, each.value) for each in passed if each.yardstick and each.better == "higher"]
    if not bounds:
        return ""
    losses = [1 - bound / value for bound, value in bounds]
    half, whole = percent(statistics.median(losses)), percent(max(losses))
    return f"smallest loss seen: {half} by half of the goodputs, {whole} by all"


def _counts(verdicts: Iterable[Verdict]) -> str:
    return ", ".join(f"{times:,} {each.value}" for each, times in count(verdicts))


def numbers(runs: Sequence[RunJudgement]) -> tuple[Number, ...]:
    """At most four numbers that say what was measured: the fastest way of each kind, its median over pairs."""
    kinds: dict[str, list[tuple[Judgement, RunJudgement]]] = {}
    for run in runs:
        for judged in run.judgements:
            if (kind := _kind(judged, run)) is not None:
                kinds.setdefault(kind, []).append((judged, run))
    figures = [_number(kind, kinds[kind]) for kind in _KINDS if kind in kinds]
    return tuple(figures[:_MOST_NUMBERS])


_KINDS = (
    "between nodes",
    "between GPUs of a node",
    "between ranks of a node",
    "allreduce",
    "from host memory to GPU",
    "latency between nodes",
    "latency between GPUs",
    "latency between ranks",
)


def _kind(judged: Judgement, run: RunJudgement) -> str | None:
    samples = judged.samples
    ranks = {each.rank: each for each in run.run.ranks}
    own = [ranks[each] for each in samples.ranks if each in ranks]
    nodes = len({each.host for each in own})
    units = "GPUs" if own and all(each.device is not None for each in own) else "ranks"
    goodput = quantity_of(judged) == "goodput"
    shared = len({each.device.uuid for each in own if each.device is not None}) < len(own) > 1 and units == "GPUs"
    if shared or samples.schedule == "contended" or run.run.header.get("plan", {}).get("buffers"):
        return None
    if samples.operation in PAIRS and samples.operation != "bidirectional":
        if not goodput:
            return "latency between nodes" if nodes > 1 else f"latency between {units}"
        return "between nodes" if nodes > 1 else f"between {units} of a node"
    if samples.operation in COLLECTIVES and goodput:
        return "allreduce" if samples.operation == "allreduce" else None
    return (
        "from host memory to GPU"
        if samples.operation in MEMORY_PATHS and samples.operation.startswith("host_to")
        else None
    )


def _number(kind: str, judged_runs: Sequence[tuple[Judgement, RunJudgement]]) -> Number:
    """Of the runs of a kind the one that is best; its median metric."""
    by_run: dict[tuple[int, str, int], list[tuple[Judgement, RunJudgement]]] = {}
    for judged, run in judged_runs:
        by_run.setdefault((id(run), judged.samples.operation, judged.samples.bytes), []).append((judged, run))
    sign = 1 if kind.startswith("latency") else -1
    best = min(by_run.values(), key=lambda some: sign * statistics.median(each.value for each, _ in some))
    judged, run = sorted(best, key=lambda item: item[0].value)[len(best) // 2]
    share = share_of_yardstick(judged)
    over = str(run.run.header.get("transport", ""))
    remarks = list(filter(None, [in_gigabytes(judged), f"over {over}" if over else ""]))
    remarks += [f"{share} of {OF_KIND[judged.judged_by]}"] if share and judged.judged_by != "floor" else []
    remarks += [f"median of {len(best)}"] if len(best) > 1 else []
    return Number(f"{number(judged.value)} {unit_shown(judged.unit)}", kind, ", ".join(remarks))
