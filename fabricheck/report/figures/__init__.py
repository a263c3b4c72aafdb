"""The figures of the report, each with the table that says the same.

Quartiles and quantiles are computed here: of the samples themselves nothing goes into a report.
"""

from __future__ import annotations

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.report.content import groups_of
from fabricheck.report.figures.curves import curves_of
from fabricheck.report.figures.distributions import distributions_of
from fabricheck.report.figures.matrix import matrix_of
from fabricheck.report.figures.tables import Figure


def figures_of(judged: RunJudgement) -> tuple[Figure, ...]:
    """The pair matrices of a run, its curves of goodput and of latency over the size, then its distributions."""
    matrices = [matrix_of(group, judged) for group in groups_of(judged) if group.is_pairs]
    colors: dict[str, int] = {}
    return (*matrices, *curves_of(judged, colors), *distributions_of(judged, colors))
