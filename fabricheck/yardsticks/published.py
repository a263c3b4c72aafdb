"""What papers published about a system: shown beside the model, and judged by where it says what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.records.judgement import Expectation, Yardstick
from fabricheck.records.metrics import Metric
from fabricheck.yamlfile import read_yaml
from fabricheck.yardsticks.part_values import RunContext, in_unit, matches
from fabricheck.yardsticks.policy import Policy
from fabricheck.yardsticks.where import Unit, Where, check_unit, check_where

_Text = Annotated[str, Field(min_length=1)]


class _Judges(Where):
    """Which metrics an entry judges. `share_of_nominal`: what its value comes to, where the unit does not state it."""

    share_of_nominal: Annotated[float, Field(gt=0)] | None = None


class Published(BaseModel):
    """One published value, or the least and the most of a range. `alarm_of`: the bound that this owner runs machines
    against."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    what: _Text
    """the value in the words of its source"""
    relation: Literal["is", "about", "at_least", "at_most", "from_to"] = "is"
    """of the measurement to the value"""
    value: float | Annotated[list[float], Field(min_length=2, max_length=2)]
    """in `unit`; two of a range"""
    unit: _Text
    statistic: _Text | None = None
    """such as median or maximum"""
    conditions: _Text
    """under which it was measured"""
    source: _Text
    """paper and table, or page"""
    software: _Text | None = None
    date: _Text | None = None
    alarm_of: _Text | None = None
    judges: _Judges | None = None
    """which metrics it is a yardstick of; without it the value is only shown"""
    waits_for: _Text | None = None
    """the metric that a value which is only shown would judge"""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most, in `unit`, equal unless it is a range."""
        low, high = self.value if isinstance(self.value, list) else (self.value, self.value)
        return low, high

    @property
    def low(self) -> float:
        """The least of the range, in `unit`."""
        return self.ends[0]

    @property
    def high(self) -> float:
        """The most of the range, in `unit`."""
        return self.ends[1]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    system: _Text
    values: Annotated[list[Published], Field(min_length=1)]


def yardsticks_of_papers(
    published: Iterable[Published], metric: Metric, expectation: Expectation, facts: RunContext, policy: Policy
) -> Iterator[Yardstick]:
    """What papers measured on this system. A range is its own tolerance; other values have that of the policy."""
    for stated in published:
        if stated.judges is None or not matches(stated.judges, metric, facts):
            continue
        share = stated.judges.share_of_nominal
        unit, ends = (stated.unit, stated.ends) if share is None else ("share of nominal", (share, share))
        low, high = (in_unit(each, unit, metric, expectation, facts.run) for each in ends)
        if low is None or high is None:
            continue
        if stated.alarm_of is not None:
            required = f"{stated.low:g} {stated.unit} that {stated.alarm_of} requires of {stated.conditions}"
            yield Yardstick("published", low, low, f"{required} ({stated.source})", alarm=True)
            continue
        higher = metric.better == "higher"
        value, bound = (low + high) / 2, low if higher else high
        tolerance = "its range"
        if low == high:
            margin = policy.published_margin
            bound, tolerance = value * (1 - margin if higher else 1 + margin), f"margin {margin:.0%}"
        yield Yardstick("published", value, bound, f"{stated.what}: {stated.source}; {tolerance}")


def load_published(path: Path) -> tuple[Published, ...]:
    """Read the published values of a system. Raises UserError that names file, line and field."""
    file = read_yaml(path)
    entries = file.validated(_File.model_validate)
    if entries.system != path.stem:
        file.fail(("system",), f"is {entries.system!r}, but the file is that of {path.stem!r}")
    for position, stated in enumerate(entries.values):
        if isinstance(stated.value, list) != (stated.relation == "from_to"):
            file.fail(("values", position, "value"), "has to be a pair for the relation from_to, else one number")
        if stated.judges is not None:
            check_where(file, ("values", position, "judges"), stated.judges)
            if stated.judges.share_of_nominal is None and stated.unit not in get_args(Unit):
                file.fail(("values", position, "judges"), f"{stated.unit!r} is not a unit: give share_of_nominal")
            if stated.judges.share_of_nominal is None:
                check_unit(file, ("values", position, "unit"), stated.unit, stated.judges)
            if stated.relation in ("at_least", "at_most"):
                file.fail(("values", position, "judges"), f"the relation {stated.relation} gives no baseline")
        if stated.alarm_of is not None and stated.relation != "is":
            file.fail(("values", position, "relation"), "has to be `is` for an alarm")
        if stated.low > stated.high:
            file.fail(("values", position, "value"), f"is not in ascending order: {stated.low:g}, {stated.high:g}")
        if (stated.judges is None) != (stated.waits_for is not None):
            file.fail(("values", position), "has to have either judges or waits_for, the metric that it would judge")
    return tuple(entries.values)
