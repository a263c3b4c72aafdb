"""A run that is ended from outside: its job ends too, and what it measured is judged, by itself or by the next run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.store.reading import history
from fabricheck.suite import suite_root
from tests.support import no_locks
from tests.support.toy import ToySuite

pytestmark = [pytest.mark.e2e, pytest.mark.full]

FABRICHECK = (sys.executable, "-m", "fabricheck")
NO_LOCKS = (sys.executable, no_locks.__file__, "ENOSYS")
NIGHTLY = (str(suite_root() / "ci" / "nightly.sh"),)
# It lets ReFrame, which may wait for a core, note the job that it has started before it says that it is there. As the
# suite's checks do, it imports what keeps ReFrame from losing a signal that comes while it logs.
SECOND = """
import fabricheck.rfm

@rfm.simple_test
class Sleeps(Measures):
    executable = "cat RESULT > result.jsonl; sleep 1; echo $$ > PID.new; mv PID.new PID; exec sleep 600"
    keep_files = ["result.jsonl"]
"""


def wait_for(what: Callable[[], bool]) -> None:
    for _ in range(1200):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("no result in a minute")


def start(toy: ToySuite, command: tuple[str, ...]) -> tuple[subprocess.Popen[str], int]:
    """A run whose first test is done and whose second one never would be, and the number of that one's job."""
    other = toy.result.with_name("other.jsonl")
    other.write_text(re.sub('"run_id":"[0-9a-f]{4}', '"run_id":"ffff', toy.result.read_text()))
    pid = toy.output.with_name("pid")
    text = toy.check.read_text().replace('tags = {"toy"}', 'tags = {"nightly"}')
    toy.check.write_text(text + SECOND.replace("RESULT", str(other)).replace("PID", str(pid)))
    environment = {**os.environ, "FABRICHECK_OUTPUT": str(toy.output)}
    process = subprocess.Popen(
        command, cwd=toy.suite.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(pid.exists)
    return process, int(pid.read_text())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def is_whole(report: Path) -> bool:
    """Whether ReFrame has written all of its report: the file is there before what it says is."""
    try:
        json.loads(report.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return True


def verdict_of(folder: Path) -> tuple[str, list[str], int]:
    written = json.loads((folder / "verdict.json").read_text())
    return written["verdict"], [each["message"] for each in written["problems"]], len(written["runs"])


def next_run(toy: ToySuite, refused: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*refused, *FABRICHECK, "run", "--system=toy", "--name=Measures", "--no-store"]
    return subprocess.run(command, cwd=toy.suite.root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.full)])
def test_a_signal_ends_the_job_and_what_was_measured_is_judged(toy: ToySuite, number: signal.Signals) -> None:
    run, job = start(toy, (*FABRICHECK, "run", "--system=toy"))
    run.send_signal(number)
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 4
    wait_for(lambda: is_gone(job))
    (folder,) = toy.output.glob("runs/*")
    verdict, problems, judged = verdict_of(folder)
    assert (verdict, judged) == ("INCOMPLETE", 2)
    assert f"{number.name} ended the run before all tests had ended" in problems
    assert str(folder / "report.html") in said
    assert history(toy.output / "store", system="toy").height == 4


def killed_run(toy: ToySuite, refused: tuple[str, ...] = ()) -> Path:
    """The folder of a run that could not end itself, once its job is gone and ReFrame has written its report."""
    run, job = start(toy, (*refused, *FABRICHECK, "run", "--system=toy"))
    run.kill()
    run.communicate(timeout=60)
    wait_for(lambda: is_gone(job))
    (folder,) = toy.output.glob("runs/*")
    wait_for(lambda: is_whole(folder / "reframe.json"))
    return folder


@pytest.mark.parametrize("refused", [(), pytest.param(NO_LOCKS, marks=pytest.mark.full)])
def test_a_killed_run_ends_its_job_and_is_judged_by_the_next(toy: ToySuite, refused: tuple[str, ...]) -> None:
    folder = killed_run(toy, refused)
    done = next_run(toy, refused)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the earlier run in {folder} had no verdict; it is INCOMPLETE" in done.stderr
    verdict, problems, judged = verdict_of(folder)
    assert (verdict, judged) == ("INCOMPLETE", 2)
    assert any("was ended early" in each for each in problems)
    # That is said once.
    assert "ended before" not in next_run(toy, refused).stderr


@pytest.mark.full
def test_what_a_machine_that_went_down_left_is_judged_and_stored(toy: ToySuite) -> None:
    """ReFrame then left no report: its result files are all that there is."""
    folder = killed_run(toy)
    (folder / "reframe.json").write_text('{"session_info": {"uu')
    command = [*FABRICHECK, "run", "--system=toy", "--name=Measures"]
    done = subprocess.run(command, cwd=toy.suite.root, capture_output=True, text=True, check=False)
    assert "had no verdict; it is INCOMPLETE" in done.stderr
    verdict, problems, judged = verdict_of(folder)
    assert (verdict, judged) == ("INCOMPLETE", 2)
    assert any("without a report of ReFrame" in each for each in problems)
    assert set(history(toy.output / "store", system="toy")["test"]) == {"Measures", "Sleeps"}


def test_a_run_that_goes_on_is_left_alone(toy: ToySuite) -> None:
    run, job = start(toy, (*FABRICHECK, "run", "--system=toy"))
    try:
        other = next_run(toy)
        assert other.returncode == 4
        assert other.stderr.startswith(f"INCOMPLETE: another run of toy has not ended yet (process {run.pid} on ")
        assert not is_gone(job)
    finally:
        run.terminate()
        run.communicate(timeout=100)


def test_the_nightly_script_ends_with_its_run_and_holds_its_lock_until_then(toy: ToySuite) -> None:
    script, job = start(toy, (*NIGHTLY, "toy"))
    script.terminate()
    with (toy.output / ".toy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_gone(job)
        (folder,) = toy.output.glob("runs/*")
        assert verdict_of(folder)[0] == "INCOMPLETE"
    script.communicate(timeout=60)
    assert script.returncode == 4
    assert (toy.output / "latest-toy").resolve() == folder
