"""Where a fault most probably is: what the network's pairs, the history, a comparison and the runs say, in short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.errors import UserError
from fabricheck.history.compare import Comparison
from fabricheck.history.shared import blamed, count_crossing, groups, say
from fabricheck.history.text import incident_evidence, incident_name
from fabricheck.history.watch import WatchResult
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.localization.components import components_of
from fabricheck.records.judgement import Judgement
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.report.content import Group, facts_of, groups_of, number, percent, plural, share_of_expected, who

# An INVALID or INCOMPLETE metric says nothing of the speed of what its data pass.
_SLOW = (Verdict.DEGRADED, Verdict.FAIL)
_MOST_NAMED = 3


@dataclass(frozen=True)
class Place:
    """A part of the system, by whom it is suspected (`source`), and on what evidence; `link` is an id of the page."""

    where: str
    source: str
    evidence: str
    link: str = ""


def places_of(
    runs: Sequence[RunJudgement],
    problems: Sequence[Problem],
    *,
    watched: WatchResult | None,
    comparison: Comparison | None,
) -> tuple[Place, ...]:
    """All suspected places, those that say most first; none where nothing is wrong. `runs` in the order of the page."""
    return (
        *(Place(each.place, "session", each.message.removeprefix(f"{each.place} ")) for each in problems if each.place),
        *(
            Place(incident_name(incident), "history", incident_evidence(incident), f"incident{place}")
            for place, incident in enumerate(watched.open_incidents if watched else (), start=1)
        ),
        *(_of_comparison(comparison) if comparison is not None else ()),
        *(place for position, judged in enumerate(runs, start=1) for place in _of_run(judged, f"run{position}")),
    )


def _of_comparison(found: Comparison) -> Iterator[Place]:
    for each in found.suspects:
        evidence = f"{each.affected} of {each.measured} metrics that cross it regressed since {found.base.selection}"
        yield Place(say(each.component, each.others), "comparison", evidence, "comparison")


def _of_run(judged: RunJudgement, link: str) -> Iterator[Place]:
    """Components that several slow pairs of a run share and no other pair of it crosses.

    Pairs alone: collectives cross everything, and which way they go nobody knows. What is slow between all pairs says
    nothing of a place.
    """
    pairs = [
        each
        for group in groups_of(judged)
        if group.is_pairs and group.quantity == "goodput" and _differ(group)
        for each in group.judgements
        if each.verdict in (*_SLOW, Verdict.PASS)
    ]
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
    found = groups({index: paths[id(each)] & suspect for index, each in enumerate(slow)}, crossing)
    for group in found:
        component, others = blamed(group.components, crossing)
        if component is not None and len(group.members) > 1:
            members = [slow[index] for index in group.members]
            yield Place(say(component, others), facts_of(judged).name, _evidence(members, judged), link)


def _differ(group: Group) -> bool:
    verdicts = {each.verdict for each in group.judgements}
    return Verdict.PASS in verdicts and not verdicts.isdisjoint(_SLOW)


def _evidence(slow: Sequence[Judgement], judged: RunJudgement) -> str:
    world = len(judged.run.ranks)
    named = [f"{who(each.samples, world)} {_value(each)}" for each in slow[:_MOST_NAMED]]
    more = f" and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else ""
    return f"all {plural(len(slow), 'pair')} over it are slow and no other: {', '.join(named)}{more}"


def _value(judged: Judgement) -> str:
    share = share_of_expected(judged)
    return f"{number(judged.value)} {judged.unit}" if share is None else f"{percent(share)} of expected"
