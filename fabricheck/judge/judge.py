"""The verdict on a run: its metrics against what the hardware allows and what the system once gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import LADDER, Expectation, Judgement, Reference, Yardstick
from fabricheck.records.metrics import LARGE_BYTES, Metric, Quantity, expected_metric_names, metrics_of
from fabricheck.records.operations import COLLECTIVES
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.statistics.iterations import fewest_for_interval, median_interval
from fabricheck.units import apart, few
from fabricheck.yardsticks.policy import LatencyRule, Policy

#: From here on links decide; below libraries change protocols: NCCL was 31% and 42% below its curve at 16 MiB (over 8
#: A100 and over 2 nodes of 8 H100: benchmarks/published_values.csv).
LARGE_TO_LINKS = 64 << 20


def strongest(yardsticks: Iterable[Yardstick]) -> Yardstick | None:
    """The first of `yardsticks` in the order of LADDER; of two of one kind, the one that was given first."""
    return min(yardsticks, key=lambda each: LADDER.index(each.kind), default=None)


def strongest_level(
    metric: Metric,
    expectation: Expectation,
    reference: Reference | None,
    known: Iterable[Yardstick],
    policy: Policy,
) -> Yardstick | None:
    """The strongest yardstick that says how fast a metric has to be; None where there is a floor at best.

    An owner's bound counts for more than what links could carry. Owners of one fabric differ: the loosest of their
    bounds counts, and none that is beyond what the same was measured to give.
    """
    levels = [each for each in known if not each.alarm]
    loosest = _loosest(metric, known)
    if reference is not None:
        levels.append(of_reference(metric, reference))
    elif loosest is None and expectation.achievable is not None:
        levels.append(_achievable(metric, expectation, expectation.achievable, policy))
    level = _closest(metric, levels)
    if level is None or loosest is None:
        return level or loosest
    sign = 1 if metric.better == "higher" else -1
    contradicted = sign * loosest.bound > sign * level.value
    return level if contradicted or sign * level.bound > sign * loosest.bound else loosest


def _loosest(metric: Metric, yardsticks: Iterable[Yardstick]) -> Yardstick | None:
    """The bound of the owner who requires the least."""
    sign = 1 if metric.better == "higher" else -1
    return min((one for one in yardsticks if one.alarm), key=lambda one: sign * one.bound, default=None)


def _closest(metric: Metric, yardsticks: Iterable[Yardstick]) -> Yardstick | None:
    """The strongest; in place of its bound a tighter one of a weaker yardstick, which all that was measured keeps.

    Who knows more must not be told less: a reference of few runs, or a part of which one machine is known, has a wide
    bound. A system, or a part, that is known to give less has a value out of the other's bound, which is not for it
    then. What links could carry is not asked where this very system was measured.
    """
    yardsticks = list(yardsticks)
    level = strongest(yardsticks)
    if level is None:
        return level
    sign = 1 if metric.better == "higher" else -1
    weaker = ("part",) if level.kind == "reference" else ("published", "achievable")
    measured = (
        [level.value] if level.kind == "reference" else [one.value for one in yardsticks if one.kind != "achievable"]
    )
    others = (strongest(each for each in yardsticks if each.kind == kind) for kind in weaker)
    tighter = [
        each
        for each in others
        if each is not None
        and sign * level.bound < sign * each.bound
        and all(sign * each.bound <= sign * value for value in measured)
    ]
    return max(tighter, key=lambda each: sign * each.bound, default=level)


def of_reference(metric: Metric, reference: Reference) -> Yardstick:
    """A reference as a yardstick. It has a bound on the side that is worse, or was refused before."""
    worse, gain = reference.lower, reference.upper
    if metric.better == "lower":
        worse, gain = gain, worse
    assert worse is not None
    bound = reference.value * (1 + worse)
    better = reference.value * (1 + gain) if gain is not None else None
    return Yardstick("reference", reference.value, bound, reference.provenance, better)


def _achievable(metric: Metric, expectation: Expectation, value: float, policy: Policy) -> Yardstick:
    collective = metric.samples.operation in COLLECTIVES
    margin = policy.achievable_margin_of_collectives if collective else policy.achievable_margin
    if expectation.achievable_margin is not None:
        margin = expectation.achievable_margin
    if metric.samples.bytes < LARGE_TO_LINKS:
        margin = policy.achievable_margin_of_small
    bound = value * (1 - margin) if metric.better == "higher" else value / (1 - margin)
    source = f"{expectation.achievable_source}; {expectation.source}; margin {margin:.0%}"
    return Yardstick("achievable", value, bound, source)


# What a metric should be, in its unit; the second argument is `goodput` or `latency`.
Expect = Callable[[Samples, Quantity], Expectation]

# How a yardstick is called before its value.
_NAMES = {
    "reference": "reference",
    "part": "same part's",
    "published": "published",
    "achievable": "achievable",
    "siblings": "median",
}

NO_EXPECTATION = Expectation(None, None, None, 0.0, "no model of this system")


# What is known of a metric beside its reference: yardsticks of parts and papers (`fabricheck.judge.judge`).
Known = Callable[[Metric, Expectation], Iterable[Yardstick]]


def judge_run(
    run: Run,
    expect: Expect,
    references: Mapping[str, Reference],
    policy: Policy | None = None,
    known: Known = lambda metric, expectation: (),
) -> RunJudgement:
    """The judgement of every metric of `run` and of the run as a whole.

    `expect` gives the expectation for one samples line and quantity (`NO_EXPECTATION` where it is unknown);
    `references` are by metric name; `known` gives the yardsticks of parts and papers. What peers of the same run show
    is added by `fabricheck.judge.siblings`. A metric is judged in this order; the first that applies is its verdict:

    - INVALID: the value is zero, negative, NaN, infinite or beyond the ceiling of plausibility; or its expectation or
      reference is broken.
    - FAIL: the data were wrong, whatever the speed; or the value is under the floor, `floor_fraction` of expected
      (a latency: above expected / `floor_fraction`, or, where the model expects nothing, above the policy's limit).
    - DEGRADED: the median is worse than the bound of its strongest yardstick (reference, part, published, achievable)
      and noise does not explain it. Noise explains it where
      the confidence interval of the median reaches the bound and is not wider than the policy excuses; then the
      verdict is PASS and the reason says that it straddles the bound. So a run that is a hair under the bound does
      not flap, and a run too noisy to tell, or with too few iterations for an interval, cannot hide a loss.
    - INCOMPLETE: there is no yardstick and no floor, so that the metric is unjudged.
    - PASS, which without a reference says by what it was judged.

    The run's verdict is the worst of its metrics and problems, to which are added: a metric that the plan promises and
    are missing (INCOMPLETE), a run that promises none, and data that were not verified (INVALID).
    """
    policy = policy if policy is not None else Policy()
    metrics = metrics_of(run)
    judgements = tuple(
        _judge(
            metric,
            expect(metric.samples, metric.quantity),
            references.get(metric.name),
            known,
            _Rules(policy, policy.latency(run) if metric.quantity == "latency" else None),
        )
        for metric in metrics
    )
    judgements = tuple(_beside_traffic(judged, expect) for judged in judgements)
    problems = (*run.problems, *_missing(run, metrics), *_unverified(run, policy))
    verdict = worst([*(each.verdict for each in problems), *(each.verdict for each in judgements)])
    return RunJudgement(run, verdict, problems, judgements)


def _missing(run: Run, metrics: tuple[Metric, ...]) -> Iterator[Finding]:
    expected = expected_metric_names(run.header)
    have = {metric.name for metric in metrics}
    missing = [name for name in expected if name not in have]
    if missing:
        text = f"{len(missing)} of {len(expected)} metrics are missing: {few(missing)}"
        yield Finding("metrics-missing", Verdict.INCOMPLETE, f"{run.path}: {text}; see the benchmark's error output")
    elif not metrics and not (run.problems and not run.header):  # a run that ended before its header says why
        yield Finding("nothing-measured", Verdict.INVALID, f"{run.path}: the run has no metric to judge")


def _unverified(run: Run, policy: Policy) -> Iterator[Finding]:
    if run.header and run.header["program"] in policy.unverifiable:
        return
    if policy.verification_required and any(each.wrong_bytes < 0 for each in run.samples):
        text = "the data were not verified, so the speed proves nothing: leave out --verify off"
        yield Finding("not-verified", Verdict.INVALID, f"{run.path}: {text}")


def _beside_traffic(judged: Judgement, expect: Expect) -> Judgement:
    """INVALID for a victim whose aggressors hardly sent: that it was not slowed down proves nothing then.

    Their floor is that of the same messages alone, of which a fair share is left to them beside the victim.
    """
    aggressor = judged.samples.aggressor
    if aggressor is None:
        return judged
    expectation = expect(aggressor, "goodput")
    # Two that share a link fairly have half of it each.
    least = (expectation.expected or 0.0) * expectation.floor_fraction / 2
    reached = float(np.median(aggressor.goodput_gbps))
    if reached >= least:
        return judged
    text = (
        f"aggressors reached {reached:.4g} Gb/s, less than half of their minimum ({2 * least:.4g} Gb/s; "
        f"{expectation.source}): too little traffic; raise --aggressor-size, or check their links"
    )
    return replace(judged, verdict=Verdict.INVALID, reason=text)


@dataclass(frozen=True)
class _Case:
    """One metric with all that it is judged by; floor and ceiling are in its unit, `None` where there is none."""

    metric: Metric
    value: float
    interval: tuple[float, float]
    yardstick: Yardstick | None
    policy: Policy
    floor: float | None
    floor_source: str
    ceiling: float | None
    ceiling_source: str

    @property
    def higher_is_better(self) -> bool:
        return self.metric.better == "higher"

    def worse(self, value: float, than: float) -> bool:
        return value < than if self.higher_is_better else value > than

    def say(self, value: float) -> str:
        return f"{value:,.0f} {self.metric.unit}" if value >= 1e4 else f"{value:.4g} {self.metric.unit}"


@dataclass(frozen=True)
class _Rules:
    """The policy, and what it says of this run's latencies."""

    policy: Policy
    latency: LatencyRule | None


def _judge(
    metric: Metric, expectation: Expectation, reference: Reference | None, known: Known, rules: _Rules
) -> Judgement:
    policy, latency = rules.policy, rules.latency
    with np.errstate(all="ignore"):
        value = metric.value
        interval = (value, value)
        if np.isfinite(metric.values).all():
            of = metric.samples
            interval = median_interval(metric.values, policy.confidence, in_order=of.in_order, rank_error=of.rank_error)
    broken = _broken(metric, expectation, reference)
    decided = _Decided(Verdict.INVALID, broken or "")
    alarms: tuple[Yardstick, ...] = ()
    if broken is None:
        yardsticks = tuple(known(metric, expectation))
        level = strongest_level(metric, expectation, reference, yardsticks, policy)
        floor = _floor(metric, expectation, latency)
        alarms = tuple(one for one in yardsticks if one.alarm)
        if yardsticks and floor[0] is not None:  # what others measured or accept is not broken
            least = min if metric.better == "higher" else max
            floor = (least(floor[0], *(one.bound for one in yardsticks)), floor[1])
        ceiling = _ceiling(metric, expectation, reference, latency, policy)
        decided = _decide(_Case(metric, value, interval, level, policy, *floor, *ceiling))
    return Judgement(
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        value=value,
        interval=interval,
        verdict=decided.verdict,
        reason=decided.reason,
        calibrated=reference is not None,
        expectation=expectation,
        reference=reference,
        samples=metric.samples,
        yardstick=decided.yardstick,
        alarms=alarms,
    )


def _broken(metric: Metric, expectation: Expectation, reference: Reference | None) -> str | None:
    """Why a yardstick cannot be used: a comparison with NaN is never true, so it would let everything pass."""
    for name in ("nominal", "expected", "ceiling", "achievable"):
        value = getattr(expectation, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            return f"the model's {name} value is {value}: fix the topology ({expectation.source})"
    if not 0 <= expectation.floor_fraction <= 1:
        return f"the floor is {expectation.floor_fraction} of the expected value instead of between 0 and 1"
    if reference is None:
        return None
    where = f"fix the reference ({reference.provenance})"
    if not (math.isfinite(reference.value) and reference.value > 0):
        return f"the reference is {reference.value}: {where}"
    if reference.unit != metric.unit:
        return f"the reference is in {reference.unit} and the metric in {metric.unit}: {where}"
    # A lower bound of -1 or less and an endless upper one let everything pass.
    lower, upper = reference.lower, reference.upper
    if (lower is not None and not -1 < lower <= 0) or (upper is not None and not 0 <= upper < math.inf):
        return f"the bounds of the reference are {lower} and {upper}: {where}"
    if (lower if metric.better == "higher" else upper) is None:
        return f"the reference has no bound on the worse side, so everything would pass: {where}"
    return None


def _floor(metric: Metric, expectation: Expectation, latency: LatencyRule | None) -> tuple[float | None, str]:
    if expectation.expected is not None and expectation.floor_fraction > 0:
        share = f"{expectation.floor_fraction * 100:.3g}% of the expected {expectation.expected:.4g} {metric.unit}"
        if metric.quantity == "goodput":
            return expectation.floor_fraction * expectation.expected, f"{share}; {expectation.source}"
        return expectation.expected / expectation.floor_fraction, f"1/{share}; {expectation.source}"
    if latency is not None:
        limit = latency.limit_for(metric.samples.operation, len(metric.samples.ranks))
        return limit, latency.source
    return None, ""


def _ceiling(
    metric: Metric,
    expectation: Expectation,
    reference: Reference | None,
    latency: LatencyRule | None,
    policy: Policy,
) -> tuple[float | None, str]:
    """The bound of plausibility in the metric's unit: a goodput is not above it, a latency not below."""
    if expectation.ceiling is not None:
        return expectation.ceiling, expectation.source
    if latency is not None:
        return latency.minimum_us, latency.source
    known = [each for each in (expectation.nominal, expectation.expected) if each is not None]
    if reference is not None:
        known.append(reference.value)
    if not known:
        return None, ""
    factor = policy.implausible_factor
    why = f"{factor:g} times better than all baselines, and the model has no ceiling"
    return (max(known) * factor if metric.quantity == "goodput" else min(known) / factor), why


@dataclass(frozen=True)
class _Decided:
    verdict: Verdict
    reason: str
    yardstick: Yardstick | None = None


def _decide(case: _Case) -> _Decided:
    value, metric = case.value, case.metric
    if (metric.samples.times_ns <= 0).any():
        return _Decided(Verdict.INVALID, "some iterations have a time of zero")
    if not math.isfinite(value) or value <= 0:
        return _Decided(Verdict.INVALID, f"{value} {metric.unit} is not a measurement")
    if case.ceiling is not None and case.worse(case.ceiling, value):
        side = "above the highest" if case.higher_is_better else "below the lowest"
        return _Decided(
            Verdict.INVALID,
            f"{case.say(value)} is {side} plausible value, {case.say(case.ceiling)} ({case.ceiling_source}): "
            "something else was measured",
        )
    if metric.samples.wrong_bytes > 0:
        return _Decided(Verdict.FAIL, f"{metric.samples.wrong_bytes} wrong bytes; at {case.say(value)}")
    floor = Yardstick("floor", case.floor, case.floor, case.floor_source) if case.floor is not None else None
    if floor is not None and case.worse(value, floor.bound):
        hint = "; the message may be too small to reach it" if _is_small(metric) else ""
        share = f" ({case.floor_source.partition(';')[0]})" if case.higher_is_better else ""
        return _Decided(Verdict.FAIL, f"{case.say(value)}: {_side(case)} the {_limit(case, floor)}{share}{hint}", floor)
    if case.yardstick is not None:
        return _against(case, case.yardstick)
    if floor is None:
        return _Decided(
            Verdict.INCOMPLETE,
            f"{case.say(value)}: no baseline exists (model, part, published value or reference)",
        )
    side = "above" if case.higher_is_better else "below"
    text = f"{case.say(value)}: {side} the {_limit(case, floor)}; no reference yet"
    return _Decided(Verdict.PASS, text, floor)


def _against(case: _Case, yardstick: Yardstick) -> _Decided:
    value, bound = case.value, yardstick.bound
    source = "" if yardstick.kind == "reference" else f" ({yardstick.source})"
    than = f"the {_NAMES[yardstick.kind]} {case.say(yardstick.value)}{source}"
    if yardstick.alarm:
        than = f"the {yardstick.source}"
    compared = f"{case.say(value)}: {apart(value, yardstick.value)} {than}"
    if not case.worse(value, bound):
        text = f"{compared}, within its bounds"
        if yardstick.gain is not None and case.worse(yardstick.gain, value):
            text = f"{compared}: better than its bound; re-measure the reference (fabricheck calibrate)"
        return _Decided(Verdict.PASS, text, yardstick)
    low, high = case.interval
    interval = f"the {case.policy.confidence:.0%} interval of the median, {low:.4g} to {high:.4g} {case.metric.unit},"
    beyond = f"{compared}, beyond its bound of {case.say(bound)}"
    nearest = high if case.higher_is_better else low
    if case.worse(nearest, bound):
        return _Decided(Verdict.DEGRADED, f"{beyond}; {interval} is entirely beyond it", yardstick)
    count = case.metric.values.size
    if count < fewest_for_interval(case.policy.confidence):
        return _Decided(Verdict.DEGRADED, f"{beyond}; {count} iterations are too few to rule out noise", yardstick)
    half_width = (high - low) / 2 / value
    if half_width > case.policy.excusable_half_width:
        text = f"{beyond}; {interval} is too wide (±{half_width:.1%}) to call that noise"
        return _Decided(Verdict.DEGRADED, text, yardstick)
    text = f"{compared}: {interval} straddles the bound of {case.say(bound)}, so it may be noise"
    return _Decided(Verdict.PASS, text, yardstick)


def _side(case: _Case) -> str:
    return "below" if case.higher_is_better else "above"


def _limit(case: _Case, floor: Yardstick) -> str:
    """A goodput has a minimum; a latency must not be above its limit."""
    return f"{'minimum' if case.higher_is_better else 'limit'} of {case.say(floor.bound)}"


def _is_small(metric: Metric) -> bool:
    """Whether a goodput may be bound by latency: fast links need some MiB."""
    return metric.quantity == "goodput" and metric.samples.bytes < LARGE_BYTES
