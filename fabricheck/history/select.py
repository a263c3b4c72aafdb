"""Which runs of a history are meant: a session, a range of dates, a version of software, a tag, nodes."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone

import polars as pl

from fabricheck.errors import UserError
from fabricheck.history.series import fail_unknown
from fabricheck.statistics.constants import SHORT

FORMS = "a session, FROM..TO (dates, the last included), software:NAME=VERSION or tag:NAME"


def select_runs(frame: pl.DataFrame, text: str) -> pl.DataFrame:
    """The rows of a history that `text` means, in its order: a session (or how its name begins, where that is
    unambiguous), `2026-11-01..2026-11-20` (either end may be left out), `software:NCCL=2.28.3` (in any case) or
    `tag:before-upgrade`.

    Raises UserError where that is nothing, or more than one session.
    """
    kind, colon, name = text.partition(":")
    if colon and kind == "tag":
        runs = frame.filter(pl.col("tags").list.contains(name))
        known = sorted({tag for tags in frame["tags"].drop_nulls().to_list() for tag in tags})
        return runs if not runs.is_empty() else fail_unknown("run with the tag", name, known)
    if colon and kind == "software":
        return _by_software(frame, name)
    if ".." in text:
        return _by_date(frame, text)
    return _by_session(frame, text.removeprefix("session:"))


def _by_session(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    sessions = frame["session"].unique(maintain_order=True).to_list()
    named = [each for each in sessions if each == name] or [each for each in sessions if name and each.startswith(name)]
    if not named:
        latest = ", ".join(session[:SHORT] for session in sessions[-5:])
        raise UserError(f"no session {name!r} in the history: give {FORMS}; the latest sessions are {latest}")
    if len(named) > 1:
        raise UserError(
            f"{len(named)} sessions begin with {name!r}, {named[0]} and {named[1]} among them: give more of it"
        )
    return frame.filter(pl.col("session") == named[0])


def _by_software(frame: pl.DataFrame, text: str) -> pl.DataFrame:
    name, equals, version = text.partition("=")
    if not (name and equals and version):
        raise UserError(f"'software:{text}' is not software:NAME=VERSION")
    versions = {each: json.loads(each) for each in frame["software"].unique().sort().to_list()}
    own = {text: {has.casefold(): str(of) for has, of in some.items()} for text, some in versions.items()}
    known = {text: some[name.casefold()] for text, some in own.items() if name.casefold() in some}
    if not known:
        names = sorted({has for some in versions.values() for has in some})
        raise UserError(f"no run has the software {name!r}: the history has {', '.join(names) or 'none'}")
    wanted = [text for text, has in known.items() if has == version]
    if not wanted:
        fail_unknown(f"run with {name}", version, sorted(set(known.values())))
    return frame.filter(pl.col("software").is_in(wanted))


def _by_date(frame: pl.DataFrame, text: str) -> pl.DataFrame:
    first, _, last = text.partition("..")
    low = _day(first, text) if first else None
    high = _day(last, text) + timedelta(days=1) if last else None
    runs = frame
    if low is not None:
        runs = runs.filter(pl.col("started") >= low)
    if high is not None:
        runs = runs.filter(pl.col("started") < high)
    if runs.is_empty():
        times = frame["started"]
        raise UserError(f"no {text}: the history is from {times[0]:%Y-%m-%d} to {times[-1]:%Y-%m-%d}")
    return runs


def _day(text: str, whole: str) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UserError(f"{whole!r} is not FROM..TO with dates such as 2026-11-21: {text!r} is not a date") from None
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
