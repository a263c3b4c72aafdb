"""What is probably at fault, one entry for each part: what to pull, on what evidence, and what to do next.

Pairs that are slow name the part that they share and that no good pair crosses; a pair that shares none is named
itself. What is slow between all pairs alike is no part, and is said to be none; what is slow between all pairs by
different amounts is said to be that.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fabricheck.diagnosis.blame import blamed, count_crossing, groups
from fabricheck.errors import UserError
from fabricheck.expectation.components import components_of
from fabricheck.history.compare import Comparison
from fabricheck.history.text import incident_evidence, incident_name
from fabricheck.history.watch import WatchResult
from fabricheck.judge.overall import SEVERITY, problems_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Verdict, worst
from fabricheck.report.advice import advice_for
from fabricheck.report.content import (
    Group,
    facts_of,
    groups_of,
    number,
    percent,
    plural,
    share_of_expected,
    short_message,
    who,
)
from fabricheck.report.grid import short_name
from fabricheck.report.parts import Parts, ends_of, gpu_names, worst_of_parts

#: The title of what no part can be the cause of.
NO_PART = "Everything alike: a library or a setting, not a part"
#: The same where some lost much more than others.
NOT_ALIKE = "Everything, but not alike: several parts, or one that all of it crosses"

# An INVALID or INCOMPLETE metric says nothing of the speed of what its data pass.
_SLOW = (Verdict.DEGRADED, Verdict.FAIL)
_MOST_NAMED, _MOST_EVIDENCE = 3, 2
_LONGEST_TITLE = 240
# Of a group the worst and the best, as shares of what is expected, when all of it is said to be equally slow.
_ALIKE = 0.75


# The name of a test of ReFrame, and where it ran: `PingPong %transport=ccl @alps:gpu+PrgEnv-gnu`.
_CASE = re.compile(r"([A-Za-z_]\w*)(?: %.*)? @[\w.-]+:?[\w.-]*\+")


@dataclass(frozen=True)
class Suspect:
    """One thing that is at fault, or that nobody can tell more of.

    `part`: its name for those who pull it, or the message where no part is `known`. `loss`: by how much against what.
    `source`: who says so; `evidence`: single observations, a line each. `next_`: commands and steps, in order. `link`:
    an id of the page.
    """

    part: str
    verdict: Verdict
    source: str
    loss: str = ""
    evidence: tuple[str, ...] = ()
    next_: tuple[str, ...] = ()
    link: str = ""
    known: bool = True


@dataclass(frozen=True)
class _Slow:
    """Metrics of a run that are slow for one reason; `component` is its name where one is known.

    `whole`: they are all of a group, so that nothing healthy is left to compare them with.
    """

    judged: RunJudgement
    link: str
    members: tuple[Judgement, ...]
    component: str = ""
    others: tuple[str, ...] = ()
    whole: bool = False

    @property
    def alike(self) -> bool:
        """Whether a whole group lost about as much."""
        shares = [share_of_expected(each) for each in self.members]
        values = [each.value if share is None else share for each, share in zip(self.members, shares, strict=True)]
        return self.whole and min(values) >= _ALIKE * max(values)


def suspects_of(
    runs: Sequence[RunJudgement],
    problems: Sequence[Finding],
    *,
    findings: Sequence[Finding] = (),
    system: str = "",
    watched: WatchResult | None = None,
    comparison: Comparison | None = None,
) -> tuple[Suspect, ...]:
    """All suspects, those that name a part first; none where nothing is wrong. `runs` in the order of the page."""
    parts = Parts.of(runs)
    slow = [each for position, judged in enumerate(runs, start=1) for each in _slow_in(judged, f"run{position}")]
    slow, crossed = _without_crossed(slow)
    components = [*(each.component for each in slow if each.component)]
    components += [ends[0] for each in problems if each.place and len(ends := ends_of(each.place)) == 1]
    # A pair of which one end is suspected is explained.
    pairs = _by_pair([each for each in slow if not each.component and not each.whole])
    pairs = {ends: found for ends, found in pairs.items() if not {*ends} & {*components}}
    places = [each for each in problems if each.place]
    places = [each for each in places if len(ends_of(each.place)) == 1 or not {*ends_of(each.place)} & {*components}]
    of_runs = {*((each.component,) for each in slow if each.component), *pairs}
    alone = [each for each in places if ends_of(each.place) not in of_runs]
    told = {ends: [one.message for one in places if ends_of(one.place) == ends] for ends in of_runs}
    said = [*(each.message for each in findings), *(each.message for each in problems)]
    said += [each.message for judged in runs for each in judged.problems]
    return (
        *_of_places(alone, parts, worst_of_parts(runs), system),
        *_of_parts([each for each in slow if each.component], parts, said, told, system=system, crossed=crossed),
        *_of_pairs(pairs, parts, told, system),
        *_of_problems(runs, problems, system),
        *_of_all(NO_PART, [each for each in slow if each.alike], system),
        *_of_all(NOT_ALIKE, [each for each in slow if each.whole and not each.alike], system),
        *_of_history(watched),
        *(_of_comparison(comparison) if comparison is not None else ()),
    )


def _of_places(
    problems: Sequence[Finding], parts: Parts, worst_of: Mapping[str, Verdict], system: str
) -> Iterator[Suspect]:
    """Parts that only a problem of the session names: of the network, or slower than their equals."""
    for each in problems:
        first = ends_of(each.place)[0]
        # Of a node that no run has nothing is known but that it is to be taken out.
        alone = "" if ":" in first else "take it out (ci/drain.py prints the command), then its console"
        steps = (parts.look(first) or alone, _again([each.message], system))
        loss = each.message.removeprefix(each.place).lstrip(": ")
        verdict = worst((each.verdict, worst_of.get(first, each.verdict)))
        yield Suspect(parts.place(each.place), verdict, "session", loss, (), tuple(filter(None, steps)))


def _without_crossed(slow: Sequence[_Slow]) -> tuple[list[_Slow], int]:
    """What is slow without the collectives and patterns of hosts on which a part is suspected, and how many those are:
    every GPU takes part in them."""
    hosts = {each.component.partition(":")[0] for each in slow if each.component}

    def is_crossed(each: _Slow) -> bool:
        pairs = all(group.is_pairs for group, _ in _by_group(each))
        return each.whole and not pairs and not hosts.isdisjoint(rank.host for rank in each.judged.run.ranks)

    rest = [each for each in slow if not is_crossed(each)]
    return rest, sum(len(each.members) for each in slow if is_crossed(each))


def _of_parts(
    slow: Sequence[_Slow],
    parts: Parts,
    said: Sequence[str],
    told: Mapping[tuple[str, ...], Sequence[str]],
    *,
    system: str,
    crossed: int,
) -> Iterator[Suspect]:
    by_part: dict[str, list[_Slow]] = {}
    for each in slow:
        by_part.setdefault(each.component, []).append(each)
    for component, found in by_part.items():
        others = dict.fromkeys(other for each in found for other in each.others)
        title = parts.title(component) + "".join(f", or {parts.beside(component, other)}" for other in others)
        state = [one for one in dict.fromkeys(said) if one.startswith(parts.labels(component) or ("\0",))]
        first = found[0]
        more = f"; slow, too: {plural(crossed, 'collective')} over all GPUs"
        yield Suspect(
            title,
            worst(one.verdict for each in found for one in each.members),
            _sources(found),
            _loss(found) + (more if crossed else ""),
            _cut([*state, *told[(component,)], *map(_evidence, found)]),
            _steps(found, parts.look(component), system),
            first.link,
        )


def _by_pair(slow: Sequence[_Slow]) -> dict[tuple[str, ...], dict[str, _Slow]]:
    """Slow pairs by their ends, both directions of one together, and in each by its run."""
    by_pair: dict[tuple[str, ...], dict[str, _Slow]] = {}
    for each in slow:
        for one in each.members:
            runs = by_pair.setdefault(_ends(one, each.judged), {})
            before = runs[each.link].members if each.link in runs else ()
            runs[each.link] = replace(each, members=(*before, one))
    return by_pair


def _of_pairs(
    by_pair: Mapping[tuple[str, ...], Mapping[str, _Slow]],
    parts: Parts,
    told: Mapping[tuple[str, ...], Sequence[str]],
    system: str,
) -> Iterator[Suspect]:
    """Slow pairs that share no part of their own."""
    for ends, in_runs in by_pair.items():
        found = list(in_runs.values())
        yield Suspect(
            _pair_title(found, parts, ends),
            worst(one.verdict for each in found for one in each.members),
            _sources(found),
            _loss(found),
            _cut([*told[ends], *map(_evidence, found)]),
            _steps(found, parts.look(ends[0]), system),
            found[0].link,
        )


def _steps(found: Sequence[_Slow], look: str, system: str) -> tuple[str, ...]:
    """What to do about a part: where it corrupts data, before anything else to take it out."""
    wrong = any(one.samples.wrong_bytes > 0 for each in found for one in each.members)
    steps = (advice_for("wrong bytes") if wrong else "", look, _again([each.judged.test for each in found], system))
    return tuple(filter(None, steps))


def _ends(judged: Judgement, run: RunJudgement) -> tuple[str, ...]:
    """The two ends of a pair as components, in any order the same; of anything else the operation and its ranks."""
    names, ranks = gpu_names(run), judged.samples.ranks
    if len(ranks) != 2 or not names.keys() >= {*ranks}:
        return (f"{judged.samples.operation}, {who(judged.samples, len(run.run.ranks))}",)
    return tuple(sorted(names[each] for each in ranks))


def _pair_title(found: Sequence[_Slow], parts: Parts, ends: tuple[str, ...]) -> str:
    if len(ends) == 1:
        return ends[0]
    ways = {one.samples.ranks for each in found for one in each.members}
    both = any(way[::-1] in ways for way in ways)
    both = both or any(one.samples.operation == "bidirectional" for each in found for one in each.members)
    if both:
        return parts.pair(ends[0], ends[1], "↔")
    names = gpu_names(found[0].judged)
    a, b = found[0].members[0].samples.ranks
    return parts.pair(names[a], names[b], "→")


def _of_all(title: str, slow: Sequence[_Slow], system: str) -> Iterator[Suspect]:
    if not slow:
        return
    again = _again([each.judged.test for each in slow], system)
    yield Suspect(
        title,
        worst(one.verdict for each in slow for one in each.members),
        _sources(slow),
        _loss(slow),
        _cut(list(map(_evidence, slow))),
        tuple(filter(None, ("what changed: module list, driver, the site's tuning; fabricheck compare", again))),
        slow[0].link,
    )


def _of_problems(runs: Sequence[RunJudgement], problems: Sequence[Finding], system: str) -> Iterator[Suspect]:
    """What was not measured, or not what was asked for: the first problem of each run, which is the cause."""
    found: dict[tuple[Verdict, str], list[tuple[str, str]]] = {}
    for each in problems:
        if not each.place:
            found.setdefault((each.verdict, each.message), []).append(("session", ""))
    for position, judged in enumerate(runs, start=1):
        for each in problems_of(judged)[:1]:
            key = (each.verdict, short_message(each, judged))
            found.setdefault(key, []).append((facts_of(judged).name, f"run{position}"))
    for (verdict, message), where in sorted(found.items(), key=lambda item: -SEVERITY[item[0][0]]):
        names = [name for name, link in where if link]
        title = message if len(message) <= _LONGEST_TITLE else f"{message[:_LONGEST_TITLE]}…"
        steps = [advice_for(message), _again(names, system)]
        named = "; ".join(names[:_MOST_NAMED]) + (
            f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else ""
        )
        loss = f"in {named}" if named else ""
        yield Suspect(title, verdict, "session", loss, (), tuple(filter(None, steps)), where[0][1], known=False)


def _of_history(watched: WatchResult | None) -> Iterator[Suspect]:
    for place, incident in enumerate(watched.open_incidents if watched else (), start=1):
        step = "fabricheck watch SYSTEM; the session before it with fabricheck compare"
        evidence = incident_evidence(incident)
        yield Suspect(incident_name(incident), Verdict.DEGRADED, "history", evidence, (), (step,), f"incident{place}")


def _of_comparison(found: Comparison) -> Iterator[Suspect]:
    for each in found.findings:
        evidence = f"{each.message}; since {found.base.selection}"
        yield Suspect(each.place, Verdict.DEGRADED, "comparison", evidence, (), (), "comparison")


def _slow_in(judged: RunJudgement, link: str) -> Iterator[_Slow]:
    """What is slow in a run, by cause: parts that slow pairs share and no good pair crosses, pairs, or all alike."""
    found = groups_of(judged)
    mixed = [each for each in found if each.is_pairs and _differ(each)]
    whole = [each for each in found if not _differ(each) and each.judgements[0].verdict in _SLOW]
    goodput = [each for each in mixed if each.quantity == "goodput"]
    named = list(_sharing(judged, link, goodput))
    yield from named
    blamed_ = {id(one) for each in named for one in each.members}
    explained = {frozenset(one.samples.ranks) for each in named for one in each.members}
    rest = [
        one
        for each in mixed
        for one in each.judgements
        if one.verdict in _SLOW and id(one) not in blamed_ and frozenset(one.samples.ranks) not in explained
    ]
    if rest:
        yield _Slow(judged, link, tuple(rest))
    for each in whole:
        # What is slow between all alike says nothing of where single bytes go wrong.
        wrong = tuple(one for one in each.judgements if one.samples.wrong_bytes > 0)
        others = tuple(one for one in each.judgements if one.samples.wrong_bytes <= 0)  # -1: not verified
        if wrong and others:
            yield _Slow(judged, link, wrong)
        yield _Slow(judged, link, others or wrong, whole=True)


def _sharing(judged: RunJudgement, link: str, mixed: Iterable[Group]) -> Iterator[_Slow]:
    """Components that several slow pairs of a run share and no good one crosses.

    Pairs alone: collectives cross everything, and which way they go nobody knows.
    """
    pairs = [one for each in mixed for one in each.judgements if one.verdict in (*_SLOW, Verdict.PASS)]
    slow = [each for each in pairs if each.verdict in _SLOW]
    if len(slow) < 2:
        return
    try:
        paths = {id(each): frozenset(components_of(judged.run, each.samples, judged.topology)) for each in pairs}
    except UserError:  # a device that the topology does not know; the judge says so
        return
    crossing = count_crossing(paths.values())
    affected = count_crossing(paths[id(each)] for each in slow)
    # What a good pair crosses is not at fault.
    suspect = {name for name, count in affected.items() if count == crossing[name]}
    for group in groups({index: paths[id(each)] & suspect for index, each in enumerate(slow)}, crossing):
        component, *others = [each.key for each in blamed(group.components, crossing)] or [""]
        if component and len(group.members) > 1:
            yield _Slow(judged, link, tuple(slow[index] for index in group.members), component, tuple(others))


def _differ(group: Group) -> bool:
    verdicts = {each.verdict for each in group.judgements}
    return Verdict.PASS in verdicts and not verdicts.isdisjoint(_SLOW)


def _loss(found: Sequence[_Slow]) -> str:
    """By how much all that one suspect explains is slow, such as `6 measurements in 2 runs at 63 % of their equals`."""
    members = [one for each in found for one in each.members]
    what = plural(len(members), "measurement")
    where = f" in {plural(len({each.link for each in found}), 'run')}"
    wrong = sum(one.samples.wrong_bytes > 0 for one in members)
    if wrong == len(members):
        return f"{what}{where} brought wrong bytes"
    more = f"; {wrong} of them brought wrong bytes" if wrong else ""
    whole = all(each.whole for each in found)
    ratios = [_ratio(*item) for each in found for item in _by_group(each)] if not whole else []
    shares = [each for each in ratios if each is not None]
    against = "their equals"
    if whole:
        shares = [share for one in members if (share := share_of_expected(one)) is not None and one.better == "higher"]
        against = "what is expected"
        equally = "equally " if all(each.alike for each in found) else ""
        what = f"all {what} {equally}slow" if len(members) > 1 else f"{what} slow"
    if not shares:
        return f"{what}{where}{more}" if whole else f"{what}{where} slow{more}"
    low, high = percent(min(shares)), percent(max(shares))
    return f"{what}{where} at {low if low == high else f'{low} to {high}'} of {against}{more}"


def _by_group(found: _Slow) -> list[tuple[Group, list[Judgement]]]:
    own = {id(each) for each in found.members}
    by_group = ((group, [each for each in group.judgements if id(each) in own]) for group in groups_of(found.judged))
    return [(group, members) for group, members in by_group if members]


def _evidence(found: _Slow) -> str:
    """By how much against what, of the group that lost most."""
    name, world = short_name(found.judged), len(found.judged.run.ranks)
    group, members = min(_by_group(found), key=lambda item: _ratio(*item) or math.inf)
    count = len(members)
    kind = "pair" if group.is_pairs else "measurement"
    if wrong := [each for each in members if each.samples.wrong_bytes > 0]:
        return f"{name}, {group.name}: {plural(len(wrong), kind)} brought wrong bytes ({_named(wrong, world)})"
    value = f"{number(statistics.median(each.value for each in members))} {group.unit}"
    good = [each for each in group.judgements if each.verdict is Verdict.PASS]
    against = ""
    if found.alike:
        shares = [share for each in members if (share := share_of_expected(each)) is not None]
        against = f", {percent(statistics.median(shares))} of expected" if shares else ""
        all_ = "" if count == 1 else f"all {count} {kind}s equally slow, "
        return f"{name}, {group.name}: {all_}{value}{against}"
    if found.whole:
        ends = sorted(members, key=lambda each: each.value, reverse=group.quantity != "goodput")
        worst_, best = (
            f"{number(each.value)} {group.unit} ({who(each.samples, world)})" for each in (ends[0], ends[-1])
        )
        return f"{name}, {group.name}: all {count} {kind}s slow, from {worst_} to {best}"
    if (ratio := _ratio(group, members)) is not None:
        usual = number(statistics.median(each.value for each in good))
        equals = "its one equal" if len(good) == 1 else f"the {len(good)} others'"
        against = f", {percent(ratio)} of {equals} {usual} {group.unit}"
    how_many = f"all {count} {kind}s over it" if found.component and count > 1 else plural(count, kind)
    return f"{name}, {group.name}: {how_many} at {value}{against} ({_named(members, world)})"


def _ratio(group: Group, members: Sequence[Judgement]) -> float | None:
    """The median of the members over that of what passes in their group, less than 1 for what is slow."""
    good = [each.value for each in group.judgements if each.verdict is Verdict.PASS]
    if not good or not members:
        return None
    ratio = statistics.median(each.value for each in members) / statistics.median(good)
    return ratio if group.quantity == "goodput" or ratio == 0 else 1 / ratio


def _named(members: Sequence[Judgement], world: int) -> str:
    named = [who(each.samples, world) for each in members[:_MOST_NAMED]]
    more = f" and {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else ""
    return f"{', '.join(named)}{more}"


def _sources(found: Sequence[_Slow]) -> str:
    names = list(dict.fromkeys(facts_of(each.judged).name for each in found))
    return names[0] if len(names) == 1 else f"{len(names)} runs"


def _cut(evidence: Sequence[str]) -> tuple[str, ...]:
    more = len(evidence) - _MOST_EVIDENCE
    return (*evidence[:_MOST_EVIDENCE], f"and {more} more of this kind") if more > 0 else tuple(evidence)


def _again(tests: Sequence[str], system: str) -> str:
    """The command that measures the same tests again; empty where nobody knows which they are."""
    names = list(dict.fromkeys(found[1] for each in tests if (found := _CASE.match(each))))[:_MOST_NAMED]
    if not names or not system:
        return ""
    return f"fabricheck run --system {system} {' '.join(f'--name {name}' for name in names)}"
