"""Tests that were slow in the only launch of a session: the launch of the next session is the second one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from fabricheck.errors import UserError
from fabricheck.jsonfile import read_as
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import FALSE_ALARMS, Chance, Launch
from fabricheck.session.run_folders import runs_before

#: In the folder of a session.
SLOW_ONCE = "slow-once.json"
#: The metrics that were slow, by test case and node of a fleet (`name_of`).
Slow = Mapping[str, tuple[str, ...]]


def name_of(case: object, node: str) -> str:
    """The name of a test case on a node of a fleet; of the case where there is none."""
    return f"{case} on {node}" if node else str(case)


def slow_before(folder: Path, system: str) -> Slow:
    """What was left to the session in `folder` by the last one before it; nothing where that cannot be read."""
    files = [run / SLOW_ONCE for run in runs_before(folder, system) if (run / SLOW_ONCE).exists()]
    with contextlib.suppress(UserError):
        return read_as(files[-1], _adapter()) if files else {}
    return {}


def write_slow_once(folder: Path, slow: Slow) -> None:
    """Leaves to the next session what one launch of this one cannot decide. OSError where that cannot be."""
    (folder / SLOW_ONCE).write_bytes(_adapter().dump_json(slow, indent=1) + b"\n")


def slow_again(before: Slow, now: Slow, metrics: int) -> Iterator[str]:
    """Yields what was slow in the same metrics in the only launches of two sessions, where chance does not explain it.

    As launches of one session are judged: by how much that was slow before is not again. `metrics`: of a session.
    """
    launches = {name: [_launch(names), _launch(now.get(name, ()))] for name, names in before.items()}
    chance = Chance.of(metrics, launches.values())
    for name, names in before.items():
        if set(names) & set(now.get(name, ())) and chance.p_value(launches[name]) <= FALSE_ALARMS:
            yield name


def _launch(names: tuple[str, ...]) -> Launch:
    return Launch(Verdict.DEGRADED if names else Verdict.PASS, frozenset(names), len(names))


@lru_cache
def _adapter() -> TypeAdapter[Slow]:
    return TypeAdapter(Slow)
