"""What the judge says of one metric, and of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict

if TYPE_CHECKING:
    from fabricheck.topology.model import Topology


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
