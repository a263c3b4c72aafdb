"""One process at a time, also where the file system has no locks that work: Lustre without `flock`, NFS without lockd.

A lock is a file, which flock(2) locks where it can, and beside it `FILE.owner`, which only one process can make: it
says who has the lock. The kernel's lock goes with its process, whatever ends that. Where there is none, or one that
other machines do not see, an owner is gone when its machine says so: an owner elsewhere is believed to be there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

# What file systems answer that have no locks (Linux: Lustre ENOSYS, NFS ENOLCK, FUSE any of them).
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
# Mount options of Lustre and NFS with which a lock is seen on one machine only.
_LOCAL_OPTIONS = {"localflock", "local_lock=flock", "local_lock=all"}
# So long may another process take from reading who was the owner to writing that it is now.
_TAKEN_OVER_S = 1.0


@dataclass(frozen=True)
class Owner:
    """A process, of which no other has the same: `boot` is of the machine, `began` in clock ticks since then.

    `by_lock`: whether it also has the kernel's lock, which all machines see.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    began: int
    since: str
    by_lock: bool

    @classmethod
    def here(cls, *, by_lock: bool) -> Owner:
        """This process, from now on."""
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(*_machine(), os.getpid(), _began(os.getpid()), since, by_lock)

    @property
    def is_gone(self) -> bool:
        """Whether this machine knows that the process has ended."""
        host, boot, namespace = _machine()
        if (self.host, self.boot) == (host, boot):
            return self.namespace == namespace and _began(self.pid) != self.began
        return self.host == host

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Taken(Exception):
    """Another process has the lock; the text says which, and which file to remove if that cannot be."""


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """While this lasts no other process has the lock `file`.

    Raises Taken, and OSError where the file cannot be made. What the process starts does not inherit the lock.
    """
    with file.open("a+", encoding="utf-8") as stream:
        owner_file = file.with_name(f"{file.name}.owner")
        try:
            is_locked = _lock(stream)
        except BlockingIOError:
            raise Taken(str(_read(owner_file) or "its process is unknown")) from None
        with _owned(owner_file, Owner.here(by_lock=is_locked)):
            yield


def _lock(stream: IO[str]) -> bool:
    """Whether there is a lock that other machines see; BlockingIOError where another process has it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    device = os.fstat(stream.fileno()).st_dev
    return _LOCAL_OPTIONS.isdisjoint(_mount_options(f"{os.major(device)}:{os.minor(device)}"))


@contextlib.contextmanager
def _owned(file: Path, owner: Owner) -> Iterator[None]:
    text = json.dumps(asdict(owner))
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        before = _read(file)
        if before is None or not (before.is_gone or (owner.by_lock and before.by_lock)):
            raise Taken(f"{before or 'its process is unknown'}; if it has ended, remove {file}") from None
        _take_over(file, text)
        if not owner.by_lock:
            # Of several that find the owner gone at the same time, the last to write is the next one.
            time.sleep(_TAKEN_OVER_S)
            if (now := _read(file)) != owner:
                raise Taken(str(now or "its process is unknown")) from None
    except OSError:
        file.unlink(missing_ok=True)  # there was no room for all of it
        raise
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _take_over(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def _read(file: Path) -> Owner | None:
    try:
        return Owner(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _machine() -> tuple[str, str, str]:
    """Host, boot and namespace of process numbers: two containers of one machine do not see each other's."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname(), boot, os.readlink("/proc/self/ns/pid")


def _began(pid: int) -> int:
    """When a process began, in clock ticks since the machine did; -1 where there is none (proc(5), stat, field 22)."""
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except OSError:
        return -1


def _mount_options(device: str) -> set[str]:
    """Those of the file system and its mounts with this device number (proc(5), mountinfo)."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    words = [line.split() for line in lines]
    return {option for each in words if each[2] == device for option in f"{each[5]},{each[-1]}".split(",")}
