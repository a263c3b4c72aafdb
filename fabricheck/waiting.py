"""Progress of long work on a history: what is done and how long the rest takes, for a person who waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from fabricheck.units import time_left

#: Seconds after which work on a history says how far it is, and again: who waits longer turns to something else
#: (Nielsen, Usability Engineering, 1993, chapter 5).
PROGRESS_S = 10.0

Item = TypeVar("Item")


@dataclass
class _Listener:
    """Who is told: `show` takes a line. `last`: when the work began, or the last line was shown, in s."""

    show: Callable[[str], None]
    last: float
    is_busy: bool = False  # some steps are told already, and others are part of these


_listeners: list[_Listener] = []


@contextmanager
def listening(show: Callable[[str], None]) -> Iterator[None]:
    """Give `show` a line on the progress of what is done inside, at most each PROGRESS_S seconds."""
    _listeners.append(_Listener(show, time.monotonic()))
    try:
        yield
    finally:
        _listeners.pop()


def steps(items: Iterable[Item], count: int, what: str) -> Iterator[Item]:
    """Yield `count` items; who listens is told how many of `what` are done, and how long the others take at this rate.

    Of steps inside other steps only the outer ones are told.
    """
    listener = _listeners[-1] if _listeners else None
    if listener is None or listener.is_busy:
        yield from items
        return
    listener.is_busy = True
    began = time.monotonic()
    try:
        for done, item in enumerate(items):
            now = time.monotonic()
            if done and now - listener.last >= PROGRESS_S:
                listener.last = now
                listener.show(f"{what}: {done:,} of {count:,}, {time_left((now - began) / done * (count - done))}")
            yield item
    finally:
        listener.is_busy = False
