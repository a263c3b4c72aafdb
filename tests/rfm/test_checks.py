"""The tests in checks/ as they are written: their tags, and the options of fabricbench that they set."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

import fabricheck.rfm
from fabricheck.records.operations import SETTINGS
from fabricheck.results.fabricbench_format import is_plan_setting
from tests.support.nodes import ROOT

# docs/methodology.md and docs/vendor-tools.md say what they mean.
TAGS = {
    *("smoke", "nightly", "acceptance", "papers", "vendor", "vendor-mixed", "cross-check", "layers"),
    "burn-in",
}


def classes() -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """The test classes with their attributes."""
    for file in sorted((ROOT / "checks").rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found = {
                    target.id: line.value
                    for line in node.body
                    if isinstance(line, ast.Assign)
                    for target in line.targets
                    if isinstance(target, ast.Name)
                }
                yield node.name, found


CHECKS = dict(classes())


@pytest.mark.parametrize("name", CHECKS)
def test_each_has_tags_that_are_known(name: str) -> None:
    tags = ast.literal_eval(CHECKS[name]["tags"])
    assert tags
    assert tags <= TAGS


@pytest.mark.parametrize("name", [each for each in CHECKS if "nightly_only" in CHECKS[each]])
def test_what_is_measured_every_night_is_measured_at_all(name: str) -> None:
    found = CHECKS[name]
    assert "nightly" in ast.literal_eval(found["tags"])
    for parameter, nightly in ast.literal_eval(found["nightly_only"]).items():
        assert set(nightly) < set(values_of(found[parameter]))


def test_every_known_tag_is_used() -> None:
    assert {tag for each in CHECKS.values() for tag in ast.literal_eval(each["tags"])} == TAGS


def depth(mixin: type) -> int:
    """How many classes of fabricheck.rfm stand above each other, this one included."""
    ours = [base for base in mixin.__bases__ if base.__module__.startswith("fabricheck.rfm")]
    return 1 + max(map(depth, ours), default=0)


def test_mixins_are_two_deep_at_most() -> None:
    """More cannot be read: what one changes of another's phases is found by looking at both."""
    mixins = [each for each in vars(fabricheck.rfm).values() if isinstance(each, type)]
    assert len(mixins) > 8
    assert [each.__name__ for each in mixins if depth(each) > 2] == []


def values_of(value: ast.expr) -> list[object]:
    """Of an attribute: its own value, or those of a parameter."""
    if isinstance(value, ast.Call):
        return list(ast.literal_eval(value.args[0]))
    return [ast.literal_eval(value)]


# What they call `buffers` is the vendor tools' own option.
OURS = {
    name: found for name, found in CHECKS.items() if "tool" not in found and not name.startswith(("Osu", "Imb", "Perf"))
}


@pytest.mark.parametrize("name", [each for each in OURS if not each.startswith("CrossCheck")])
def test_each_option_that_is_set_is_passed_on(name: str) -> None:
    """An attribute that `plan_settings` forgets would measure fabricbench's default under the test's name."""
    found = CHECKS[name]
    chosen = ast.literal_eval(found["plan_settings"]) if "plan_settings" in found else []
    assert chosen == [each for each in SETTINGS if each in found]
    for setting in chosen:
        assert all(is_plan_setting(setting, str(value)) for value in values_of(found[setting]))
