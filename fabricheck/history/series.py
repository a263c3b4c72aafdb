"""The history of a system as the statistics take it: checked, and as one series for each metric."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache
from typing import Literal, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.errors import UserError
from fabricheck.records.component import Component, read_keys
from fabricheck.records.rehearsal import REHEARSAL
from fabricheck.statistics.constants import STAYS
from fabricheck.statistics.node_effects import without_node_effects
from fabricheck.store.changes import NOTHING
from fabricheck.store.software_of_metrics import software_crossed

Floats = npt.NDArray[np.float64]
Better = Literal["higher", "lower"]

KEY = ("partition", "environment", "test", "metric")
#: The columns of a history that series are made of.
OF_SERIES = (*KEY, "session", "run_id", "started", "unit", "better", "value", "verdict", "nodes", "software",
             "components", "rehearsal")  # fmt: skip
# Something else was measured, or not all of it: such a value says nothing about the speed.
NO_MEASUREMENT = ("INVALID", "INCOMPLETE")
# Clocks of machines differ a little.
_CLOCK_SLACK = timedelta(hours=1)


@dataclass(frozen=True, order=True)
class MetricKey:
    """What makes a metric of one run the same as that of another."""

    partition: str
    environment: str
    test: str
    metric: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.partition, self.environment, self.test, self.metric)))

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """What metrics share that vary together, such as the pairs of a node: all but the ranks at their ends."""
        name = re.sub(r"_(all\d+|\d+x\d+x\d+|\d+(?:_\d+)*)_", "_", self.metric, count=1)
        return self.partition, self.environment, self.test, name


# What all metrics of a session have in common, where it is shown beside them.
WHOLE_SYSTEM = MetricKey("", "", "", "whole system")


def number_names(names: Iterable[Hashable]) -> npt.NDArray[np.int64]:
    """Each name as a number, equal ones as the same."""
    known: dict[Hashable, int] = {}
    return np.asarray([known.setdefault(each, len(known)) for each in names], dtype=np.int64)


def check_history(frame: pl.DataFrame, *, now: datetime | None = None) -> pl.DataFrame:
    """The rows that hold a measurement, or a UserError of one line about the first thing that is wrong with any.

    `frame` is as the store gives it. Refused are: rehearsals beside measurements, a metric with two units or two
    directions, runs of the future (later than `now`, default: this moment), and values that are not positive. Left out
    are rows whose verdict is INVALID or INCOMPLETE.
    """
    _check_platform(frame)
    _check_time(frame, now or datetime.now(timezone.utc))
    for name in ("unit", "better"):
        mixed = frame.group_by(KEY).agg(pl.col(name).unique().sort()).filter(pl.col(name).list.len() > 1).sort(KEY)
        if not mixed.is_empty():
            raise _two_kinds(frame.join(mixed.head(1).select(KEY), on=KEY, how="semi", maintain_order="left"), name)
    measured = ~frame["verdict"].is_in(NO_MEASUREMENT)
    kept = frame if measured.all() else frame.filter(measured)
    bad = kept.filter(~(pl.col("value").is_finite() & (pl.col("value") > 0)).fill_null(False))
    if not bad.is_empty():
        what = f"{bad['value'][0]} in run {bad['run_id'][0]} is not a measurement"
        raise UserError(f"{_say(bad)}: {what}: move its session ({bad['session'][0]}) out of the store")
    return kept


def _two_kinds(rows: pl.DataFrame, name: str) -> UserError:
    """The rows of a metric have two units or directions, by `name`, of which one began later."""
    first, second = rows.unique(name, keep="first", maintain_order=True).head(2).to_dicts()
    began = f"session {second['session']} ({second['started']:%Y-%m-%d})"
    return UserError(
        f"{_say(rows)}: has {name} {first[name]}, and {second[name]} since {began}: values of two kinds cannot be "
        "compared: move the sessions of one of them out of the store"
    )


def _check_platform(frame: pl.DataFrame) -> None:
    if frame["rehearsal"].n_unique() > 1:
        measured, rehearsed = (frame.filter(pl.col("rehearsal") == kind)["session"][0] for kind in (False, True))
        raise UserError(
            f"the history mixes measurements (session {measured}) with a {REHEARSAL} (session {rehearsed}): they "
            "cannot be compared; move the entries of either out of the store"
        )


def _check_time(frame: pl.DataFrame, now: datetime) -> None:
    for session, run, started in frame.tail(1).select("session", "run_id", "started").iter_rows():
        if started > now + _CLOCK_SLACK:
            raise UserError(
                f"run {run} started {started:%Y-%m-%d %H:%M:%S}, which is in the future: "
                f"the clock was wrong; move its session ({session}) out of the store"
            )


def _say(frame: pl.DataFrame) -> str:
    return str(MetricKey(*(frame[name][0] for name in KEY)))


@dataclass(frozen=True)
class Session:
    """One session and when its first run started."""

    session: str
    started: datetime

    def __str__(self) -> str:
        return f"{self.started:%Y-%m-%d %H:%M} ({self.session[:8]})"


@dataclass(frozen=True)
class Series:
    """All metrics of a system over its sessions.

    `values`: float64, shape (metrics, sessions), in each metric's unit; NaN where it was not measured. Where a session
    measured a metric more than once, their median; where sessions take turns on nodes, less what each node usually
    differs by. `components`: by metric, what its path crossed in all runs of its last sessions, hardware and software:
    where the nodes of a fleet take turns, no node. `software`: the texts of versions, and `versions`, shape
    (metrics, sessions), which of them each value has. `visits`: of metrics whose sessions take turns on nodes, by `row`
    and `place`, `where` (the nodes), the `components` and `value` as measured, and `worse`, how far that was from the
    level of the metric (a logarithm).
    """

    keys: tuple[MetricKey, ...]
    units: tuple[str, ...]
    better: tuple[Better, ...]
    components: tuple[tuple[Component, ...], ...]
    sessions: tuple[Session, ...]
    values: Floats
    software: tuple[str, ...]
    versions: npt.NDArray[np.int32]
    visits: pl.DataFrame = field(default_factory=pl.DataFrame, compare=False)

    @cached_property  # the logarithm of everything, and every alert asks
    def worse(self) -> Floats:
        """How bad a value is, shape (metrics, sessions): its logarithm, with the sign that makes more worse."""
        sign = np.asarray([-1.0 if each == "higher" else 1.0 for each in self.better])
        with np.errstate(invalid="ignore"):
            return np.asarray(np.log(self.values) * sign[:, None])

    def software_changes(self) -> tuple[tuple[str, ...], ...]:
        """By session, what software had another version than when the same metric was measured before."""
        changed: set[tuple[int, int, int]] = set()
        for row in range(len(self.keys)):
            sessions, versions = np.flatnonzero(np.isfinite(self.values[row])), self.versions[row]
            for place in np.flatnonzero(np.diff(versions[sessions])):
                changed.add(
                    (int(sessions[place + 1]), int(versions[sessions[place]]), int(versions[sessions[place + 1]]))
                )
        changes: list[set[str]] = [set() for _ in self.sessions]
        for session, before, after in changed:
            changes[session] |= set(differences(*map(json.loads, (self.software[before], self.software[after]))))
        return tuple(tuple(sorted(each)) for each in changes)

    def versions_by_session(self) -> tuple[dict[str, str], ...]:
        """By session, the versions of its software by name, firmware and kernel among it; of several, all."""
        of_texts = [json.loads(text) for text in self.software]
        sessions: list[dict[str, str]] = []
        for session in range(len(self.sessions)):
            texts = np.unique(self.versions[np.isfinite(self.values[:, session]), session])
            known: dict[str, set[str]] = {}
            for name, version in (item for text in texts for item in of_texts[text].items()):
                known.setdefault(name, set()).add(str(version))
            sessions.append({name: ", ".join(sorted(versions)) for name, versions in known.items()})
        return tuple(sessions)


def crossed_by_all(runs: pl.DataFrame) -> pl.DataFrame:
    """The KEY of each metric of `runs`, and the `components` that its path crosses in every one of them, by their keys:
    the parts of machines that are stored with it, and the software that its data pass."""
    tests = runs.group_by(KEY).agg("components", pl.col("software").unique())
    crossed = [
        [*_in_all(paths), *_in_all([_software(test, each) for each in texts])]
        for test, paths, texts in tests.select("test", "components", "software").iter_rows()
    ]
    return tests.select(KEY).with_columns(pl.Series("components", crossed, dtype=pl.List(pl.String)))


def _in_all(lists: Sequence[Sequence[str]]) -> list[str]:
    return [name for name in lists[-1] if all(name in each for each in lists)]


@lru_cache(maxsize=4096)
def _software(test: str, software: str) -> tuple[str, ...]:
    return tuple(each.key for each in software_crossed(test, software))


@lru_cache(maxsize=65536)  # metrics of a node have few paths
def components_of_keys(keys: tuple[str, ...]) -> tuple[Component, ...]:
    """The components of a path by their keys."""
    return read_keys(keys)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """What differs between two sets of versions, such as `nccl: 2.28.3 -> 2.29.1`."""
    return tuple(
        f"{name}: {old.get(name, NOTHING)} -> {new.get(name, NOTHING)}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )


def nodes_crossed() -> pl.Expr:
    """The `nodes` of a job that a metric's data passed, by its `components`; all of them where that is unknown."""
    crossed = pl.col("nodes").list.set_intersection("components")
    return pl.when(crossed.list.len() > 0).then(crossed).otherwise("nodes").alias("nodes")


def by_start(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The different values of columns, such as sessions, in the order in which their first runs `started`, with their
    `place` in it."""
    return (
        frame.group_by(names, maintain_order=True)
        .agg(pl.col("started").min())
        .sort("started", *names)
        .with_row_index("place")
    )


def matrix_of(rows: pl.DataFrame, shape: tuple[int, int]) -> Floats:
    """The medians of the `value` of each `row` and `place`; NaN where there is none."""
    values, row, place = np.full(shape, np.nan), rows["row"].to_numpy(), rows["place"].to_numpy()
    values[row, place] = rows["value"].to_numpy()
    # Grouping takes many times the memory of the rows, and few cells have several.
    count = np.zeros(shape, dtype=np.int32)
    np.add.at(count, (row, place), 1)
    several = rows.filter(pl.Series(count[row, place] > 1))
    cells = several.group_by("row", "place").agg(pl.col("value").median())
    values[cells["row"].to_numpy(), cells["place"].to_numpy()] = cells["value"].to_numpy()
    return values


def series_of(frame: pl.DataFrame) -> Series:
    """The series in a history that was checked: metrics in the order of their keys, sessions in that of their start."""
    sessions = by_start(frame, "session")
    keys = frame.select(*KEY, "unit", "better").unique(KEY).sort(KEY).with_row_index("row")
    software = frame.select("software").unique().sort("software").with_row_index("version")
    numbered = frame.select(
        number_rows(frame, keys, *KEY, name="row"),
        number_rows(frame, sessions, "session", name="place"),
        number_rows(frame, software, "software", name="version"),
        "value",
        "better",
        nodes_crossed(),
    )
    shape = len(keys), len(sessions)
    versions = np.zeros(shape, dtype=np.int32)
    versions[numbered["row"].to_numpy(), numbered["place"].to_numpy()] = numbered["version"].to_numpy()
    components = keys.join(crossed_by_all(_latest(frame, numbered, shape)), on=KEY, maintain_order="left")["components"]
    runs = without_node_effects(numbered.drop("version").with_row_index("run"))
    turns = runs.drop_nulls("away")
    sign = pl.when(pl.col("better") == "higher").then(-1.0).otherwise(1.0)
    where = pl.col("nodes").list.sort().list.join("+")
    visits = turns.select("row", "place", where=where, worse=sign * pl.col("away")).with_columns(
        frame.select("components", "value")[turns["run"]]
    )
    return Series(
        keys=tuple(MetricKey(*row) for row in keys.select(KEY).iter_rows()),
        units=tuple(keys["unit"]),
        better=tuple(keys["better"]),
        components=tuple(components_of_keys(tuple(each)) for each in components.to_list()),
        sessions=tuple(Session(*row) for row in sessions.select("session", "started").iter_rows()),
        values=matrix_of(runs, shape),
        software=tuple(software["software"]),
        versions=versions,
        visits=visits,
    )


def _latest(frame: pl.DataFrame, numbered: pl.DataFrame, shape: tuple[int, int]) -> pl.DataFrame:
    """The rows of each metric in its last STAYS sessions."""
    row, place = numbered["row"].to_numpy(), numbered["place"].to_numpy()
    there = np.zeros(shape, dtype=np.bool_)
    there[row, place] = True
    left = there[:, ::-1].cumsum(axis=1, dtype=np.int32)[:, ::-1]  # sessions from this one on
    return frame.filter(pl.Series(left[row, place] <= STAYS))


def number_rows(frame: pl.DataFrame, numbered: pl.DataFrame, *columns: str, name: str) -> pl.Series:
    """The number that `numbered` gives each row of a frame by these columns; null where it has none."""
    joined = frame.select(columns).join(numbered.select(*columns, name), on=columns, how="left", maintain_order="left")
    return joined[name]


def fail_unknown(what: str, wanted: str, known: Sequence[str]) -> NoReturn:
    """Raise the UserError of a name that the history does not have."""
    some = ", ".join(known[-5:]) or "none"
    raise UserError(f"no {what} {wanted!r} in the history: the latest are {some}")
