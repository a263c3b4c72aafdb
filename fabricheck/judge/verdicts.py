"""What the judge says of one metric, and of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict, worst

if TYPE_CHECKING:
    from fabricheck.topology.model import Topology


#: What is wrong with a run that has no metric and says nothing else.
NOTHING_JUDGED = Finding("nothing-measured", Verdict.INVALID, "the run has no metric to judge")


@dataclass(frozen=True)
class RunJudgement:
    """The verdict on a run: the worst of its problems and judgements.

    `test`: the test case that it is the result of, such as `PingPong %transport=mpi @daint:gpu+gnu`; empty where that
    is not known. `topology`: that by which it was judged. `nodes`: how many the partition has; 0
    where that is not known. `trusted`: the check that ran it let it count.
    """

    run: Run
    verdict: Verdict
    problems: tuple[Finding, ...]
    judgements: tuple[Judgement, ...]
    test: str = ""
    topology: Topology | None = None
    nodes: int = 0
    trusted: bool = True

    @property
    def all_problems(self) -> tuple[Finding, ...]:
        """Its problems, the cause before what follows from it; having nothing to judge is one."""
        return self.problems if self.judgements or self.problems else (NOTHING_JUDGED,)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that keeps it from being green: its problems, and its metrics that are not PASS."""
        metrics = (each.finding for each in self.judgements if each.verdict is not Verdict.PASS)
        return (*self.all_problems, *metrics)

    def outvoted(self) -> RunJudgement:
        """The run, of which nothing slow counts."""
        problems = tuple(each for each in self.problems if each.verdict is not Verdict.DEGRADED)
        run = replace(self, problems=problems)
        return run.excused(lambda each: each.verdict is Verdict.DEGRADED, "most launches are not slow")

    @property
    def slow_once(self) -> tuple[str, ...]:
        """The metrics that are slow, and not so slow that one launch shows it."""
        return tuple(each.name for each in self.judgements if each.is_shown_by_one_launch is False)

    def of_one_launch(self, names: Collection[str]) -> RunJudgement:
        """The run, in which the metrics of these names are not slow: they take a second launch to show."""
        return self.excused(lambda each: each.name in names, "in one launch alone, which does not count")

    def excused(self, is_excused: Callable[[Judgement], bool], reason: str) -> RunJudgement:
        """The run, in which these judgements are PASS for a `reason`."""
        passed = (replace(each, verdict=Verdict.PASS, reason=f"{each.reason}; {reason}") for each in self.judgements)
        pairs = zip(self.judgements, passed, strict=True)
        return self.with_judgements([new if is_excused(old) else old for old, new in pairs])

    @property
    def final_verdict(self) -> Verdict:
        """Its verdict, and never a better one than that of any of its parts."""
        verdicts = [self.verdict, *(each.verdict for each in self.all_problems)]
        return worst([*verdicts, *(each.verdict for each in self.judgements)])

    def with_judgements(self, judgements: Sequence[Judgement]) -> RunJudgement:
        """With these in place of its own, and the verdict that they and its problems come to."""
        own = tuple(judgements)
        verdicts = [*(each.verdict for each in self.problems), *(each.verdict for each in own)]
        return replace(self, judgements=own, verdict=worst(verdicts))

    def with_problems(self, problems: Sequence[Finding], *, first: bool = False) -> RunJudgement:
        """With these problems too, after its own or `first`, and no better a verdict than theirs."""
        verdict = worst([self.verdict, *(problem.verdict for problem in problems)])
        every = (*problems, *self.problems) if first else (*self.problems, *problems)
        return replace(self, verdict=verdict, problems=every)
