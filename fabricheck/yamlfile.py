"""YAML files whose mistakes are named by file, line and field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pydantic
import yaml

from fabricheck.errors import UserError

Place = tuple[str | int, ...]

_REASONS = {
    "extra_forbidden": "is an unknown field",
    "unexpected_keyword_argument": "is an unknown field",
    "missing": "is missing",
}


@dataclass(frozen=True)
class YamlFile:
    """The content of a file and the line (from 1) of each place in it."""

    path: Path
    content: Any
    lines: Mapping[Place, int]

    def fail(self, place: Sequence[str | int], reason: str) -> NoReturn:
        """Raise the UserError of a mistake at `place`: one line with file, line and field."""
        raise self.error(place, reason)

    def error(self, place: Sequence[str | int], reason: str) -> UserError:
        """The UserError that `fail` raises. A place that is not in the file has the line of what it would lie in."""
        known = tuple(place)
        while known and known not in self.lines:
            known = known[:-1]
        where = f"{self.path}:{self.lines.get(known, 1)}"
        field = format_place(place)
        return UserError(f"{where}: {field}: {reason}" if field else f"{where}: {reason}")

    def rejection(self, error: pydantic.ValidationError) -> UserError:
        """The first mistake that pydantic found, as a UserError."""
        first = error.errors(include_url=False)[0]
        place = tuple(first["loc"])
        reason = _REASONS.get(first["type"])
        if reason is None:
            reason = first["msg"].removeprefix("Value error, ")
            reason = reason[:1].lower() + reason[1:]
        # Names that pydantic adds for the member of a union are no places of the file.
        while place and place not in self.lines and first["type"] not in _REASONS:
            place = place[:-1]
        return self.error(place, reason)


def format_place(place: Sequence[str | int]) -> str:
    """`links[2].rate` for ("links", 2, "rate")."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def read_yaml(path: Path) -> YamlFile:
    """Read one YAML document. Raises UserError if it cannot be read or parsed, or names a key twice."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason}") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Place, int] = {}
        if root is not None:
            _record_lines(path, root, (), lines, frozenset())
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}:{line}: is not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: is not valid YAML: {str(error).splitlines()[0]}") from None
    return YamlFile(path, content, lines)


def _record_lines(
    path: Path, node: yaml.Node, place: Place, lines: dict[Place, int], ancestors: frozenset[int]
) -> None:
    if id(node) in ancestors:
        raise UserError(f"{path}:{node.start_mark.line + 1}: {format_place(place)}: an alias contains itself")
    ancestors |= {id(node)}
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            if inner in lines and key.value != "<<":
                line = key.start_mark.line + 1
                raise UserError(f"{path}:{line}: {format_place(inner)}: is given twice")
            lines[inner] = key.start_mark.line + 1
            _record_lines(path, value, inner, lines, ancestors)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _record_lines(path, item, (*place, index), lines, ancestors)
