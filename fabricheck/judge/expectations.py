"""What the metrics of a run should be, by the model of its system and the floors of the policy."""

from __future__ import annotations

from dataclasses import replace

from fabricheck.judge.judge import Expect
from fabricheck.judge.metrics import Quantity
from fabricheck.judge.policy import Policy, host_memory_of
from fabricheck.judge.verdicts import Expectation
from fabricheck.results.records import Run, Samples
from fabricheck.topology import Topology, expectation
from fabricheck.topology.judged import FLOOR_FRACTION


def expect_from_topology(run: Run, topology: Topology, policy: Policy) -> Expect:
    """The expectations of `judge_run` for a run on the nodes that `topology` describes.

    Which devices a measurement was between is taken from the run's header (`gpu_of_ranks`), its floor from the first
    rule of `policy` that matches. The expectation raises UserError where a rank drove a device that the topology does
    not have.
    """
    ranks = {each.rank: each for each in run.ranks}
    gpus = gpu_of_ranks(run)

    def expect(samples: Samples, quantity: Quantity) -> Expectation:
        members = [ranks[rank] for rank in samples.ranks]
        rule = policy.floor(run, samples)
        found = expectation(
            topology,
            operation=samples.operation,
            implementation=samples.implementation,
            transport=run.header["transport"],
            schedule=samples.schedule,
            devices=[gpus[each.rank] for each in members if each.device is not None],
            nodes=len({each.host for each in members}),
            bytes=samples.bytes,
            quantity=quantity,
            host_copy_gbps=run.header["host_copy_gbps"],
            ranks=len(members),
            oversubscribed=run.header["oversubscribed"],
            host_memory=host_memory_of(run, samples),
            buffers=run.header["plan"].get("buffers"),
            floor_fraction=rule.fraction if rule is not None else FLOOR_FRACTION,
        )
        if rule is not None and quantity == "goodput":
            found = replace(found, source=f"{found.source}; floor: {rule.source}")
        return found

    return expect


def gpu_of_ranks(run: Run) -> dict[int, int]:
    """The node-local index of the GPU of each rank.

    That is the index under which the rank saw it. Where ranks of a node gave one index to different GPUs, because a
    launcher showed each rank its own GPU only, it is the place of the GPU's PCI address among those of the ranks.
    """
    indexes: dict[int, int] = {}
    for host in {each.host for each in run.ranks}:
        seen = {each.rank: each.device for each in run.ranks if each.host == host and each.device is not None}
        devices = {each.uuid: each for each in seen.values()}
        if len({each.index for each in devices.values()}) < len(devices):
            order = sorted(each.bus_id for each in devices.values())
            indexes |= {rank: order.index(each.bus_id) for rank, each in seen.items()}
        else:
            indexes |= {rank: each.index for rank, each in seen.items()}
    return indexes
