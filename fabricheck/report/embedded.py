"""What a page carries with it, so that it needs no other file: its style, its scripts and the figures' data."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import lru_cache
from importlib import resources

from fabricheck.report.plotly_js import plotly_js


def own_file(name: str) -> str:
    """A file of this package as text."""
    return (resources.files("fabricheck.report") / name).read_text(encoding="utf-8")


def packed(content: bytes) -> str:
    """gzip and base64, which nothing can break out of; the same text for the same content each time."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")


def script_hash(script: bytes) -> str:
    """The hash of a script, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"


@lru_cache(maxsize=1)
def plotly_hash() -> str:
    return script_hash(plotly_js())


@lru_cache(maxsize=1)
def packed_plotly() -> str:
    return packed(plotly_js())
