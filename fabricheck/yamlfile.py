"""YAML files whose mistakes are named by file, line and field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fabricheck.errors import UserError

Place = tuple[str | int, ...]

_REASONS = {
    "extra_forbidden": "is an unknown field",
    "unexpected_keyword_argument": "is an unknown field",
    "missing": "is missing",
}

# ReFrame reads reference files too, as YAML 1.1 and with PyYAML; here they are read as YAML 1.2. Where the two take a
# text without quotes for different things, neither is right for certain.
_AMBIGUOUS = re.compile(
    r"""
    (?:yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)                                           # truth values
    | [-+]?0[0-9_]+ | [-+]?0o[0-7]+ | [-+]?0b[01_]+                                         # octal and binary
    | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+ | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*      # to the base of 60
    | [-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][0-9]+ | [-+]?[0-9]+[eE][-+][0-9]+               # exponents
    """,
    re.VERBOSE,
)


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
        # Names that pydantic adds for the member of a union are no places of the file.
        place: Place = ()
        for step in first["loc"][:-1]:
            place = (*place, step) if (*place, step) in self.lines else place
        place = (*place, first["loc"][-1]) if first["loc"] else place
        reason = _REASONS.get(first["type"])
        if reason is None:
            reason = first["msg"].removeprefix("Value error, ")
            reason = reason[:1].lower() + reason[1:]
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
        root = _parser().compose(text)
        lines: dict[Place, int] = {}
        if root is not None:
            _record_lines(path, root, (), lines, frozenset())
        content = _parser().load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UserError(f"{path}:{line}: is not valid YAML: {reason}") from None
    except (YAMLError, ValueError) as error:
        raise UserError(f"{path}: is not valid YAML: {str(error).splitlines()[0]}") from None
    return YamlFile(path, content, lines)


def _parser() -> YAML:
    """A parser of plain data; one parses one text. Not libyaml, whose messages and positions differ."""
    return YAML(typ="safe", pure=True)


def _record_lines(path: Path, node: Node, place: Place, lines: dict[Place, int], ancestors: frozenset[int]) -> None:
    if id(node) in ancestors:
        raise UserError(f"{path}:{node.start_mark.line + 1}: {format_place(place)}: an alias contains itself")
    ancestors |= {id(node)}
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            if inner in lines and key.value != "<<":
                line = key.start_mark.line + 1
                raise UserError(f"{path}:{line}: {format_place(inner)}: is given twice")
            lines[inner] = key.start_mark.line + 1
            _record_lines(path, value, inner, lines, ancestors)
            _refuse_ambiguous(path, key, inner)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            _record_lines(path, item, (*place, index), lines, ancestors)
    else:
        _refuse_ambiguous(path, node, place)


def _refuse_ambiguous(path: Path, node: Node, place: Place) -> None:
    if isinstance(node, ScalarNode) and not node.style and _AMBIGUOUS.fullmatch(node.value):
        where = f"{path}:{node.start_mark.line + 1}: {format_place(place)}"
        raise UserError(
            f"{where}: YAML 1.1 and 1.2 read {node.value} differently; "
            "for a text put it into quotes, else write true, false or a number such as 1000 or 1.5e+3"
        )
