"""Interleaved launches of one benchmark under two settings, A and B: what a job left of them, and whether they compare.

A folder `rounds` holds `sides.json`, which says what is compared, and of each launch ROUND-SIDE.jsonl (its result file)
and ROUND-SIDE.status (its exit status).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import set_by_launcher

Side = Literal["a", "b"]

FOLDER = "rounds"
_SIDES = "sides.json"


@dataclass(frozen=True)
class Sides:
    """What is compared, and how often.

    `a` and `b`: the variables of either side that the other has not, or otherwise; `None`: unset. `site`: the side
    that is the site's own tuning. `percentiles` of the iterations' times that are compared. `environment`: ReFrame's.
    """

    title: str
    rounds: int
    a: Mapping[str, str | None]
    b: Mapping[str, str | None]
    site: Side
    environment: str
    percentiles: tuple[float, ...] = (50.0,)

    def of(self, side: Side) -> Mapping[str, str | None]:
        """The variables of a side; None: unset the variable."""
        return self.a if side == "a" else self.b


@dataclass(frozen=True)
class RoundLaunch:
    """One turn of one side; `round` counts from 1."""

    round: int
    side: Side

    @property
    def name(self) -> str:
        """`ROUND-SIDE`, such as `3-a`."""
        return f"{self.round}-{self.side}"

    def result(self, case: Path) -> Path:
        """Its result file in the folder of a test case."""
        return case / FOLDER / f"{self.name}.jsonl"

    def exit_status(self, case: Path) -> int | None:
        """Its exit status; `None` where it left none."""
        try:
            return int((case / FOLDER / f"{self.name}.status").read_text())
        except (OSError, ValueError):
            return None


def launches(rounds: int) -> Iterator[RoundLaunch]:
    """A B, B A, A B, …: what drifts steadily favours either side in turn, and cancels over an even number of rounds."""
    for number in range(1, rounds + 1):
        yield from (RoundLaunch(number, side) for side in (("a", "b") if number % 2 else ("b", "a")))


def write_sides(case: Path, sides: Sides) -> None:
    """Makes the folder of the rounds in the folder of a test case, with what is compared."""
    (case / FOLDER).mkdir(exist_ok=True)
    (case / FOLDER / _SIDES).write_bytes(TypeAdapter(Sides).dump_json(sides, indent=1) + b"\n")


def read_sides(case: Path) -> Sides | None:
    """What the rounds of a test case compare; `None` where it has no rounds. UserError for a file that is damaged."""
    file = case / FOLDER / _SIDES
    if not file.exists():
        return None
    try:
        return TypeAdapter(Sides).validate_json(file.read_bytes())
    except (ValidationError, OSError):
        raise UserError(f"{file}: damaged: it does not state what was compared") from None


def require_alike(runs: Iterable[Run], besides: Iterable[str] | None) -> tuple[Finding, ...]:
    """What keeps runs from being comparable: they have to differ in the variables `besides` and in nothing else.

    Ranks on the same hosts and devices, the same plan, libraries and variables; with None, where the software is what
    is compared, ranks and plan alone. A run without a header has a problem already, and is passed over.
    """
    complete = [each for each in runs if each.header]
    ignored = None if besides is None else frozenset(besides)
    problems = []
    for run in complete[1:]:
        wanted, present = _conditions(complete[0], ignored), _conditions(run, ignored)
        different = [what for what, value in wanted.items() if present[what] != value]
        if different:
            message = (
                f"{run.path}:1: differs from {complete[0].path} in {', '.join(different)}: they cannot be compared"
            )
            problems.append(Finding("not-comparable", Verdict.INVALID, message))
    return tuple(problems)


def _conditions(run: Run, ignored: frozenset[str] | None) -> Mapping[str, Any]:
    header = run.header
    measured = {
        "where its ranks were": [(each.host, each.device.uuid if each.device else None) for each in run.ranks],
        "what was measured": header["plan"]["series"],
    }
    if ignored is None:
        return measured

    def tunes(name: str) -> bool:
        return name not in ignored and not set_by_launcher(name)

    return {
        **measured,
        "libraries": {name: (one["name"], one["version"]) for name, one in header["libraries"].items()},
        "other variables": {name: value for name, value in header["environment"].items() if tunes(name)},
    }
