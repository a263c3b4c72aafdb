"""The verdict of a run with all its parts, and of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.rehearsal import any_rehearsal
from fabricheck.records.verdict import Verdict, worst

#: How bad a verdict is, from 0 for PASS: for sorting.
SEVERITY: Mapping[Verdict, int] = {verdict: number for number, verdict in enumerate(Verdict)}

NO_RUNS = Finding("nothing-measured", Verdict.INCOMPLETE, "there is no run, so nothing was measured")


def overall(runs: Sequence[RunJudgement], problems: Sequence[Finding] = ()) -> tuple[Verdict, tuple[Finding, ...]]:
    """The verdict on all runs together, and the problems that belong to none of them, worst first.

    No runs are no pass.
    """
    found = tuple(problems) if runs else (*problems, NO_RUNS)
    verdicts = [*(each.final_verdict for each in runs), *(each.verdict for each in found)]
    return worst(verdicts), tuple(sorted(found, key=lambda each: -SEVERITY[each.verdict]))


def rehearsed(runs: Iterable[RunJudgement]) -> bool:
    """Whether any of the runs was on emulated GPUs, so that together they are no measurement."""
    return any_rehearsal(each.run for each in runs)


def worst_first(runs: Sequence[RunJudgement]) -> tuple[RunJudgement, ...]:
    """The runs by their verdicts, in their own order where these are the same."""
    return tuple(sorted(runs, key=lambda each: -SEVERITY[each.final_verdict]))


def count(verdicts: Iterable[Verdict]) -> tuple[tuple[Verdict, int], ...]:
    """How many there are of each verdict, worst first, without those that nothing has."""
    found = Counter(verdicts)
    return tuple((each, found[each]) for each in reversed(Verdict) if found[each])


@dataclass(frozen=True)
class Coverage:
    """How much of a system its runs were on: `checked` of `nodes` nodes (0: not known), and whether its `network` was.

    Runs that are INVALID or INCOMPLETE count for nothing.
    """

    checked: int
    nodes: int
    network: bool

    @property
    def message(self) -> str:
        """Such as `2 of 3,456 nodes were checked, and the network between them`."""
        if self.nodes == 1:
            return f"{self.checked} of 1 node was checked"
        of = f"{self.nodes:,}" if self.nodes else "an unknown number of"
        text = f"{self.checked:,} of {of} nodes {'was' if self.checked == 1 else 'were'} checked"
        return f"{text}, and the network between them" if self.network else f"{text}; the network was not"


def coverage(runs: Iterable[RunJudgement]) -> Coverage:
    """Of all runs together."""
    runs = tuple(runs)
    nodes = max((each.nodes or (each.topology.nodes if each.topology else 0) for each in runs), default=0)
    lost = (Verdict.INVALID, Verdict.INCOMPLETE)
    measured = (each for each in runs if each.trusted and each.final_verdict not in lost)
    hosts = [{rank.host for rank in each.run.ranks} for each in measured]
    return Coverage(len(set().union(*hosts)), nodes, any(len(each) > 1 for each in hosts))
