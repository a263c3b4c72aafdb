"""What was found: what is wrong, where, and by how much; or something worth knowing that changes no verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from fabricheck.records.component import Component, either, only_node
from fabricheck.records.finding_texts import CATALOGUE, CatalogueEntry
from fabricheck.records.verdict import Verdict

#: Codes of earlier versions.
_RETIRED = ("observation", "distances", "scaling", "crossover")


@dataclass(frozen=True)
class Finding:
    """One thing that was found in a run, a session or a history.

    `code`: its row of the catalogue, which has the sentence, how sure it is and what to do. `verdict`: what it makes of
    the session; PASS where it is only told. `message`: what was seen, in one line with its figures, for the level below
    the catalogue's sentence; for people only. `components`: what is at fault; several if it is unknown
    which of them it is. `measured` and `expected` are in `unit`, and `metrics` the names of what is affected. `files`:
    the result files that show it. `p`: the probability that healthy peers show it by chance, where that is known.

    Raises ValueError for a code that the catalogue does not have.
    """

    code: str
    verdict: Verdict
    message: str
    components: tuple[Component, ...] = ()
    measured: float | None = None
    """in `unit`"""
    expected: float | None = None
    """in `unit`"""
    unit: str = ""
    """of `measured` and `expected`"""
    metrics: tuple[str, ...] = ()
    """names of what is affected"""
    files: tuple[str, ...] = field(default=(), compare=False)
    p: float | None = field(default=None, compare=False)
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, allow_inf_nan=False)

    def __post_init__(self) -> None:
        if self.code not in CATALOGUE:
            raise ValueError(f"the catalogue of findings has no code {self.code!r}")

    @property
    def entry(self) -> CatalogueEntry:
        """Its row of the catalogue."""
        return CATALOGUE[self.code]

    @property
    def is_problem(self) -> bool:
        """Whether it keeps a run or a session from being green."""
        return self.verdict is not Verdict.PASS

    @property
    def node(self) -> str:
        """The one node that all of its components belong to; empty where there is none."""
        return only_node(self.components)

    @property
    def place(self) -> str:
        """Its components in words; empty where it has none."""
        return either(self.components)

    @property
    def reason(self) -> str:
        """The message without the one of its files, and the line there, that it begins with."""
        path = next((file for file in self.files if self.message.startswith(f"{file}:")), "")
        if not path:
            return self.message
        line, colon, rest = self.message[len(path) + 1 :].partition(":")
        return f"line {line}:{rest}" if colon and line.isdecimal() else f"{line}{colon}{rest}".strip()

    def as_json(self) -> dict[str, Any]:
        """All of it; figures and lists that it does not have are left out."""
        figures = {name: getattr(self, name) for name in ("measured", "expected", "p")}
        return {
            "verdict": self.verdict.value,
            "code": self.code,
            "message": self.message,
            "components": [each.as_json() for each in self.components],
            **{name: value for name, value in figures.items() if value is not None and math.isfinite(value)},
            **({"unit": self.unit} if self.unit else {}),
            **{name: list(value) for name in ("metrics", "files") if (value := getattr(self, name))},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Finding:
        """The finding of `as_json`; `recorded` where an earlier version wrote no code, or one that was retired.

        Raises ValueError or TypeError for anything else.
        """
        code = content.get("code", "recorded")
        today = {"verdict": "PASS", **content, "code": "recorded" if code in _RETIRED else code}
        return _adapter().validate_json(json.dumps(today))


@lru_cache
def _adapter() -> TypeAdapter[Finding]:
    return TypeAdapter(Finding)


def split(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Those that keep a session from being green, and those that are only told, each in their order."""
    findings = tuple(findings)
    return tuple(each for each in findings if each.is_problem), tuple(each for each in findings if not each.is_problem)


def with_files(findings: Iterable[Finding], *files: str) -> tuple[Finding, ...]:
    """The findings, as shown by these result files."""
    return tuple(replace(each, files=files) for each in findings)
