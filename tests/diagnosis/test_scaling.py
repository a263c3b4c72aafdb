"""Collectives over growing numbers of nodes, against the model and against the fewest nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.of_session import find_scalings, scalings
from fabricheck.judge.policy import Policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import Finding
from tests.support.made_runs import GIB, MIB, made_case, made_run, made_samples
from tests.support.nodes import system

EMULATED = SystemJudge(system("emulated"), None, Policy())


def case(nodes: int, gbps: float, *, operation: str = "alltoall", sizes: Sequence[int] = (2 * MIB,)) -> CaseRun:
    hosts = [f"nid{number:03d}" for number in range(1, nodes + 1)]
    samples = [made_samples(operation, range(nodes), size, gbps, implementation="library") for size in sizes]
    return made_case(made_run(hosts, samples))


def test_efficiency_is_against_the_model_of_each_number_of_nodes() -> None:
    # Ports of 0.1 Gb/s; half, three quarters and seven eighths of an alltoall's buffer leave a node. The trunk's
    # 0.4 Gb/s are enough for four nodes on each side.
    (found,) = scalings([case(4, 0.1), case(2, 0.16), case(8, 0.08)], EMULATED)
    assert (found.operation, found.bytes) == ("alltoall", 2 * MIB)
    assert [point.nodes for point in found.points] == [2, 4, 8]
    assert [point.expected_gbps for point in found.points] == pytest.approx(
        [0.1 / (1 / 2), 0.1 / (3 / 4), 0.1 / (7 / 8)]
    )
    assert [point.efficiency for point in found.points] == pytest.approx([0.8, 0.75, 0.7], rel=1e-3)
    assert [found.parallel_efficiency(point) for point in found.points] == pytest.approx([1, 0.625, 0.5], rel=1e-3)
    assert "alltoall 2MiB (mpi, openmpi) by nodes: 2 nodes 0.16 Gb/s" in found.message
    assert "8 nodes 0.08 Gb/s (95%: 0.08 to 0.08), 70% of the model, 50% of 2 nodes" in found.message


def test_the_papers_size_counts_and_else_the_largest_common_one() -> None:
    sizes = [2 * MIB, 64 * MIB]
    for operation, size in (("alltoall", 2 * MIB), ("allreduce", 64 * MIB)):
        runs = [case(nodes, 0.1, operation=operation, sizes=sizes[: 3 - nodes // 4]) for nodes in (2, 4)]
        (found,) = scalings(runs, EMULATED)
        assert found.bytes == size
    (found,) = scalings([case(n, 0.1, operation="allreduce", sizes=[MIB, GIB, 2 * GIB]) for n in (2, 4)], EMULATED)
    assert found.bytes == GIB


def test_one_number_of_nodes_or_no_common_size_is_no_scaling() -> None:
    assert not list(scalings([case(2, 0.1), case(2, 0.2)], EMULATED))
    assert not list(scalings([case(2, 0.1), case(4, 0.1, sizes=[MIB])], EMULATED))


def test_other_tests_environments_and_what_is_not_trusted_are_apart() -> None:
    one, other = case(2, 0.1), case(4, 0.1)
    assert not list(scalings([one, made_case(other.run, environment="mpich")], EMULATED))
    assert not list(scalings([one, made_case(other.run, test="Other")], EMULATED))
    assert not list(scalings([one, made_case(other.run, trusted=False)], EMULATED))
    assert [type(each) for each in find_scalings([one, other], EMULATED)] == [Finding]
