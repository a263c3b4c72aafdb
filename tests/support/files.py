"""Files of a suite that a test changes."""

from __future__ import annotations

from pathlib import Path


def replace(file: Path, old: str, new: str) -> None:
    """Puts `new` wherever a file has `old`, which has to be there."""
    text = file.read_text(encoding="utf-8")
    assert old in text, file
    file.write_text(text.replace(old, new), encoding="utf-8")
