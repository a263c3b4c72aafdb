"""Launches of test cases after their first in a session: what each came to, and which of them counts."""

from __future__ import annotations

import json
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


def that_counts(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several launches of what was DEGRADED at first: one launch is one draw of what differs between launches.

    FAIL and INVALID stand whatever the others say. Else DEGRADED stands unless more launches passed; those that did not
    get to their end say nothing.
    """
    for stands in (Verdict.INVALID, Verdict.FAIL):
        if stands in verdicts:
            return stands
    return Verdict.PASS if verdicts.count(Verdict.PASS) > verdicts.count(Verdict.DEGRADED) else Verdict.DEGRADED


def is_open(verdicts: Sequence[Verdict], most: int) -> bool:
    """Whether one more launch, of `most` in all, could still change what counts."""
    stand = not {Verdict.INVALID, Verdict.FAIL}.isdisjoint(verdicts)
    agree = max(verdicts.count(Verdict.PASS), verdicts.count(Verdict.DEGRADED))
    return not stand and len(verdicts) < most and 2 * agree <= most


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
