"""One run of the suite by ReFrame, and launches of some of its tests once more.

ReFrame's exit status alone is not enough: a check file that cannot be loaded, an environment that is missing or a job
without an accounting record leave fewer tests, or none, and still exit status 0. So the test cases are counted before
and after, and everything that is not a pass becomes a problem (fabricheck.session.problems).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from fabricheck.begin import BEGIN
from fabricheck.errors import UserError, unwritable
from fabricheck.fleet.held_jobs import SESSION
from fabricheck.fleet.record import FOLDER as FLEET
from fabricheck.fleet.record import Fleet
from fabricheck.fleet.resume import RESUMES, carry_on
from fabricheck.fleet.settings import write_settings
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.abandoned import Started, leave_started
from fabricheck.session.hiding import scrub
from fabricheck.session.progress import Progress
from fabricheck.session.reframe import Selection, command_of, environment_of, require_listed
from fabricheck.session.reframe_report import FinishedSession, read_cases
from fabricheck.session.run_folders import REPORT
from fabricheck.suite import Suite

_FOLLOW_S = 0.3  # how often the output is looked at


@contextlib.contextmanager
def start(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Iterator[ReFrame]:
    """ReFrame, which prints to the file `output`, until it has ended; at once where it is not told to run its tests.

    Its output is followed in the file: no pipe breaks when we end, and no line is lost.
    """
    ours, theirs = socket.socketpair()
    # What the function does between fork and exec needs no lock that another thread could hold.
    with ours, theirs, output.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--run"],
            env={**environment, BEGIN: str(theirs.fileno())},
            stdin=subprocess.DEVNULL,  # a process in the background that reads a terminal is stopped
            stdout=file,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            preexec_fn=_end_with_parent(os.getpid()),  # noqa: PLW1509
        )
        theirs.close()
        reframe = ReFrame(process, ours, output)
        try:
            yield reframe
        finally:
            if not reframe.begun:
                process.kill()
                process.wait()


@dataclass
class ReFrame:
    """ReFrame, which waits before its first test (fabricheck.begin)."""

    process: subprocess.Popen[bytes]
    asks: socket.socket
    output: Path
    begun: bool = False

    def listed(self) -> int | None:
        """How many test cases it is about to run, builds too; None where it ended before it knew."""
        count = self.asks.recv(32)
        return int(count) if count else None

    def run(self, progress: Progress | None) -> tuple[int, str]:
        """Its exit status, and the name of the signal by which the run was to end; empty where there was none.

        On SIGTERM ReFrame ends its jobs and writes its report: that is what it gets if we are to end, whatever ends us.
        """
        self.begun = True
        with contextlib.suppress(OSError):  # it has ended
            self.asks.sendall(b"\n")
        asked: list[str] = []
        said = _Followed(self.output, progress)

        def end(number: int, _: object) -> None:
            asked.append(signal.Signals(number).name)
            self.process.terminate()

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            while True:
                try:
                    status = self.process.wait(_FOLLOW_S)
                    return status, asked[0] if asked else ""
                except subprocess.TimeoutExpired:
                    said.read()
                except KeyboardInterrupt:
                    # ReFrame ends its jobs and writes its report: wait for that.
                    asked.append(signal.SIGINT.name)
                    self.process.send_signal(signal.SIGINT)
        finally:
            said.read()
            said.end()
            for number, handler in before.items():
                signal.signal(number, handler)


class _Followed:
    """The lines of a growing file, told to a `progress`."""

    def __init__(self, file: Path, progress: Progress | None) -> None:
        self._file, self._progress, self._at, self._rest = file, progress, 0, ""

    def read(self) -> None:
        """Tells the lines that came since."""
        with self._file.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        self._at += len(new)
        *lines, self._rest = (self._rest + new.decode("utf-8", "replace")).split("\n")
        for line in lines if self._progress is not None else ():
            self._progress.line(line)  # type: ignore[union-attr]

    def end(self) -> None:
        if self._progress is not None:
            self._progress.flush()


def _end_with_parent(parent: int) -> Callable[[], None]:
    """What makes a child process get SIGTERM when its parent is gone, whatever ended that (Linux, prctl(2))."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    pr_set_pdeathsig = 1

    def in_child() -> None:
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes to the parent alone, which passes it on: once, whoever sent it
        prctl(pr_set_pdeathsig, int(signal.SIGTERM))
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return in_child


#: What ReFrame printed, in the folder of a session.
OUTPUT = "reframe.out"


@dataclass(frozen=True)
class Launcher:
    """Starts ReFrame with the checks of a suite; all that it leaves is below `output`.

    `progress` makes what follows ReFrame, or None. `meanwhile` is called while ReFrame reads the checks, before any of
    them runs; what it raises ends all that.
    """

    suite: Suite
    output: Path
    progress: Callable[[], Progress | None] = lambda: None
    meanwhile: Callable[[], None] = lambda: None

    def run(
        self,
        selection: Selection,
        *,
        fleet: Fleet | None = None,
        earlier: Path | None = None,
        settings: Path | None = None,
        waits: bool = False,
    ) -> FinishedSession:
        """Runs the selected checks and gives what came of them. What ReFrame prints goes to a file and to `progress`.

        With a `fleet` the checks run on its nodes, inside its job; its folder is that of the run from then on. Without,
        what an `earlier` run measured to its end is taken over. `settings`: ReFrame's, where not the site's own.
        With `waits` jobs keep their nodes for `run_again`.

        If it does not get to its end, the next run judges what is there. What this run alone made is left in
        runs/<system>-<time>/ of the output, ReFrame's logs beside it. Raises `UserError` when the system
        is unknown, when nothing is selected, or when ReFrame refuses.
        """
        system, progress = selection.whole_system, self.progress()
        command, own_settings = command_of(self.suite, selection), self.suite.settings(system)
        environment = environment_of(self.suite, selection, self.output)
        folder = _new_folder(self.output.resolve() / "runs", system)
        if fleet is not None:
            environment["RFM_CONFIG_FILES"] = _files_inside(fleet, folder / FLEET, self.suite)
        elif settings not in (None, own_settings):
            environment["RFM_CONFIG_FILES"] = f"{self.suite.config_files(system)[0]}:{settings}"
        elif earlier is not None:
            environment[RESUMES] = str(earlier)
        if waits:
            environment[SESSION] = str(folder)
        (mark := (progress and progress.mark) or (lambda _: None))("reading the checks …")
        try:
            with start([*command, *_places(folder)], environment, folder / OUTPUT) as reframe:
                self.meanwhile()
                count, said = reframe.listed(), (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
                listed = require_listed(command, said, count, settings or own_settings, folder)
                leave_started(folder, Started.now(system, listed, selection.chosen))
                ended = reframe.run(progress)
        except UserError:
            mark("")
            if not (folder / "listing.txt").exists():  # nothing was measured, and ReFrame said nothing
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()
            raise
        scrub(folder, environment)
        return _session(folder, listed, *ended, self.output)

    def run_again(
        self, selection: Selection, cases: Sequence[Case], folder: Path, fleet: Fleet | None = None
    ) -> tuple[tuple[Case, ...], str]:
        """Launches test cases of one partition and environment once more, after a run of `selection`, in a new
        `folder`.

        With a `fleet` on its nodes, inside its job. What came of those that got to run, and by which signal ReFrame was
        to end; empty where by none.
        """
        environment = {**environment_of(self.suite, selection, self.output), SESSION: str(folder.parent)}
        hashes = tuple(f"/{case.attributes['hashcode']}" for case in cases)
        own = Selection(cases[0].partition, (), hashes, (f"^{re.escape(cases[0].environment)}$",), selection.more)
        folder.mkdir()
        if fleet is not None:
            environment["RFM_CONFIG_FILES"] = _files_inside(fleet, folder / FLEET, self.suite)
        command = [*command_of(self.suite, own), *_places(folder)]
        with start(command, environment, folder / OUTPUT) as reframe:
            _, ended_by = reframe.run(self.progress())
        scrub(folder, environment)
        with contextlib.suppress(UserError):
            asked = set(map(str, cases))
            return tuple(case for case in read_cases(folder / REPORT) if str(case) in asked), ended_by
        return (), ended_by


def _files_inside(fleet: Fleet, folder: Path, suite: Suite) -> str:
    """ReFrame's settings inside the job of a fleet, whose folder is made."""
    folder.mkdir()
    placed = replace(fleet, folder=folder)
    placed.write()
    carry_on(placed)
    *others, settings = suite.config_files(fleet.system)
    return ":".join(map(str, (*others, write_settings(placed, settings))))


def _session(folder: Path, listed: int, status: int, ended_by: str, output: Path) -> FinishedSession:
    """What ReFrame left, which ended with this status, and by which signal where we were to end."""
    try:
        cases, error = read_cases(folder / REPORT), _last_error(output / "reframe.log")
    except UserError as damage:
        cases, error = (), str(damage)
    session = FinishedSession.of(folder, cases, listed, status, error)
    if not ended_by:
        return session
    text = f"{ended_by} ended the run before all tests had ended"
    if (fleet := Fleet.of_run(folder)) is not None:
        fleet.end(text)
    problem = Finding("run-interrupted", Verdict.INCOMPLETE, text)
    return replace(session, problems=(problem, *session.problems), interrupted=True)


def _places(folder: Path) -> list[str]:
    """Where ReFrame leaves what it makes."""
    return [f"--stage={folder / 'stage'}", f"--output={folder / 'output'}", f"--report-file={folder / REPORT}"]


def _new_folder(runs: Path, system: str) -> Path:
    """A folder that no other run has, even one that starts in the same second."""
    started = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    for number in itertools.count(1):
        folder = runs / (f"{system}-{started}" if number == 1 else f"{system}-{started}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable(runs, error) from None
        return folder
    raise AssertionError("unreachable")


def _last_error(log: Path) -> str:
    """The last error in ReFrame's log; empty where there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    errors = re.findall(r"^\[[^]]*\] (?:error|critical): [^:]*: (?:ERROR: )?(.*)$", "\n".join(lines), re.MULTILINE)
    return errors[-1] if errors else ""
