"""Who kept a job from starting: the guilty node or none, never a healthy one."""

from __future__ import annotations

import numpy as np
import pytest

from fabricheck.records.component import Component, Kind
from fabricheck.results.start_failures import start_failures
from tests.support.effort import effort
from tests.support.start_texts import KINDS, Maker, random_failure


@pytest.mark.parametrize("maker", KINDS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("seed", range(effort(15)))
def test_the_guilty_node_is_named_or_none(maker: Maker, seed: int) -> None:
    failure = random_failure(np.random.default_rng(seed), maker)
    found = start_failures(failure.text, failure.nodes, ranks=failure.ranks, nics=failure.addresses)
    named = [part for each in found for part in each.components]
    if failure.known == "node":
        assert named == [Component.of_node(failure.guilty)]
    elif failure.known == "pair":
        (part,) = named
        assert part.kind is Kind.PATH and failure.guilty in part.nodes
        assert sum(end.kind is not Kind.NODE for end in part.ends) <= 1  # only the far port has an address
    else:
        assert named == []


def test_what_most_nodes_are_accused_of_is_no_fault_of_theirs() -> None:
    text = "\n".join(f"ssh: connect to host n{number} port 22: Connection refused" for number in range(3))
    (found,) = start_failures(text, ["n0", "n1", "n2", "n3"])
    assert (found.code, found.components) == ("start-failed", ())


def test_a_connection_that_is_lost_when_a_rank_was_killed_is_its_consequence() -> None:
    text = (
        "srun: error: n1: task 1: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=20.0\n"
        "WARNING: Open MPI failed to TCP connect to a peer MPI process.\n\n  Local host: n0\n  PID: 3\n"
        "  Message:    connect() to 10.78.1.3:1026 failed\n"
    )
    (found,) = start_failures(text, ["n0", "n1", "n2"])
    assert (found.code, found.components) == ("rank-crashed", (Component.of_node("n1"),))


def test_text_of_a_healthy_start_says_nothing() -> None:
    assert start_failures("srun: job 12 queued and waiting for resources\nn0:1:1 [0] NCCL INFO done\n", ["n0"]) == ()
