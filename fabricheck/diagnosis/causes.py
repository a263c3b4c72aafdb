"""What explains a session: one ranked list of causes, each with the measurements that it explains.

Pairs that are slow name the components that they share and that no fast pair crosses; a pair that shares none is named
itself, both ends and what lies between. Equal slowness between all is not the fault of a single part. What was found
in another way (by peers, by the network's pairs, by the nodes themselves) explains first: a switch that all slow pairs
cross withdraws their ends.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fabricheck.diagnosis.blame import blame_best, count_crossing, group_slow
from fabricheck.diagnosis.table import (
    Group,
    Measurement,
    all_slow,
    by_slow_nics,
    groups_of,
    is_alike,
    pair_of,
    pair_of_nodes,
    slow_software,
    slow_together,
)
from fabricheck.judge.constants import LEAST_LOSS
from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import code_of_slow
from fabricheck.records.verdict import Verdict, worst

# What slows all that is measured on a node, the surest first.
_OF_WHOLE_NODES = ("host-memory-slow", "node-busy")
# Measurements of something else than was asked for: whose speed is whose, nobody knows.
_IDENTITY = frozenset(("wrong-ranks", "other-gpus", "same-result-twice", "cannot-be-judged", "stale-result"))


@dataclass(frozen=True)
class Affected:
    """Of one question the rows that a cause explains, which may be none."""

    group: Group
    rows: tuple[Measurement, ...]

    @property
    def ratio(self) -> float | None:
        """The median of its rows over that of what passes in the group, less than 1 for slow ones; None without
        any."""
        good = [each.judgement.value for each in self.group.fast]
        if not good or not self.rows:
            return None
        ratio = statistics.median(each.judgement.value for each in self.rows) / statistics.median(good)
        return ratio if self.rows[0].judgement.better == "higher" or ratio == 0 else 1 / ratio


@dataclass(frozen=True)
class Cause:
    """One thing that explains what is wrong. `finding`: what it is. `groups`: what it explains. `told`: what was found
    of the same components in other ways. `whole`: all that was measured is slow, so that it has nothing healthy to
    compare with; `crossed`: so many collectives are slow as well.
    """

    finding: Finding
    groups: tuple[Affected, ...] = ()
    told: tuple[Finding, ...] = ()
    whole: bool = False
    crossed: int = 0

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
    green, without what a cause withdraws; and `findings`, which are only told."""

    causes: tuple[Cause, ...] = ()
    problems: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()

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
    """What explains a session of `runs` with these `problems` and, told beside, `findings`."""
    of_runs = [each for run in runs for each in run.all_problems]
    if any(each.code in _IDENTITY for each in (*problems, *of_runs)):
        return Diagnosis((), tuple(problems), tuple(findings))
    in_network = any(_is_of_network(one) for each in problems for one in each.components)
    slow = {
        number for number, run in enumerate(runs) if any(each.verdict is not Verdict.PASS for each in run.judgements)
    }
    low = slow_together(problems, runs)
    numbers = sorted(slow.union(number for number, _ in low))
    table = [group for number in numbers for group in groups_of(number, runs[number], network=in_network)]
    of_nodes = [each for each in findings if each.code in _OF_WHOLE_NODES]
    of_software = [*_of_software(table, runs, low, problems, of_nodes)]
    explained = {id(one.group) for each in of_software for one in each.groups}
    table = [group for group in table if id(group) not in explained and group.run in slow]
    problems = _without_ends(_not_of_software(problems, of_software, runs), table)
    shared = [*_of_parts(table)]
    problems = _with_causes(
        problems, shared, runs, {one for each in table for row in each.fast for one in row.components}
    )
    by_nics = by_slow_nics(table, runs)
    of_nics = [_cause(nics, [Affected(one, one.rows) for one in own]) for nics, own in by_nics.items()]
    parts = [*shared, *of_nics, *_of_pairs(table)]
    named = {one for each in (*(cause.finding for cause in parts), *problems) for one in each.components if one.name}
    parts = _without_explained(parts, problems, named)
    named_by_nics = {id(group) for own in by_nics.values() for group in own}
    left = [group for group in table if id(group) not in named_by_nics]
    whole = [*of_software, *_of_whole(left, runs, problems, of_nodes)]
    collectives = [each for each in whole if not any(one.group.pairs for one in each.groups)]
    hosts = {host for each in parts for one in each.finding.components for host in one.nodes}
    crossed = [each for each in collectives if any(runs[number].run.hosts & hosts for number in each.runs)]
    parts = [replace(each, crossed=sum(len(one.rows) for one in crossed)) if crossed else each for each in parts]
    state = [each for each in of_runs if each.components]
    merged = [_with_told(each, (*problems, *state, *findings)) for each in parts]
    told = {id(one) for each in merged for one in each.told}
    unsaid = [each for each in problems if each.components and id(each) not in told and not _is_explained(each, merged)]
    alone = [_alone(members, table) for members in _by_components(unsaid).values()]
    causes = [*alone, *merged, *(each for each in whole if each not in crossed)]
    return Diagnosis(tuple(sorted(causes, key=_rank)), tuple(problems), tuple(findings))


def _rank(cause: Cause) -> tuple[bool, int]:
    """What names a component before what names none; then the worst."""
    return not cause.finding.components, -SEVERITY[cause.finding.verdict]


def _is_of_network(component: Component) -> bool:
    """A switch, or a link between two."""
    return component.kind in (Kind.SWITCH, Kind.LINK) and not component.nodes


# What findings explain


def _without_ends(problems: Sequence[Finding], table: Sequence[Group]) -> list[Finding]:
    """The problems, less those about ends of pairs that are all slow for a switch or trunk that another names."""
    switches = [each for each in problems if each.components and all(map(_is_of_network, each.components))]
    slow = [row for group in table for row in group.slow]

    def is_explained(finding: Finding) -> bool:
        own = frozenset(finding.components)
        crossing = [row for row in slow if own & row.components]
        return any(
            bool(crossing) and all(frozenset(each.components) & row.components for row in crossing) for each in switches
        )

    at_ends = [each for each in problems if each not in switches and any(one.nodes for one in each.components)]
    withdrawn = [each for each in at_ends if code_of_slow(each.components) == each.code and is_explained(each)]
    return [each for each in problems if each not in withdrawn]


def _with_causes(
    problems: Sequence[Finding], causes: Sequence[Cause], runs: Sequence[RunJudgement], fast: Collection[Component]
) -> list[Finding]:
    """The problems, with causes in place of those about ends of pairs, or about groups of them, that they explain.

    Peers are compared group by group, and a link or a GPU that several pairs cross is seen in all of them together: a
    finding is explained where the causes explain all that it is about, and each of them more than that, or what it
    names is crossed by `fast` ones.
    """
    slow = [{(runs[row.run].run.path, row.judgement.name) for row in each.rows} for each in causes]
    left: list[Finding] = []
    explained: dict[int, list[Finding]] = {}
    for problem in problems:
        own = {(file, name) for file in problem.files for name in problem.metrics}
        by = [number for number, rows in enumerate(slow) if own & rows]
        named = [one for number in by for one in causes[number].finding.components]
        is_same = bool(problem.components) and all(
            any(_same(one, other) for other in named) for one in problem.components
        )
        is_part = all(len(own) < len(slow[number]) for number in by) or all(one in fast for one in problem.components)
        if not by or is_same or not own <= set().union(*slow) or not is_part:
            left.append(problem)
            continue
        for number in by:
            explained.setdefault(number, []).append(problem)
    for number, members in explained.items():
        finding, count = causes[number].finding, len(slow[number])
        text = f"{finding.place} is slow: {count} slow measurements cross it, and no fast one does"
        files = tuple(dict.fromkeys(file for each in members for file in each.files))
        p = min((each.p for each in members if each.p is not None), default=None)
        if not any(each.components == finding.components for each in left):
            left.append(replace(finding, message=text, files=files, p=p))
    return left


def _of_parts(table: Sequence[Group]) -> Iterator[Cause]:
    """Components that several slow pairs share and no fast one crosses, of all runs together.

    Pairs alone: collectives cross everything, and their routes are unknown.
    """
    by_run: dict[tuple[int, bool], list[Group]] = {}
    for group in table:
        if group.pairs and group.mixed and group.rows[0].judgement.better == "higher":
            by_run.setdefault((group.run, False), []).append(group)
        if group.pairs and any(row.wrong for row in group.rows):
            by_run.setdefault((group.run, True), []).append(group)
    affected: dict[tuple[Component, ...], list[Affected]] = {}
    for (_, by_bytes), members in by_run.items():
        for components, rows in _shared(members, by_bytes=by_bytes):
            if any(each.kind is Kind.PATH for each in components):
                continue  # a pair, of which both directions are slow
            before = {id(row) for each in affected.get(components, ()) for row in each.rows}
            own = {id(row) for row in rows} - before
            split = [Affected(group, tuple(row for row in group.rows if id(row) in own)) for group in members]
            affected.setdefault(components, []).extend(each for each in split if each.rows)
    for components, of_component in affected.items():
        if not _is_negligible(of_component):
            yield _cause(components, of_component)


def _shared(members: Sequence[Group], *, by_bytes: bool) -> Iterator[tuple[tuple[Component, ...], list[Measurement]]]:
    """The components that explain slow groups of one run; with `by_bytes` what caused wrong data."""
    rows = [row for group in members for row in (*group.slow, *group.fast)]
    bad = [row for row in rows if (row.wrong if by_bytes else row.slow)]
    if len(bad) < 2:
        return
    crossing = count_crossing(row.components for row in rows)
    affected = count_crossing(row.components for row in bad)
    # What a good pair crosses is not at fault.
    suspect = {each for each, count in affected.items() if count == crossing[each]}
    for group in group_slow({index: row.components & suspect for index, row in enumerate(bad)}, crossing):
        components = blame_best(group.components, crossing)
        if components and len(group.members) > 1:
            yield _fewest(components), [bad[index] for index in group.members]


def _fewest(components: Iterable[Component]) -> tuple[Component, ...]:
    """Without those that others say as well: the ends and directions of a pair where a part itself explains it."""
    parts = tuple(components)
    whole = [each for each in parts if not each.direction and each.kind is not Kind.PATH]
    # What can be pulled first: of a GPU and its only link the GPU, and the node last.
    order = (Kind.NODE, Kind.LINK, Kind.DEVICE)
    return tuple(sorted(whole, key=lambda component: [component.kind is kind for kind in order])) or parts


def _of_pairs(table: Sequence[Group]) -> Iterator[Cause]:
    """Slow pairs of groups that are not slow as a whole, by their ends, and parts that were measured alone."""
    pairs: dict[tuple[Component, ...], list[tuple[Group, Measurement]]] = {}
    for group in table:
        wrong = [row for row in group.rows if row.wrong]
        for row in group.slow if group.mixed else wrong if len(wrong) < len(group.rows) else ():
            pairs.setdefault(tuple(sorted(row.ends)), []).append((group, row))
    for ends, members in pairs.items():
        by_group: dict[int, tuple[Group, list[Measurement]]] = {}
        for group, row in members:
            by_group.setdefault(id(group), (group, []))[1].append(row)
        split = [Affected(group, tuple(rows)) for group, rows in by_group.values()]
        if not _is_negligible(split):
            yield _cause((pair_of(ends, [row for _, row in members]),), split)


def _of_software(
    table: Sequence[Group],
    runs: Sequence[RunJudgement],
    low: Collection[tuple[int, str]],
    problems: Sequence[Finding],
    of_nodes: Sequence[Finding],
) -> Iterator[Cause]:
    """The libraries by which alone everything is slow, but for nodes that are named, no part being the other choice."""
    busy = _hosts_by_code(of_nodes)
    named = [each for each in problems if all(one.kind is Kind.NODE for one in each.components)]
    open_groups = [
        group
        for group in table
        if not _is_of_named_node(group, runs, named)
        and not any(runs[group.run].run.hosts <= hosts for hosts in busy.values())
    ]
    libraries, lost = slow_software(open_groups, runs, low)
    if libraries:
        verdict = worst((Verdict.DEGRADED, *(row.judgement.verdict for _, rows in lost for row in rows)))
        affected = tuple(Affected(group, rows) for group, rows in lost)
        yield Cause(Finding("slow-library", verdict, "", libraries), affected, whole=True)


def _not_of_software(
    problems: Sequence[Finding], causes: Sequence[Cause], runs: Sequence[RunJudgement]
) -> list[Finding]:
    """The problems, less those about ends of pairs which a library explains that slows all of them."""
    rows = {(runs[row.run].run.path, row.judgement.name) for each in causes for row in each.rows}
    files = {file for file, _ in rows}

    def is_explained(finding: Finding) -> bool:
        metrics = {(file, name) for file in finding.files for name in finding.metrics}
        return bool(finding.components and finding.files) and files.issuperset(finding.files) and metrics <= rows

    return [each for each in problems if not is_explained(each)]


def _hosts_by_code(of_nodes: Sequence[Finding]) -> Mapping[str, set[str]]:
    """The nodes of which findings tell what slows all on them, by the code."""
    hosts_by_code: dict[str, set[str]] = {code: set() for code in _OF_WHOLE_NODES}
    for node in of_nodes:
        hosts_by_code[node.code].update(*(one.nodes for one in node.components))
    return hosts_by_code


def _of_whole(
    table: Sequence[Group], runs: Sequence[RunJudgement], problems: Sequence[Finding], of_nodes: Sequence[Finding]
) -> Iterator[Cause]:
    """Slowness between all that was measured: on one node alone, on nodes of each of which `of_nodes` tells what
    slows all, or everywhere."""
    hosts_by_code = _hosts_by_code(of_nodes)
    split = [Affected(group, all_slow(group)) for group in table if group.whole]
    split = [each for each in split if not _is_of_named_node(each.group, runs, problems)]
    for alike in (True, False):
        own = [each for each in split if is_alike(each.rows) is alike]
        if own:
            verdict = worst(row.judgement.verdict for each in own for row in each.rows)
            hosts = frozenset[str]().union(*(runs[each.group.run].run.hosts for each in own))
            at_fault: tuple[Component, ...] = ()
            code = "all-slow" if alike else "no-healthy-majority"
            if code_of_whole := next(
                (code for code in _OF_WHOLE_NODES if hosts and hosts <= hosts_by_code[code]), None
            ):
                at_fault, code = tuple(map(Component.of_node, sorted(hosts))), code_of_whole
            elif (pair := pair_of_nodes([row for each in own for row in each.rows])) is not None:
                at_fault, code = (pair,), "slow-pair"
            elif all(len(runs[each.group.run].run.ranks) < 3 for each in own):
                continue  # that the only pair there is is slow clears no device
            yield Cause(Finding(code, verdict, "", at_fault), tuple(own), whole=True)


def _is_of_named_node(group: Group, runs: Sequence[RunJudgement], problems: Sequence[Finding]) -> bool:
    """Whether a finding names the one node that a group was measured on."""
    hosts = runs[group.run].run.hosts
    named = {one.node for each in problems for one in each.components if one.kind is Kind.NODE}
    return len(hosts) == 1 and hosts <= named


# Causes together


def _cause(components: tuple[Component, ...], members: Sequence[Affected]) -> Cause:
    rows = [row for each in members for row in each.rows]
    verdict = worst(row.judgement.verdict for row in rows)
    wrong = all(row.wrong for row in rows)
    code = "wrong-bytes" if wrong else code_of_slow(components)
    names = tuple(dict.fromkeys(row.judgement.name for row in rows))
    return Cause(Finding(code, verdict, "", components, metrics=names), tuple(members))


def _is_negligible(members: Sequence[Affected]) -> bool:
    """Whether nothing of it is wrong, and all of it is about as fast as what passes."""
    if any(row.wrong for each in members for row in each.rows):
        return False
    shares = [share for each in members if (share := each.ratio) is not None]
    return bool(shares) and min(shares) > 1 - LEAST_LOSS


def _without_explained(causes: Sequence[Cause], problems: Sequence[Finding], named: set[Component]) -> list[Cause]:
    """Without pairs of which one end is a cause, and without what a finding about the network explains."""
    single = {
        (one.node, one.name) for one in named if one.kind not in (Kind.PATH, Kind.LINK) and not _is_of_network(one)
    }
    switches = [frozenset(each.components) for each in problems if any(map(_is_of_network, each.components))]
    rows_of_parts = {id(row) for each in causes for row in each.rows if not _is_pair(each)}
    left = []
    for cause in causes:
        if any(cause.rows and all(switch & row.components for row in cause.rows) for switch in switches):
            continue
        ends = _ends_of(cause.finding.components)
        explained = rows_of_parts.issuperset(id(row) for row in cause.rows) or (single & ends)
        if not (_is_pair(cause) and explained):
            left.append(cause)
    return left


def _is_pair(cause: Cause) -> bool:
    return all(each.kind is Kind.PATH for each in cause.finding.components)


def _same(first: Component, second: Component) -> bool:
    """Whether two findings are about one part, in whatever direction, or about one pair."""
    if Kind.PATH in (first.kind, second.kind):
        return first.kind is second.kind and _ends_of([first]) == _ends_of([second])
    return (first.node, first.name, first.far) == (second.node, second.name, second.far)


def _with_told(cause: Cause, findings: Sequence[Finding]) -> Cause:
    """The cause with what else was found of its components, and the worst verdict of all."""
    told = [
        each
        for each in findings
        if any(_same(one, other) for one in cause.finding.components for other in each.components)
    ]
    told = list(dict.fromkeys(told))
    verdict = worst((cause.finding.verdict, *(each.verdict for each in told)))
    return replace(cause, finding=replace(cause.finding, verdict=verdict), told=tuple(told))


def _alone(members: Sequence[Finding], table: Sequence[Group]) -> Cause:
    """The cause that only findings name; no milder than what was measured on its component alone."""
    finding = max(members, key=lambda member: SEVERITY[member.verdict])
    own = [row.judgement.verdict for group in table for row in group.slow if row.ends == finding.components]
    return Cause(replace(finding, verdict=worst((finding.verdict, *own))), told=tuple(members))


def _is_explained(finding: Finding, causes: Sequence[Cause]) -> bool:
    """Whether a finding is about a pair of which a cause names one end."""
    if not all(each.kind is Kind.PATH for each in finding.components):
        return False
    ends = _ends_of(finding.components)
    return any((one.node, one.name) in ends for each in causes if not _is_pair(each) for one in each.finding.components)


def _ends_of(components: Iterable[Component]) -> set[tuple[str, str]]:
    """Node and name of what they end at, whatever kind of part that is."""
    return {(end.node, end.name) for one in components for end in one.ends}


def _by_components(findings: Iterable[Finding]) -> Mapping[tuple[Component, ...], tuple[Finding, ...]]:
    """Findings that are about the same, in the order of the first of each."""
    together: dict[tuple[Component, ...], list[Finding]] = {}
    for finding in findings:
        together.setdefault(finding.components, []).append(finding)
    return {components: tuple(members) for components, members in together.items()}
