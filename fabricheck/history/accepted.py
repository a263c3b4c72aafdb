"""Changes that somebody looked at and accepted: the file of a system, and what it says of which metric."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timezone
from functools import cache
from pathlib import Path
from typing import Annotated

import pydantic

from fabricheck.history.series import WHOLE_SYSTEM, MetricKey, Series
from fabricheck.suite import site_root
from fabricheck.yamlfile import read_yaml


@dataclass(frozen=True)
class Accepted:
    """A change that somebody looked at and took: from `since` on (UTC) the new level of `metrics` is the baseline.

    `metrics`: names of metrics as shell patterns; all where there are none. `reason`: one line for the reader.
    `keep`: the opposite: the level that the metrics had stays their baseline, although they got better.
    """

    since: date
    reason: Annotated[str, pydantic.Field(min_length=1)]
    metrics: tuple[str, ...] = ("*",)
    keep: bool = False

    def matches(self, key: MetricKey) -> bool:
        """Whether this change names a metric, by the metric alone or by the whole key."""
        return any(
            fnmatch.fnmatchcase(key.metric, each) or fnmatch.fnmatchcase(str(key), each) for each in self.metrics
        )


def find_accepted(system: str, root: Path) -> tuple[Accepted, ...]:
    """The accepted changes of a system in the suite at `root`; none where it has no such file. UserError as
    `load_accepted` raises it."""
    path = site_root(system, root) / "reference_values" / "accepted" / f"{system}.yaml"
    return load_accepted(path) if path.exists() else ()


def load_accepted(path: Path) -> tuple[Accepted, ...]:
    """The accepted changes in a YAML file, a list; UserError names the line of a mistake."""
    file = read_yaml(path)
    if not isinstance(file.content, list):
        file.fail((), "has to be a list of accepted changes, each with since, reason and maybe metrics")
    return file.validated(_adapter().validate_json, file.as_json)


@cache
def _adapter() -> pydantic.TypeAdapter[tuple[Accepted, ...]]:
    return pydantic.TypeAdapter(tuple[Accepted, ...], config=pydantic.ConfigDict(extra="forbid"))


def accepted_sessions(series: Series, accepted: Sequence[Accepted]) -> tuple[list[tuple[int, int]], set[int]]:
    """Metrics, by number, with the session from which on their level is accepted, and those whose level is kept."""
    places: list[tuple[int, int]] = []
    kept: set[int] = set()
    keys = (*series.keys, WHOLE_SYSTEM)
    for change in accepted:
        rows = [row for row, key in enumerate(keys) if change.matches(key)]
        since = datetime.combine(change.since, time(), timezone.utc)
        session = next((n for n, session in enumerate(series.sessions) if session.started >= since), None)
        if change.keep:
            kept.update(rows)
        elif session is not None:
            places += [(row, session) for row in rows]
    return places, kept
