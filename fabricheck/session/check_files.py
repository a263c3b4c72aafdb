"""Which files of checks ReFrame has to load: making each test of the suite takes it seconds, and most runs want a few.

Only files are left out in which the tests plainly have other tags or names than are requested. What cannot be told
without loading a file is loaded; so is a file that cannot be read, for ReFrame to say so.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError, suggest


@dataclass(frozen=True)
class _CheckFile:
    """`tags`: of each test class; None where the text does not tell."""

    path: Path
    text: str
    classes: frozenset[str]
    tags: tuple[frozenset[str], ...] | None

    def may_have(self, tags: Sequence[str], word: str | None) -> bool:
        """Whether a test may have all `tags`, as regular expressions, and `word` in its name."""
        if self.tags is None:
            return True
        if word is not None and word not in self.text:
            return False
        return any(all(any(re.search(tag, own) for own in each) for tag in tags) for each in self.tags)


def check_files(checks: Path, tags: Sequence[str], names: Sequence[str]) -> list[Path]:
    """The files below `checks` that may have a test that ReFrame selects by all `tags` and any of `names`.

    These are regular expressions, and `names` have no blanks. All files where none may have one: ReFrame then says so.
    """
    files = [_read(path) for path in sorted(checks.rglob("*.py"))]
    classes = frozenset[str]().union(*(each.classes for each in files))
    words = [_class_of(name, classes) for name in names] or [None]
    try:
        chosen = [each.path for each in files if any(each.may_have(tags, word) for word in words)]
    except re.error:
        chosen = []
    return chosen or [each.path for each in files]


def require_tags(checks: Path, tags: Sequence[str]) -> None:
    """Raises UserError for a tag that none of the checks has, where their text tells which they have."""
    files = [_read(path) for path in sorted(checks.rglob("*.py"))]
    known = sorted({tag for file in files for own in file.tags or () for tag in own})
    if any(file.tags is None for file in files):
        return
    for tag in tags:
        with contextlib.suppress(re.error):  # ReFrame says what is wrong with it
            if not any(re.fullmatch(tag, own) for own in known):
                raise UserError(f"no check has the tag {tag!r}: choose from {', '.join(known)}{suggest(tag, known)}")


def _class_of(name: str, classes: frozenset[str]) -> str | None:
    """The test class that a pattern asks for as a whole, with or without parameters; None where it may be another."""
    match = re.match(r"\^?([A-Za-z_]\w*)(%|\$?$)", name)
    return match[1] if match is not None and match[1] in classes and "|" not in name else None


def _read(path: Path) -> _CheckFile:
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return _CheckFile(path, "", frozenset(), None)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    known = [tags for each in classes if (tags := _tags_of(each)) is not None]
    # Whatever else has to do with tags may change them.
    plain = len(known) == len(classes) == len(re.findall(r"\btags\b", text))
    return _CheckFile(path, text, frozenset(each.name for each in classes), tuple(known) if plain else None)


def _tags_of(node: ast.ClassDef) -> frozenset[str] | None:
    """The tags that a class has in its body; None where that is not a set of texts."""
    for line in node.body:
        if isinstance(line, ast.Assign) and [ast.unparse(each) for each in line.targets] == ["tags"]:
            try:
                return frozenset(map(str, ast.literal_eval(line.value)))
            except (ValueError, TypeError):
                return None
    return None
