"""Files that appear whole or not at all, and where nobody can lead them elsewhere."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new file beside `path`, to be written, which takes its place in the end; `OSError` where that fails.

    Its name cannot be guessed and it is nobody else's, so that no link that another user left beside it or at `path` is
    followed: such a link is replaced.
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
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
