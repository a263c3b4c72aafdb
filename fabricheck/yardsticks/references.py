"""Reads reference_values/<system>.yaml: ReFrame's own external references, with the provenance of each value.

The form is documented in docs/formats.md. Whatever ReFrame 4.10 reads in such a file is read here with the
same result (`RegressionTestDict` and `_ReferenceDict` of reframe/core/pipeline.py); what ReFrame would let pass in
silence (a value without a bound, an unknown unit, a key that matches more than it seems to) is an error here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fabricheck.errors import UserError
from fabricheck.patterns import mistake_of
from fabricheck.records.case import Key
from fabricheck.records.component import short_host
from fabricheck.records.judgement import Reference
from fabricheck.statistics.parts import Together
from fabricheck.suite import outside_roots
from fabricheck.topology.network import unfold
from fabricheck.yamlfile import YamlFile, read_yaml
from fabricheck.yardsticks.node_levels import of_nodes, pair

SOURCES = "$sources"
PROVENANCE = "$provenance"
NODES = "$nodes"
UNCALIBRATED = "$uncalibrated"
SPECIAL = (SOURCES, PROVENANCE, NODES, UNCALIBRATED)
ALL_OTHERS = "*"
_INDEX = "$index"
_XFAIL = "$xfail"
# References that do not say how they are indexed are by ReFrame's scope: system, partition or `*`.
_SCOPES = ("$scope",)

# The side on which a value of this unit gets worse, and so needs a bound. Other units need one on either side.
_WORSE_BELOW = frozenset({"b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "B/s", "kB/s", "MB/s", "GB/s", "TB/s"})
_WORSE_ABOVE = frozenset({"ns", "us", "ms", "s"})
_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_Text = Annotated[str, Field(min_length=1)]
_Number = Annotated[float, Field(ge=0)]
_AboveZero = Annotated[float, Field(gt=0)]


class _Together(BaseModel):
    """`Together` as a file has it."""

    model_config = _STRICT

    bounds: dict[str, _AboveZero]
    launch: Annotated[float, Field(ge=0, lt=1)]
    parts: dict[str, _Number]
    limit: _AboveZero


class _Source(BaseModel):
    """What a file may say about a source; `kind` tells a measurement of this system from somebody else's number."""

    model_config = _STRICT

    kind: Literal["measured", "published", "vendor"]
    source: _Text
    date: object = None
    system: object = None
    software: object = None
    command: object = None
    runs: object = None
    note: object = None
    nodes: object = None
    once: dict[str, Annotated[float, Field(ge=1)]] = {}
    together: _Together | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> _Source:
        if self.kind == "measured":
            for name in ("date", "system", "software", "command"):
                if not getattr(self, name):
                    raise ValueError(f"needs the field {name}, as a measured value does")
        return self


class _Head(BaseModel):
    """What a file has beside its tests."""

    model_config = ConfigDict(extra="ignore", strict=True)

    sources: Annotated[dict[str, _Source], Field(alias=SOURCES)] = {}
    uncalibrated: Annotated[dict[str, _Text], Field(alias=UNCALIBRATED)] = {}


@dataclass(frozen=True)
class _Entry:
    """The references of one combination of keys, as they stand in the file."""

    keys: tuple[Key, ...]
    metrics: Mapping[str, Reference]


@dataclass(frozen=True)
class TestReferences:
    """The references of one ReFrame test class.

    `index` are the attributes (`$partition`, `transport`, …) that the keys of `entries` are values of, in order.
    """

    __test__ = False  # pytest takes the name for that of a test

    test: str
    index: tuple[str, ...]
    entries: tuple[_Entry, ...]

    def lookup(self, values: Mapping[str, Key]) -> Mapping[str, Reference]:
        """The references by metric name for a test whose attributes have these `values`; empty where there are none.

        As in ReFrame: an equal key counts first, then the first key in the file that matches as an anchored regular
        expression. Raises UserError where `values` has no entry for an attribute of the index.
        """
        if self.index == _SCOPES:
            return self._lookup_scope(values)
        for name in self.index:
            if name not in values:
                raise UserError(
                    f"the references of {self.test} are indexed by {', '.join(self.index)}: "
                    f"give {name}, such as --key '{name}=…'"
                )
        entries = self.entries
        for level, name in enumerate(self.index):
            wanted = values[name]
            keys = dict.fromkeys(each.keys[level] for each in entries)
            key = _matching(wanted, tuple(keys))
            entries = tuple(each for each in entries if _same(each.keys[level], key))
        return entries[0].metrics if entries else {}

    def _lookup_scope(self, values: Mapping[str, Key]) -> Mapping[str, Reference]:
        if "$partition" not in values:
            raise UserError(f"the references of {self.test} are by system: give --key, such as '$partition=sys:part'")
        partition = str(values["$partition"])
        references: dict[str, Reference] = {}
        # A narrower scope overrides a wider one, metric by metric.
        for scope in ("*", partition.split(":", maxsplit=1)[0], partition):
            for entry in self.entries:
                if entry.keys == (scope,):
                    references |= entry.metrics
        return references


@dataclass(frozen=True)
class References:
    """All references in one file, by the name of the ReFrame test class.

    `uncalibrated`: the test classes that have none on this system, and why; ALL_OTHERS for those that nothing names.
    `nodes`: by provenance, the nodes that were measured, where the file says them; `together`: how the metrics of
    a part stray together.
    """

    path: str
    tests: Mapping[str, TestReferences]
    uncalibrated: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    together: Mapping[str, Together] = field(default_factory=dict)

    def of(self, test: str) -> TestReferences:
        """The references of a test class, by its exact name. Raises UserError where the file has none."""
        if test not in self.tests:
            raise UserError(f"{self.path}: has no references of {test!r}; others: {', '.join(self.tests) or 'none'}")
        return self.tests[test]


def load_references(path: str | PathLike[str]) -> References:
    """All references in a file. Raises UserError, naming file, line and key, for the first thing that is wrong."""
    file = read_yaml(Path(path))
    parser = _Parser(file)
    return References(str(path), parser.parse(), parser.uncalibrated, parser.nodes, parser.together)


def require_references_of(file: Path, system: str, root: Path) -> None:
    """Raises UserError where the file's name is that of another system of the suite at `root` or outside it."""
    folders = (each / "reference_values" for each in (root, *outside_roots()))
    if file.stem != system and any((folder / f"{file.stem}.yaml").exists() for folder in folders):
        raise UserError(f"{file}: these are the references of {file.stem}, and the runs are of {system}")


def _same(a: Key, b: Key | None) -> bool:
    # 1 and True are equal to Python and so to ReFrame; keys that are no strings or integers are refused.
    return type(a) is type(b) and a == b


def _matching(wanted: Key, keys: Sequence[Key]) -> Key | None:
    for key in keys:
        if _same(key, wanted):
            return key
    for key in keys:
        # Not fullmatch: this is how ReFrame anchors them.
        if isinstance(key, str) and isinstance(wanted, str) and re.match(f"^{key}$", wanted):
            return key
    return None


class _Parser:
    def __init__(self, file: YamlFile) -> None:
        self.file = file
        self.sources: dict[str, str] = {}
        self.nodes: dict[str, frozenset[str]] = {}
        self.together: dict[str, Together] = {}
        self.once: dict[str, dict[str, float]] = {}
        self.provenance: Any = {}
        self.levels: Any = {}
        self.uncalibrated: dict[str, str] = {}

    def fail(self, place: Sequence[Any], reason: str) -> NoReturn:
        # Keys that are integers stand as text in the map of lines.
        self.file.fail(tuple(str(step) for step in place), reason)

    def map_at(self, value: Any, place: Sequence[Any]) -> dict[Any, Any]:
        if not isinstance(value, dict):
            self.fail(place, "has to be a map")
        return value

    def parse(self) -> dict[str, TestReferences]:
        content = self.map_at(self.file.content, ())
        head = self.file.validated(_Head.model_validate)
        self.parse_sources(head.sources)
        self.uncalibrated = head.uncalibrated
        self.provenance = self.map_at(content.get(PROVENANCE, {}), (PROVENANCE,))
        self.levels = self.map_at(content.get(NODES, {}), (NODES,))
        tests = {}
        for name, value in content.items():
            if name in SPECIAL:
                continue
            if not isinstance(name, str) or not name.isidentifier():
                self.fail((name,), f"is not a name of a test class; only {', '.join(SPECIAL)} are allowed, too")
            tests[name] = self.parse_test(name, self.map_at(value, (name,)))
        for name in self.uncalibrated:
            if name in tests:
                self.fail((UNCALIBRATED, name), "there are references of this test")
        for section, tree in ((PROVENANCE, self.provenance), (NODES, self.levels)):
            for name in tree:
                if name not in tests:
                    self.fail((section, name), "there are no references of this test")
                self.check_places(section, (name,), tree[name], content[name])
        return tests

    def parse_sources(self, sources: Mapping[str, _Source]) -> None:
        for name, source in sources.items():
            date = f", {source.date}" if source.date is not None else ""
            said = self.sources[name] = f"{name}: {source.kind}{date}: {source.source}"
            self.once[said] = source.once
            if source.together is not None:
                self.together[said] = Together(**source.together.model_dump())
            if source.nodes is not None:
                try:
                    self.nodes[said] = frozenset(unfold(str(source.nodes)))
                except UserError as error:
                    self.fail((SOURCES, name, "nodes"), str(error))

    def parse_test(self, test: str, value: dict[Any, Any]) -> TestReferences:
        index: tuple[str, ...] = _SCOPES
        if _INDEX in value:
            given = value[_INDEX]
            if not isinstance(given, list) or not given or not all(isinstance(each, str) for each in given):
                self.fail((test, _INDEX), "has to be a list of attribute names")
            index = tuple(given)
        tree = {key: each for key, each in value.items() if key != _INDEX}
        return TestReferences(test, index, tuple(self.parse_level(tree, (test,), len(index))))

    def parse_level(self, tree: dict[Any, Any], place: tuple[Any, ...], depth: int) -> Iterator[_Entry]:
        if depth == 0:
            if not tree:
                self.fail(place, "has no references")
            metrics = {}
            for name, value in tree.items():
                if not isinstance(name, str) or not _METRIC.fullmatch(name):
                    self.fail((*place, name), "is not a name of a metric: use letters, digits and _")
                metrics[name] = self.parse_levels(self.parse_reference(value, (*place, name)), (*place, name))
            yield _Entry(tuple(place[1:]), metrics)
            return
        if not tree:
            self.fail(place, "is empty, and ReFrame would match it: remove it")
        scoped = _INDEX not in self.file.content[place[0]]
        for key, value in tree.items():
            self.check_key(key, place, scoped)
            yield from self.parse_level(self.map_at(value, (*place, key)), (*place, key), depth - 1)

    def check_key(self, key: Any, place: tuple[Any, ...], scoped: bool) -> None:
        where = (*place, key)
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            self.fail(where, "is neither text nor a whole number: put it into quotes")
        if scoped:
            if not isinstance(key, str):
                self.fail(where, f"is not a system, a partition or *: list the attributes of the keys under {_INDEX}")
            return
        if not isinstance(key, str):
            return
        if (mistake := mistake_of(key)) is not None:
            self.fail(where, f"ReFrame reads keys as regular expressions, and this one {mistake}")
        if "|" in re.sub(r"\\.|\[[^]]*\]|\([^()]*\)", "", key):
            self.fail(where, "ReFrame reads a|b as ^a|b$, which matches more keys: write (a|b)")

    def parse_reference(self, value: Any, place: tuple[Any, ...]) -> Reference:
        provenance = self.find_provenance(place)
        if isinstance(value, list) and value and value[0] == _XFAIL:
            if len(value) != 3 or not isinstance(value[1], str):
                self.fail(place, f"has to be [{_XFAIL}, message, [value, lower, upper, unit]]")
            provenance, value = f"expected to fail ({value[1]}); {provenance}", value[2]
        return self.parse_values(value, place, provenance)

    def parse_values(self, value: Any, place: tuple[Any, ...], provenance: str) -> Reference:
        if not isinstance(value, list) or len(value) != 4:
            self.fail(place, "has to be [value, lower, upper, unit]")
        number, lower, upper, unit = value
        for bound in (number, lower, upper):
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float))):
                self.fail(place, f"{bound!r} is not a number")
        if number is None or not (math.isfinite(number) and number > 0):
            self.fail(place, f"the value has to be positive and finite, not {number}")
        if lower is not None and not -1 < lower <= 0:
            self.fail(place, f"the lower bound is a share of the value from -1 (not included) to 0, not {lower}")
        if upper is not None and not 0 <= upper < math.inf:
            self.fail(place, f"the upper bound is a share of the value, 0 or more, not {upper}")
        if not isinstance(unit, str) or not unit:
            self.fail(place, "needs a unit")
        missing = (
            (unit in _WORSE_BELOW and lower is None)
            or (unit in _WORSE_ABOVE and upper is None)
            or (lower is None and upper is None)
        )
        if missing:
            self.fail(place, f"has no bound on the side where {unit} gets worse: everything would pass")
        return Reference(
            value=float(number),
            lower=float(lower) if lower is not None else None,
            upper=float(upper) if upper is not None else None,
            unit=unit,
            provenance=provenance,
            once=self.once.get(provenance, {}).get(unit, 1.0),
        )

    def find_provenance(self, place: tuple[Any, ...]) -> str:
        """The source of the value at `place`: of itself, or of the nearest level above it that names one."""
        node = self.provenance
        for step in place:
            if not isinstance(node, dict):
                break
            node = node.get(step)
        if not isinstance(node, str):
            self.fail(place, f"has no provenance: name its source, or that of a level above it, under {PROVENANCE}")
        if node not in self.sources:
            self.fail(place, f"its provenance {node!r} is not among {SOURCES}")
        return self.sources[node]

    def check_places(self, section: str, place: tuple[Any, ...], node: Any, references: Any) -> None:
        """A provenance, or levels of nodes, that belong to no value are a mistake in one of the two."""
        is_leaf = isinstance(node, str) if section == PROVENANCE else not isinstance(references, dict)
        if is_leaf:
            return
        for key, inner in self.map_at(node, (section, *place)).items():
            if not isinstance(references, dict) or key not in references or key == _INDEX:
                self.fail((section, *place, key), "there is no reference at this place")
            self.check_places(section, (*place, key), inner, references[key])

    def parse_levels(self, reference: Reference, place: tuple[Any, ...]) -> Reference:
        """The reference at `place` with the levels of its nodes, where the file has any."""
        levels = self.levels
        for step in place:
            levels = levels.get(step) if isinstance(levels, dict) else None
        if levels is None:
            return reference
        where = (NODES, *place)
        if not isinstance(levels, list) or len(levels) != 4 or not isinstance(levels[0], str):
            self.fail(where, "has to be [NODE=VALUE NODE=VALUE ..., lower, upper, unit]")
        if levels[3] != reference.unit:
            self.fail(where, f"is in {levels[3]}, and its reference in {reference.unit}")
        # One text: a fleet has thousands of values, of which each would be one of the YAML file.
        nodes = {}
        for text in levels[0].split():
            node, _, value = text.partition("=")
            try:
                level = float(value)
            except ValueError:
                self.fail(where, f"{text!r} is not NODE=VALUE")
            names = [short_host(one) for one in node.split("+")]
            provenance = of_nodes(reference.provenance, names)
            nodes[pair(names)] = self.parse_values([level, *levels[1:]], where, provenance)
        return replace(reference, nodes=nodes)
