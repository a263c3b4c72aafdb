"""What explains a session: one ranked list of causes, each with the measurements that it explains.

Evidence that spoils data comes first: where it is unknown which part was measured, nothing is blamed, and runs that
measured something else are left out. The rest is one table, and `explain` says which components are at fault. Other
findings about a component (counters, probes, pairs of the network) are prior weight there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fabricheck.diagnosis.explain import Row, explain
from fabricheck.diagnosis.table import EVERYTHING, Group, Measurement, groups_of, in_order, is_alike, rows_of
from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import SLOW, code_of_slow
from fabricheck.records.verdict import Verdict, worst
from fabricheck.statistics.constants import LEAST_LOSS, SEEN

# What slows all that is measured on a node, the surest first.
_OF_WHOLE_NODES = ("host-memory-slow", "node-busy")
# Slow iterations of measurements whose medians may be as usual.
_OF_ITERATIONS = ("slow-now-and-then", "slow-at-first")
NO_RUNS = Finding("nothing-measured", Verdict.INCOMPLETE, "no test has a result")
# Measurements of something else than was requested: it is unknown whose speed is whose.
_IDENTITY = frozenset(("wrong-ranks", "other-gpus", "same-result-twice", "cannot-be-judged", "stale-result"))


@dataclass(frozen=True)
class Affected:
    """Of one question in a run the rows that a cause explains."""

    group: Group
    rows: tuple[Measurement, ...]

    @property
    def ratio(self) -> float | None:
        """The median of its rows over that of what passes in the group, less than 1 for slow ones; None without
        any."""
        own = {id(each) for each in self.rows}
        good = [each.judgement.value for each in self.group.fast if id(each) not in own]
        if not good or not self.rows:
            return None
        ratio = statistics.median(each.judgement.value for each in self.rows) / statistics.median(good)
        return ratio if self.rows[0].judgement.better == "higher" or ratio == 0 else 1 / ratio


@dataclass(frozen=True)
class Cause:
    """One thing that explains what is wrong. `finding`: what it is. `groups`: what it explains. `told`: what was found
    of the same components in other ways. `whole`: all that was measured is slow, so that it has nothing healthy to
    compare with."""

    finding: Finding
    groups: tuple[Affected, ...] = ()
    told: tuple[Finding, ...] = ()
    whole: bool = False

    @property
    def rows(self) -> tuple[Measurement, ...]:
        """The measurements of all its groups."""
        return tuple(row for each in self.groups for row in each.rows)

    @property
    def runs(self) -> tuple[int, ...]:
        """The numbers of its runs, each once."""
        return tuple(dict.fromkeys(row.run for row in self.rows))

    @property
    def worst_of_runs(self) -> tuple[Affected, ...]:
        """Of each run what lost most."""
        by_run: dict[int, list[Affected]] = {}
        for affected in self.groups:
            by_run.setdefault(affected.group.run, []).append(affected)
        return tuple(min(own, key=lambda affected: affected.ratio or math.inf) for own in by_run.values())


@dataclass(frozen=True)
class Diagnosis:
    """What a session shows beside its runs: the causes, the most probable first; `problems` that keep it from being
    green, the worst first, the causes that name a component among them; and `findings`, which are only told.
    `of_runs`: the worst verdict of a run."""

    causes: tuple[Cause, ...] = ()
    problems: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    of_runs: Verdict = Verdict.PASS

    @property
    def verdict(self) -> Verdict:
        """That of the session: the worst of its runs and problems."""
        return worst((self.of_runs, *(each.verdict for each in self.problems)))

    @property
    def nodes_of_rows(self) -> Mapping[int, frozenset[str]]:
        """By the id of a judgement, the nodes of the components that explain it."""
        named: dict[int, set[str]] = {}
        for cause in self.causes:
            for row in cause.rows:
                own = named.setdefault(id(row.judgement), set())
                own.update(*(each.nodes for each in cause.finding.components))
        return {each: frozenset(nodes) for each, nodes in named.items()}


def diagnose(runs: Sequence[RunJudgement], problems: Sequence[Finding], findings: Sequence[Finding] = ()) -> Diagnosis:
    """What explains a session of `runs` with these `problems` and, told beside, `findings`. Without runs there is no
    PASS."""
    problems = problems if runs else [*problems, NO_RUNS]
    of_runs = [each for run in runs for each in run.all_problems]
    verdict = worst([Verdict.PASS, *(run.final_verdict for run in runs)])
    if any(each.code in _IDENTITY for each in (*problems, *of_runs)):
        return Diagnosis((), _worst_first(problems), tuple(findings), verdict)
    spoilt = _spoilt(runs, problems)
    problems = [each for each in problems if not _blames_by(each, spoilt)]
    groups = _groups(runs, problems, spoilt)
    problems = [each for problem in problems for each in _located(problem, groups, runs, [*problems, *findings])]
    evidence = [*problems, *(each for each in of_runs if each.components), *findings]
    named = [*_of_speed(groups, evidence), *_of_wrong_bytes(groups, evidence)]
    causes = [_with_told(each, evidence, runs) for each in named]
    told = {id(finding) for cause in causes for finding in cause.told}
    alone = [each for each in problems if each.components and id(each) not in told]
    for members in _by_components(alone).values():
        causes.append(Cause(max(members, key=lambda member: SEVERITY[member.verdict]), told=members))
    causes.sort(key=lambda cause: (not cause.finding.components, -SEVERITY[cause.finding.verdict]))
    return Diagnosis(tuple(causes), _worst_first(_problems(problems, causes)), tuple(findings), verdict)


def _worst_first(problems: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(problems, key=lambda problem: -SEVERITY[problem.verdict]))


def _spoilt(runs: Sequence[RunJudgement], problems: Sequence[Finding]) -> frozenset[str]:
    """The files of runs that measured something else than was requested."""
    files = {run.run.path for run in runs if any(each.verdict is Verdict.INVALID for each in run.problems)}
    return frozenset(files.union(*(each.files for each in problems if each.verdict is Verdict.INVALID)))


def _blames_by(finding: Finding, spoilt: frozenset[str]) -> bool:
    """Return whether a finding calls something slow, and has no other files than these."""
    return finding.entry.symptom == SLOW and bool(finding.files) and spoilt.issuperset(finding.files)


def _groups(runs: Sequence[RunJudgement], problems: Sequence[Finding], spoilt: frozenset[str]) -> list[Group]:
    """Those of the runs that measured what was requested; with parts of the network where a problem names one."""
    network = any(not one.nodes and not one.kind.is_software for each in problems for one in each.components)
    sound = [number for number, run in enumerate(runs) if run.run.path not in spoilt]
    return [group for number in sound for group in groups_of(number, runs[number], network=network)]


def _of_speed(groups: Sequence[Group], evidence: Sequence[Finding]) -> Iterator[Cause]:
    """The causes of slow measurements."""
    sound = [
        row for group in groups for row in group.rows if row.judgement.verdict is not Verdict.INVALID and not row.wrong
    ]
    for explanation in explain(rows_of(sound), _prior(evidence, sound)):
        members = [sound[number] for number in explanation.rows]
        cause = _cause(explanation.components, members, groups, evidence)
        if cause is not None and explanation.loss >= LEAST_LOSS:
            yield cause


def _of_wrong_bytes(groups: Sequence[Group], evidence: Sequence[Finding]) -> Iterator[Cause]:
    """The causes of data that arrived wrong."""
    measured = [row for group in groups for row in group.rows]
    for named, members in _of_marked(measured, [row.wrong for row in measured], evidence):
        yield _made("wrong-bytes", named, members, groups, whole=not named)


def _of_marked(
    rows: Sequence[Measurement], marked: Sequence[bool], evidence: Sequence[Finding]
) -> Iterator[tuple[tuple[Component, ...], list[Measurement]]]:
    """What explains the marked rows, as if these were slow, and all else fast: the components, and those of the rows
    that they explain."""
    table = [
        Row(row.question, "", float(mark), LEAST_LOSS, mark, row.crosses, row.own)
        for row, mark in zip(rows, marked, strict=True)
    ]
    for explanation in explain(in_order(table, rows), _prior(evidence, rows)):
        yield named_of(explanation.components), [rows[number] for number in explanation.rows]


def _located(
    problem: Finding, groups: Sequence[Group], runs: Sequence[RunJudgement], evidence: Sequence[Finding]
) -> Iterator[Finding]:
    """A problem of some iterations with the components that explain it, once for each cause; any other as it is."""
    places = {*_places(problem, runs)} if problem.code in _OF_ITERATIONS else set()

    def is_marked(row: Measurement) -> bool:
        return (row.run, row.judgement.name) in places

    rows = [row for group in groups if any(map(is_marked, group.rows)) for row in group.rows]
    if not rows:
        yield problem
    for components, members in _of_marked(rows, list(map(is_marked, rows)), evidence):
        names = tuple(member.judgement.name for member in members)
        yield replace(problem, components=components, metrics=names)


def _places(finding: Finding, runs: Sequence[RunJudgement]) -> Iterator[tuple[int, str]]:
    """The metrics that a finding is about, by the number of their run and their name."""
    numbers = [number for number, run in enumerate(runs) if finding.metrics and run.run.path in finding.files]
    yield from ((number, name) for number in numbers for name in finding.metrics)


def _prior(evidence: Iterable[Finding], rows: Iterable[Measurement]) -> dict[Component, float]:
    """The weight of evidence that something was seen of a component; that it is slow, the rows say themselves.

    Notes, such as that MPS is on, do not count.
    """
    seen = [each for each in evidence if each.entry.symptom != SLOW and each.verdict is not Verdict.PASS]
    places = {_place(component) for each in seen for component in each.components}
    crossed = {component for row in rows for component in row.crosses} if places else set()
    return {component: SEEN for component in crossed if _place(component) in places}


def _place(component: Component) -> tuple[frozenset[tuple[str, str]], bool, str]:
    """Return the key under which findings about one part, in any direction, or about one pair are the same.

    A link between switches has no node, and software has its name alone.
    """
    ends = frozenset((end.node, end.name) for end in component.ends)
    return ends, component.kind is Kind.PATH, component.kind.value if component.kind.is_software else ""


def named_of(components: Sequence[Component]) -> tuple[Component, ...]:
    """What can be pulled first: of a GPU and its only link the GPU, and the node last. Without those that others say as
    well: the ends and directions of a pair where a part itself explains it. Where it may be either end of a pair, the
    pair comes first, and its NICs. None where it may be all."""
    if EVERYTHING in components:
        return ()
    parts = [each for each in components if each.kind is not Kind.CHECK]
    between = [each for each in parts if each.kind is Kind.PATH and not each.direction]
    ends = {(end.node, end.name) for each in between for end in each.ends}
    if len({each.node for each in parts}) > 1 and ends and ends <= {(each.node, each.name) for each in parts}:
        return tuple(sorted(parts, key=lambda one: (one.kind is not Kind.PATH, one.kind is not Kind.NIC)))
    whole = [each for each in parts if not each.direction and each.kind is not Kind.PATH and not each.condition]
    pulled = whole or [each for each in parts if each.kind is not Kind.PATH and not each.condition] or parts
    order = (Kind.NODE, Kind.LINK, Kind.DEVICE)
    return tuple(sorted(pulled, key=lambda component: [component.kind is kind for kind in order]))


def _cause(
    components: Sequence[Component],
    members: Sequence[Measurement],
    groups: Sequence[Group],
    evidence: Sequence[Finding],
) -> Cause | None:
    """Name the cause by its components, of the only pair between nodes its NICs too; None where it is the only pair of
    a node, which clears no device."""
    named = named_of(components)
    slowed = [each for each in evidence if each.code in _OF_WHOLE_NODES and {*each.components} & {*components}]
    if slowed:
        first = min(slowed, key=lambda each: _OF_WHOLE_NODES.index(each.code))
        nodes = tuple(sorted({one for each in slowed if each.code == first.code for one in each.components}))
        return _made(first.code, nodes, members, groups, whole=True)
    if named:
        return _made(code_of_slow(named), named, members, groups, whole=all(each.kind.is_software for each in named))
    if pair := [each for each in components if each.kind is Kind.PATH]:
        across = [each for each in pair if len(each.nodes) == 2]
        ports = [each for each in components if each.kind is Kind.NIC]
        return _made("slow-pair", (across[0], *ports), members, groups, whole=True) if across else None
    if node := _only_node(members, groups):
        return _made("slow-node", (Component.of_node(node),), members, groups, whole=True)
    return _made("all-slow" if is_alike(members) else "no-healthy-majority", (), members, groups, whole=True)


def _only_node(members: Sequence[Measurement], groups: Sequence[Group]) -> str:
    """The node on which all of these were measured, where others pass in the same; else empty."""
    questions = {row.question for row in members}
    nodes = set[str]().union(*(row.nodes for row in members))
    peers = (row for group in groups for row in group.fast if row.question in questions)
    return nodes.pop() if len(nodes) == 1 and any(nodes.isdisjoint(row.nodes) for row in peers) else ""


def _made(
    code: str,
    components: tuple[Component, ...],
    members: Sequence[Measurement],
    groups: Sequence[Group],
    *,
    whole: bool,
) -> Cause:
    """A cause of these measurements."""
    explained = {id(each) for each in members}
    affected = []
    for group in groups:
        rows = tuple(row for row in group.rows if id(row) in explained)
        if rows:
            affected.append(Affected(group, rows))
    judgements = [each.judgement for each in members]
    verdicts = [each.verdict for each in judgements]
    p = min((each.p for each in judgements if each.p is not None), default=None)
    names = tuple(dict.fromkeys(each.name for each in judgements))
    verdict = worst([Verdict.DEGRADED, *verdicts])
    return Cause(Finding(code, verdict, "", components, metrics=names, p=p), tuple(affected), whole=whole)


# Causes and other findings


def _with_told(cause: Cause, evidence: Sequence[Finding], runs: Sequence[RunJudgement]) -> Cause:
    """The cause with the findings of its components; the verdict is the worst."""
    told = tuple(each for each in evidence if _tells_of(each, cause.finding.components))
    verdict = worst((cause.finding.verdict, *(each.verdict for each in told)))
    files = tuple(dict.fromkeys(runs[number].run.path for number in cause.runs))
    ps = [each.p for each in (cause.finding, *told) if each.p is not None]
    text = _message(cause, cause.finding)
    finding = replace(cause.finding, verdict=verdict, files=files, p=min(ps, default=None), message=text)
    return replace(cause, finding=finding, told=told)


def _message(cause: Cause, finding: Finding) -> str:
    where = finding.place or "everything"
    first, more = cause.rows[0].judgement.name, len(cause.rows) - 1
    text = f"{where}: {first}" + (f", and {more} more that cross it" if more else "")
    if len(finding.components) > 1:
        text += "; to tell these apart, measure pairs that cross one of them and not the others"
    return text


def _tells_of(finding: Finding, components: Iterable[Component]) -> bool:
    """Return whether a finding names one of these, or a pair that ends at one."""
    own = {_place(component) for component in components}
    ends = {_place(end) for each in finding.components if each.kind is Kind.PATH for end in each.ends}
    return not own.isdisjoint([*map(_place, finding.components), *ends])


def _problems(problems: Sequence[Finding], causes: Sequence[Cause]) -> Iterator[Finding]:
    """The problems, with each cause that names a component and that no problem names yet."""
    yield from problems
    for cause in causes:
        is_said = any(each.verdict is not Verdict.PASS and each.components for each in cause.told if each in problems)
        if cause.rows and cause.finding.components and not is_said and cause.finding.code not in _OF_WHOLE_NODES:
            yield cause.finding


def _by_components(findings: Iterable[Finding]) -> Mapping[tuple[Component, ...], tuple[Finding, ...]]:
    """Findings that are about the same, in the order of the first of each."""
    together: dict[tuple[Component, ...], list[Finding]] = {}
    for finding in findings:
        together.setdefault(finding.components, []).append(finding)
    return {components: tuple(members) for components, members in together.items()}
