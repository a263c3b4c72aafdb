"""What a run says while it goes on: a line for each check that ended, from the lines that ReFrame prints."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabricheck.report.content import number

_STATUS = re.compile(
    r"^\[ +(OK|FAIL|SKIP|ABORT|ERROR|XFAIL|XPASS) +\] \( *(\d+)/(\d+)\) "
    r"(.+?)(?: /[0-9a-f]{8})?(?: (@\S+))?(?: \[(.*)\])?\s*$"
)
_BEGIN = re.compile(r"^\[ +RUN +\] (.+?)(?: /[0-9a-f]{8})?(?: (@\S+))?\s*$")
_VALUE = re.compile(r"^P: (\S+): ([-+.\deE]+) (\S+)")
_FAILED = re.compile(r"^==> test failed during '([^']*)': test staged in '([^']*)'")
_NAME, _LINE, _TAIL_BYTES = 34, 80, 4096
# Reports that are read for how long tests took: a nightly beside some of other tags.
_MOST_RUNS = 10


@dataclass
class Progress:
    """Follows ReFrame's output. `show` takes a line that stays, `mark` what is under way, which is written over.

    `plan`: the names of the tests that are to run, without builds. `past`: seconds that each took the last time.
    """

    show: Callable[[str], None]
    mark: Callable[[str], None] | None = None
    plan: Sequence[str] = ()
    past: Mapping[str, float] = field(default_factory=dict)
    width: int = _LINE
    clock: Callable[[], float] = time.monotonic
    _ended: list[str] = field(default_factory=list)
    _took: list[float] = field(default_factory=list)
    _reasons: set[str] = field(default_factory=set)
    _waiting: _Ended | None = None
    _last: float = -1.0

    def line(self, text: str) -> None:
        """One line of ReFrame's output."""
        if self._last < 0:
            self._last = self.clock()
        if (found := _STATUS.match(text)) is not None:
            self.flush()
            status, place, total, name, _, why = found.groups()
            self._ended.append(name)
            now = self.clock()
            if name in self.plan and status != "SKIP":
                self._took.append(now - self._last)
            self._last = now
            self._waiting = _Ended(name, status, int(place), int(total), why=why or "")
        elif self._waiting is not None and (value := _VALUE.match(text)) is not None:
            self._waiting.values.append((value[1], float(value[2]), value[3]))
        elif self._waiting is not None and (failed := _FAILED.match(text)) is not None:
            self._waiting.why = _last_word(Path(failed[2])) or f"in its {failed[1]} phase"
        elif (begun := _BEGIN.match(text)) is not None:
            self.flush()
            if self.mark is not None:
                self.mark(f"{len(self._ended) + 1:>3}  {_short(begun[1])} …"[: self.width])

    def flush(self) -> None:
        """Shows the check that ended last; what ReFrame says of it comes after its status."""
        if self._waiting is None:
            return
        one, self._waiting = self._waiting, None
        left = self._left()
        place = f"{one.number:>{len(str(one.total))}}/{one.total}"
        said = one.says
        if one.status == "SKIP" and said in self._reasons:
            said = "as before"
        self._reasons.add(said)
        end = f"  {left}" if left else ""
        room = self.width - len(place) - len(one.verdict) - 6 - len(end)
        name = _short(one.name)
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        whole = one.status == "SKIP" or len(said) <= room - _NAME  # why a check is left out stands nowhere else
        said = said if whole else f"{said[: max(room - _NAME - 1, 0)]}…"
        self.show(f"{place}  {name:<{_NAME}}  {one.verdict:<{max(len(one.verdict), 4)}}  {said}{end}".rstrip())

    def _left(self) -> str:
        """How long the tests that are left will take: as the last time, or as those have taken that ended so far."""
        left = Counter(self.plan) - Counter(self._ended)
        usual = [*self._took] or [seconds for name, seconds in self.past.items() if name in self.plan]
        if not left.total() or not (usual or left.keys() <= self.past.keys()):
            return ""
        mean = sum(usual) / len(usual) if usual else 0.0
        seconds = sum(times * self.past.get(name, mean) for name, times in left.items())
        return f"{round(seconds / 60)} min left" if seconds >= 90 else f"{max(round(seconds), 1)} s left"


@dataclass
class _Ended:
    name: str
    status: str
    number: int
    total: int
    values: list[tuple[str, float, str]] = field(default_factory=list)
    why: str = ""

    @property
    def verdict(self) -> str:
        """That of the check, not of the session: what equals and the history say comes at the end."""
        if self.status == "OK":
            return "PASS"
        return "not PASS" if self.status == "FAIL" else self.status.lower()

    @property
    def says(self) -> str:
        if self.status != "OK":
            return self.why
        goodput = [value for name, value, unit in self.values if name.endswith("_goodput") and unit == "Gb/s"]
        if goodput:
            return f"{number(max(goodput))} Gb/s"
        return next((f"{number(value)} {unit}" for _, value, unit in self.values), "")


def _last_word(stage: Path) -> str:
    """The last line of a job's stderr, which mostly says what ended it; ReFrame gives its reasons only at the end."""
    try:
        with (stage / "rfm_job.err").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _short(name: str) -> str:
    """The test without the names of its parameters: `PeerCopies copy write`."""
    return re.sub(r" ?%[\w.]+=", " ", name).replace(" ~", " ").strip()


def past_seconds(runs: Path, system: str, report: str) -> dict[str, float]:
    """How long each test of a system took the last time, by its name, as the newest reports of runs say."""
    found: dict[str, float] = {}
    for folder in sorted(runs.glob(f"{system}-*"), reverse=True)[:_MOST_RUNS]:
        try:
            content = json.loads((folder / report).read_text())
            found = {**dict(_seconds(content)), **found}
        except (OSError, ValueError, KeyError, TypeError):  # none that is whole: an older one may be
            continue
    return found


def _seconds(content: Mapping[str, list[Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[tuple[str, float]]:
    for run in content["runs"]:
        for each in run["testcases"]:
            took = each.get("time_total")
            if isinstance(took, (int, float)):
                yield str(each["name"]), float(took)
