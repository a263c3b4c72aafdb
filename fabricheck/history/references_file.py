"""Writes references into reference_values/<system>.yaml and leaves everything else in the file as it is."""

from __future__ import annotations

import difflib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ruamel.yaml.comments import CommentedMap

from fabricheck.errors import UserError
from fabricheck.history.calibrate import Calibrated, Calibration
from fabricheck.records.case import parse_case
from fabricheck.statistics.parts import Together
from fabricheck.suite import INSTALLED
from fabricheck.topology.network import fold
from fabricheck.wholefile import whole_file
from fabricheck.yamlfile import on_one_line, round_trip_yaml
from fabricheck.yardsticks.references import NODES, PROVENANCE, SOURCES, UNCALIBRATED, load_references

_INDEX = "$index"
_SPECIAL = (SOURCES, PROVENANCE, UNCALIBRATED)

Place = tuple[Any, ...]


def updated_text(path: Path, calibration: Calibration, command: str) -> str:
    """The text of the file at `path` (which need not exist) with the references of a calibration in it.

    `command` made the calibration, for the provenance. A metric that was refused keeps the reference that it had.
    Raises UserError where the file is not valid, is of another system, or indexes a test in another way; and where
    what would be written cannot be read by the judge.
    """
    yaml = round_trip_yaml()
    content = CommentedMap()
    if path.exists():
        load_references(path)
        content = yaml.load(path.read_text(encoding="utf-8")) or content
    source = _add_source(content, calibration, command)
    tests: dict[str, list[Calibrated]] = {}
    for reference in calibration.references:
        tests.setdefault(parse_case(reference.key.test)[0], []).append(reference)
    for test, references in tests.items():
        try:
            _add_test(content, calibration.system, test, references, source)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    text = io.StringIO()
    yaml.dump(content, text)
    _check(text.getvalue(), path)
    return text.getvalue()


def diff(path: Path, text: str) -> str:
    """What writing `text` to `path` changes, as a unified diff; empty where that is nothing."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    name = f"reference_values/{path.name}"
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), text.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(lines)


def write(path: Path, text: str) -> None:
    """Put `text` in the place of the file at `path` in one step. UserError where that cannot be done."""
    target = path.resolve()  # a link into a checkout stays one
    if target.is_relative_to(INSTALLED):
        raise UserError(f"{path} is part of the installed package: name your own file with --references, or use --site")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as unfinished:
            if target.exists():
                unfinished.chmod(target.stat().st_mode & 0o777)
            with unfinished.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _check(text: str, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8")
        try:
            load_references(trial)
        except UserError as error:
            reason = str(error).removeprefix(str(trial)).lstrip(":")
            raise UserError(f"{path}: cannot be read back, line {reason}: select fewer checks with --runs") from None


def _add_source(content: CommentedMap, calibration: Calibration, command: str) -> str:
    between, within = (
        median(getattr(reference, name) for reference in calibration.references) for name in ("between", "within")
    )
    days = f"{calibration.first:%Y-%m-%d} to {calibration.last:%Y-%m-%d}"
    fields = CommentedMap(
        kind="measured",
        source=f"{calibration.runs} runs in {len(calibration.sessions)} sessions, {days}",
        date=f"{calibration.last:%Y-%m-%d}",
        system=calibration.system,
        **({"nodes": fold(calibration.nodes)} if calibration.nodes else {}),
        software=_software(calibration.software),
        command=command,
        runs=min(each.runs for each in calibration.references),
        **({"once": on_one_line(_short(calibration.once))} if calibration.once else {}),
        **({"together": _together(calibration.together)} if calibration.together is not None else {}),
        note=(
            f"--false-alarms {calibration.false_alarms:g}; "
            f"median spread between runs {between:.2%}, within a run {within:.2%}"
        ),
    )
    sources = _section(content, SOURCES)
    base = name = f"{calibration.system}-{calibration.last:%Y-%m-%d}"
    number = 1
    while name in sources and dict(sources[name]) != dict(fields):
        number += 1
        name = f"{base}-{number}"
    sources[name] = fields
    return name


def _together(together: Together) -> CommentedMap:
    """As the judge reads it."""
    both = _short({"launch": together.launch, "limit": together.limit})
    bounds, parts = _short(together.bounds), _short(together.parts)
    line: CommentedMap = on_one_line(
        {"bounds": bounds, "launch": both["launch"], "parts": parts, "limit": both["limit"]}
    )
    return line


def _short(values: Mapping[str, float]) -> CommentedMap:
    return CommentedMap({name: float(f"{value:.4g}") for name, value in values.items()})


def _software(text: str) -> str:
    versions = json.loads(text)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "not recorded"


def _section(content: CommentedMap, name: str) -> CommentedMap:
    """A special key of the file, which is made where it is missing: the sources first, their use second."""
    if name not in content:
        content.insert(_SPECIAL.index(name) if name != PROVENANCE or SOURCES in content else 0, name, CommentedMap())
    section = content[name]
    assert isinstance(section, CommentedMap)
    return section


def _add_test(content: CommentedMap, system: str, test: str, references: list[Calibrated], source: str) -> None:
    names = {tuple(parse_case(each.key.test)[1]) for each in references}
    if len(names) > 1:
        raise UserError(f"{test} has runs with different parameters: select some of them with --runs")
    index = ["$partition", "$environ", *names.pop()]
    tree = content.get(test)
    if tree is None:
        tree = content[test] = CommentedMap()
        tree[_INDEX] = on_one_line(index)
    _check_index(test, tree, index, system)
    provenance = dict(_leaves(tree, content.get(PROVENANCE, {}).get(test)))
    for entry in references:
        keys = (f"{system}:{entry.key.partition}", entry.key.environment, *parse_case(entry.key.test)[1].values())
        node = tree
        for key in keys:
            node = node.setdefault(key, CommentedMap())
        node[entry.key.metric] = on_one_line([entry.value, entry.lower, entry.upper, entry.unit])
        place = (*keys, entry.key.metric)
        provenance[place] = source
        _set_levels(content, (test, *place), entry)
    _section(content, PROVENANCE)[test] = _collapse(provenance)
    uncalibrated = content.get(UNCALIBRATED, {})
    if test in uncalibrated:
        del uncalibrated[test]
        if not uncalibrated:
            del content[UNCALIBRATED]


def _set_levels(content: CommentedMap, place: Place, reference: Calibrated) -> None:
    """The levels of nodes stand at the end of the file: they are many, and a person reads the others first."""
    levels = reference.nodes
    *steps, metric = (NODES, *place)
    node = content
    for step in steps:
        if levels is None and step not in node:
            return
        node = node.setdefault(step, CommentedMap())
    if levels is None:
        node.pop(metric, None)
        return
    values = " ".join(f"{name}={value:.5g}" for name, value in levels.values)
    node[metric] = on_one_line([values, levels.lower, levels.upper, reference.unit])


def _check_index(test: str, tree: CommentedMap, index: list[str], system: str) -> None:
    present = list(tree.get(_INDEX, ["$scope"]))
    if present != index:
        raise UserError(f"{test} is indexed by {', '.join(present)} and not by {', '.join(index)}: remove it first")
    foreign = [key for key in tree if key != _INDEX and str(key).partition(":")[0] != system]
    if foreign:
        raise UserError(f"{test} has references of {foreign[0]}, another system than {system}")


def _leaves(tree: Any, provenance: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """The source of each reference below `tree`, by its keys."""
    if not isinstance(tree, dict):
        yield place, provenance
        return
    for key, inner in tree.items():
        if key != _INDEX:
            of_inner = provenance.get(key) if isinstance(provenance, dict) else provenance
            yield from _leaves(inner, of_inner, (*place, key))


def _collapse(sources: dict[Place, str]) -> Any:
    """The tree of sources by keys, ended at the first level below which there is only one."""
    distinct = set(sources.values())
    if len(distinct) == 1:
        return distinct.pop()
    below: dict[Any, dict[Place, str]] = {}
    for (first, *rest), source in sources.items():
        below.setdefault(first, {})[tuple(rest)] = source
    return CommentedMap({key: _collapse(inner) for key, inner in below.items()})
