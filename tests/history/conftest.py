from __future__ import annotations

from tests.store.conftest import root, store, use_suite

__all__ = ["root", "store", "use_suite"]
