"""What a user can get wrong with calibrate, compare and watch: one line, exit status 2, and nothing changes. Which
histories are refused, and why, is tested where they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.store.folders import METRICS, SessionFolder
from tests.history.conftest import use_suite
from tests.support.sessions import add
from tests.support.users import SOMEONE

COMMANDS = (
    ("calibrate", "--system", "local", "--write"),
    ("compare", "00000000", "00000001", "--system=local"),
    ("watch", "--system", "local"),
)
each_command = pytest.mark.parametrize("command", COMMANDS, ids=[words[0] for words in COMMANDS])


@pytest.fixture
def suite(root: Path) -> Path:
    return root


@pytest.fixture
def store(suite: Path) -> Path:
    return suite / "output" / "store"


def refused(capsys: pytest.CaptureFixture[str], suite: Path, *words: str) -> str:
    """What a command says of a mistake. It is one line, and every file stays as it was."""
    before = {file: file.read_bytes() for file in suite.rglob("*") if file.is_file()}
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    assert {file: file.read_bytes() for file in suite.rglob("*") if file.is_file()} == before
    return said.err


def sessions(suite: Path, store: Path, count: int = 2) -> list[SessionFolder]:
    return [add(suite, store, session)[0] for session in range(count)]


@each_command
def test_no_store(suite: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert "there is no store at" in refused(capsys, suite, *command)


def left_out(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines on stderr of a command that goes on without something."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (0, 1, 4)
    return capsys.readouterr().err.splitlines()


def test_a_damaged_session_is_left_out(suite: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = sessions(suite, store, 3)[1]
    file = entry.path / METRICS
    file.write_bytes(file.read_bytes()[:-1])
    (line,) = left_out(capsys, "watch", "--system=local")
    assert METRICS in line and "checksum" in line


def test_an_accepted_change_of_no_metric_is_named(
    suite: Path, store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sessions(suite, store)
    file = tmp_path / "accepted.yaml"
    file.write_text("- {since: 2026-09-01, reason: x, metrics: [pingpnog_*]}\n- {since: 2026-09-01, reason: x}\n")
    with pytest.raises(SystemExit) as ended:
        main(["watch", "--system=local", f"--store={store}", f"--accepted={file}"])
    notes = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(notes), "pingpnog_*" in notes[0]) == (4, 1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("watch", "--system", "local", "--warm-up=2"), "--warm-up 2: give a number from 8"),
        (("compare", "00000000", "00000001", "--false-discovery=2"), "a share between 0 and 1"),
        (("calibrate", "--system", "local", "--false-alarms=0"), "false alarms"),
        (("watch", "--system", "local", "--accepted=missing.yaml"), "missing.yaml"),
    ],
)
def test_options_out_of_range(
    suite: Path, store: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    sessions(suite, store)
    assert message in refused(capsys, suite, *words)


@contextmanager
def user(number: int, umask: int) -> Iterator[None]:
    """Another user, of the group `SOMEONE`."""
    before = os.umask(umask)
    os.setegid(SOMEONE)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.umask(before)


@pytest.fixture
def shared(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite that a group shares: group-writable, and new files are the group's."""
    root = use_suite(public / "suite", monkeypatch)
    add(root, root / "output" / "store", 0)
    with pytest.raises(SystemExit):
        main(["watch", "--system", "local"])  # imports what the others may not read where Python is root's own
    shutil.rmtree(root / "output")
    for path in (root, *(path for path in root.rglob("*") if not path.is_symlink())):
        os.chown(path, SOMEONE, SOMEONE)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    with user(SOMEONE, 0o002):
        add(root, root / "output" / "store", 0)
    return root


def watch(capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    capsys.readouterr()
    with user(SOMEONE + 2, 0o002), pytest.raises(SystemExit) as ended:
        main(["watch", "--system", "local"])
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_users_of_a_group_append_to_one_store(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user(SOMEONE + 1, 0o002):
        add(shared, shared / "output" / "store", 1)
    assert watch(capsys) == (4, [])  # two sessions are too few to watch


def test_what_a_user_closed_by_a_umask_of_077_is_said(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user(SOMEONE + 1, 0o077):
        add(shared, shared / "output" / "store", 1)
    status, (line,) = watch(capsys)
    assert status == 4 and "Permission denied" in line


def test_too_few_healthy_sessions_are_no_mistake(suite: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions(suite, store)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "--system", "local", "--write"])
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert "not enough runs for a useful limit: 6 more" in said.out and "no references yet" in said.err
    assert not (suite / "reference_values" / "local.yaml").exists()
