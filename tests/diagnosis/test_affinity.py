"""Ranks that ran far from their GPU are named, once for each partition; those that nobody can tell of are not."""

from __future__ import annotations

from dataclasses import replace

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.of_session import find_far_cores
from tests.support.made_runs import made_case, made_run


def run_on(*numa: tuple[int, int], hosts: tuple[str, ...] = ("nid001", "nid001")) -> CaseRun:
    """A run whose ranks have cores and GPUs on these NUMA nodes."""
    run = made_run(hosts, [], devices=True)
    ranks = [
        replace(rank, numa_node=cores, device=replace(rank.device, numa_node=gpu))
        for rank, (cores, gpu) in zip(run.ranks, numa, strict=True)
        if rank.device is not None
    ]
    return made_case(replace(run, ranks=tuple(ranks)))


def test_ranks_far_from_their_gpu_are_named_once() -> None:
    (found,) = find_far_cores([run_on((0, 0), (0, 3)), run_on((0, 0), (0, 3))])
    assert (
        "made:gpu: ranks ran on another NUMA node than their GPU: local rank 1 on nid001, cores on 0 and GPU on 3"
        in (found.message)
    )
    assert found.message.count("nid001") == 1


def test_near_ones_and_those_that_nobody_can_tell_of_are_not() -> None:
    assert list(find_far_cores([run_on((0, 0), (1, 1)), run_on((-1, 2), (1, -1))])) == []
    assert list(find_far_cores([made_case(made_run(["nid001"], []))])) == []
