"""Which tags a user may ask for, and how ReFrame is asked for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.session.reframe import Selection, require_tags
from fabricheck.session.reframe_report import level_of
from tests.support.nodes import ROOT

CHECKS = ROOT / "checks"


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    tags = {*others}\n",
        "class A:\n    tags = {'other'}\n    def more(self): self.tags |= {'wanted'}\n",
        "class A:\n    tags = {\n        'wanted',\n    }\n",
    ],
)
def test_what_checks_say_in_other_ways_is_for_reframe_to_find(tmp_path: Path, text: str) -> None:
    (tmp_path / "sure.py").write_text("class S:\n    tags = {'sure'}\n")
    with pytest.raises(UserError):
        require_tags(tmp_path, ["wanted"])
    (tmp_path / "unsure.py").write_text(text)
    require_tags(tmp_path, ["wanted"])


def test_a_tag_that_no_check_has_is_a_mistake_and_several_are_a_choice() -> None:
    """ReFrame would take `smok` for smoke and `vendor` for vendor-mixed too, and of several those that have all."""
    require_tags(CHECKS, ["smoke", "vendor", "smoke|nightly"])
    with pytest.raises(UserError, match=r"no check has the tag 'smok': choose from acceptance, burn-in, cross-check"):
        require_tags(CHECKS, ["smok"])
    for near, tag in (("smok", "smoke"), ("nigthly", "nightly")):
        with pytest.raises(UserError) as mistake:
            require_tags(CHECKS, [near])
        assert str(mistake.value).endswith(f"{tag}?")
    for tags, others in ((("vendor",), ("vendor-mixed",)), (("smoke", "papers"), ("nightly", "smokes"))):
        (pattern,) = Selection("local", tags).choice
        assert all(re.match(pattern, tag) for tag in tags) and not any(re.match(pattern, tag) for tag in others)
        assert level_of(Selection("local", tags).arguments()) == "+".join(tags)
