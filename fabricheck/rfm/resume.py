"""A test that an earlier run measured to its end is not measured again (`run --resume` without `--nodes`)."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fabricheck.fleet.resume import RESUMES, TAKEN, folders_in
from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS, RESULT, WRONG_DATA, has_footer


def take_over(check: Any) -> None:
    """Copies what the earlier run left of a test into its stage directory, where its job would do the same."""
    if RESUMES not in os.environ:
        return
    earlier, stage = Path(os.environ[RESUMES]), Path(check.stagedir)
    run = stage.parents[4]
    for before in folders_in(earlier, stage.relative_to(run / "stage")):
        scripts = (before / check.job.script_filename, earlier), (stage / check.job.script_filename, run)
        if _is_whole(before) and len({_commands(*script) for script in scripts}) == 1:
            shutil.copytree(before, stage, dirs_exist_ok=True, ignore=shutil.ignore_patterns(BEGUN, ".rfm*"))
            for plans in before.parent.glob("shared-job-*/*/plans-*"):
                if f"{before} " in plans.read_text(encoding="utf-8"):
                    leave_words(stage, plans.parent)
            (stage / TAKEN).write_text(f"{before}\n", encoding="utf-8")
            check.keep_files = [*check.keep_files, TAKEN]
            check.started = datetime.fromtimestamp(0, timezone.utc)  # it was looked at whether its result is of its job
            return


def _is_whole(folder: Path) -> bool:
    try:
        status = int((folder / EXIT_STATUS).read_text())
    except (OSError, ValueError):
        return False
    return status in (0, WRONG_DATA) and has_footer(folder / RESULT)


def _commands(script: Path, run: Path) -> str:
    """What a job script of a run does, without what is for the scheduler and wherever the run is."""
    try:
        lines = script.read_text(encoding="utf-8").replace(str(run), "").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if not line.startswith("#"))


def leave_words(stage: Path, launch: Path) -> None:
    """What a plan and its job printed, where the job did not come to leave that; `launch`: the folder of its launch."""
    for kind in ("out", "err"):
        own = stage / f"rfm_job.{kind}"
        files = (launch / f"launch.{kind}", stage / f"plan.{kind}", launch.parent / f"job.{kind}")
        if not own.exists():
            own.write_bytes(b"".join(file.read_bytes() for file in files if file.exists()))
    if (launch / FOLDER).is_dir() and not (stage / FOLDER).exists():
        shutil.copytree(launch / FOLDER, stage / FOLDER)
