"""Files of checks that are not loaded have no test that was asked for."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.session.check_files import check_files, require_tags
from fabricheck.session.reframe import Selection
from fabricheck.session.reframe_report import level_of
from tests.support.nodes import ROOT

CHECKS = ROOT / "checks"
TAGS = ("smoke", "nightly", "acceptance", "papers", "tuning", "vendor", "vendor-mixed", "cross-check", "^vendor$")


def classes_in(file: Path) -> list[tuple[str, set[str]]]:
    """Name and tags of each test class."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            (line,) = (each for each in map(ast.unparse, node.body) if each.startswith("tags = "))
            found.append((node.name, ast.literal_eval(line.removeprefix("tags = "))))
    return found


EVERY = {file: classes_in(file) for file in sorted(CHECKS.glob("*.py"))}
NAMES = [name for tests in EVERY.values() for name, _ in tests]


@pytest.mark.parametrize("tag", TAGS)
def test_all_with_a_tag_are_loaded_and_others_are_not(tag: str) -> None:
    wanted = [file for file, tests in EVERY.items() if any(re.search(tag, each) for _, tags in tests for each in tags)]
    assert check_files(CHECKS, [tag], []) == wanted
    assert 0 < len(wanted) < len(EVERY)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rest", ["", "%transport=mpi", "$"])
def test_all_in_whose_name_it_is_are_loaded(name: str, rest: str) -> None:
    wanted = {file for file, tests in EVERY.items() if any(re.search(f"^{name}", one) for one, _ in tests)}
    found = check_files(CHECKS, [], [f"^{name}{rest}"])
    assert wanted <= set(found)
    assert len(found) < len(EVERY)


@pytest.mark.parametrize(
    "name", ["transport=ccl", "Smoke", "NCCL_IB_SL", ".*", "PingPong|Imb", "PingPong%x|Imb", "/0a1b"]
)
def test_what_may_be_a_test_of_any_file_is_loaded(name: str) -> None:
    assert check_files(CHECKS, [], [name]) == [*EVERY]
    assert check_files(CHECKS, [], ["PingPong", name]) == [*EVERY]


def test_nothing_found_is_for_reframe_to_say() -> None:
    assert check_files(CHECKS, ["no such tag"], []) == [*EVERY]
    assert check_files(CHECKS, ["("], []) == [*EVERY]


@pytest.mark.parametrize(
    "text",
    [
        "def (",  # is no Python
        "class A:\n    tags = {*others}\n",
        "class A:\n    tags = {'other'}\n    def more(self): self.tags |= {'wanted'}\n",
        "class A(B):\n    pass\n",
        "class A:\n    tags = {'other'}\nA.tags.add('wanted')\n",
    ],
)
def test_what_cannot_be_told_is_loaded(tmp_path: Path, text: str) -> None:
    (tmp_path / "sure.py").write_text("class S:\n    tags = {'wanted'}\n")
    (tmp_path / "unsure.py").write_text(text)
    (tmp_path / "other.py").write_text("class O:\n    tags = {'other'}\n")
    assert [file.stem for file in check_files(tmp_path, ["wanted"], [])] == ["sure", "unsure"]


def test_a_tag_that_no_check_has_is_a_mistake_and_several_are_a_choice() -> None:
    """ReFrame would take `smok` for smoke and `vendor` for vendor-mixed too, and of several those that have all."""
    require_tags(CHECKS, ["smoke", "vendor", "smoke|nightly"])
    with pytest.raises(UserError, match=r"no check has the tag 'smok': choose from acceptance, burn-in, cross-check"):
        require_tags(CHECKS, ["smok"])
    for near, tag in (("smok", "smoke"), ("nigthly", "nightly")):
        with pytest.raises(UserError) as mistake:
            require_tags(CHECKS, [near])
        assert str(mistake.value).endswith(f"{tag}?")
    for tags, others in ((("vendor",), ("vendor-mixed",)), (("smoke", "tuning"), ("nightly", "smokes"))):
        (pattern,) = Selection("local", tags).choice
        assert all(re.match(pattern, tag) for tag in tags) and not any(re.match(pattern, tag) for tag in others)
        assert level_of(Selection("local", tags).arguments()) == "+".join(tags)
