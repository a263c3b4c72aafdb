"""What is read of a run's folder, wherever it is now, and from nowhere else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.session.reframe_report import past_seconds, read_session
from tests.support.result_files import HOST


def make_run(folder: Path, files: Path | None = None) -> Path:
    """A run with one test that passed, whose files are in its own folder or in `files`."""
    own = folder / "output" / "toy" / "Measures"
    if files is None:
        own.mkdir(parents=True)
        shutil.copy(HOST, own / "result.jsonl")
    folder.mkdir(exist_ok=True)
    case = {
        "name": "Measures", "unique_name": "Measures", "environ": "none", "system": "toy", "partition": "default",
        "result": "pass", "outputdir": str(files or own), "stagedir": None, "fixture": False, "fail_phase": None,
    }  # fmt: skip
    info = {
        "uuid": "1", "time_start_unix": 0, "time_end_unix": 1, "hostname": "login7", "version": "4.10.4",
        "num_cases": 1, "prefix_output": str(folder / "output"), "prefix_stage": str(folder / "stage"),
    }  # fmt: skip
    (folder / "reframe.json").write_text(json.dumps({"session_info": info, "runs": [{"testcases": [case]}]}))
    return folder


def test_a_run_that_was_moved_is_read(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    make_run(tmp_path / "run").rename(moved)
    assert read_session(moved).files == (moved / "output" / "toy" / "Measures" / "result.jsonl",)


def test_another_run_s_results_are_not_those_of_a_folder(tmp_path: Path) -> None:
    """By a path in its report, a path that leads out of the folder, or a link in it."""
    other = make_run(tmp_path / "other") / "output" / "toy" / "Measures"
    empty = make_run(tmp_path / "empty", other)
    with pytest.raises(UserError, match="outside the folder of this run"):
        read_session(empty)
    out = make_run(
        tmp_path / "out", tmp_path / "out" / "output" / ".." / ".." / "other" / "output" / "toy" / "Measures"
    )
    with pytest.raises(UserError, match="outside the folder of this run"):
        read_session(out)
    linked = make_run(tmp_path / "linked")
    (file,) = read_session(linked).files
    file.unlink()
    file.symlink_to(other / "result.jsonl")
    with pytest.raises(UserError, match="outside the folder of this run"):
        read_session(linked)


def test_the_newest_whole_report_counts(tmp_path: Path) -> None:
    """Of each environment by itself, without the build that a case waited for."""
    where = {"name": "a %x=1", "system": "toy", "partition": "gpu", "time_total": 300.0}
    for name, content in (
        ("toy-20261121T010000Z", {"gnu": 1.0}),
        ("toy-20261122T010000Z", {"gnu": 5.0, "cray": 7.0}),
        ("toy-x-20261123T010000Z", {"gnu": 9.0}),
    ):
        (tmp_path / name).mkdir()
        cases = [{**where, "environ": environ, "time_run": took} for environ, took in content.items()]
        (tmp_path / name / "reframe.json").write_text(json.dumps({"runs": [{"testcases": cases}]}))
    (tmp_path / "toy-20261123T010000Z").mkdir()
    (tmp_path / "toy-20261123T010000Z" / "reframe.json").write_text("{")
    assert past_seconds(tmp_path, "toy") == {"a %x=1 @toy:gpu+gnu": 5.0, "a %x=1 @toy:gpu+cray": 7.0}
    assert past_seconds(tmp_path / "none", "toy") == {}
