"""Launches of test cases after their first in a session: what each came to, and which of them counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.jsonfile import read_json
from fabricheck.records.verdict import Finding, Verdict

#: In the folder of a session in which something was launched again.
LAUNCHES = "launches.json"


@dataclass(frozen=True)
class Launched:
    """The launches of a test case, by its name: what is `said` of each in order, and the verdict that `counts`.

    `folder`: where ReFrame left the launch that counts, inside that of the session; empty for the first. `node`: the
    one of a fleet on which it was.
    """

    case: str
    said: tuple[str, ...]
    counts: str
    folder: str = ""
    node: str = ""

    @property
    def finding(self) -> Finding:
        where = f" on {self.node}" if self.node else ""
        times = f"was launched {len(self.said)} times{where}"
        return Finding(f"{self.case}: {times}: {', '.join(self.said)}; {self.counts} counts")


@dataclass(frozen=True)
class Launch:
    """What one launch came to; `slow`: by name the metrics and parts that are DEGRADED in it."""

    verdict: Verdict
    slow: frozenset[str] = frozenset()


def that_counts(launches: Sequence[Launch]) -> int:
    """Which of several launches of what was DEGRADED at first counts: one launch is one draw of what differs.

    FAIL and INVALID stand whatever the others say. Else DEGRADED stands where half of the launches or more have one and
    the same thing slow, or none passed; those that did not get to their end say nothing. The last of those that agree.
    """
    for stands in (Verdict.INVALID, Verdict.FAIL):
        if (found := _last(launches, stands)) >= 0:
            return found
    name, times = _most(launches)
    ended = sum(each.verdict in (Verdict.PASS, Verdict.DEGRADED) for each in launches)
    if 2 * times < ended and (passed := _last(launches, Verdict.PASS)) >= 0:
        return passed
    return max(place for place, each in enumerate(launches) if name in each.slow)


def is_open(launches: Sequence[Launch], most: int) -> bool:
    """Whether one more launch, of `most` in all, could still change what counts."""
    passed = sum(each.verdict is Verdict.PASS for each in launches)
    stand = any(each.verdict in (Verdict.INVALID, Verdict.FAIL) for each in launches)
    return not stand and len(launches) < most and 2 * max(passed, _most(launches)[1]) <= most


def _most(launches: Sequence[Launch]) -> tuple[str, int]:
    """What is slow in most launches, and in how many."""
    found = Counter(name for each in launches for name in sorted(each.slow))
    return max(found.items(), key=lambda one: one[1])


def _last(launches: Sequence[Launch], verdict: Verdict) -> int:
    return max((place for place, each in enumerate(launches) if each.verdict is verdict), default=-1)


def write_launched(folder: Path, launched: Iterable[Launched]) -> None:
    """Writes what was launched again in the session of `folder`. OSError where that cannot be."""
    (folder / LAUNCHES).write_text(json.dumps([asdict(each) for each in launched], indent=1) + "\n", encoding="utf-8")


def read_launched(folder: Path) -> tuple[Launched, ...]:
    """What was launched again in the session of `folder`. Raises UserError where its file is damaged."""
    file = folder / LAUNCHES
    if not file.exists():
        return ()
    try:
        return tuple(
            Launched(
                each["case"], tuple(map(str, each["said"])), each["counts"], Path(each["folder"]).name, each["node"]
            )
            for each in read_json(file)
        )
    except (TypeError, KeyError):
        raise UserError(f"{file}: does not say which tests were launched again") from None
