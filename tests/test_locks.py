"""One process at a time, with the kernel's lock and where it refuses one."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fabricheck import locks
from fabricheck.locks import Owner, Taken, exclusive
from tests.support import no_locks

# Keeps what it has until its standard input ends, or says who has it.
PROGRAM = """
import pathlib, sys
from fabricheck.locks import Taken, exclusive
try:
    with exclusive(pathlib.Path(sys.argv[1])):
        print("has it", flush=True)
        sys.stdin.read()
except Taken as owner:
    print("taken by", owner, flush=True)
"""
WITH_LOCKS: tuple[str, ...] = ()
WITHOUT = (sys.executable, no_locks.__file__, "ENOSYS")


def start(file: Path, refused: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [*refused, sys.executable, "-c", PROGRAM, str(file)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("refused", [WITH_LOCKS, WITHOUT])
def test_one_at_a_time_until_it_ends_or_is_killed(tmp_path: Path, refused: tuple[str, ...]) -> None:
    file = tmp_path / "lock"
    with start(file, refused) as first:
        assert said(first) == "has it\n"
        other, _ = start(file, refused).communicate()
        assert other.startswith(f"taken by process {first.pid} on ")
        first.kill()
    with start(file, refused) as second:
        assert said(second).startswith("has it")
        second.communicate()
    assert not file.with_name("lock.owner").exists()


@pytest.mark.full
def test_of_many_that_find_the_owner_gone_one_is_next(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with start(file, WITHOUT) as first:
        said(first)
        first.kill()
    several = [start(file, WITHOUT) for _ in range(6)]
    assert sorted(said(each)[:6] for each in several) == ["has it"] + ["taken "] * 5
    for each in several:
        each.communicate()


def leave(file: Path, **changes: object) -> Path:
    """The file of an owner that is like this process, but for the changes."""
    owner = file.with_name(f"{file.name}.owner")
    owner.write_text(json.dumps(asdict(replace(Owner.here(by_lock=False), **changes))))  # type: ignore[arg-type]
    return owner


def test_an_owner_on_another_machine_is_believed_and_told_how_to_remove(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    owner = leave(file, host="elsewhere", pid=7)
    with (
        pytest.raises(Taken, match=rf"^process 7 on elsewhere, since .*; if it has ended, remove {owner}$"),
        exclusive(file),
    ):
        pass
    assert owner.exists()


@pytest.mark.parametrize("changes", [{"boot": "an earlier one"}, {"began": 1}, {"host": "elsewhere", "by_lock": True}])
def test_who_is_gone_is_followed(tmp_path: Path, changes: dict[str, object]) -> None:
    """The machine started again; its number is another process's; or the lock of all machines came free."""
    owner = leave(tmp_path / "lock", **changes)
    with exclusive(tmp_path / "lock"):
        assert json.loads(owner.read_text())["began"] == Owner.here(by_lock=True).began
    assert not owner.exists()


def test_an_owner_in_another_container_is_not_taken_for_gone(tmp_path: Path) -> None:
    leave(tmp_path / "lock", namespace="pid:[1]", pid=2**22 + 1)
    with pytest.raises(Taken), exclusive(tmp_path / "lock"):
        pass


def test_where_there_is_no_room_for_an_owner_none_is_left(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError), exclusive(tmp_path / "lock"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with exclusive(tmp_path / "lock"):
        pass


def test_an_owner_that_cannot_be_read_is_believed(tmp_path: Path) -> None:
    (tmp_path / "lock.owner").write_text("")
    with pytest.raises(Taken, match="its process is unknown; if it has ended, remove "), exclusive(tmp_path / "lock"):
        pass


def test_a_lock_that_only_this_machine_sees_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre's option `localflock`: what the kernel gives then is not held against other machines."""
    monkeypatch.setattr(locks, "_mount_options", lambda _: {"rw", "localflock"})
    leave(tmp_path / "lock", host="elsewhere", by_lock=True)
    with pytest.raises(Taken, match="elsewhere"), exclusive(tmp_path / "lock"):
        pass


def test_mount_options_are_read(tmp_path: Path) -> None:
    (mounted,) = {line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " / / " in line}
    assert {"rw", "ro"} & locks._mount_options(mounted)
