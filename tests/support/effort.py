"""How much the tests try: all with FULL=1, a share of it in the ten minutes of `make test`, or CASES=N of each."""

from __future__ import annotations

import os


def is_full() -> bool:
    return os.environ.get("FULL") == "1"


def is_ci() -> bool:
    return os.environ.get("CI") == "true"


def effort(full: int, *, share: int = 5) -> int:
    """How many examples, trials or mutants: CASES of them, `full` with FULL=1, and one in `share` of those without."""
    if given := os.environ.get("CASES"):
        return int(given)
    return full if is_full() else max(1, full // share)
