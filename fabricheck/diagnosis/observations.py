"""The eight observations of De Sensi et al., SC24, as hypotheses about this system, tested on what was measured.

Each hypothesis is about ratios and a bound: the confidence interval of a ratio has to lie entirely on one side of it.
Where it does not, noise could have made either answer, and the observation cannot be tested with these data.
docs/observations.md has the rules, fabricheck.diagnosis.hypotheses the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fabricheck.diagnosis import hypotheses
from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.hypotheses import Found, SessionData
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

Answer = Literal["holds", "does not hold", "cannot be tested here"]

# Sessions in which a test has it report the observations.
TAG = "observations"


@dataclass(frozen=True)
class Observation:
    """An observation of the paper as it is on this system.

    `statement` is the paper's, `hypothesis` what was tested here, `evidence` the numbers, or why it cannot be tested.
    `where`: the environment or transport that this answer is about; empty where there is one answer.
    """

    number: int
    statement: str
    hypothesis: str
    verdict: Answer
    evidence: str
    source: str
    where: str = ""

    @property
    def message(self) -> str:
        """One line for the administrator."""
        where = f" ({self.where})" if self.where else ""
        return f"observation {self.number}{where} {self.verdict}: {self.hypothesis}: {self.evidence}"


def observe(runs: Iterable[CaseRun], judge: SystemJudge) -> tuple[Observation, ...]:
    """All eight, in order; several answers to one where MPI libraries or transports have each their own.

    Raises UserError for hosts and devices that the system's topology does not have.
    """
    evidence = SessionData.of(runs, judge)
    observations: list[Observation] = []
    for test in _TESTS:
        answers = list(test.answers(evidence)) or [Found(None, f"not measured: {test.missing}")]
        observations += [_observation(test, each) for each in answers]
    return tuple(observations)


def find_observations(runs: Iterable[CaseRun], judge: SystemJudge) -> Iterator[Finding]:
    """What a session says of the observations, and one line for the others; nothing where no observation could be
    tested.

    They fail nothing.
    """
    runs = tuple(runs)
    if not any(TAG in each.tags for each in runs):
        return
    tested, untested = [], []
    for observation in observe(runs, judge):
        if observation.verdict == "cannot be tested here":
            untested.append(
                f"{observation.number} ({observation.where})" if observation.where else str(observation.number)
            )
        else:
            tested.append(Finding("observation", Verdict.PASS, observation.message))
    yield from tested
    if tested and untested:
        why = "`fabricheck observations` prints the reason"
        yield Finding(
            "observation", Verdict.PASS, f"observations that cannot be tested here: {', '.join(untested)}; {why}"
        )


@dataclass(frozen=True)
class _Test:
    """`missing`: what has to be measured, where there are no answers."""

    number: int
    statement: str
    hypothesis: str
    source: str
    missing: str
    answers: Callable[[SessionData], Iterator[Found]]


def _observation(test: _Test, answer: Found) -> Observation:
    verdict: Answer = "holds" if answer.truth else "does not hold" if answer.truth is False else "cannot be tested here"
    where = answer.where
    return Observation(test.number, test.statement, test.hypothesis, verdict, answer.numbers, test.source, where)


_TESTS = (
    _Test(
        1,
        "Achieving good performance on multi-GPU systems requires non-trivial tuning, which depends on the system, "
        "message size, communication library, and number of nodes. The default choices made by *CCL and GPU-Aware MPI "
        "are not always optimal, and manual tuning can improve performance up to an order of magnitude.",
        "with tuning variables set something is faster than without them",
        "De Sensi et al., SC24, section III-B",
        "the same with tuning variables and without them",
        hypotheses.tuning_helps,
    ),
    _Test(
        2,
        "GPU-Aware MPI provides the highest goodput for intra-node point-to-point transfers on all the analyzed "
        "systems. For small transfers, the optimal solution changes across the systems, depending on architectural "
        "features and specific optimization implemented by MPI.",
        "inside a node no other transport gives a large ping-pong between any two GPUs more goodput than GPU-aware MPI",
        "De Sensi et al., SC24, section III-C",
        "ping-pong between GPUs of one node by MPI, and by *CCL or peer copies (PingPong)",
        hypotheses.mpi_is_highest,
    ),
    _Test(
        3,
        "On LUMI, RCCL point-to-point communication primitives do not correctly determine the bandwidth available "
        "between GPUs on the same node, thus underutilizing the available bandwidth.",
        "between some GPUs of a node *CCL gives a large ping-pong less than half of what MPI or a peer copy gives it",
        "De Sensi et al., SC24, section III-D",
        "ping-pong between GPUs of one node by *CCL, and by MPI or peer copies (PingPong)",
        hypotheses.ccl_underuses_links,
    ),
    _Test(
        4,
        "For single node collectives, *CCL outperforms GPU-Aware MPI in most cases, except for small collectives on "
        "LUMI. Indeed, unlike MPI, *CCL collectives are optimized for the specific GPU models. Nevertheless, there is "
        "still room for collective algorithms optimization.",
        "over the GPUs of a node *CCL's collectives are faster than the MPI library's own in most operations and sizes",
        "De Sensi et al., SC24, section IV",
        "a collective over the GPUs of one node by *CCL and by the MPI library's own (Collectives)",
        hypotheses.ccl_wins_in_node,
    ),
    _Test(
        5,
        "On inter-node point-to-point communications, MPI outperforms *CCL by up to one order of magnitude on small "
        "transfers, and by up to 3x on larger transfers.",
        "between nodes MPI is faster than *CCL for most pairs of GPUs, with small transfers and with large ones",
        "De Sensi et al., SC24, section V-A",
        "small and large transfers between GPUs of different nodes by MPI and by *CCL (NodePairs)",
        hypotheses.mpi_wins_between_nodes,
    ),
    _Test(
        6,
        "On Alps and LUMI, GPU's network location has a marginal impact on average performance (below 30% for latency "
        "and 1% for goodput). On the other hand, on Leonardo, the average latency increases by up to 2x when the GPUs "
        "are in different groups rather than under the same switch. Similarly, the average goodput decreases by 17%. "
        "This is mainly due to network performance variability caused by network noise.",
        "from the nearest to the farthest pairs of nodes latency rises by up to 30% and goodput falls by less than 1%",
        "De Sensi et al., SC24, section V-B",
        "transfers between nodes at different distances, in a network that topology.yaml describes (NodePairs)",
        hypotheses.location_is_marginal,
    ),
    _Test(
        7,
        "*CCL exploits the intra-node GPU-GPU interconnect more effectively than MPI, being specifically optimized for "
        "the target devices. Those advantages are more evident at smaller node counts and for larger transfers, for "
        "which the performance of intra-node communications has a higher weight on the overall performance. However, "
        "we experienced instability at large node counts for the alltoall on both NCCL and RCCL.",
        "*CCL's alltoall and allreduce are faster than MPI's, the more so the fewer the nodes and the larger the size",
        "De Sensi et al., SC24, sections V-C to V-E",
        "alltoall or allreduce by *CCL and by the MPI library's own over two numbers of nodes (NetworkCollectives)",
        hypotheses.ccl_leads_at_few_nodes,
    ),
    _Test(
        8,
        "Network noise decreases the goodput of allreduce and alltoall up to 50%.",
        "competing traffic in the network reduces the goodput of an alltoall or allreduce between nodes",
        "De Sensi et al., SC24, section VI",
        "an alltoall between nodes beside an aggressor (NetworkVictims), or collectives over the same nodes by two "
        "service levels (NCCL_IB_SL, UCX_IB_SL)",
        hypotheses.noise_slows_collectives,
    ),
)
