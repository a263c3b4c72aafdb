"""Two users: what one plants in the way of the other."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: One that is neither root nor the user of the tests, on no machine.
SOMEONE = 54321


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all users can reach, which `tmp_path` is not. For root, which can give files away."""
    if os.geteuid() != 0:
        pytest.skip("needs root, which acts as two users")
    folder = Path(tempfile.mkdtemp(prefix="fabricheck-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def give(folder: Path, user: int = SOMEONE) -> None:
    """Makes a folder and what is in it another user's."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def as_user(user: int, *command: str) -> list[str]:
    """A command as another user, of the group `SOMEONE`: it may read whatever Python needs, and write where it may."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv of util-linux")
    read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    shell = ("sh", "-c", 'umask 002; exec "$@"', "sh")
    return ["setpriv", f"--reuid={user}", f"--regid={SOMEONE}", "--clear-groups", *read, *shell, *command]
