"""What rehearsals take for granted of the tags of checks. Nothing is brought up here."""

from __future__ import annotations

import re

from fabricheck.suite import suite_root


def test_each_check_of_nightly_is_one_of_acceptance() -> None:
    checks = "\n".join(each.read_text(encoding="utf-8") for each in (suite_root() / "checks").glob("*.py"))
    tags = re.findall(r"^    tags = (\{.*\})$", checks, re.MULTILINE)
    nightly = [line for line in tags if '"nightly"' in line]
    assert nightly and all('"acceptance"' in line for line in nightly)
