"""Whether the metrics that cross one part are worse than their references together, although none is alone.

Metrics of a launch share something, and so may those of a part: how much, `fabricheck calibrate` measures on healthy
sessions and writes beside the references (`Together`). With it the sum of the deviations of a part's metrics is held
against what it does in healthy sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.statistics.constants import FEWEST_MEMBERS, LEAST_LOSS, MOST_FAULTS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: All metrics of a launch, and of a session, by the kinds of parts.
LAUNCH, SESSION = "launch", "session"


@dataclass(frozen=True)
class Together:
    """How the metrics of a part stray together from their references in healthy sessions.

    `bounds`: by unit, how many standard deviations of one more launch lie between a reference and its bound. `launch`:
    the share of their variance that all metrics of a launch have in common. `parts`: by kind of part, the standard
    deviation of what its metrics have in common beside that, in those of one metric. `limit`: the score that no part of
    a healthy session passes, but at the rate of false alarms.
    """

    bounds: Mapping[str, float]
    launch: float
    parts: Mapping[str, float]
    limit: float


@dataclass(frozen=True, eq=False)
class PartMetrics:
    """The metrics, by number, that cross what has these `names`, and the `kinds` of these."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    metrics: Ints


@dataclass(frozen=True)
class SlowPart:
    """A part, and by how many standard deviations its metrics are worse together."""

    part: PartMetrics
    score: float


def kind_of(name: str) -> str:
    """The kind of a part, such as `gpu` of `nid001:gpu2`, and `node` of `nid001`."""
    _, colon, part = name.partition(":")
    return re.sub(r"[0-9]+", "", part) if colon else "node"


def parts_of(components: Sequence[Sequence[str]], launch: Ints) -> tuple[PartMetrics, ...]:
    """The parts that two metrics or more of a launch cross, or of several launches; all of a launch and of the session.

    `components`: the names that each metric crosses; `launch`: the number of its launch. Names that the same metrics
    cross are one part.
    """
    numbers: dict[tuple[str, int], list[int]] = {}
    launches: dict[str, set[int]] = {}
    for number, (names, of) in enumerate(zip(components, launch.tolist(), strict=True)):
        for name in (*names, ""):
            launches.setdefault(name, set()).add(of)
            for place in (of, -1):
                numbers.setdefault((name, place), []).append(number)
    merged: dict[bytes, list[tuple[str, str]]] = {}
    for (name, of), members in numbers.items():
        if len(members) >= FEWEST_MEMBERS and (of >= 0 or len(launches[name]) > 1):
            kind = kind_of(name) if name else SESSION if of < 0 else LAUNCH
            merged.setdefault(np.asarray(members, dtype=np.int64).tobytes(), []).append((name, kind))
    return tuple(
        PartMetrics(
            tuple(dict.fromkeys(name for name, _ in sorted(same) if name)),
            tuple(dict.fromkeys(kind for _, kind in sorted(same))),
            np.frombuffer(members, dtype=np.int64),
        )
        for members, same in merged.items()
    )


def scores_of(values: Floats, launch: Ints, parts: Sequence[PartMetrics], shared: float) -> tuple[Floats, Floats]:
    """The score of each part and its variance, both shape (parts,), where nothing but the launch is shared.

    `values`, shape (metrics,): deviations in standard deviations, more is worse, NaN where there is none; `shared`: the
    share of the variance that metrics of one launch have in common. Score ÷ √variance is the most powerful statistic
    for a shift of all metrics of the part (generalised least squares: Aitken 1935).
    """
    known = np.isfinite(values)
    number = int(launch.max()) + 1 if launch.size else 0
    clean = np.where(known, values, 0.0)
    size = np.bincount(launch, known, number)
    total = np.bincount(launch, clean, number)
    member = np.concatenate([each.metrics for each in parts]) if parts else np.zeros(0, dtype=np.int64)
    owner = np.repeat(np.arange(len(parts)), [each.metrics.size for each in parts])
    place, inverse = np.unique(owner * max(number, 1) + launch[member], return_inverse=True)
    of_part, of_launch = place // max(number, 1), place % max(number, 1)
    count = np.bincount(inverse, known[member], place.size)
    own = np.bincount(inverse, clean[member], place.size)
    rest = 1 - shared
    drawn = shared * count / (rest + shared * size[of_launch])
    score = (own - drawn * total[of_launch]) / rest
    variance = (count - drawn * count) / rest
    scores, variances = (np.bincount(of_part, each, len(parts)) for each in (score, variance))
    return np.asarray(scores, dtype=np.float64), np.asarray(variances, dtype=np.float64)


def standardised(
    score: Floats, variance: Floats, parts: Sequence[PartMetrics], shared_by_parts: Mapping[str, float]
) -> Floats:
    """Scores in their standard deviations, with what metrics of a part of its kind share in healthy sessions."""
    own = np.array([max((shared_by_parts.get(kind, 0.0) for kind in each.kinds), default=0.0) for each in parts])
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = score / np.sqrt(variance * (1 + own**2 * variance))
    return np.where(variance > 0, scores, 0.0)


def slow_parts(
    values: Floats, worse: Floats, launch: Ints, parts: Sequence[PartMetrics], together: Together
) -> Iterator[SlowPart]:
    """The parts whose metrics are worse together than healthy ones are, the worst first, each without those before.

    `worse`: by how much the metrics are, as logarithms; a part whose middle metric is nearer to none than to
    LEAST_LOSS is none.
    """
    values, number = values.copy(), 0
    lost = np.array([np.median(worse[each.metrics]) >= LEAST_LOSS / 2 for each in parts], dtype=np.bool_)
    while lost.any() and number < MOST_FAULTS:
        scores = standardised(*scores_of(values, launch, parts, together.launch), parts, together.parts)
        worst = int(np.where(lost, scores, -np.inf).argmax())
        if scores[worst] <= together.limit:
            return
        yield SlowPart(parts[worst], float(scores[worst]))
        values[parts[worst].metrics] = np.nan
        number += 1
