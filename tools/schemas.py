"""Writes docs/schemas, a JSON Schema of each file, from the definitions that read and write them: `make docs`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter

from fabricheck import extras, tuning
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Expectation, Reference, Yardstick
from fabricheck.records.node_state import NodeState
from fabricheck.report.machine import VerdictJson
from fabricheck.results import fabricbench_format
from fabricheck.statistics.parts import Together
from fabricheck.store import metric_rows, session
from fabricheck.topology import schema
from fabricheck.yardsticks import nic_values, part_values, policy, published

FOLDER = Path("docs/schemas")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: The classes of a whole file, by the name of its schema; of a file of several kinds of lines, each of them.
FORMATS: Mapping[str, tuple[type, ...]] = {
    "topology": (schema.TopologyFile,),
    "tuning-profile": (tuning.ProfileEntry,),
    "policy": (policy.Policy,),
    "part": (part_values.Part,),
    "together": (Together,),
    "published": (published.Published,),
    "nic": (nic_values.KnownNic,),
    "result": (
        fabricbench_format.HeaderModel,
        fabricbench_format.SamplesModel,
        fabricbench_format.BurnInModel,
        fabricbench_format.WindowModel,
        fabricbench_format.LoadedNodeModel,
        fabricbench_format.FooterModel,
        fabricbench_format.ErrorModel,
    ),
    "node-state": (NodeState,),
    "verdict": (VerdictJson,),
    "finding": (Finding,),
    "yardstick": (Yardstick, Expectation, Reference),
    "session": (session.SessionRecord,),
    "metric": (metric_rows.MetricRow,),
}


def schemas() -> Mapping[Path, str]:
    """Return the text of each schema, by its file."""
    written = {name: _schema_of_file(name, classes) for name, classes in FORMATS.items()}
    written["extras"] = _schema_of_extras()
    return {
        FOLDER / f"{name}.json": json.dumps(text, indent=1, ensure_ascii=False) + "\n" for name, text in written.items()
    }


def _schema_of_file(name: str, classes: tuple[type, ...]) -> dict[str, Any]:
    parts = dict.fromkeys(classes)
    waiting = list(classes)
    while waiting:
        fields = list(fields_of(waiting.pop(0)).values())
        new = [part for part in _classes_in(fields) if part not in parts]
        parts.update(dict.fromkeys(new))
        waiting += new
    whole = [_reference(part) for part in classes]
    root = whole[0] if len(whole) == 1 else {"anyOf": whole}
    definitions = {_name(part): _schema_of_class(part) for part in parts}
    return {"$schema": _DIALECT, "title": name, **root, "$defs": definitions}


def _schema_of_extras() -> dict[str, Any]:
    owners = {
        owner: {"type": "object", "properties": {key: {"description": _plain(text)} for key, text in keys.items()}}
        for owner, keys in extras.KEYS.items()
    }
    return {"$schema": _DIALECT, "title": "extras", "type": "object", "properties": owners}


def _classes_in(annotation: Any) -> Iterator[type]:
    """The classes with fields that an annotation names, in their order."""
    if _has_fields(annotation):
        yield annotation
    for part in annotation if isinstance(annotation, list) else get_args(annotation):
        yield from _classes_in(part)


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or hasattr(kind, "__required_keys__")
    )


def _schema_of_class(kind: type) -> dict[str, Any]:
    text, meanings = _explained(kind)
    properties = {}
    required = []
    for name, annotation in fields_of(kind).items():
        stated = kind.model_fields[name].description if issubclass(kind, BaseModel) else None
        meaning = _plain(stated or meanings.get(name, ""))
        properties[name] = _schema_of(annotation) | ({"description": meaning} if meaning else {})
        default = _default(kind, name)
        if default is dataclasses.MISSING:
            required.append(name)
        elif default not in (None, (), [], {}, ""):
            properties[name]["default"] = json.loads(json.dumps(default, default=str))
    shape: dict[str, Any] = {"type": "object", "description": _plain(text), "properties": properties}
    more = getattr(kind, "model_config", {}).get("extra") == "allow"
    return shape | ({"required": required} if required else {}) | {"additionalProperties": more}


def _schema_of(annotation: Any) -> dict[str, Any]:
    """The schema of a value: pydantic's where it names no class of ours."""
    if _has_fields(annotation):
        return _reference(annotation)
    if not any(_classes_in(annotation)):
        return TypeAdapter(annotation).json_schema()
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _schema_of(parts[0])
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(part) for part in parts]}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(parts[1])}
    return {"type": "array", "items": _schema_of(parts[0])}


def _reference(kind: type) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_name(kind)}"}


def _name(kind: type) -> str:
    return re.sub(r"(Model|Entry|Record|Json|File)$", "", kind.__name__.lstrip("_"))


def _plain(text: str) -> str:
    """A meaning without links, and with null where Python has None."""
    return re.sub("`?None`?", "null", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


def fields_of(kind: type) -> Mapping[str, Any]:
    """The annotation of each field that a file has."""
    hints = get_type_hints(kind, include_extras=True)
    if issubclass(kind, BaseModel):
        return {name: hints[name] for name in kind.model_fields}
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return hints


def _explained(kind: type) -> tuple[str, Mapping[str, str]]:
    """What a class is, and what its fields are: by the text below a field, or by "`field`: …" in the docstring."""
    what = ""
    meanings: dict[str, str] = {}
    field = rf"`({'|'.join(fields_of(kind))})`"
    for part, tree in _own_and_inherited(kind):
        paragraphs = inspect.cleandoc(part.__doc__ or "").split("\n\n")
        text = " ".join(" ".join(each for each in paragraphs if not each.startswith("Raises ")).split())
        what, *stated = re.split(rf"(?:(?<=[.;] )|(?<= - ))(?={field})", text)
        for name, meaning in zip(stated[::2], stated[1::2], strict=True):
            more = meaning.removeprefix(f"`{name}`: ").removesuffix(" - ").rstrip(" ;.")
            meanings[name] = f"{meanings[name]}; {more}" if name in meanings else more
        for line, below in itertools.pairwise(tree.body):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(below, ast.Expr):
                meanings[line.target.id] = " ".join(ast.literal_eval(below.value).split())
    return what.removesuffix(" - ").rstrip(" ;."), meanings


def _own_and_inherited(kind: type) -> Iterator[tuple[type, ast.ClassDef]]:
    """A class and those of the package that it extends, the farthest first, with their source.

    By the source, since a TypedDict forgets what it extends.
    """
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    for base in tree.bases:
        if isinstance(base, ast.Name) and base.id not in ("BaseModel", "TypedDict"):
            yield from _own_and_inherited(getattr(sys.modules[kind.__module__], base.id))
    yield kind, tree


def _default(kind: type, name: str) -> Any:
    """What a field is where it is left out; MISSING where it must not be."""
    if issubclass(kind, BaseModel):
        field = kind.model_fields[name]
        return dataclasses.MISSING if field.is_required() else field.get_default(call_default_factory=True)
    if dataclasses.is_dataclass(kind):
        (part,) = (each for each in dataclasses.fields(kind) if each.name == name)
        if part.default_factory is not dataclasses.MISSING:
            return None
        return part.default
    return dataclasses.MISSING if name in getattr(kind, "__required_keys__", ()) else None


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in schemas().items():
        file.write_text(text, encoding="utf-8")
