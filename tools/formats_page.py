"""Writes docs/file-formats.md, the fields of every file, from the definitions that read and write them: `make docs`."""

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
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from fabricheck import extras, tuning
from fabricheck.history import metric_rows, session
from fabricheck.judge import nic_values, part_values, policy, published
from fabricheck.judge.parts import Together
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Expectation, Reference, Yardstick
from fabricheck.records.node_state import NodeState
from fabricheck.report.machine import VerdictJson
from fabricheck.results import fabricbench_format
from fabricheck.topology import schema

PAGE = Path("docs/file-formats.md")
_HEAD = """# File formats

Made by `make docs` from the definitions by which Fabricheck reads and writes its files. An unknown field, a missing
field and a wrong type are errors. A field that is optional or has a default may be left out.
"""


class Format(NamedTuple):
    """A file: its name, a word for it, the page with its rules, and the classes of the whole file."""

    title: str
    word: str
    text: str
    whole: tuple[type, ...]


FORMATS = (
    Format(
        "Topology: `site_configs/SYSTEM/topology.yaml`",
        "topology",
        "YAML. [Topology](topology-format.md) has an example, and what is computed from it."
        " The schema for editors is [topology.schema.json](topology.schema.json).",
        (schema.TopologyFile,),
    ),
    Format(
        "Tuning profiles: `config/tuning.yaml`",
        "tuning",
        "YAML, below `profiles:` by the name of the profile. [Tuning](tuning.md) says how a profile is tested.",
        (tuning.ProfileEntry,),
    ),
    Format(
        "Rules of judging: `config/policy.yaml`",
        "policy",
        "YAML. [How it is measured](methodology.md#the-ladder-of-yardsticks) says how a metric is judged.",
        (policy.Policy,),
    ),
    Format(
        "Values of a GPU model: `reference_values/parts/MODEL.yaml`",
        "part",
        "YAML. [References](reference-formats.md#parts) has an example.",
        (part_values.Part,),
    ),
    Format(
        "How metrics stray together: `together` of a source in `reference_values/SYSTEM.yaml`",
        "together",
        "YAML, written by `calibrate`. [References](reference-formats.md) has the rest of the file, which is a tree.",
        (Together,),
    ),
    Format(
        "Published values: `reference_values/published/SYSTEM.yaml`",
        "published",
        "YAML: `system`, and `values`, a list of these.",
        (published.Published,),
    ),
    Format(
        "Values of NICs: `reference_values/nics/known.yaml`",
        "nic",
        "YAML. What NICs gave below MPI and NCCL.",
        (nic_values.KnownNic,),
    ),
    Format(
        "Result of fabricbench: `*.jsonl`",
        "result",
        "JSON Lines: a header, samples, of a burn-in its windows, and a footer or an error. "
        "[Results](results-format.md) has the rules.",
        (
            fabricbench_format.HeaderModel,
            fabricbench_format.SamplesModel,
            fabricbench_format.BurnInModel,
            fabricbench_format.WindowModel,
            fabricbench_format.LoadedNodeModel,
            fabricbench_format.FooterModel,
            fabricbench_format.ErrorModel,
        ),
    ),
    Format(
        "State of a node: `node-state/HOST.before.json`, `HOST.after.json`",
        "node",
        "JSON. [State of a node](state.md) says where each value comes from and how it is judged.",
        (NodeState,),
    ),
    Format(
        "Verdict of a session: `output/runs/RUN/verdict.json`",
        "verdict",
        "JSON. [Monitoring](monitoring.md) has the other files of a run.",
        (VerdictJson, Finding, Yardstick, Expectation, Reference),
    ),
    Format(
        "Entry of the sample store: `session.json`",
        "session",
        "JSON. [The sample store](sample-store.md) has the layout of an entry.",
        (session.SessionRecord,),
    ),
    Format(
        "Entry of the sample store: `metrics.parquet`",
        "metric",
        "Parquet. Entries of older versions have more columns, which are ignored, and the files `runs.parquet` and"
        " `samples.parquet`.",
        (metric_rows.MetricRow,),
    ),
)


def render() -> str:
    """The page, as Markdown."""
    formats = [line for file in FORMATS for line in _format(file)]
    return "\n".join([_HEAD, *_extras(), *formats]).rstrip() + "\n"


def _extras() -> Iterator[str]:
    yield "## Keys of a site's `settings.py`: `extras`\n"
    yield "[A site's files](site-files.md) has the rest of `settings.py`, which is ReFrame's. A site may add keys.\n"
    for owner, keys in extras.KEYS.items():
        yield f"| `extras` of the {owner} | meaning |"
        yield "|---|---|"
        yield from (f"| `{key}` | {meaning} |" for key, meaning in keys.items())
        yield ""


def _format(file: Format) -> Iterator[str]:
    yield f"## {file.title}\n\n{file.text}\n"
    classes = dict.fromkeys(file.whole)
    waiting = list(file.whole)
    while waiting:
        new = [part for part in _classes_in(list(fields_of(waiting.pop(0)).values())) if part not in classes]
        classes.update(dict.fromkeys(new))
        waiting += new
    for kind in classes:
        yield from _class(kind, file.word)


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


def _class(kind: type, word: str) -> Iterator[str]:
    text, meanings = _explained(kind)
    yield f"### {_title(kind, word)}\n\n{_escaped(text)}.\n"
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, annotation in fields_of(kind).items():
        own = kind.model_fields[name].description if issubclass(kind, BaseModel) else None
        meaning = _escaped(own or meanings.get(name, ""))
        yield f"| `{name}` | {_type(annotation, word)} | {_default(kind, name)} | {meaning} |"
    yield ""


def _title(kind: type, word: str) -> str:
    """What a class is about: `result header` of HeaderModel."""
    name = re.sub(r"(Model|Entry|Record|Json|File|State)$", "", kind.__name__.lstrip("_"))
    name = name.removeprefix(word.title()) or name
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return name if name == word else f"{word} {name}"


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


def _type(annotation: Any, word: str) -> str:
    """A type as people write it: `list of int`, or the section of a class."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0], word)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is types.NoneType else _type(part, word) for part in parts)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (list, tuple):
        return f"list of {_type(parts[0], word)}"
    if origin in (dict, Mapping):
        return f"map to {_type(parts[1], word)}"
    if _has_fields(annotation):
        title = _title(annotation, word)
        return f"[{title}](#{title.replace(' ', '-')})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{part.value}`" for part in annotation)
    names = {"str": "text", "float": "number", "Any": "any", "object": "any"}
    return names.get(str(annotation.__name__), str(annotation.__name__))


def _default(kind: type, name: str) -> str:
    """What a field is where it is left out: nothing where it must not be."""
    value: Any = None
    if issubclass(kind, BaseModel):
        field = kind.model_fields[name]
        if field.is_required():
            return ""
        value = field.get_default(call_default_factory=True)
    elif dataclasses.is_dataclass(kind):
        (part,) = (each for each in dataclasses.fields(kind) if each.name == name)
        if part.default is part.default_factory is dataclasses.MISSING:
            return ""
        value = None if part.default is dataclasses.MISSING else part.default
    elif name in getattr(kind, "__required_keys__", ()):
        return ""
    return "optional" if value in (None, (), [], {}, "") else f"`{json.dumps(value, default=str)}`"


def _escaped(text: str) -> str:
    """As a cell of a table: the star of `*CCL` is no emphasis, and a file has null where Python has None."""
    return re.sub("`?None`?", "null", text.replace("*CCL", r"\*CCL").replace("|", r"\|"))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
