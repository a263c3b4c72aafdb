"""What a run says while it goes on: a line for each check that ended, from the lines that ReFrame prints."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
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


@dataclass
class Progress:
    """Follows ReFrame's output. `show` takes a line that stays, `mark` what is under way, which is written over.

    `past`: seconds that each test took the last time, by name.
    """

    show: Callable[[str], None]
    mark: Callable[[str], None] | None = None
    past: Mapping[str, float] = field(default_factory=dict)
    width: int = _LINE
    clock: Callable[[], float] = time.monotonic
    _ended: list[str] = field(default_factory=list)
    _waiting: _Ended | None = None
    _started: float = -1.0

    def line(self, text: str) -> None:
        """One line of ReFrame's output."""
        if self._started < 0:
            self._started = self.clock()
        if (found := _STATUS.match(text)) is not None:
            self.flush()
            status, place, total, name, _, why = found.groups()
            self._ended.append(name)
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
        left = self._left(one.total - one.number)
        place = f"{one.number:>{len(str(one.total))}}/{one.total}"
        said = one.says
        end = f"  {left}" if left else ""
        room = self.width - len(place) - len(one.verdict) - 6 - len(end)
        name = _short(one.name)
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        whole = one.status == "SKIP" or len(said) <= room - _NAME  # why a check is left out stands nowhere else
        said = said if whole else f"{said[: max(room - _NAME - 1, 0)]}…"
        self.show(f"{place}  {name:<{_NAME}}  {one.verdict:<{max(len(one.verdict), 4)}}  {said}{end}".rstrip())

    def _left(self, rest: int) -> str:
        """How long the rest will take, by how long checks took the last time and have taken so far."""
        took = self.clock() - self._started
        if rest <= 0 or not self._ended:
            return ""
        known = sum(self.past.get(each, 0.0) for each in self._ended)
        before = sum(self.past.values())
        if known > 0 and before > known:
            seconds = (before - known) * max(took / known, 0.1)
        else:
            seconds = took / len(self._ended) * rest
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
    """How long each test of a system took in the newest of the earlier runs that left a report, by its name."""
    for folder in sorted(runs.glob(f"{system}-*"), reverse=True):
        try:
            content = json.loads((folder / report).read_text())
            return dict(_seconds(content))
        except (OSError, ValueError, KeyError, TypeError):  # none that is whole: an older one may be
            continue
    return {}


def _seconds(content: Mapping[str, list[Mapping[str, list[Mapping[str, object]]]]]) -> Iterator[tuple[str, float]]:
    for run in content["runs"]:
        for each in run["testcases"]:
            took = each.get("time_total")
            if isinstance(took, (int, float)):
                yield str(each["name"]), float(took)
