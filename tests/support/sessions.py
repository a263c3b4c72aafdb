"""Sessions for tests of the store: the synthetic result files, as runs of any night, judged by a suite of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import worst
from fabricheck.results.fabricbench import read_run
from fabricheck.store.folders import SessionFolder
from fabricheck.store.writing import NewSession, append
from tests.support.result_files import HOST, Line, lines_of, settle, write

ROOT = Path(__file__).resolve().parents[2]
FIRST_NIGHT = datetime(2026, 9, 1, 2, 0, 0, tzinfo=timezone.utc)
NOW = datetime(2026, 12, 1, tzinfo=timezone.utc)


def make_suite(folder: Path) -> Path:
    """A suite with the systems local and hgx-h200 and without references."""
    shutil.copytree(ROOT / "config", folder / "config")
    for system in ("local", "hgx-h200"):
        shutil.copytree(ROOT / "site_configs" / system, folder / "site_configs" / system)
    (folder / "reference_values").mkdir()
    return folder


def result_file(
    folder: Path,
    night: int,
    number: int = 0,
    *,
    source: Path = HOST,
    factor: float = 1.0,
    change: Callable[[list[Line]], object] | None = None,
) -> Path:
    """A result file of a night, with an id of its own; every time is `factor` times that of `source`."""
    lines = lines_of(source)
    run_id = f"{night:016x}{number:016x}"
    lines[0]["run_id"] = lines[-1]["run_id"] = run_id
    started = FIRST_NIGHT + timedelta(days=night, minutes=1 + number)
    lines[0]["started_utc"] = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    for line in lines:
        if "times_ns" in line:
            line["times_ns"] = [max(1, round(time * factor)) for time in line["times_ns"]]
    if change is not None:
        change(lines)
    settle(lines)
    folder.mkdir(parents=True, exist_ok=True)
    return write(folder / f"night{night}-{number}.jsonl", lines)


def case(system: str = "local", **changes: Any) -> Case:
    attributes = {"transport": "mpi", "tuning_profile": "default", "$system": system}
    values: dict[str, Any] = {
        "name": "PingPong %transport=mpi",
        "environment": "openmpi",
        "partition": f"{system}:default",
        "attributes": {**attributes, "$partition": f"{system}:default", "$environ": "openmpi"},
        "result": "pass",
        "phase": None,
        "reason": None,
        "folder": None,
        "is_build": False,
        "tags": ("acceptance", "nightly"),
    }
    return Case(**{**values, **changes})


def session_of(
    root: Path,
    night: int,
    files: Sequence[Path],
    *,
    system: str = "local",
    cases: Sequence[Case] | None = None,
    problems: Sequence[Finding] = (),
    **changes: Any,
) -> NewSession:
    """The session of a night with these result files."""
    judge = SystemJudge.of(system, root)
    cases = [case(system) for _ in files] if cases is None else cases
    judged = [judge.judge(read_run(file), one.test, one.attributes) for file, one in zip(files, cases, strict=True)]
    started = FIRST_NIGHT + timedelta(days=night)
    values: dict[str, Any] = {
        "system": system,
        "session": f"{night:08d}-0000-4000-8000-000000000000",
        "started": started,
        "ended": started + timedelta(hours=1),
        "host": "login1",
        "software": {"suite": "0123abcd"},
        "verdict": worst(each.verdict for each in judged),
        "problems": problems,
        "findings": (),
        "cases": cases,
        "judged": judged,
        "root": root,
        "host_facts": {},
    }
    return NewSession(**{**values, **changes})


def add(
    root: Path, store: Path, night: int, *, runs: int = 1, **changes: Any
) -> tuple[SessionFolder, list[RunJudgement]]:
    """Store a night of `runs` runs."""
    files = [result_file(root / "results", night, number, factor=1 + 0.01 * number) for number in range(runs)]
    new = session_of(root, night, files, **changes)
    return append(store, new, NOW).entry, list(new.judged)


def reframe_report(run: Path, test: Path) -> str:
    """ReFrame's report of a run below `run` with one test, whose output lies in `test`."""
    info = {
        "uuid": "00000002-aaaa", "time_start_unix": 1788400800.25, "time_end_unix": 1788401800.5, "hostname": "login1",
        "version": "4.10.4", "num_cases": 1, "user": "curie", "cmdline": "reframe --run",
        "prefix_output": str(run / "output"), "prefix_stage": str(run / "stage"),
    }  # fmt: skip
    of_case = {
        "unique_name": "PingPong_3", "name": "PingPong %transport=mpi", "transport": "mpi", "tags": ["nightly"],
        "system": "local", "partition": "default", "environ": "openmpi", "result": "pass", "fixture": False,
        "fail_phase": None, "outputdir": str(test), "stagedir": None,
    }  # fmt: skip
    return json.dumps({"session_info": info, "runs": [{"testcases": [of_case]}]}, indent=1)
