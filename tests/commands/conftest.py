"""The suite and store of the store's own tests."""

from __future__ import annotations

from tests.history.conftest import root, store

__all__ = ["root", "store"]
