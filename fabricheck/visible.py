"""What goes to a terminal or a log: control characters that came from elsewhere are shown and not obeyed."""

from __future__ import annotations

import io
import os
import re
from typing import Any, TextIO, cast

# What Fabricheck writes itself: the colours of verdicts, and the line of progress that is written over.
_OURS = re.compile(r"(\x1b\[(?:0|1|2|3[1-6]|9[1-6])m|\r\x1b\[K)")


def escaped(text: str, *, keep: str = "\n\t") -> str:
    """`text` with whatever is neither printable nor to `keep`, such as an escape character, as its escape.

    Host names, file names and messages come from elsewhere: control characters could move a terminal's cursor, marks of
    direction turn a line around, and lone surrogates cannot be written at all.
    """
    if text.translate(dict.fromkeys(map(ord, keep))).isprintable():  # pages of text in one step
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


class OutputError(Exception):
    """What a command has to say can no longer be written. No OSError: Click ends with 1 where a pipe is closed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror}")
        self.pipe = isinstance(error, BrokenPipeError)


class _Visible:
    """A text stream that escapes what it is given, but for Fabricheck's own colours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        parts = _OURS.split(text)
        shown = "".join(each if index % 2 else escaped(each) for index, each in enumerate(parts))
        try:
            self._stream.write(shown)
        except OSError as error:
            raise OutputError(error) from None
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise OutputError(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def visible(stream: TextIO | None) -> TextIO:
    """`stream` so that whatever is written to it can be read and has no other effect; None, a closed one, takes all."""
    if isinstance(stream, _Visible):
        return stream
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long-lived as the stream it replaces)
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that cannot show a character shows its escape.
        stream.reconfigure(errors="backslashreplace")
    return cast("TextIO", _Visible(stream))
