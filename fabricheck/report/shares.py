"""How much of its yardstick a metric has: one measure, and one scale of colours, for all maps of a page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import number, percent

#: The colours of all maps go in so many steps from this share, or less, to all of it.
SHADES, DARKEST = 10, 0.7
#: What a share is of, by the kind of yardstick.
OF_KIND = {
    "reference": "the reference",
    "part": "the same part elsewhere",
    "published": "the published value",
    "siblings": "the peers",
    "achievable": "the achievable",
    "floor": "the expected",
}


def share_of_yardstick(judged: Judgement) -> str:
    """The value over that of the yardstick that decided, such as `98.2 %`, or `102 x` the least that is allowed; empty
    where none did, and for a latency that only an upper limit judged."""
    yardstick = judged.yardstick
    if yardstick is None or not (math.isfinite(yardstick.value) and yardstick.value > 0):
        return ""
    share = judged.value / yardstick.value
    if yardstick.kind != "floor":
        return percent(share)
    return "" if judged.better == "lower" else percent(share) if share < 2 else f"{number(share)} x"


def share_of(judged: Judgement) -> float | None:
    """The value over that of the yardstick that judged it, of a latency the other way round: lower is worse.

    Below the least that is allowed it is of what is expected. None where nothing judged the metric, and where it is
    above the least and nothing else is known.
    """
    yardstick = judged.yardstick
    if yardstick is None or (yardstick.kind == "floor" and judged.verdict is Verdict.PASS):
        return None
    expected = judged.expectation.expected if yardstick.kind == "floor" else None
    return _share(judged, expected or yardstick.value)


def shares_of(judgements: Sequence[Judgement]) -> tuple[list[float | None], str]:
    """The shares of metrics that are compared with each other, and of what: of the yardsticks where all have one, else
    of their own median."""
    shares = [share_of(each) for each in judgements]
    kinds = {each.judged_by for each in judgements}
    if all(share is not None for share in shares):
        return shares, OF_KIND[kinds.pop()] if len(kinds) == 1 else "the baseline of each"
    usual = statistics.median(each.value for each in judgements)
    return [_share(each, usual) for each in judgements], "their median"


def _share(judged: Judgement, of: float) -> float | None:
    value, other = (judged.value, of) if judged.better == "higher" else (of, judged.value)
    return value / other if other > 0 and math.isfinite(value) and math.isfinite(other) else None


def shade_of(share: float | None) -> int | None:
    """The step of the colours, 0 (bad) to 9, that a share has on every map of a page."""
    if share is None:
        return None
    return min(max(int(SHADES * (share - DARKEST) / (1 - DARKEST)), 0), SHADES - 1)


def indirectness(run: RunJudgement, samples: Samples) -> tuple[bool, bool, bool, int]:
    """A key that sorts pairs by how well they show the link: nothing but the hardware copies, alone, one way, much."""
    library, contended = run.run.header.get("transport") != "copy", samples.schedule == "contended"
    return library, contended, samples.operation == "bidirectional", -samples.bytes
