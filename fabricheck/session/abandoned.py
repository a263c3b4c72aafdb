"""Runs that ended before they were judged: killed, or their machine went down. The next run judges what is there.

A run leaves what it is in `run.json` of its folder before ReFrame starts. Only one run of a system goes on at a time,
so while this one has the lock of the system, a folder with that file and no verdict is of such a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.errors import UserError, unwritable
from fabricheck.fleet.allocation import cancel
from fabricheck.fleet.nodes import SLURM
from fabricheck.fleet.record import Fleet
from fabricheck.fleet.resume import JOB_ID
from fabricheck.jsonfile import STRICT, Time, read_as, read_json
from fabricheck.locks import exclusive
from fabricheck.records.case import NODES, Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import read_judgement
from fabricheck.session.reframe_report import FinishedSession, SessionInfo, read_session
from fabricheck.session.run_folders import VERDICT, judged_runs, runs_of
from fabricheck.trust import require_trusted_by_root

#: For `--resume` without a name.
LAST = "last"
#: What a run was to be, in its folder.
RUN = "run.json"
# What a launcher takes to end its ranks.
_PATIENCE_S = 10
_UNFINISHED = "the run ended before this test completed"


@dataclass(frozen=True)
class Started:
    """A run as it began: `listed` is how many test cases ReFrame said it would run. `chosen`: by which tags, names and
    environments, for who resumes it."""

    system: str
    listed: Annotated[int, Field(ge=0, le=10**9)]
    uuid: Annotated[str, Field(pattern="^[0-9a-f-]{36}$")]
    host: str
    started: Time
    chosen: dict[str, list[str]] = field(default_factory=dict)
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    @classmethod
    def now(cls, system: str, listed: int, chosen: Mapping[str, Sequence[str]] | None = None) -> Started:
        """A start of this process, now."""
        began = datetime.now(timezone.utc).isoformat()
        words = {kind: [*given] for kind, given in (chosen or {}).items()}
        return cls(system, listed, str(uuid.uuid4()), socket.gethostname(), began, words)


_STARTED = TypeAdapter(Started)


@contextlib.contextmanager
def only_run(output: Path, system: str) -> Iterator[None]:
    """While this lasts, no other run of `system` has this output.

    Raises Taken where another run has not ended yet, and UserError where nothing can be written.
    """
    with contextlib.ExitStack() as held:
        try:
            require_trusted_by_root("the output", output)  # else what is made below may be elsewhere
            output.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(output / f".{system}.lock"))
        except OSError as error:
            raise unwritable(output, error) from None
        yield


def leave_started(folder: Path, started: Started) -> None:
    """From now on the run of `folder` has begun. UserError where that cannot be written."""
    try:
        (folder / RUN).write_text(json.dumps(asdict(started)), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error) from None


def abandoned(runs: Path, system: str) -> tuple[Path, ...]:
    """The folders below `runs` of runs of `system` that ended before they were judged, for who has its lock."""
    begun = [folder for folder in runs_of(runs, system) if (folder / RUN).exists()]
    return tuple(folder for folder in begun if not (folder / VERDICT).exists())


def find_earlier(runs: Path, system: str, named: str, *, over_nodes: bool) -> Path:
    """The folder of the judged run that `named` is, or the last one of `system` below `runs`: where `over_nodes`, of
    those with --nodes. Raises UserError."""
    if named != LAST:
        folder = next((folder for folder in (Path(named), runs / named) if (folder / RUN).exists()), None)
        if folder is None:
            raise UserError(f"--resume {named}: is not the folder of a run, here or below {runs}")
        if not (folder / VERDICT).exists():
            raise UserError(
                f"--resume: {folder} is still running, or was never judged: see squeue, or leave out --resume"
            )
        return folder.resolve()
    folders = [folder for folder in judged_runs(runs, system) if not over_nodes or Fleet.of_run(folder) is not None]
    if not folders:
        raise UserError(f"--resume: no run of {system}{' with --nodes' * over_nodes} below {runs}: leave out --resume")
    return folders[-1].resolve()


def chosen_by(folder: Path) -> dict[str, tuple[str, ...]]:
    """Tags, names and environments of the run in `folder`; none where an earlier version left no such words.

    Raises UserError where the file is damaged.
    """
    chosen = read_as(folder / RUN, _STARTED).chosen
    return {kind: tuple(chosen.get(kind, ())) for kind in ("tags", "names", "environments")}


def set_aside(folder: Path) -> None:
    """What the run of `folder` left is for a person to look at: no later run tries to judge it."""
    with contextlib.suppress(OSError):
        (folder / RUN).rename(folder / f"{RUN}.damaged")


def end_jobs(folder: Path) -> None:
    """Cancels the jobs of an abandoned run that still go on, of Slurm or on this machine: the next run would measure
    beside them. Another scheduler ends them at their limit."""
    if (fleet := Fleet.of_run(folder)) is not None:
        with contextlib.suppress(UserError):  # where Slurm cannot be asked, the job ends at its limit
            cancel(fleet.job)
    for file in folder.glob(f"stage/*/*/*/shared-job-*/{JOB_ID}"):
        with contextlib.suppress(UserError, OSError, ValueError, TypeError):
            scheduler, name, job = read_json(file)
            if scheduler in SLURM:
                cancel(job, name)
            elif scheduler == "local":
                _end_processes(int(job), str(file.parent))


def _end_processes(leader: int, folder: str) -> None:
    """The job whose script in `folder` the process `leader` runs. OSError where it has ended, or another process has
    the number."""
    command = Path(f"/proc/{leader}/cmdline")
    end = time.monotonic() + _PATIENCE_S
    while folder in command.read_text():
        os.killpg(leader, signal.SIGTERM if time.monotonic() < end else signal.SIGKILL)
        time.sleep(0.2)


def read_abandoned(folder: Path) -> FinishedSession:
    """The session of a run that ended before it was judged: what ReFrame reported, else the result files in `folder`.

    Raises UserError where `run.json` cannot be read, or what is known of its fleet is damaged.
    """
    started = read_as(folder / RUN, _STARTED)
    if (fleet := Fleet.of_run(folder)) is not None:
        fleet.end("the run ended before all was measured: --resume measures the rest")
    when = f"the run of {started.started[:19]}Z on {started.host}"
    try:
        session = replace(read_session(folder), problems=())
        session = FinishedSession.of(folder, session.cases, started.listed)
        left = "judged by ReFrame's report"
    except UserError:
        cases = tuple(_cases_without_report(folder, started.system))
        session = replace(FinishedSession.of(folder, cases, started.listed), without_report=_info(folder, started))
        left = f"without a report of ReFrame, {len(cases)} result files were judged"
    problem = Finding("run-interrupted", Verdict.INCOMPLETE, f"{when} was ended early, by a kill or a reboot; {left}")
    return replace(session, problems=(problem, *session.problems))


def _info(folder: Path, started: Started) -> SessionInfo:
    """What ReFrame would have said of the session as a whole."""
    begun = datetime.fromisoformat(started.started)
    ended = max((file.stat().st_mtime for file in folder.rglob("*.jsonl")), default=begun.timestamp())
    return SessionInfo(
        uuid=started.uuid,
        started=begun,
        ended=datetime.fromtimestamp(ended, timezone.utc),
        host=started.host,
        version="unknown",
        cases=started.listed,
        extras={},
        outputs=folder / "output",
        stages=folder / "stage",
    )


def _cases_without_report(folder: Path, system: str) -> Iterator[Case]:
    """The test cases whose result files lie where ReFrame leaves them: below stage/ or output/, a folder a case."""
    for place in ("output", "stage"):
        root = folder / place / system
        files = {*root.glob("*/*/*/*.jsonl"), *root.glob(f"*/*/*/{NODES}/*/*.jsonl")}
        # Partition, environment and test, and of a test over many nodes also those.
        for test_folder in sorted({root.joinpath(*file.relative_to(root).parts[:3]) for file in files}):
            partition, environment, test = test_folder.relative_to(root).parts
            yield Case(
                name=test.rpartition("_")[0] or test,
                environment=environment,
                partition=f"{system}:{partition}",
                attributes={"$system": system, "$partition": f"{system}:{partition}", "$environ": environment},
                result="pass" if place == "output" else "fail",
                phase=None if place == "output" else "run",
                reason=None if place == "output" else _UNFINISHED,
                folder=test_folder,
                is_build=False,
                judged=read_judgement(test_folder),
            )
