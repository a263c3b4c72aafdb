"""A disk or a quota that is full: one line, and nothing that was measured is lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fabricheck.commands.run import _judge_abandoned
from fabricheck.errors import UserError
from fabricheck.session.abandoned import RUN, Started, leave_started
from fabricheck.session.hiding import scrub
from fabricheck.session.run_folders import VERDICT
from fabricheck.session.suite_run import _new_folder
from fabricheck.store.reading import history
from fabricheck.suite import Suite
from tests.support.sessions import make_suite, result_file

FULL = pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])


def refuse(number: int) -> Callable[..., Any]:
    def write(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return write


@FULL
@pytest.mark.parametrize("reports", [False, True], ids=["the store has no room", "nothing has room"])
def test_a_run_that_cannot_be_stored_is_one_line_and_can_be_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, reports: bool
) -> None:
    suite, store = Suite(make_suite(tmp_path / "suite")), tmp_path / "store"
    run = tmp_path / "runs" / "local-20261120T030000Z"
    test = run / "output" / "local" / "default" / "openmpi" / "SmokeHost_0a1b2c3d"
    measured = result_file(test, 1).rename(test / "result.jsonl")
    (run / RUN).write_text(json.dumps(asdict(Started.now("local", 1))))
    content = measured.read_bytes()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse(number))
        if reports:
            full.setattr(Path, "write_text", refuse(number))
        _judge_abandoned(suite, "local", tmp_path, store)
    said = capsys.readouterr().err.splitlines()
    assert [os.strerror(number) in line for line in said] == [True, False]  # and what the run came to
    assert measured.read_bytes() == content
    assert not [*store.glob("local/*")]
    assert (run / VERDICT).exists() is not reports
    assert (f"store import {run}" in said[0]) is not reports
    if reports:
        assert not [file for file in run.rglob("*") if file.name.endswith(".unfinished")]
        _judge_abandoned(suite, "local", tmp_path, store)
        assert history(store, system="local").height > 0
        assert (run / VERDICT).exists() and (run / "report.html").exists()


@FULL
def test_a_run_that_finds_no_room_for_its_folder_ends_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as full:
        full.setattr(Path, "mkdir", refuse(number))
        with pytest.raises(UserError, match=os.strerror(number)):
            _new_folder(tmp_path / "runs", "local")
    monkeypatch.setattr(Path, "write_text", refuse(number))
    with pytest.raises(UserError, match=os.strerror(number)):
        leave_started(tmp_path, Started.now("local", 1))


@FULL
def test_a_file_with_a_secret_is_whole_where_there_is_no_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = tmp_path / "job.log"
    log.write_text("--token=abcdefgh12345678\nmeasured\n")
    log.chmod(0o640)

    real = Path.write_bytes

    def torn(path: Path, content: bytes) -> None:
        real(path, content[:3])
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", torn)
        scrub(tmp_path, {})
    assert log.read_text().endswith("measured\n")
    scrub(tmp_path, {})
    assert "abcdefgh" not in log.read_text() and log.stat().st_mode & 0o777 == 0o640
