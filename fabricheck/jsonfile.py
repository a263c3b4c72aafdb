"""JSON files, read so that nothing in them can do more than be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from fabricheck.errors import UserError
from fabricheck.wholefile import read_file

# ReFrame's report of a session of 10,000 test cases has some 50 MB.
_MOST_BYTES = 512 << 20
_Content = TypeVar("_Content")


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError if it cannot be read, is not JSON, or is nested too deeply."""
    try:
        return json.loads(read_file(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise UserError(f"{path}: is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deeply") from None


def read_as(
    path: Path, kind: TypeAdapter[_Content], changed: Callable[[Any], Any] = lambda content: content
) -> _Content:
    """The content of a JSON file as the type that it was written from; `changed`: what is done to it before.

    Raises UserError as `read_json`, and where something is missing, of another type or not finite.
    """
    content = read_json(path)
    try:
        return kind.validate_json(json.dumps(changed(content), default=str))
    except ValidationError as error:
        raise UserError(f"{path}: is damaged: {first_mistake(error)}") from None


def first_mistake(error: ValidationError) -> str:
    """The first thing that a model refused, and where it was."""
    mistake = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, mistake["loc"]))
    return f"{where}: {mistake['msg']}" if where else mistake["msg"]


def _aware(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no time zone")
    return text


#: A time in ISO 8601 with its zone, as `datetime.isoformat` writes it.
Time = Annotated[str, AfterValidator(_aware)]
#: For the dataclasses of files: no number for a text, nothing unknown, neither NaN nor infinity.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
