"""YAML files whose mistakes are named by file, line and field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pydantic
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.tokens import (
    BlockEndToken,
    BlockMappingStartToken,
    BlockSequenceStartToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
    TagToken,
)

from fabricheck.errors import UserError
from fabricheck.wholefile import read_file

Place = tuple[str | int, ...]
_Model = TypeVar("_Model")

# A reference is some hundred characters, and eight GPUs have thousands; this much is read in about five seconds.
_MOST_CHARACTERS = 2_000_000
_MOST_PLACES = 100_000
_DEEPEST = 32
# Of more digits there is no floating-point number.
_LARGEST_NUMBER = re.compile(r"[-+]?(?:0x)?[0-9a-fA-F_]{301,}")
_BEGIN = (BlockMappingStartToken, BlockSequenceStartToken, FlowMappingStartToken, FlowSequenceStartToken)
_END = (BlockEndToken, FlowMappingEndToken, FlowSequenceEndToken)
# libyaml reads ten times as fast; where PyYAML was built without it, the same in Python.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_REASONS = {
    "extra_forbidden": "is an unknown field",
    "unexpected_keyword_argument": "is an unknown field",
    "missing": "is missing",
}

# Where YAML 1.1, as which PyYAML reads here and in ReFrame, and 1.2 take a text without quotes for different things,
# neither is right for certain.
_AMBIGUOUS = re.compile(
    r"""
    (?:yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)                                           # truth values
    | [-+]?0[0-9_]+ | [-+]?0o[0-7]+ | [-+]?0b[01_]+                                         # octal and binary
    | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+ | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*      # to the base of 60
    | [-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][0-9]+ | [-+]?[0-9]+[eE][-+][0-9]+               # exponents
    | [-+]\.[0-9_]+(?:[eE][-+]?[0-9]+)? | [-+]?\.?_[0-9_]+                                      # no digit in front
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

    @property
    def as_json(self) -> str:
        """The content as JSON, whose lists may be tuples even where pydantic validates strictly."""
        return json.dumps(self.content, default=str)

    def validated(self, validate: Callable[[Any], _Model], content: Any = None) -> _Model:
        """What pydantic's `validate` makes of the file's content, or of another form of it. Raises the UserError of the
        first mistake."""
        try:
            return validate(self.content if content is None else content)
        except pydantic.ValidationError as error:
            raise self._rejection(error) from None

    def _rejection(self, error: pydantic.ValidationError) -> UserError:
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
        text = read_file(path, 4 * _MOST_CHARACTERS).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if len(text) > _MOST_CHARACTERS:
        raise UserError(f"{path}: has {len(text)} characters, and {_MOST_CHARACTERS} are allowed")
    try:
        _refuse_unsafe(path, text)
        # Parsed once, and made into values only when it was looked at.
        loader = _LOADER(text)
        root = loader.get_single_node()
        lines: dict[Place, int] = {}
        content = None
        if root is not None:
            _Recorder(path, lines).record(root, (), frozenset())
            content = loader.construct_document(root)
        loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UserError(f"{path}:{line}: is not valid YAML: {reason}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: is not valid YAML: {str(error).splitlines()[0]}") from None
    return YamlFile(path, content, lines)


def on_one_line(content: Mapping[str, Any] | Sequence[Any]) -> Any:
    """The content for a file that ruamel.yaml writes, as `{a: 1}` or `[1, 2]`."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    line = CommentedMap(content) if isinstance(content, Mapping) else CommentedSeq(content)
    line.fa.set_flow_style()
    return line


def round_trip_yaml(width: int = 120) -> Any:
    """What reads a file and writes it again with its comments, in our layout."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = width
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _refuse_unsafe(path: Path, text: str) -> None:
    """What a value is follows from how it is written: a tag can only contradict that, or ask for an object. libyaml
    recurses for what is nested."""
    depth = 0
    for token in yaml.scan(text, _LOADER):
        depth += isinstance(token, _BEGIN) - isinstance(token, _END)
        where = f"{path}:{token.start_mark.line + 1}"
        if depth > _DEEPEST:
            raise UserError(f"{where}: is nested more than {_DEEPEST} deep")
        if isinstance(token, TagToken):
            raise UserError(f"{where}: is not plain YAML: a tag such as !!str is not allowed")


@dataclass
class _Recorder:
    """The lines of a file's places; refuses what no file of a site has, before anything is made of it."""

    path: Path
    lines: dict[Place, int]
    left: int = _MOST_PLACES

    def record(self, node: Node, place: Place, ancestors: frozenset[int]) -> None:
        self.left -= 1
        if self.left < 0:
            self.fail(node, place, f"has more than {_MOST_PLACES} values, aliases included")
        if id(node) in ancestors:
            self.fail(node, place, "an alias contains itself")
        if len(ancestors) > _DEEPEST:
            self.fail(node, (), f"is nested more than {_DEEPEST} deep")
        ancestors |= {id(node)}
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, MappingNode):
            for key, value in node.value:
                self.record_key(key, place)
                inner = (*place, str(key.value))
                self.record(value, inner, ancestors)
                _refuse_ambiguous(self.path, key, inner)
        elif isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                self.record(item, (*place, index), ancestors)
        else:
            _refuse_ambiguous(self.path, node, place)

    def record_key(self, key: Node, place: Place) -> None:
        inner = (*place, str(key.value))
        if not isinstance(key, ScalarNode) or str(key.tag).endswith(":timestamp"):
            self.fail(key, place, "a name has to be text or a number: put it into quotes")
        if inner in self.lines and key.value != "<<":
            self.fail(key, inner, "is given twice")
        self.lines[inner] = key.start_mark.line + 1

    def fail(self, node: Node, place: Place, reason: str) -> NoReturn:
        where = ": ".join(part for part in (f"{self.path}:{node.start_mark.line + 1}", format_place(place)) if part)
        raise UserError(f"{where}: {reason}")


def _refuse_ambiguous(path: Path, node: Node, place: Place) -> None:
    if not isinstance(node, ScalarNode) or node.style:
        return
    if _LARGEST_NUMBER.fullmatch(node.value):
        reason = f"a number of {len(node.value)} digits is too large"
    elif _AMBIGUOUS.fullmatch(node.value):
        reason = (
            f"YAML 1.1 and 1.2 read {node.value} differently; "
            "for a text put it into quotes, else write true, false or a number such as 1000 or 1.5e+3"
        )
    else:
        return
    raise UserError(f"{path}:{node.start_mark.line + 1}: {format_place(place)}: {reason}")
