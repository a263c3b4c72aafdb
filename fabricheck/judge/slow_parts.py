"""Judges the metrics of each GPU, NIC, link and node together against their references."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import short_host
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import MOST_OF_METRIC
from fabricheck.statistics.parts import (
    LAUNCH,
    SESSION,
    Floats,
    Ints,
    PartMetrics,
    SlowPart,
    Together,
    parts_of,
    slow_parts,
)
from fabricheck.topology.components import components_of
from fabricheck.yardsticks.node_levels import is_of
from fabricheck.yardsticks.references import References

# A metric: the numbers of its run and of its judgement there.
_Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Metrics:
    """The metrics that references of one source judge: how far each is worse, in standard deviations and as a
    logarithm, and the number of its launch."""

    places: tuple[_Place, ...]
    components: tuple[tuple[str, ...], ...]
    values: Floats
    worse: Floats
    launch: Ints

    @cached_property
    def parts(self) -> tuple[PartMetrics, ...]:
        return parts_of(self.components, self.launch)

    def slow_parts(self, together: Together) -> Iterator[SlowPart]:
        """The parts whose metrics are worse together than healthy ones are."""
        return slow_parts(self.values, self.worse, self.launch, self.parts, together)

    def by_launch(self) -> Iterator[_Metrics]:
        """Those of each launch."""
        for launch in np.unique(self.launch):
            own = np.flatnonzero(self.launch == launch)
            yield replace(
                self,
                places=tuple(self.places[each] for each in own),
                components=tuple(self.components[each] for each in own),
                values=self.values[own],
                worse=self.worse[own],
                launch=np.zeros_like(own),
            )


def judge_parts(runs: Sequence[RunJudgement], references: References | None) -> tuple[RunJudgement, ...]:
    """The runs of a session, with the metrics DEGRADED that are slow with all of their part, in all launches together
    or in one, as the check of that judges it.

    References that do not say how parts stray (`References.together`), and launches on nodes that they were not
    measured on, are left out.
    """
    verdicts = [list(run.judgements) for run in runs]
    for source, together in (references.together if references is not None else {}).items():
        assert references is not None
        metrics = _metrics_of(runs, source, together, references.nodes.get(source, frozenset()))
        for own in (metrics, *metrics.by_launch()):
            for slow in own.slow_parts(together):
                _mark(slow, own, verdicts)
    return tuple(run.with_judgements(own) for run, own in zip(runs, verdicts, strict=True))


def _metrics_of(runs: Sequence[RunJudgement], source: str, together: Together, nodes: frozenset[str]) -> _Metrics:
    measured = {short_host(node) for node in nodes}
    places: list[_Place] = []
    components: list[tuple[str, ...]] = []
    strays: list[tuple[float, float]] = []
    for at, run in enumerate(runs):
        hosts = {short_host(rank.host) for rank in run.run.ranks}
        if not run.trusted or any(each.verdict is Verdict.INVALID for each in run.problems):
            continue
        if measured and not hosts <= measured:
            continue
        for number, judgement in enumerate(run.judgements):
            stray = _stray(judgement, source, together.bounds)
            if stray is None:
                continue
            try:
                crossed = components_of(run.run, judgement.samples, run.topology)
            except UserError:  # devices that the topology does not have
                break
            places.append((at, number))
            components.append(tuple(one.key for one in crossed))
            strays.append(stray)
    values, worse = np.array(strays, dtype=np.float64).reshape(-1, 2).T
    launch = np.unique([run for run, _ in places], return_inverse=True)[1].astype(np.int64)
    return _Metrics(tuple(places), tuple(components), values, worse, launch)


def _stray(judged: Judgement, source: str, bounds: Mapping[str, float]) -> tuple[float, float] | None:
    """By how much a metric is worse than its reference, in standard deviations, up to its bound and MOST_OF_METRIC,
    and as a logarithm; None where that is unknown."""
    reference = judged.reference
    if reference is None or reference.unit not in bounds or not is_of(reference, source):
        return None
    if judged.verdict in (Verdict.INVALID, Verdict.INCOMPLETE) or judged.samples.wrong_bytes > 0:
        return None
    higher = judged.better == "higher"
    bound = reference.lower if higher else reference.upper
    if not bound:
        return None
    reach = abs(math.log1p(bound))
    worse = math.log(reference.value / judged.value) * (1 if higher else -1)
    stray = float(np.clip(worse / reach, -1, 1)) * bounds[reference.unit]
    return float(np.clip(stray, -MOST_OF_METRIC, MOST_OF_METRIC)), worse


def _mark(slow: SlowPart, metrics: _Metrics, verdicts: Sequence[list[Judgement]]) -> None:
    """Those metrics of a slow part that are slow themselves."""
    members = slow.part.metrics
    least = float(np.mean(metrics.values[members])) / 2
    # What stands alone in its launch has a p. Sums of values that are cut off are nearly normal.
    alone = slow.part.names and not {SESSION, LAUNCH} & set(slow.part.kinds)
    p = min(1.0, len(metrics.parts) * float(ndtr(-slow.score))) if alone else None
    for run, number in (metrics.places[each] for each in members if metrics.values[each] > least):
        judged = verdicts[run][number]
        if judged.verdict is Verdict.PASS and judged.judged_by == "reference":
            others = f"{members.size - 1} more metrics of {slow.part.names[0] if alone else 'all that was measured'}"
            reason = (
                f"{judged.reason}; but {others} are below their references, too ({slow.score:.1f} standard deviations)"
            )
            verdicts[run][number] = replace(judged, verdict=Verdict.DEGRADED, reason=reason, p=p)
