"""The first screen: how good the verdict is, what was checked, and where nothing is wrong, what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fabricheck.history.percent import percent as signed_percent
from fabricheck.history.watch import WatchResult
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.operations import LOADS, OPERATIONS
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import MetricGroup, counts, groups_of, in_gigabytes, number, plain, strength, unit_shown
from fabricheck.report.shares import OF_KIND, share_of_yardstick
from fabricheck.suite import program
from fabricheck.units import format_size, plural

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
    return f"{count_:,} of {plural(len(metrics), 'metric')} not judged" if count_ else ""


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


def summarise_counts(runs: Sequence[RunJudgement], *, standing: str = "") -> str:
    """How many runs and metrics there are, and of each verdict how many; how many are not judged, unless the `standing`
    of a PASS, which is beside it, says so."""
    if not runs:
        return "nothing was measured"
    metrics = [each for run in runs for each in run.judgements]
    of_runs = counts(each.final_verdict for each in runs)
    of_metrics = counts(each.verdict for each in metrics) + strength(metrics)
    parts = ((plural(len(runs), "run"), of_runs), (plural(len(metrics), "metric"), of_metrics))
    texts = [": ".join(filter(None, part)) for part in parts]
    return "; ".join(filter(None, ("" if standing else not_judged(metrics), *texts)))


def next_of_pass(verdict: Verdict, runs: Sequence[RunJudgement], system: str) -> str:
    """What to do after a PASS: what makes it worth more, or what follows from its history; empty where it is red."""
    metrics = [each for run in runs for each in run.judgements]
    if verdict is not Verdict.PASS or not system:
        return ""
    if all(each.calibrated for each in metrics):
        return f"nothing to fix; trends: `{program()} watch --system {plain(system)}`"
    return f"after {_SESSIONS} sessions: `{program()} calibrate --system {plain(system)}`"


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


def numbers(runs: Sequence[RunJudgement]) -> tuple[Number, ...]:
    """At most four numbers that say what was measured: of an operation in a node or between nodes the best median of
    the largest size, goodputs first."""
    questions: dict[tuple[bool, str, int], list[_Shown]] = {}
    for run in runs:
        header, groups = run.run.header, groups_of(run)
        plan = header.get("plan", {})
        if plan.get("buffers") or plan.get("shared_devices"):
            continue
        hosts = {rank.rank: rank.host for rank in run.run.ranks}
        for group in groups:
            nodes = {hosts.get(rank) for rank in group.judgements[0].samples.ranks}
            where = "between nodes" if len(nodes) > 1 else "in a node"
            if group.schedule != "contended" and group.operation in OPERATIONS and group.operation not in LOADS:
                key = (group.quantity == "latency", f"{group.operation} {where}", group.bytes)
                questions.setdefault(key, []).append(_Shown(group, str(header.get("transport", ""))))
    numbers_of: dict[tuple[bool, str], Number] = {}
    for is_latency, what, size in sorted(questions, key=_order):
        if (is_latency, what) not in numbers_of:
            some = questions[is_latency, what, size]
            best = (min if is_latency else max)(some, key=lambda shown: shown.median.value)
            numbers_of[is_latency, what] = best.number(f"{what}, {format_size(size)}")
    return tuple(numbers_of.values())[:_MOST_NUMBERS]


def _order(question: tuple[bool, str, int]) -> tuple[bool, int, str, int]:
    """Goodputs before latencies, in the order of the operations, and of each its largest size first."""
    is_latency, what, size = question
    return is_latency, [*OPERATIONS].index(what.split()[0]), what, -size


@dataclass(frozen=True)
class _Shown:
    """A group of metrics of a run over a transport."""

    group: MetricGroup
    transport: str

    @property
    def median(self) -> Judgement:
        """The one of its metrics that is in the middle."""
        in_order = sorted(self.group.judgements, key=lambda metric: metric.value)
        return in_order[len(in_order) // 2]

    def number(self, of: str) -> Number:
        """Its median, with the share of what it was judged by."""
        metric, count_ = self.median, len(self.group.judgements)
        remarks = [in_gigabytes(metric), f"over {self.transport}" if self.transport else ""]
        share = share_of_yardstick(metric)
        remarks.append(f"{share} of {OF_KIND[metric.judged_by]}" if share and metric.judged_by in OF_KIND else "")
        remarks.append(f"median of {count_}" if count_ > 1 else "")
        return Number(f"{number(metric.value)} {unit_shown(metric.unit)}", of, ", ".join(filter(None, remarks)))
