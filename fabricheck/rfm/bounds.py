"""What judged a metric, as ReFrame writes a reference: value, and lower and upper bound as shares of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import reframe as rfm

from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict

#: A value and its relative bounds; None: unbounded on that side.
Bounds = tuple[float, float | None, float | None]

#: ReFrame's own reference where there is none: every value meets it.
NO_BOUNDS: Bounds = (0, None, None)

# Who multiplies must not come to another result than who divided.
_ROUNDING = 1e-9


def bounds_of(judged: Judgement) -> Bounds:
    """The yardstick that decided; NO_BOUNDS where there was none.

    Who compares a value that passed with these bounds finds nothing wrong: one that passed although noise carried it
    beyond its bound lies on the bound that is given here.
    """
    yardstick = judged.yardstick
    if yardstick is None:
        return NO_BOUNDS
    worse = round(yardstick.bound / yardstick.value - 1, 9)
    better = round(yardstick.gain / yardstick.value - 1, 9) if yardstick.gain is not None else None
    lower, upper = (worse, better) if judged.better == "higher" else (better, worse)
    if judged.verdict is Verdict.PASS:
        share = judged.value / yardstick.value - 1
        rounding = _ROUNDING * max(1.0, abs(share))
        lower = None if lower is None else min(lower, share - rounding)
        upper = None if upper is None else max(upper, share + rounding)
    return yardstick.value, lower, upper


def record_bounds(perfvalues: Mapping[str, list[Any]], where: str, judgements: Iterable[Judgement]) -> None:
    """Puts what judged each metric into ReFrame's reports and performance logs, and the verdict as its result.

    `perfvalues`: those of a test whose performance ReFrame has looked at, and not before, so that it does not judge by
    these bounds: it knows neither noise nor wrong data, and its message would take the place of ours. `where`: its
    `system:partition`.
    """
    for judgement in judgements:
        recorded = perfvalues[f"{where}:{judgement.name}"]
        recorded[1:4] = bounds_of(judgement)
        recorded[-1] = "pass" if judgement.verdict is Verdict.PASS else "fail"


def attributes_of(test: rfm.RegressionTest) -> dict[str, str | int]:
    """Those of a test by which references are indexed: its parameters, and where it runs."""
    parameters = {name: getattr(test, name) for name in type(test).param_space.params}
    return {
        **{name: value for name, value in parameters.items() if isinstance(value, (str, int))},
        "$system": test.current_system.name,
        "$partition": test.current_partition.fullname,
        "$environ": test.current_environ.name,
    }
