"""A command of `fabricheck` in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.cli import main


def run(*arguments: str | Path) -> int:
    """Its exit status."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code
