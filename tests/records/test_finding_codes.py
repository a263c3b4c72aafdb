"""Codes of findings that stored sessions have."""

from __future__ import annotations

import pytest

from fabricheck.records.finding import Finding


@pytest.mark.parametrize("content", [{"message": "x"}, {"message": "x", "code": "observation"}])
def test_what_earlier_versions_stored_is_recorded(content: dict[str, str]) -> None:
    assert Finding.from_json(content).code == "recorded"
    with pytest.raises(ValueError, match="no code"):
        Finding.from_json({**content, "code": "no-such-code"})
