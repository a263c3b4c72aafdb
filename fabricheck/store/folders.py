"""The files of a store: one folder for each session, written once, by one writer, without a lock.

    store/
      fabricheck-store.json                  what makes the folder a store: the version of its format
      <system>/
        20261121T083632Z-<session>/          an entry: all files of one session
          session.json  metrics.parquet
          SHA256SUMS                         of the two, as sha256sum writes and checks them
        .writing-<random>/                   an entry that is being written, or whose writer was killed

An entry is written below its temporary name, flushed to the disk file by file, and then renamed. A folder cannot be
renamed onto one that has files, so of two writers of one session the second fails: the file system's own rename is the
only lock, and local disks, NFS and Lustre have it. Nothing is ever written into an entry again.

Stores of format 1 also have runs.parquet and samples.parquet in an entry, which nothing reads any more, and
samples.pruned where the samples were removed. The first session that is added makes such a store one of format 2.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.statistics.constants import FORMAT
from fabricheck.trust import require_trusted_by_root

#: A mebibyte, which is read or written at once.
MIB = 1 << 20

MARKER = "fabricheck-store.json"
SUMS = "SHA256SUMS"
SESSION, METRICS = "session.json", "metrics.parquet"
FILES = (SESSION, METRICS)
#: Files of an entry of format 1 that nothing reads any more.
OLD_FILES = ("runs.parquet", "samples.parquet", "samples.pruned")

_DRAFT = ".writing-"
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_ENTRY = re.compile(r"(\d{8}T\d{6}Z)-(.+)")
_SUM = re.compile(r"([0-9a-f]{64})  (\S+)")
HINT = "see `fabricheck store verify`, and move it out of the store to continue without it"


@dataclass(frozen=True)
class SessionFolder:
    """One session in a store; `started` is that of its name, as 20261121T083632Z."""

    path: Path
    started: str
    session: str

    def read(self, name: str) -> bytes:
        """The content of a file of the entry, its checksum compared. Raises UserError where it is not what it was."""
        expected = self._sums()[name]
        content = self._content(name)
        if hashlib.sha256(content).hexdigest() != expected:
            raise self.damage(f"{name} ({len(content)} bytes) was changed: its checksum differs")
        return content

    def _sums(self) -> Mapping[str, str]:
        """SHA-256 in hexadecimal by file name. Raises UserError where the list of checksums cannot be read."""
        lines = self._content(SUMS).decode("ascii", "replace").removesuffix("\n").split("\n")
        sums = {match[2]: match[1] for match in map(_SUM.fullmatch, lines) if match}
        if len(sums) < len(lines) or not {*FILES} <= {*sums} <= {*FILES, *OLD_FILES}:
            raise self.damage(f"{SUMS} is not a list of the checksums of {', '.join(FILES)}")
        return sums

    def _content(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise self.damage(f"{name} is missing") from None
        except OSError as error:
            raise UserError(f"{self.path / name}: cannot be read: {error.strerror}") from None

    def foreign(self) -> tuple[str, ...]:
        """Names in the folder that do not belong there."""
        return tuple(sorted({*_names(self.path)} - {*FILES, *OLD_FILES, SUMS}))

    def size(self) -> int:
        """Bytes of all its files."""
        return sum((self.path / name).lstat().st_size for name in _names(self.path))

    def damage(self, what: str) -> UserError:
        """The error that says what is wrong with the entry."""
        return UserError(f"{self.path}: {what}: {HINT}")


@dataclass(frozen=True)
class Content:
    """What a folder of a store holds: `drafts` of writers at work or killed, and `foreign` names."""

    entries: tuple[SessionFolder, ...]
    drafts: tuple[Path, ...]
    foreign: tuple[Path, ...]


def create(store: Path) -> None:
    """Make `store` a store, or see that it is one. Raises UserError where something else is there already."""
    with _writing(store):
        store.mkdir(parents=True, exist_ok=True)
        if not (store / MARKER).exists():
            others = [name for name in _names(store) if not name.startswith(_DRAFT)]
            if others:
                raise UserError(f"{store}: is not a store, and holds {others[0]!r}: name an empty or a new folder")
            _write_marker(store)
        elif (_version(store) or 0) < FORMAT:
            _write_marker(store)  # it is damaged, or of an older format
    check_is_store(store)


def marker_damage(store: Path) -> str:
    """Return what is wrong with the file that makes a folder a store; empty where it is whole."""
    whole = _version(store) is not None
    return "" if whole else f'{store / MARKER}: is damaged: it has to be {{"fabricheck-store": {FORMAT}}}'


def check_is_store(store: Path) -> None:
    """Raises UserError unless `store` is a store in a format that this program reads, or of which that is lost."""
    if not store.exists():
        raise UserError(f"there is no store at {store}: `fabricheck run` creates it, or name another with --store")
    version = _version(store)
    if version is not None and not 1 <= version <= FORMAT:
        raise UserError(f"{store}: has the format {version} and this version reads {FORMAT}: use matching versions")


def _version(store: Path) -> int | None:
    """The format of a store; None where its marker is damaged. Raises UserError where there is none."""
    try:
        content = json.loads((store / MARKER).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{store}: is not a store of Fabricheck: it has no {MARKER}") from None
    except OSError as error:
        raise UserError(f"{store / MARKER}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        content = None
    version = content.get("fabricheck-store") if isinstance(content, dict) else None
    return version if type(version) is int else None


def systems(store: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """The systems in a store, and the paths that do not belong there. Raises UserError where it is not a store."""
    check_is_store(store)
    names = [name for name in _names(store) if name != MARKER and not name.startswith(_DRAFT)]
    known = tuple(sorted(name for name in names if is_name(name) and (store / name).is_dir()))
    return known, tuple(store / name for name in sorted({*names} - {*known}))


def scan(folder: Path) -> Content:
    """What the folder of a system holds, entries in the order of their start."""
    entries, drafts, foreign = [], [], []
    for name in sorted(_names(folder)):
        path, match = folder / name, _ENTRY.fullmatch(name)
        if name.startswith(_DRAFT):
            drafts.append(path)
        elif match and is_name(match[2]) and path.is_dir():
            entries.append(SessionFolder(path, match[1], match[2]))
        else:
            foreign.append(path)
    return Content(tuple(entries), tuple(drafts), tuple(foreign))


def is_name(text: str) -> bool:
    """Whether `text` can be a system or a session: it becomes the name of a folder."""
    return _NAME.fullmatch(text) is not None


def check_name(what: str, name: str) -> None:
    """Raises UserError unless `name` can be that of a `what`, a system or a session."""
    if not is_name(name):
        raise UserError(
            f"{name!r} cannot be the name of a {what} in the store: use letters, digits, . _ and -, 100 at most"
        )


def commit(folder: Path, started: str, session: str, files: Mapping[str, bytes]) -> SessionFolder:
    """Write an entry with the files of `FILES` into the folder of a system, all of it or nothing.

    When this returns, the entry is on the disk. Raises UserError where the session is stored already, and where it
    cannot be written; nothing that was stored changes.
    """
    entry = SessionFolder(folder / f"{started}-{session}", started, session)
    with _writing(folder):
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _flush_folder(folder.parent)
        draft = folder / f"{_DRAFT}{secrets.token_hex(8)}"
        draft.mkdir()
        try:
            for name in FILES:
                _write_durably(draft / name, files[name])
            sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in FILES)
            _write_durably(draft / SUMS, sums.encode("ascii"))
            _flush_folder(draft)
            os.rename(draft, entry.path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise UserError(f"session {session} is stored already, in {entry.path}: nothing was changed") from None
            raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _flush_folder(folder)
    return entry


def _names(folder: Path) -> list[str]:
    try:
        # NFS keeps a removed file that somebody still reads as .nfs…, for as long as that lasts.
        return [name for name in os.listdir(folder) if not name.startswith(".nfs")]
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror}") from None


def _write_marker(store: Path) -> None:
    draft = store / f"{_DRAFT}{secrets.token_hex(8)}"
    _write_durably(draft, json.dumps({"fabricheck-store": FORMAT}).encode("ascii") + b"\n")
    os.rename(draft, store / MARKER)
    _flush_folder(store)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        for start in range(0, len(content), MIB):
            chunk = memoryview(content)[start : start + MIB]
            while chunk:
                chunk = chunk[file.write(chunk) :]
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems flush names with the files and refuse this call.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    require_trusted_by_root("the store", folder)
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}; nothing was stored") from None
