"""What the sample store adds to a report: the history of the system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fabricheck.errors import UserError
from fabricheck.history.accepted import find_accepted
from fabricheck.history.series import check_history
from fabricheck.history.watch import Watched, watch_series
from fabricheck.store.reading import entries_of, history


@dataclass(frozen=True)
class Past:
    """What is known of a system besides the runs that are shown; `notes` say what is not, and why."""

    watched: Watched | None = None
    notes: tuple[str, ...] = ()


def past_of(store: Path, system: str, root: Path, *, session: str) -> Past:
    """Return the history of a system up to `session`; a note where it cannot be watched."""
    notes: list[str] = []
    try:
        whole = history(store, system=system, say=lambda line: notes.append(f"Left out: {line}"))
        check_history(whole)
        watched = watch_series(_until(whole, session, store, system), system, find_accepted(system, root))
    except UserError as error:
        return Past(notes=(*notes, f"No history is shown: {error}"))
    return Past(watched, tuple(notes))


def _until(whole: pl.DataFrame, session: str, store: Path, system: str) -> pl.DataFrame:
    """The rows of the sessions up to this one, in the order of the store."""
    names = [each.session for each in entries_of(store, system, lambda _: None)]
    # Of chunks that a filter leaves polars 1.44 read beyond one, where lists are intersected.
    return whole.filter(pl.col("session").is_in(names[: names.index(session) + 1])).rechunk()
