"""What a report says of judged runs, before it is put on a terminal or a page."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fabricheck.judge.overall import SEVERITY, badness
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import LADDER, Judgement
from fabricheck.records.metrics import Quantity
from fabricheck.records.operations import COLLECTIVES, PAIRS, SETTINGS, bus_factor, chosen_settings
from fabricheck.records.run import Rank, Samples, list_ranks
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results import job_script
from fabricheck.results.environment import set_by_launcher
from fabricheck.units import few, format_size, plural
from fabricheck.visible import escaped

# A name is a name, whatever somebody wrote into it.
_LONGEST_TEXT = 4000
_LONGEST_GROUP_NAME = 40
_MOST_OPERATIONS = 3
_MICROSECONDS = re.compile(r"(?<=\d )us\b")


@dataclass(frozen=True)
class MetricGroup:
    """The metrics of a run that can be compared with each other, worst first."""

    operation: str
    implementation: str
    schedule: str
    bytes: int
    quantity: Quantity
    unit: str
    judgements: tuple[Judgement, ...]

    @property
    def name(self) -> str:
        """The name that its metrics share."""
        return name_of_group(self.judgements[0])

    @property
    def is_pairs(self) -> bool:
        """Whether its metrics are between two ranks."""
        return self.operation in PAIRS

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its metrics."""
        return worst(each.verdict for each in self.judgements)

    @property
    def by_verdict(self) -> dict[Verdict, list[Judgement]]:
        """The metrics of each verdict, worst first."""
        judgements: dict[Verdict, list[Judgement]] = {}
        for judged in self.judgements:
            judgements.setdefault(judged.verdict, []).append(judged)
        return judgements


@dataclass(frozen=True)
class HostSummary:
    """One host of a run; `ranks` and `devices` are short texts such as `0-3` and `4 x NVIDIA H200`."""

    host: str
    ranks: str
    devices: str


@dataclass(frozen=True)
class RunFacts:
    """What was measured, where and with what, as far as the header of the result file says it.

    `name`: the test case where it is known, else `what`.
    `environment`: the tuning variables that were in effect, by name; `launcher_environment`: the others of that kind,
    which the launcher sets itself. `command`: words for a shell, quoted: what a rank ran; `with_job_script` has the
    launcher in them.
    """

    path: str
    name: str
    what: str
    where: str
    started: str
    program: str
    nodes: tuple[HostSummary, ...]
    libraries: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    launcher_environment: tuple[tuple[str, str], ...]
    differences: tuple[str, ...]
    command: tuple[str, ...]
    proof: str
    records: str
    remarks: tuple[str, ...]


def printable(value: object) -> str:
    """`value` as text of one line, not too long, that shows on any terminal and page as what it is."""
    text = str(value)
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… ({len(text) - _LONGEST_TEXT} more characters)"
    return escaped(text, keep="")


def plain(text: str) -> str:
    """A text without the marks of its commands, which are backticks; so a name has none."""
    return text.replace("`", "")


def number(value: float) -> str:
    """Four significant digits, with separators of thousands, without an exponent where a person would write none."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or not 1e-3 <= abs(value) < 1e7:
        return f"{value:.4g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def unit_shown(unit: str) -> str:
    """Files have `us`, which is ASCII."""
    return "µs" if unit == "us" else unit


def reason_for_people(judged: Judgement) -> str:
    """The reason of a judgement with the units that people read."""
    return _MICROSECONDS.sub("µs", judged.reason)


def reason_without_source(judged: Judgement) -> str:
    """The reason, without the long sources in it, for where these are shown once for many."""
    reason = reason_for_people(judged)
    for source in (judged.yardstick.source if judged.yardstick is not None else "", judged.expectation.source):
        reason = reason.replace(f"; {source}", "").replace(f" ({source})", "") if source else reason
    return reason


def gigabytes(samples: Samples, gbps: float) -> str:
    """A goodput in GB/s, as nvbandwidth and OSU say it; of a collective the bus bandwidth, as nccl-tests and rccl-tests
    compare it with a link (their PERFORMANCE.md)."""
    ranks = len(samples.ranks)
    if samples.operation not in COLLECTIVES or ranks < 2:
        return f"{number(gbps / 8)} GB/s"
    return f"{number(gbps / 8 * bus_factor(samples.operation, ranks))} GB/s bus"


def in_gigabytes(judged: Judgement) -> str:
    """A metric in GB/s; empty for a latency."""
    return gigabytes(judged.samples, judged.value) if quantity_of(judged) == "goodput" else ""


def short_name(judged: RunJudgement) -> str:
    """The check without its partition and environment; else what was measured."""
    name = judged.test.partition(" @")[0] if judged.test else facts_of(judged).name
    return name.replace(" %", " ").replace("transport=", "")


def counts(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each verdict, worst first, such as `1 FAIL, 11 PASS`."""
    numbers = Counter(verdicts)
    return ", ".join(f"{numbers[verdict]:,} {verdict.value}" for verdict in reversed(Verdict) if numbers[verdict])


def percent(share: float | None) -> str:
    """A share in percent with one decimal; `-` where it is unknown."""
    return "-" if share is None else f"{100 * share:.1f} %"


def short_message(problem: Finding, judged: RunJudgement) -> str:
    """The message without the file that it begins with, for where the file is named already."""
    return replace(problem, files=(judged.run.path,)).reason


def quantity_of(judged: Judgement) -> Quantity:
    """Whether a metric is a goodput or a latency."""
    return "goodput" if judged.better == "higher" else "latency"


def name_of_group(judged: Judgement) -> str:
    """What a metric is compared with others under, such as `pingpong uncontended 1GiB goodput`."""
    samples = judged.samples
    return f"{samples.operation} {samples.schedule} {format_size(samples.bytes)} {quantity_of(judged)}"


def groups_of(judged: RunJudgement) -> tuple[MetricGroup, ...]:
    """The metrics of a run by what they measure, worst group first, else in the order of the run."""
    members_of: dict[tuple[str, str, str, int, Quantity, str], list[Judgement]] = {}
    for judgement in judged.judgements:
        samples = judgement.samples
        key = (
            samples.operation,
            samples.implementation,
            samples.schedule,
            samples.bytes,
            quantity_of(judgement),
            judgement.unit,
        )
        members_of.setdefault(key, []).append(judgement)
    groups = (MetricGroup(*key, tuple(sorted(members, key=badness))) for key, members in members_of.items())
    return tuple(sorted(groups, key=lambda each: -SEVERITY[each.verdict]))


def shown_kind(kind: str) -> str:
    """The kind of a yardstick in words: files have `siblings` for the peers of a session, `floor` for the minimum."""
    return {"siblings": "peers", "floor": "minimum"}.get(kind, kind)


#: What metrics were judged against, by the kind of their yardstick.
_AGAINST = {
    "reference": "references",
    "part": "the same part elsewhere",
    "published": "published values",
    "siblings": "peers",
    "achievable": "the achievable rate",
}


def strength(metrics: Sequence[Judgement]) -> str:
    """What metrics were judged against, to be put behind their number."""
    kinds = Counter(each.judged_by for each in metrics)
    weak = kinds.pop("floor", 0)
    baselines = [f"{kinds[kind]:,} against {_AGAINST[kind]}" for kind in LADDER if kinds[kind]]
    baselines += [f"{kinds['unjudged']:,} without a baseline"] if kinds["unjudged"] else []
    if weak and not baselines:
        return ", all only against the minimum (no references yet)"
    baselines += [f"{weak:,} only against the minimum"] if weak else []
    return f" ({', '.join(baselines)})" if baselines else ""


def weakest(judgements: Sequence[Judgement]) -> str:
    """The weakest kind of yardstick that decided one of these metrics: they are judged as well as that."""
    order = ("", *LADDER, "unjudged")
    return max((each.judged_by for each in judgements), key=order.index)


def ranks_text(samples: Samples, world: int) -> str:
    """The ranks of a measurement in a run of `world` ranks, such as `0→3`, `all 4` or `ranks 0-3`."""
    if samples.operation in PAIRS and len(samples.ranks) == 2:
        arrow = "↔" if samples.operation == "bidirectional" else "→"
        return f"{samples.ranks[0]}{arrow}{samples.ranks[1]}"
    if samples.ranks == tuple(range(world)):
        return f"all {world}"
    text = f"ranks {list_ranks(samples.ranks)}"
    if len(text) > _LONGEST_GROUP_NAME:
        text = f"{len(samples.ranks)} ranks {text[6 : _LONGEST_GROUP_NAME - 8]}…"
    return text


def facts_of(judged: RunJudgement) -> RunFacts:
    """What the head of a run's card shows: program, time, nodes, operations, software and tuning."""
    run, header = judged.run, judged.run.header
    plan: Mapping[str, Any] = header.get("plan", {})
    environment = tuple(sorted((str(name), str(value)) for name, value in header.get("environment", {}).items()))
    tuning = tuple(each for each in environment if not set_by_launcher(each[0]))
    arguments = [str(each) for each in header.get("command", [])]
    nodes = _nodes(run.ranks)
    operations = list(dict.fromkeys(each.operation for each in run.samples)) or list(plan.get("operations", []))
    what = few(operations, _MOST_OPERATIONS) or "nothing measured"
    if "transport" in header:
        what += f" over {header['transport']}"
        if header["transport"] == "mpi":
            what += f" ({_library(header.get('libraries', {}).get('mpi', {}))})"
    what = ", ".join([what, *_settings(plan)])
    clock = header.get("clock")
    program = f"{header.get('program', '?')} {header.get('version', '')}".strip()
    if header:
        program += f", backend {header.get('backend')} on {header.get('platform')}"
    if clock:
        program += f", clock {clock.get('source')} ({clock.get('overhead_ns')} ns)"
    return RunFacts(
        path=run.path,
        name=judged.test or what,
        what=what,
        where=_where(run.ranks, nodes),
        started=str(header.get("started_utc", "unknown")),
        program=program if header else "unknown: the file has no valid header",
        nodes=nodes,
        libraries=tuple(_library(each) for each in header.get("libraries", {}).values()),
        environment=tuning,
        launcher_environment=tuple(each for each in environment if each not in tuning),
        differences=tuple(
            _difference(each) for each in header.get("environment_differences", []) if not set_by_launcher(each["name"])
        ),
        command=tuple(map(shlex.quote, [*_assignments(tuning), *arguments])) if arguments else (),
        proof=_proof(run.footer),
        records=_records(judged),
        remarks=tuple(_remarks(header, plan)),
    )


def with_job_script(facts: RunFacts, result: Path) -> RunFacts:
    """The facts with what the job script beside the result file loads and sets, and the launch that wrote the file, as
    their command; unchanged where there is no such script."""
    script = job_script.read_script(result.parent / job_script.NAME)
    launch = next((line for line, _ in job_script.launches(script) if result.name in line), "")
    if not launch:
        return facts
    return replace(facts, command=tuple(" && ".join([*job_script.set_up(script), launch]).split(" ")))


def _settings(plan: Mapping[str, Any]) -> Iterable[str]:
    """What tells the run from others of the same operations and transport; nothing of what is usual."""
    yield from filter(None, (SETTINGS[name].text.format(value) for name, value in chosen_settings(plan).items()))
    if plan.get("shared_devices"):
        yield "processes sharing GPUs"


def _assignments(environment: Sequence[tuple[str, str]]) -> Iterable[str]:
    return ["env", *(f"{name}={value}" for name, value in environment)] if environment else []


def _nodes(ranks: Sequence[Rank]) -> tuple[HostSummary, ...]:
    hosts: dict[str, list[Rank]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host, []).append(rank)
    return tuple(HostSummary(host, list_ranks(each.rank for each in own), _devices(own)) for host, own in hosts.items())


def _devices(ranks: Sequence[Rank]) -> str:
    devices = {each.device.uuid: each.device.name for each in ranks if each.device is not None}
    if not devices:
        return "no device"
    return ", ".join(f"{times} x {name}" for name, times in Counter(devices.values()).items())


def _where(ranks: Sequence[Rank], nodes: Sequence[HostSummary]) -> str:
    if not nodes:
        return "nodes unknown"
    if len(nodes) == 1:
        devices = f" with {nodes[0].devices}" if nodes[0].devices != "no device" else ""
        return f"{plural(len(ranks), 'rank')} on {nodes[0].host}{devices}"
    devices = f", each with {nodes[0].devices}" if len({each.devices for each in nodes}) == 1 else ""
    devices = "" if devices.endswith("no device") else devices
    return f"{len(ranks)} ranks on {len(nodes)} nodes ({nodes[0].host} … {nodes[-1].host}){devices}"


def _library(library: Mapping[str, Any]) -> str:
    driver = f" (driver {library['driver']})" if library.get("driver") else ""
    return f"{library.get('name')} {library.get('version')}{driver}"


def _difference(difference: Mapping[str, Any]) -> str:
    value = difference.get("value")
    what = f"without {difference.get('name')}" if value is None else f"{difference.get('name')}={value}"
    return f"rank {difference.get('rank')}: {what}"


def _proof(footer: Mapping[str, Any] | None) -> str:
    proof: Mapping[str, Any] = (footer or {}).get("proof", {})
    paths: Mapping[str, Any] = proof.get("paths", {})
    if not paths:
        return "no library reported which path the data took"
    return f"{', '.join(f'{path} ({times})' for path, times in paths.items())}, as {proof.get('evidence')} says"


def _records(judged: RunJudgement) -> str:
    run = judged.run
    times = sum(each.count for each in run.samples)
    planned = run.header.get("expected_records", "an unknown number of")
    end = "the run completed" if run.footer is not None else "the run did not complete"
    return f"{len(run.samples)} of {planned} planned records with {times} iterations; {end}"


def _remarks(header: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterable[str]:
    if plan.get("injected") is not None:
        yield f"a defect was planted on request: {plan['injected']}"
    if header.get("oversubscribed"):
        yield "ranks share cores, because the node has fewer cores than ranks"
    if header.get("few_cores"):
        yield "ranks have no spare core for the threads that send GPU data to other nodes"
    if plan.get("shared_devices"):
        yield "ranks were allowed to share a device"
