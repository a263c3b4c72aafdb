"""Two sets of runs, metric by metric: what changed, how surely, and what could not have been seen."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import numpy as np
import polars as pl
from scipy.special import stdtrit

from fabricheck.diagnosis.causes import named_of
from fabricheck.diagnosis.explain import Row, explain, known_noise
from fabricheck.errors import UserError
from fabricheck.history.left_out import without_incidents
from fabricheck.history.percent import size
from fabricheck.history.select import select_runs
from fabricheck.history.series import (
    KEY,
    NO_MEASUREMENT,
    OF_SERIES,
    MetricKey,
    by_start,
    check_history,
    components_of_keys,
    crossed_by_all,
    differences,
    matrix_of,
    number_names,
    number_rows,
)
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import BATCHES, BEFORE, FEWEST_FOR_MIDDLE, SEEN
from fabricheck.statistics.shift_test import BASE, CANDIDATE, EARLIER, CompareOptions, Floats, Ints, Tested, shift_test
from fabricheck.store.software_of_metrics import (
    Changed,
    changed_untraced,
    named_with_versions,
    software_crossed,
    upgrades,
    what_to_try,
)
from fabricheck.suite import program
from fabricheck.units import plural


class ChangeVerdict(str, Enum):
    """What can be said of a metric between two sets of runs."""

    REGRESSED = "regressed"
    CANNOT_SAY = "cannot say"
    SAME = "same"
    IMPROVED = "improved"


@dataclass(frozen=True)
class MetricChange:
    """One metric in both sets. What counts is a session: runs of one session are one value, their median.

    `base` and `candidate` are robust centres in `unit`. `change` is candidate / base - 1, with its confidence
    `interval`, and `error` the standard error of its logarithm. `smallest_change` is the least relative loss that
    sessions as many and as noisy would have shown as regressed with the power of the options.
    `p_worse` and `p_better` are one-sided and not corrected for the number of metrics.
    """

    key: MetricKey
    unit: str
    better: str
    base: float
    candidate: float
    base_sessions: int
    candidate_sessions: int
    change: float
    interval: tuple[float, float]
    error: float
    p_worse: float
    p_better: float
    smallest_change: float
    verdict: ChangeVerdict
    unequal: tuple[str, ...]
    components: tuple[Component, ...]


@dataclass(frozen=True)
class Side:
    """One of the two sets: the selection as it was requested, and what it came to."""

    selection: str
    sessions: tuple[str, ...]
    runs: int
    software: tuple[str, ...]
    not_measured: int  # rows left out because they are INVALID or INCOMPLETE


@dataclass(frozen=True)
class Comparison:
    """The metrics that both sides have, worst first, `findings` of what explains several that regressed, and metrics of
    one side only.

    `vanished` are those of the base, `new` those of the candidate.
    """

    system: str
    base: Side
    candidate: Side
    options: CompareOptions
    metrics: tuple[MetricChange, ...]
    findings: tuple[Finding, ...]
    vanished: tuple[MetricKey, ...]
    new: tuple[MetricKey, ...]
    software_changes: tuple[str, ...]
    unequal: tuple[str, ...]
    advice: tuple[str, ...]  # what would have to be run for an answer
    left_out: tuple[str, ...] = ()  # past incidents of the base and of what was before, a line each

    def count(self, verdict: ChangeVerdict) -> int:
        """How many metrics have this verdict."""
        return sum(each.verdict is verdict for each in self.metrics)

    @property
    def exit_status(self) -> int:
        """1 where something regressed; else 4 where a metric vanished or nothing can be said of one; else 0."""
        if self.count(ChangeVerdict.REGRESSED):
            return 1
        return 4 if self.vanished or self.count(ChangeVerdict.CANNOT_SAY) or not self.metrics else 0


def compare(
    history: pl.DataFrame,
    system: str,
    base: str,
    candidate: str,
    options: CompareOptions | None = None,
    *,
    now: datetime | None = None,
) -> Comparison:
    """Compare two selections (as `select_runs` takes them) of a system's history.

    Runs of the history that are in neither and earlier than the candidate tell how much a metric varies. Raises
    UserError for a history that is not right (`check_history`), for selections without runs and for such that share
    one.
    """
    options = options or CompareOptions()
    history = history.select(*OF_SERIES, "tuning", "tags")  # else the other columns would stay in memory
    kept = check_history(history, now=now)
    known_by = history.select("run_id", "session", "started", "software", "tags", "verdict")
    sides = [select_runs(known_by, text) for text in (base, candidate)]
    runs = [side.select("run_id").unique() for side in sides]
    chosen = [kept.join(joined, on="run_id", how="semi", maintain_order="left") for joined in runs]
    for text, rows in zip((base, candidate), chosen, strict=True):
        if rows.is_empty():
            raise UserError(f"no run of {text} measured anything: all are INVALID or INCOMPLETE")
    shared = set(chosen[0]["run_id"]) & set(chosen[1]["run_id"])
    if shared:
        raise UserError(
            f"{base} and {candidate} share {len(shared)} runs, such as {min(shared)}: leave them out of one side"
        )
    earlier = kept.filter(pl.col("started") < chosen[1]["started"].min())
    for joined in runs:
        earlier = earlier.join(joined, on="run_id", how="anti", maintain_order="left")
    del history, kept, known_by, runs  # copies of a long history do not fit into memory beside what the test needs
    chosen[0], left_out = without_incidents(chosen[0])
    earlier, left_out_before = without_incidents(earlier)
    keys = [rows.select(KEY).unique().sort(KEY) for rows in chosen]
    matched = keys[0].join(keys[1], on=KEY, how="semi").sort(KEY)
    software = [_versions(rows) for rows in chosen]
    crossed = [_software(rows) for rows in chosen]
    measured = (_side(base, sides[0], chosen[0]), _side(candidate, sides[1], chosen[1]))
    facts = [_facts(matched, rows) for rows in chosen]
    recent = earlier.group_by(KEY, maintain_order=True).tail(BEFORE)
    values, side = _matrix(matched, ((EARLIER, recent), (BASE, chosen[0]), (CANDIDATE, chosen[1])))
    del chosen, sides, earlier, recent
    metrics, vanished = _metrics(matched, facts, values, side, options), _only(keys[0], keys[1])
    return Comparison(
        system=system,
        base=measured[0],
        candidate=measured[1],
        options=options,
        metrics=metrics,
        findings=_findings(metrics, crossed[0], crossed[1], (software[0], software[1])),
        vanished=vanished,
        new=_only(keys[1], keys[0]),
        software_changes=differences(software[0], software[1]),
        unequal=_unequal_runs(metrics),
        advice=tuple(_advice(system, measured, metrics, vanished, options)),
        left_out=(*left_out, *left_out_before),
    )


def _advice(
    system: str,
    sides: Sequence[Side],
    metrics: Sequence[MetricChange],
    vanished: Sequence[MetricKey],
    options: CompareOptions,
) -> Iterator[str]:
    """Yields what to run for an answer: a line for each side of too few sessions, else how many more are needed; and of
    what is not measured any more."""
    run = f"{program()} run --system {shlex.quote(system)} --tag nightly"
    few = [FEWEST_FOR_MIDDLE - len(side.sessions) for side in sides]
    for name, missing in zip(("base", "candidate"), few, strict=True):
        if missing > 0:
            have = plural(FEWEST_FOR_MIDDLE - missing, "session")
            yield (
                f"the {name} has {have}, and fewer than {FEWEST_FOR_MIDDLE} cannot show a regression: run "
                f"{plural(missing, 'more session')} with the same software, settings and tag, such as: {run}"
            )
    unknown = [metric.smallest_change for metric in metrics if metric.verdict is ChangeVerdict.CANNOT_SAY]
    if unknown and max(few) <= 0:
        smallest = float(np.median(unknown))
        margins = min(smallest / options.margin, FEWEST_FOR_MIDDLE)
        # Errors shrink as the root of the number of sessions.
        more = math.ceil(min(len(side.sessions) for side in sides) * max(margins**2 - 1, 0.0)) or 1
        yield (
            f"{plural(len(unknown), 'metric')} would show a loss of {size(smallest)}, and the margin is "
            f"{options.margin:.0%}: run about {plural(more, 'more session')} of each side, such as: {run}"
        )
    if vanished or not metrics:
        gone = plural(len(vanished), "metric")
        yield f"the candidate does not have {gone} of the base: run the same tests on both sides, such as: {run}"


def _findings(
    metrics: Sequence[MetricChange], base: _Versions, candidate: _Versions, every: tuple[_Names, _Names]
) -> tuple[Finding, ...]:
    """What explains metrics that regressed, of groups of several; `base` and `candidate` have the software of each, and
    `every` has all names with their versions on either side."""
    changed = {
        each: Changed(", ".join(sorted(base[each])), ", ".join(sorted(versions)))
        for each, versions in candidate.items()
        if each in base and not versions <= base[each]
    }
    versions = {each: ", ".join(sorted(found)) for each, found in candidate.items()}
    findings = []
    for explanation in explain([_row(each) for each in metrics], dict.fromkeys(changed, SEEN)):
        members = [metrics[number] for number in explanation.rows]
        components = named_of(explanation.components)
        if components and len(members) > 1:
            named = named_with_versions(components, changed, versions)
            advice = what_to_try(named, changed, changed_untraced(*every, upgrades(named, changed)))
            crossing = sum(components[0] in each.components for each in metrics)
            findings.append(_finding(members, named, crossing, changed, advice))
    return tuple(findings)


def _row(metric: MetricChange) -> Row:
    """A metric as a row for `explain`. A link that lost goodput may keep its latency."""
    kind = (metric.key.partition, metric.key.environment, metric.key.test, metric.unit)
    shift = math.log1p(metric.change) * (-1 if metric.better == "higher" else 1)
    is_slow = metric.verdict is ChangeVerdict.REGRESSED
    return Row(kind, metric.unit, shift, known_noise(metric.error), is_slow, dict.fromkeys(metric.components, 1.0), ())


def _finding(
    regressed: Sequence[MetricChange],
    named: tuple[Component, ...],
    crossing: int,
    changed: Mapping[Component, Changed],
    advice: str,
) -> Finding:
    worst = max(regressed, key=lambda each: abs(each.change))
    was = "".join(f"; {each.name} {old.before} -> {old.after}" for each, old in upgrades(named, changed).items())
    return Finding(
        code_of_slow(named),
        Verdict.DEGRADED,
        f"{len(regressed)} of {crossing} metrics that use it regressed{was}" + (f"; {advice}" if advice else ""),
        named,
        worst.candidate,
        worst.base,
        worst.unit,
        tuple(str(each.key) for each in regressed),
    )


_Versions = Mapping[Component, set[str]]
_Names = Mapping[str, str]


def _software(rows: pl.DataFrame) -> _Versions:
    """The versions of all software that the data of these rows passed."""
    versions: dict[Component, set[str]] = {}
    for test, software in rows.select("test", "software").unique().iter_rows():
        for component, version in software_crossed(test, software).items():
            versions.setdefault(component, set()).add(version)
    return versions


def _side(selection: str, rows: pl.DataFrame, measured: pl.DataFrame) -> Side:
    return Side(
        selection=selection,
        sessions=tuple(measured["session"].unique(maintain_order=True)),
        runs=measured["run_id"].n_unique(),
        software=tuple(measured["software"].unique().sort()),
        not_measured=rows.filter(pl.col("verdict").is_in(NO_MEASUREMENT)).height,
    )


def _only(these: pl.DataFrame, those: pl.DataFrame) -> tuple[MetricKey, ...]:
    return tuple(MetricKey(*row) for row in these.join(those, on=KEY, how="anti").sort(KEY).iter_rows())


def _versions(rows: pl.DataFrame) -> dict[str, str]:
    """The versions of all software of these rows, by name."""
    versions_of: dict[str, set[str]] = {}
    for text in rows["software"].unique():
        for name, version in json.loads(text).items():
            versions_of.setdefault(name, set()).add(str(version))
    return {name: ", ".join(sorted(versions)) for name, versions in versions_of.items()}


def _unequal_runs(metrics: Iterable[MetricChange]) -> tuple[str, ...]:
    counted = Counter(text for metric in metrics for text in metric.unequal)
    return tuple(f"{text} ({number} metrics)" for text, number in sorted(counted.items()))


def _metrics(
    keys: pl.DataFrame, facts: Sequence[pl.DataFrame], values: Floats, side: Ints, options: CompareOptions
) -> tuple[MetricChange, ...]:
    """The metrics of both sides, in the order of `keys`, by their `facts` on each side and the logarithms of their
    values, shape (metrics, sessions), with the `side` of each session."""
    if keys.is_empty():
        return ()
    sign = np.where(facts[0]["better"].to_numpy() == "higher", -1.0, 1.0)
    tested = shift_test(values * sign[:, None], side, options, kind=_kinds(keys, facts[0]["unit"].to_list()))
    centres = [np.exp(sign * each) for each in (tested.base, tested.candidate)]
    counts = [np.isfinite(values[:, side == each]).sum(axis=1) for each in (BASE, CANDIDATE)]
    quantile = -stdtrit(np.maximum(tested.freedom, 1e-9), (1 - options.confidence) / 2)
    quantile = np.where(tested.freedom > 0, quantile, np.inf)
    changes = []
    for row, key in enumerate(keys.iter_rows()):
        reach = quantile[row] * tested.error[row]
        ends = sorted(sign[row] * (tested.shift[row] + side * reach) for side in (-1, 1))
        changes.append(
            MetricChange(
                key=MetricKey(*key),
                unit=facts[0]["unit"][row],
                better=facts[0]["better"][row],
                base=float(centres[0][row]),
                candidate=float(centres[1][row]),
                base_sessions=int(counts[0][row]),
                candidate_sessions=int(counts[1][row]),
                change=math.expm1(sign[row] * tested.shift[row]),
                interval=(_relative(ends[0]), _relative(ends[1])),
                error=float(tested.error[row]),
                p_worse=float(tested.p_worse[row]),
                p_better=float(tested.p_better[row]),
                smallest_change=_loss(sign[row], tested.smallest[row]),
                verdict=_verdict(row, tested, sign[row], options),
                unequal=_unequal(facts[0], facts[1], row),
                components=components_of_keys(tuple(facts[1]["components"][row])),
            )
        )
    order = list(ChangeVerdict)
    return tuple(sorted(changes, key=lambda each: (order.index(each.verdict), each.p_worse, each.key)))


def _kinds(keys: pl.DataFrame, units: Sequence[str]) -> Ints:
    """Numbers of the metrics that vary together: those of a kind; where these are few, those of a unit."""
    kinds = [MetricKey(*key).kind for key in keys.iter_rows()]
    count = Counter(kinds)
    return number_names(kind if count[kind] >= BATCHES else unit for kind, unit in zip(kinds, units, strict=True))


def _relative(shift: float) -> float:
    """Relative change of a difference of logarithms; endless where it is beyond all numbers."""
    return math.expm1(shift) if shift < 700 else math.inf


def _loss(sign: float, shift: float) -> float:
    """The relative loss of a shift to the worse side; endless where no loss is large enough."""
    return abs(_relative(sign * shift)) if math.isfinite(shift) else math.inf


def _verdict(row: int, tested: Tested, sign: float, options: CompareOptions) -> ChangeVerdict:
    if tested.worse[row]:
        return ChangeVerdict.REGRESSED
    if tested.better[row]:
        return ChangeVerdict.IMPROVED
    return ChangeVerdict.SAME if _loss(sign, tested.smallest[row]) <= options.margin else ChangeVerdict.CANNOT_SAY


def _facts(keys: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """What is known of each metric besides its values, in the order of `keys`."""
    facts = rows.group_by(KEY).agg(
        *(pl.col(name).first() for name in ("unit", "better")),
        pl.col("nodes").list.sort().list.join("+").unique().sort(),
        pl.col("tuning").unique().sort(),
    )
    facts = facts.join(crossed_by_all(rows), on=KEY)
    return keys.join(facts, on=KEY, how="left", maintain_order="left")


def _unequal(base: pl.DataFrame, candidate: pl.DataFrame, row: int) -> tuple[str, ...]:
    texts = []
    for name in ("nodes", "tuning"):
        before, after = base[name][row].to_list(), candidate[name][row].to_list()
        if before != after:
            texts.append(f"other {name}: {', '.join(before) or 'none'} -> {', '.join(after) or 'none'}")
    return tuple(texts)


def _matrix(keys: pl.DataFrame, sides: Sequence[tuple[int, pl.DataFrame]]) -> tuple[Floats, Ints]:
    """Logarithms of the values, shape (metrics, sessions), NaN where there is none; and the side of each session.

    Runs of one session on one side are one value, their median: what the session was like is common to them.
    """
    numbered = keys.with_row_index("row")
    rows = pl.concat(
        [
            each.select("session", "started", "value", number_rows(each, numbered, *KEY, name="row"), side=pl.lit(side))
            for side, each in sides
        ]
    )
    sessions = by_start(rows, "session", "side")
    rows = rows.drop_nulls("row")
    rows = rows.select("row", "value", number_rows(rows, sessions, "session", "side", name="place"))
    logs = np.log(matrix_of(rows, (keys.height, sessions.height)))
    return logs, sessions["side"].to_numpy().astype(np.int64)
