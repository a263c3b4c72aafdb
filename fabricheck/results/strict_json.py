"""One line of a file of JSON Lines, read strictly: what is not exactly right is an error that says why."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fabricheck.results.fabricbench_format import JsonObject

_Model = TypeVar("_Model", bound=BaseModel)


class BadLineError(Exception):
    """A line that is not what it has to be, and why."""


def _no_constant(text: str) -> float:
    raise BadLineError(f"holds {text}, which is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadLineError(f"holds the number {text[:32]}, which is beyond a 64-bit float")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadLineError(f"has the field {twice!r} twice")
    return result


def load(text: str) -> Any:
    """What JSON says. Raises BadLineError for all that it leaves open (NaN, two fields of one name), else as `json`."""
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_duplicates)


def parse_line(line: bytes) -> JsonObject:
    """The JSON object in a line. Raises BadLineError where there is none."""
    try:
        value = load(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadLineError("is not UTF-8 text") from None
    except (ValueError, RecursionError):
        raise BadLineError("is not a JSON object") from None
    if not isinstance(value, dict):
        raise BadLineError("is not a JSON object")
    return value


def validate(model: type[_Model], value: JsonObject) -> _Model:
    """The record in a JSON object. Raises BadLineError where a field is missing, unknown or of another type."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise BadLineError(f"is not valid: {where}: {first['msg']}") from None
