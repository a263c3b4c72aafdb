"""The fixtures of a store are those of the tests of history."""

from __future__ import annotations

from tests.history.conftest import root, store

__all__ = ["root", "store"]
