"""A job that waits takes what is launched again, if it ran the same tests and has the time, and ends when let go of."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from fabricheck.fleet.held_jobs import BEGAN, CLOSED, WAIT_FOR_MORE, hand_over, is_idle, keep, let_go


def test_a_job_that_waits_takes_what_is_launched_again(tmp_path: Path) -> None:
    job = tmp_path / "stage" / "shared-job-1"
    job.mkdir(parents=True)
    assert hand_over(tmp_path, ["a"], ["true"], 1.0) is None
    keep(job, ["a", "b"], 1e6)
    (job / "launched").touch()
    with subprocess.Popen(["sh", "-c", f"touch {BEGAN}\n{WAIT_FOR_MORE}"], cwd=job) as process:
        while not is_idle(job):
            time.sleep(0.05)
        assert hand_over(tmp_path, ["a", "c"], ["true"], 1.0) is None
        assert hand_over(tmp_path, ["a"], ["true"], 2e6) is None
        for times in (1, 2):
            assert hand_over(tmp_path, ["b"], ["echo b >> launched"], 1.0) == job
            while not is_idle(job):
                time.sleep(0.05)
            assert (job / "launched").read_text() == "b\n" * times
        let_go(tmp_path)
        assert process.wait(10) == 0
    assert (job / CLOSED).exists()
    (job / "idle").touch()  # as of a job that was killed
    assert hand_over(tmp_path, ["a"], ["true"], 1.0) is None
