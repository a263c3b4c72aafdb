"""Files that appear whole or not at all, where others cannot redirect them; and files of others, within bounds."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new file beside `path`, to be written, which takes its place in the end; `OSError` where that fails.

    Its name cannot be guessed and it belongs to no other user, so that a link that another user left beside it or
    at `path` is not followed: such a link is replaced.
    """
    number, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".unfinished", dir=path.parent)
    unfinished = Path(name)
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(number, 0o666 & ~mask)
        os.close(number)
        yield unfinished
        unfinished.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # which a failed write does not name, and nobody knows the other
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as the text of a CSV file, a line each."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def open_file(path: Path, most: int) -> BinaryIO:
    """Opens a file that somebody else may have made, to be read.

    `OSError` where it is a pipe or a device, which may have no end, or has more than `most` bytes.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is a pipe or a device, and no file")
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes, and {most:,} are allowed")
    except OSError:
        os.close(number)
        raise
    return os.fdopen(number, "rb")


def read_file(path: Path, most: int) -> bytes:
    """The content of a file; `OSError` as `open_file`."""
    with open_file(path, most) as file:
        return file.read(most)
