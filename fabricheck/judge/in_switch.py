"""Whether NCCL left the switch's reduction (NVLink SHARP) unused where an allreduce is slow."""

from __future__ import annotations

from fabricheck.expectation.algorithms import allreduce_in_switch
from fabricheck.expectation.gpus import algorithm_of, node_part
from fabricheck.expectation.placement import gpu_of_ranks
from fabricheck.judge.part_values import Facts, is_comparable
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.operations import bus_factor
from fabricheck.records.verdict import Verdict
from fabricheck.results.proof_logs import facts_of_remarks
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology


def switch_not_used(judged: RunJudgement, topology: Topology) -> Finding | None:
    """DEGRADED where an allreduce by NCCL in a node is too slow, and no faster than what the links allow without the
    switch, which can reduce and which no variable keeps NCCL from using."""
    run = judged.run
    if not is_comparable(run) or run.header["transport"] != "ccl":
        return None
    facts, gpus = Facts(run, topology), gpu_of_ranks(run)
    for each in judged.judgements if facts.in_switch else ():
        samples = each.samples
        slow = each.verdict in (Verdict.DEGRADED, Verdict.FAIL) and each.better == "higher"
        if samples.operation != "allreduce" or not slow or facts.nodes(samples) > 1:
            continue
        used = tuple(dict.fromkeys(topology.gpu(gpus[rank]) for rank in samples.ranks if rank in gpus))
        if len(used) < len(samples.ranks):
            continue
        most = algorithm_of(topology, "allreduce", "ccl", used).gbps
        reduced = allreduce_in_switch(node_graph(node_part(topology, frozenset(used))))
        if reduced is None or reduced.gbps <= most or each.value > most:
            continue
        to_bus = bus_factor("allreduce", len(samples.ranks)) / 8
        text = (
            f"allreduce of {len(used)} GPUs: {each.value * to_bus:.4g} GB/s busbw, no more than the "
            f"{most * to_bus:.4g} of the links without reduction in the switch ({reduced.gbps * to_bus:.4g} with it)"
        )
        told = facts_of_remarks((run.footer or {}).get("proof") or {}).get("NVLS")
        text += f"; the library: {told}" if told else ""
        name, _, version = facts.library.partition(" ")
        library = Component(Kind.LIBRARY, name or "NCCL", version=version)
        figures = (each.value, reduced.gbps, each.unit)
        return Finding("nvls-not-used", Verdict.DEGRADED, text, (library,), *figures, metrics=(each.name,))
    return None
