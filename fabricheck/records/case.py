"""A test case of ReFrame, as its report names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst

#: A value of a test's attribute.
Key = str | int

#: The network of a fleet looks at its suspects twice by itself: no other launch of its test says anything new.
LAUNCHED_ONCE = ("FleetNetwork",)
#: The folder of the nodes of a fleet, each with one of its own, among the files of a test.
NODES = "nodes"


@dataclass(frozen=True)
class CheckJudgement:
    """What a check came to: its verdict, and what it found; of one that is stored, the verdict alone."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> CheckJudgement:
        """The worst of what was found; PASS for nothing."""
        kept = tuple(findings)
        return cls(worst([Verdict.PASS, *(each.verdict for each in kept)]), kept)


@dataclass(frozen=True)
class Case:
    """One test case of a run as ReFrame reports it. `result` is "pass" or one of ReFrame's words for anything else.

    `name` starts with that of the test class, which its parameters follow; `partition` is `system:partition`.
    `attributes` are those of the test that are text or whole numbers, by which references may be indexed. `folder` is
    where ReFrame left its files, `None` where it did not get that far. `reason` is ReFrame's, for people. `judged`:
    what its check came to, if it got so far. `foreign`: it is not a check of Fabricheck and may leave no judgement.
    `not_applicable`: it was skipped because the site's own description leaves nothing to measure.
    `launches`: the verdicts of all, where it was launched several times in the session, in order. `of_nodes`: of a test
    over a fleet, nodes of which another launch counts, each with the folder of the test in that launch.
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
    judged: CheckJudgement | None = None
    foreign: bool = False
    not_applicable: bool = False
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
        """That of its check; INCOMPLETE where nothing was judged, FAIL of a foreign test that measured and failed."""
        return self._verdict(measured=bool(self.result_files()))

    @property
    def trusts_its_run(self) -> bool:
        """Whether its check let the run of its result file count: it measured what was requested, and all of it.

        The verdict on speed and data is another matter. Nothing is asked of the folder, which a stored case lost.
        """
        verdict = self._verdict(measured=True)
        # Where its sanity is proven, only a yardstick was missing.
        return verdict is not Verdict.INVALID and (verdict is not Verdict.INCOMPLETE or self.phase == "performance")

    def _verdict(self, *, measured: bool) -> Verdict:
        verdict = self.judged.verdict if self.judged is not None else Verdict.PASS
        if self.result == "pass" or verdict is not Verdict.PASS:
            return verdict
        is_judged = self.phase in ("sanity", "performance") and self.judged is None
        return Verdict.FAIL if self.foreign and measured and is_judged else Verdict.INCOMPLETE

    @property
    def does_not_apply(self) -> bool:
        """Whether it was skipped, and rightly: the site's own description says so."""
        return self.result == "skip" and self.not_applicable

    @property
    def name_without_repeat(self) -> str:
        """The name that all repetitions of `--repeat` share."""
        return re.sub(r" %\.?repeat_no=\d+", "", self.name)

    @property
    def repetition(self) -> int:
        """Which one of `--repeat` it is, from 0: ReFrame writes it into the name that it displays alone."""
        name = str(self.attributes.get("display_name", self.name))
        match = re.search(r" %\.?repeat_no=(\d+)", name)
        return int(match[1]) if match else 0

    def outvoted(self) -> Case:
        """The case, of which nothing slow counts."""
        findings = self.judged.findings if self.judged is not None else ()
        judged = CheckJudgement.of(each for each in findings if each.verdict is not Verdict.DEGRADED)
        return replace(self, judged=judged, result="pass", phase=None, reason=None)

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
        """The test over the fleet with another launch's files of some nodes, and with what its check found of them.

        Who is slow is left out: the judge of the session says that, by the files that count now.
        """
        if other.folder is None:
            return self
        again = frozenset(nodes)
        of_nodes = {**dict(self.of_nodes), **dict.fromkeys(sorted(again), other.folder)}
        mine, theirs = (each.judged or CheckJudgement(each.verdict) for each in (self, other))
        merged = [
            *(each for each in mine.findings if _node_of(each) not in again),
            *(each for each in theirs.findings if _node_of(each) in again),
        ]
        judged = CheckJudgement.of(each for each in merged if each.verdict is not Verdict.DEGRADED)
        if not mine.findings and mine.verdict is not Verdict.DEGRADED:  # nobody knows of which nodes that is
            judged = replace(judged, verdict=worst([mine.verdict, judged.verdict]))
        all_pass = {"result": "pass", "phase": None, "reason": None} if judged.verdict is Verdict.PASS else {}
        return replace(self, of_nodes=tuple(of_nodes.items()), judged=judged, **all_pass)  # type: ignore[arg-type]


def _node_of(finding: Finding) -> str:
    """The one node that a finding is about, by its result files or its components; empty where there is none."""
    of_files = {node_of_file(Path(file)) for file in finding.files}
    return of_files.pop() if len(of_files) == 1 else finding.node


def node_of_file(file: Path) -> str:
    """The node of a result file of a test over a fleet; empty for any other."""
    return file.parent.name if file.parent.parent.name == NODES else ""


def name_without_blanks(name: str) -> str:
    """The name of a test case as a word of a shell and of a list of plans; empty where it has more to be quoted."""
    word = name.replace(" ", ",")
    return word if re.fullmatch(r"[\w.,:%@+=/-]+", word) else ""


def name_of_header(header: Mapping[str, Any]) -> str:
    """The name of the test case that a result file says it is of; empty for a run by hand."""
    return re.sub(r",(?=[%@])", " ", str(header.get("case") or ""))


def parse_case(text: str) -> tuple[str, dict[str, Key]]:
    """The class of a test and its attributes, from its name as printed: `PingPong %transport=ccl @alps:gpu+gnu`.

    A part may be left out. Raises UserError for any other word.
    """
    attributes: dict[str, Key] = {}
    name, *words = text.split() or [""]
    for word in words:
        if word.startswith("@"):
            attributes["$partition"], _, environment = word[1:].partition("+")
            attributes |= {"$environ": environment} if environment else {}
        elif word.startswith("%"):
            attributes.update([parse_attribute(word[1:])])
        else:
            raise UserError(f"--test {text!r}: {word!r} is neither %NAME=VALUE nor @SYSTEM:PARTITION+ENVIRONMENT")
    return name, attributes


def parse_attribute(text: str) -> tuple[str, Key]:
    """Name and value of `NAME=VALUE`, by which references are indexed; UserError for anything else."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UserError(f"--key {text!r} is not NAME=VALUE")
    return name, int(value) if value.isdecimal() else value
