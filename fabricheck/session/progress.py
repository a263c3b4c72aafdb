"""What a run says while it goes on: a line for each check that ended, from the lines that ReFrame prints."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fabricheck.records.operations import LOADS
from fabricheck.report.content import number
from fabricheck.results.check_judgement import read_judgement
from fabricheck.units import time_left

_STATUS = re.compile(
    r"^\[ +(OK|FAIL|SKIP|ABORT|ERROR|XFAIL|XPASS) +\] \( *(\d+)/(\d+)\) "
    r"(.+?)(?: /[0-9a-f]{8})?(?: (@\S+))?(?: \[(.*)\])?\s*$"
)
_BEGIN = re.compile(r"^\[ +RUN +\] (.+?)(?: /[0-9a-f]{8})?(?: (@\S+))?\s*$")
_VALUE = re.compile(r"^P: (\S+): ([-+.\deE]+) (\S+)")
_FAILED = re.compile(r"^==> test failed during '([^']*)': test staged in '([^']*)'")
_NAME, _LINE, _TAIL_BYTES = 34, 80, 4096
# Seconds of a run after its last measurement (first runs on two H100, 2026-11-26: 2.4 s after 5 tests, 3.1 after 13).
_END_S = 2.5


@dataclass
class TimeLeft:
    """How long a run still takes: as long for each test that has not begun as for those that have. Builds count for
    nothing."""

    tests: int = 0  # as ReFrame counts them, and how many of them have begun, and were judged
    begun: int = 0
    judged: int = 0
    _first: float | None = None  # when the first began that is no build, and how many had before
    _before: int = 0

    def begin(self, name: str, now: float) -> None:
        """A test began at `now` (s)."""
        self.begun += 1
        if self._first is None and not _is_build(name):
            self._first, self._before = now, self.begun - 1

    def text(self, now: float) -> str:
        """In words, `now` in seconds of the monotonic clock; empty where no test has ended yet."""
        ended = max(self.begun - self._before - 1, self.judged)  # in a shared job none is judged before its end
        if self._first is None or ended < 1 or self.begun >= self.tests:
            return ""
        seconds = _END_S + (now - self._first) / ended * max(self.tests - self._before - ended, 0)
        return time_left(seconds)


@dataclass
class Progress:
    """Follows ReFrame's output. `show` takes a line that stays, `mark` what is under way, which is written over."""

    show: Callable[[str], None]
    mark: Callable[[str], None] | None = None
    width: int = _LINE
    clock: Callable[[], float] = time.monotonic
    left: TimeLeft = field(default_factory=TimeLeft)
    _reasons: set[str] = field(default_factory=set)
    _waiting: _Ended | None = None

    def line(self, text: str) -> None:
        """One line of ReFrame's output."""
        if (match := _STATUS.match(text)) is not None:
            self.flush()
            status, place, total, name, _, why = match.groups()
            self.left.tests = int(total)
            self.left.judged += status in ("OK", "FAIL") and not _is_build(name)
            self._waiting = _Ended(name, status, int(place), int(total), why=why or "")
        elif self._waiting is not None and (value := _VALUE.match(text)) is not None:
            self._waiting.values.append((value[1], float(value[2]), value[3]))
        elif self._waiting is not None and (failed := _FAILED.match(text)) is not None:
            self._waiting.why = _last_word(Path(failed[2])) or f"in its {failed[1]} phase"
        elif (begun := _BEGIN.match(text)) is not None:
            self.flush()
            self.left.begin(begun[1], self.clock())
            if self.mark is not None:
                self.mark(f"{self.left.begun:>3}  {_short(begun[1])} …  {self.left.text(self.clock())}"[: self.width])
            elif _is_build(begun[1]):  # minutes, where it is the first
                self.show(f"     {_short(begun[1])} …"[: self.width])

    def flush(self) -> None:
        """Shows the check that ended last; what ReFrame says of it comes after its status. Of those that are left out
        for one reason the first: a summary counts them."""
        if self._waiting is None:
            return
        test, self._waiting = self._waiting, None
        left = self.left.text(self.clock()) if test.number < test.total else ""
        place = f"{test.number:>{len(str(test.total))}}/{test.total}"
        said = test.says
        if test.status == "SKIP":
            if said in self._reasons:
                return
            self._reasons.add(said)
        end = f"  {left}" if left else ""
        room = self.width - len(place) - len(test.verdict) - 6 - len(end)
        name = _short(test.name)
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        whole = test.status == "SKIP" or len(said) <= room - _NAME  # why a check is left out stands nowhere else
        said = said if whole else f"{said[: max(room - _NAME - 1, 0)]}…"
        self.show(f"{place}  {name:<{_NAME}}  {test.verdict:<{max(len(test.verdict), 4)}}  {said}{end}".rstrip())


def _is_build(name: str) -> bool:
    """ReFrame names a fixture by what it is for, after a ~."""
    return " ~" in name


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
        """That of the check, not of the session: what peers and the history say comes at the end."""
        if self.status == "OK":
            return "PASS"
        return "not PASS" if self.status == "FAIL" else self.status.lower()

    @property
    def says(self) -> str:
        if self.status != "OK":
            return self.why
        plain = [value for value in self.values if value[0].partition("_")[0] not in LOADS]
        goodput = [value for name, value, unit in plain if name.endswith("_goodput") and unit == "Gb/s"]
        if goodput:
            return f"{number(max(goodput))} Gb/s"
        return next((f"{number(value)} {unit}" for _, value, unit in self.values), "")


def _last_word(stage: Path) -> str:
    """What a check found, else the last line of its job's stderr; ReFrame gives its reasons only at the end."""
    judgement = read_judgement(stage)
    if judgement is not None and judgement.findings:
        return judgement.findings[0].reason
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
