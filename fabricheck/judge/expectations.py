"""What the metrics of a run should be, by the model of its system and the floors of the policy."""

from __future__ import annotations

import re
from dataclasses import replace

from fabricheck.judge.judge import Expect
from fabricheck.limits.in_rounds import company_in_rounds
from fabricheck.limits.of_metric import expectation
from fabricheck.limits.question import FLOOR_FRACTION, MeasuredSeries
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import Quantity
from fabricheck.records.operations import LOADS, SPARSE, VICTIMS, kernel_settings
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Run, Samples
from fabricheck.topology.model import Topology
from fabricheck.topology.placement import ends_of_ranks, gpu_of_ranks, nics_of_ranks
from fabricheck.yardsticks.part_values import switch_is_left_out
from fabricheck.yardsticks.policy import Policy, host_memory_of

# Variables that name the interfaces or adapters that MPI libraries may use.
_INTERFACES = ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES")


def expect_from_topology(run: Run, topology: Topology, policy: Policy) -> Expect:
    """The expectations of `judge_run` for a run on the nodes that `topology` describes.

    Which devices a measurement was between is taken from the run's header (`gpu_of_ranks`), its floor from the first
    rule of `policy` that matches. The expectation raises UserError where a rank drove a device that the topology does
    not have, or was on a node that its network does not have.
    """
    ranks = {each.rank: each for each in run.ranks}
    topology = _with_nics_in_use(run, topology)
    gpus = gpu_of_ranks(run)
    nics = nics_of_ranks(run, topology)
    ends = ends_of_ranks(run, topology)
    beside = company_in_rounds(run, topology)
    without_switch = switch_is_left_out(run.header.get("environment", {}))

    def expect(samples: Samples, quantity: Quantity) -> Expectation:
        if not ranks.keys() >= set(samples.ranks):
            return Expectation(None, None, None, 0.0, "its ranks are not in the header")
        if samples.operation in LOADS:
            return Expectation(None, None, None, 0.0, "no model of compute beside traffic")
        if samples.operation in SPARSE and not samples.messages:
            return Expectation(None, None, None, 0.0, "its ranks are unknown")
        members = [ranks[rank] for rank in samples.ranks]
        hosts = list(dict.fromkeys(each.host for each in members))
        place = {each.rank: position for position, each in enumerate(members)}
        rule = policy.floor(run, samples)
        expected = expectation(
            topology,
            MeasuredSeries(
                operation=samples.operation,
                implementation=samples.implementation,
                transport=run.header["transport"],
                schedule=samples.schedule,
                devices=[gpus[each.rank] for each in members if each.device is not None],
                nodes=len({each.host for each in members}),
                ends=[ends[each.rank] for each in members] if ends else (),
                beside=beside(samples),
                bytes=samples.bytes,
                quantity=quantity,
                host_copy_gbps=run.header["host_copy_gbps"],
                ranks=len(members),
                oversubscribed=run.header["oversubscribed"],
                host_memory=host_memory_of(run, samples),
                buffers=run.header["plan"].get("buffers"),
                floor_fraction=rule.fraction if rule is not None else FLOOR_FRACTION,
                groups=samples.groups,
                messages=[(place[a], place[b], *rest) for a, b, *rest in samples.messages],
                places=[hosts.index(each.host) for each in members],
                step_transports=run.header["plan"].get("step_transports") or (),
                nics=[nics[each.rank] for each in members],
                company=len(ranks) - len(members) if _has_company(samples) else 0,
                without_switch=without_switch,
            ),
        )
        if rule is not None and quantity == "goodput":
            expected = replace(expected, source=f"{expected.source}; minimum: {rule.source}")
        if without_switch and samples.operation == "allreduce" and _can_reduce(topology):
            expected = replace(
                expected, source=f"{expected.source}; {without_switch} keeps NCCL from reducing in the switch"
            )
        # What links carry of data is measured with NCCL as it is by default: each mode and type has kernels of its own.
        # How long emulated GPUs and NICs take to start depends on the cores of the machine.
        unknown = kernel_settings(run.header["plan"]) or (quantity == "latency" and is_rehearsal(run))
        return replace(expected, achievable=None) if unknown else expected

    return expect


def _with_nics_in_use(run: Run, topology: Topology) -> Topology:
    """The topology with those NICs alone that ranks without a GPU used by libfabric, or were told to use by MPI;
    unchanged where that is unknown."""
    if not run.header or any(each.device is not None for each in run.ranks):
        return topology
    if run.header["transport"] == "fabric":  # of which MPI is no part
        told = {name for names in nics_of_ranks(run, topology).values() for name in names}
    else:
        set_ = [*run.header["environment"].items()]
        set_ += [(each["name"], each["value"]) for each in run.header.get("environment_differences", ())]
        told = {word for name, value in set_ if name in _INTERFACES and value for word in re.split("[,:]", value)}
    used = tuple(nic for nic in topology.nics if nic.name in told)
    return replace(topology, nics=used) if used else topology


def _can_reduce(topology: Topology) -> bool:
    return any(switch.in_network_reduction for switch in topology.switches)


def _has_company(samples: Samples) -> bool:
    return samples.operation in VICTIMS and samples.schedule == "contended"
