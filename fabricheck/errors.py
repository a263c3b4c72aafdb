"""Errors that are the user's to fix, and the exit statuses that are not verdicts."""

from __future__ import annotations

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal


def suggest(word: str, known: Iterable[str]) -> str:
    """What was probably meant by a `word` that is not `known`, as the end of a message; empty where nothing is near."""
    near = difflib.get_close_matches(word, [*known], 1)
    return f"; did you mean {near[0]}?" if near else ""


class UserError(Exception):
    """A mistake in what the user gave us, as one line that says what, where and what to do."""


#: Exit status of a command that was given something wrong, or could not write what it made.
EXIT_USER_ERROR = 2
#: Of one that met a mistake of its own (sysexits.h, EX_SOFTWARE), was interrupted, or lost the reader of its output.
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def reason_of(error: Exception) -> str:
    """Why something ended, in one line: the message of a UserError, of any other with what kind of error it is."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def reason_of_system(error: OSError) -> str:
    """What the operating system refused, in one line: the file where it names one, and why."""
    reason = error.strerror or reason_of(error)
    return reason if error.filename is None else f"{error.filename!s}: {reason}"


def has_no_room(error: Exception) -> bool:
    """Whether a file could not be written because the disk, or the user's share of it, is full."""
    cause = error if isinstance(error, OSError) else error.__context__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def refused(what: str, done: Literal["read", "written"]) -> Iterator[None]:
    """Raises UserError where the operating system does not let a file be `read` or `written`; `what`: which it is."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be {done}: {error.strerror or error}") from None


def unwritable(folder: Path, error: OSError) -> UserError:
    """What to say where nothing can be written below `folder`."""
    return UserError(f"cannot write below {folder}: {error.strerror}: choose another folder with --output")
