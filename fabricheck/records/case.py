"""A test case of ReFrame, as its report names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck.records.verdict import Verdict

#: The folder of the nodes of a fleet, each with one of its own, among the files of a test.
NODES = "nodes"


@dataclass(frozen=True)
class Case:
    """One test case of a run as ReFrame reports it. `result` is "pass" or one of ReFrame's words for anything else.

    `name` starts with that of the test class, which its parameters follow; `partition` is `system:partition`.
    `attributes` are those of the test that are text or whole numbers, by which references may be indexed. `folder` is
    where ReFrame left its files, `None` where it did not get that far. `not_applicable`: it was skipped because the
    site's own description leaves nothing to measure. `declared_unsupported`: what it needs
    and the site says that the machine does not support. `launches`: the verdicts of all, where it was launched several
    times in the session, in order. `of_nodes`: of a test over a fleet, nodes of which another launch counts, each with
    the folder of the test in that launch.
    """

    name: str
    environment: str
    partition: str
    attributes: Mapping[str, str | int]
    result: str
    phase: str | None
    reason: str | None
    folder: Path | None
    is_build: bool
    tags: tuple[str, ...] = ()
    not_applicable: bool = False
    declared_unsupported: str = ""
    launches: tuple[Verdict, ...] = ()
    of_nodes: tuple[tuple[str, Path], ...] = ()

    def __str__(self) -> str:
        return f"{self.name} @{self.partition}+{self.environment}"

    @property
    def test(self) -> str:
        """Name of the test class; empty where a damaged report has none."""
        return next(iter(self.name.split()), "")

    @property
    def verdict(self) -> Verdict:
        """What ReFrame's result comes to: what the test says itself, else INCOMPLETE where nothing was judged."""
        return self._verdict(measured=bool(self.result_files()))

    @property
    def trusts_its_run(self) -> bool:
        """Whether its check let the run of its result file count: it measured what was asked for, and all of it.

        The verdict on speed and data is another matter. Nothing is asked of the folder, which a stored case lost.
        """
        verdict = self._verdict(measured=True)
        # Where its sanity is proven, only a yardstick was missing.
        return verdict is not Verdict.INVALID and (verdict is not Verdict.INCOMPLETE or self.phase == "performance")

    def _verdict(self, *, measured: bool) -> Verdict:
        if self.result == "pass":
            return Verdict.PASS
        named = named_verdict(self.reason or "")
        if named is not None:
            return named
        return Verdict.FAIL if measured and self.phase in ("sanity", "performance") else Verdict.INCOMPLETE

    @property
    def does_not_apply(self) -> bool:
        """Whether it was skipped, and rightly: the site's own description says so."""
        return self.result == "skip" and self.not_applicable

    @property
    def name_without_repeat(self) -> str:
        """The name that all repetitions of `--repeat` share."""
        return re.sub(r" %\.?repeat_no=\d+", "", self.name)

    def result_files(self) -> list[Path]:
        """What was measured; nothing where the test was skipped, whatever it wrote down about the reason."""
        if self.folder is None or self.result == "skip":
            return []
        # A test over a fleet has a folder for each node. A program that ends before it knows what it measures leaves an
        # empty file.
        others = dict(self.of_nodes)
        own = (file for file in self.folder.glob(f"{NODES}/*/*.jsonl") if file.parent.name not in others)
        again = (file for node, folder in others.items() for file in folder.glob(f"{NODES}/{node}/*.jsonl"))
        return sorted(file for file in (*self.folder.glob("*.jsonl"), *own, *again) if file.stat().st_size > 0)

    def with_nodes_of(self, other: Case, nodes: Iterable[str]) -> Case:
        """The test over a fleet with another launch's files of some nodes, which its check has not seen together."""
        folder = other.folder
        new = {**dict(self.of_nodes), **({node: folder for node in nodes} if folder is not None else {})}
        found = replace(self, of_nodes=tuple(new.items()))
        # Who is slow the judge says, by the files that count now.
        slow = self.verdict is Verdict.DEGRADED
        return replace(found, result="pass", phase=None, reason=None) if slow else found


def node_of_file(file: Path) -> str:
    """The node of a result file of a test over a fleet; empty for any other."""
    return file.parent.name if file.parent.parent.name == NODES else ""


def named_verdict(reason: str) -> Verdict | None:
    """The verdict that a check gave as the reason for which it failed; None where it named none."""
    named = re.search(rf"\b({'|'.join(one.value for one in Verdict if one is not Verdict.PASS)})\b", reason)
    return Verdict(named[1]) if named else None
