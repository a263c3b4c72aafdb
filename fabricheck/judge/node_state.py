"""What the state of its nodes says of a run: evidence that is judged on its own, or stands beside a slow metric.

docs/state.md has every line, what it means and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from fabricheck.judge.burn_in import evidence_of_load
from fabricheck.judge.evidence import EXPLAINS_PATHS, Evidence, NodeReport, evidence_of_rules, nodes_of
from fabricheck.judge.evidence_of_gpus import evidence_of_gpus
from fabricheck.judge.evidence_of_nics import evidence_of_association, evidence_of_nics
from fabricheck.judge.evidence_of_nodes import evidence_of_nodes
from fabricheck.judge.overall import SEVERITY, badness
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Judgement
from fabricheck.records.node_state import GPUS, NICS, NodeState, States
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.proof_logs import HOST_STAGING
from fabricheck.topology.model import Topology
from fabricheck.topology.placement import gpu_component
from fabricheck.units import FEW, few
from fabricheck.yardsticks.policy import host_memory_of

#: Codes of errors that hardware counts, which nothing but a fault of it or of its link raises.
_COUNTED = frozenset(
    (
        *("gpu-links-down", "gpu-link-errors", "gpu-memory-errors", "gpu-errors", "gpu-xid"),
        *("pcie-reduced", "pcie-errors"),
        *("nic-down", "nic-slow", "nic-errors", "nic-drops", "packets-lost"),
    )
)
#: Of links that no data cross between nodes with a GPU each.
_LINKS_OF_GPUS = ("gpu-links-down", "gpu-link-errors")
#: Of which one line of a session is enough, whichever node has it.
_ONCE = frozenset(("few-cores", "node-busy"))
#: Codes of metrics beside which nothing is told: of what passed, or is no measurement.
_NEEDS_NO_REASON = ("", "no-baseline", "implausible-value")


def _worst_first(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Evidence in order of its verdict; evidence without one is last."""
    return tuple(sorted(evidence, key=lambda each: 0 if each.verdict is None else -1 - SEVERITY[each.verdict]))


def evidence_of(run: Run, topology: Topology | None) -> tuple[Evidence, ...]:
    """All that the nodes of a run say, the worst first."""
    nodes = nodes_of(run)
    by_nics = run.header.get("transport") == "fabric"
    under_load = evidence_of_load(run)
    known = {(item.code, item.host, item.part) for item in under_load if item.verdict is Verdict.DEGRADED}
    evidence = [
        *under_load,
        # The driver counts the same before and after.
        *(item for item in evidence_of_gpus(nodes, topology) if (item.code, item.host, item.part) not in known),
        *evidence_of_nics(nodes, topology, alone=by_nics),
        *evidence_of_nodes(nodes, run, topology),
        *evidence_of_rules(nodes),
        *evidence_of_association(run, topology),
        *_twice(run.states),
        *_silent(run.states, nodes, run),
    ]
    return _worst_first(evidence)


def evidence_without_run(states: States, topology: Topology | None) -> tuple[Evidence, ...]:
    """What is wrong with the nodes of a job that left no results, the worst first."""
    last = {**states.before, **states.after}
    evidence = [*_twice(states)]
    for state in last.values():
        evidence += evidence_of_node(state, topology, [other for other in last.values() if other is not state])
    return _worst_first(each for each in evidence if each.verdict not in (None, Verdict.PASS))


def evidence_of_node(
    state: NodeState, topology: Topology | None, others: Sequence[NodeState] = ()
) -> tuple[Evidence, ...]:
    """What a node says by itself, without a run: all its GPUs and ports count. The worst first.

    `others` of the same job tell which of its GPUs is missing.
    """
    node = NodeReport(state.host, state, None, frozenset(gpu.bus_id for gpu in state.gpus))
    evidence = [
        *_missing(state, topology, others),
        *evidence_of_gpus([node], topology),
        *evidence_of_nics([node], topology, alone=True),
        *evidence_of_nodes([node], None, topology),
        *evidence_of_rules([node]),
        *(
            Evidence("state-unknown", state.host, "", f"its state could not be read: {each}", Verdict.INCOMPLETE)
            for each in state.notes
        ),
    ]
    return _worst_first(evidence)


def _missing(state: NodeState, topology: Topology | None, others: Sequence[NodeState]) -> Iterator[Evidence]:
    """Fewer GPUs or ports than the topology describes, where a node is looked at as a whole."""
    if topology is None:
        return
    if len(state.gpus) < len(topology.gpus) and GPUS not in state.unread:
        text = f"{len(state.gpus)} of the {len(topology.gpus)} GPUs of {topology.system} respond"
        here = {gpu.bus_id for gpu in state.gpus}
        lost_gpus = {gpu.bus_id: (other.host, gpu.index) for other in others for gpu in other.gpus}
        for bus_id in list(lost_gpus.keys() - here)[:FEW] if here else ():
            host, index = lost_gpus[bus_id]
            text += f", none at {bus_id}, where {host} has GPU {index}"
        yield Evidence(
            "gpu-missing",
            state.host,
            "",
            text,
            Verdict.INCOMPLETE,
        )
    names = {nic.name for nic in state.nics}
    lost = [nic.name for nic in topology.nics if nic.name not in names]
    # A site may name its ports otherwise than the kernel; where one is found, the others have to be.
    if lost and len(lost) < len(topology.nics) and NICS not in state.unread:
        text = f"missing ports of {topology.system}: {', '.join(lost)}"
        yield Evidence("nic-missing", state.host, "", text, Verdict.INCOMPLETE)


def _twice(states: States) -> Iterator[Evidence]:
    for host in states.twice:
        yield Evidence("same-identity", host, "", "several machines of the job have this host name", Verdict.INVALID)


def _silent(states: States, nodes: Sequence[NodeReport], run: Run) -> Iterator[Evidence]:
    """Nodes that were asked and did not report all: a node that was not examined is never called healthy."""
    if not states.asked:
        return
    for text in states.unread:
        yield Evidence("state-unknown", "node-state", "", text, Verdict.PASS)
    for when, given in (("before", states.before), ("after", states.after)):
        lost = sorted({short_host(rank.host) for rank in run.ranks} - set(given))
        if lost:
            more = f" and {len(lost) - 1} more nodes" if len(lost) > 1 else ""
            yield Evidence(
                "state-unknown", f"{lost[0]}{more}", "", f"did not report its state {when} the test", Verdict.PASS
            )
    for node in nodes:
        for text in dict.fromkeys(note for state in (node.before, node.after) if state for note in state.notes):
            yield Evidence("state-unknown", node.host, "", f"its state could not be read: {text}", Verdict.PASS)


def findings_of(runs: Iterable[tuple[Run, Topology | None]]) -> Iterator[Finding]:
    """What the nodes of a session's runs say that changes no verdict, each once."""
    told: dict[str | Finding, Finding] = {}
    for run, topology in runs:
        for evidence in evidence_of(run, topology):
            if evidence.verdict is Verdict.PASS:
                finding = finding_of(evidence, Verdict.PASS, topology)
                told.setdefault(evidence.code if evidence.code in _ONCE else finding, finding)
    return iter(told.values())


def errors_counted(run: Run, topology: Topology | None) -> Iterator[Finding]:
    """What counters of the hardware a run shows of its GPUs, links and, between nodes, ports, beside slow metrics."""
    several = len({rank.host for rank in run.ranks}) > 1
    for evidence in evidence_of(run, topology):
        if (
            evidence.code in _COUNTED
            and evidence.verdict in (Verdict.DEGRADED, None)
            and (several or not evidence.network)
        ):
            yield finding_of(evidence, Verdict.DEGRADED, topology)


def with_problems_of_nodes(judged: RunJudgement, topology: Topology | None) -> RunJudgement:
    """The judgement with what the nodes say that keeps the run from being green, and why paths may be wrong."""
    evidence = evidence_of(judged.run, topology)
    problems = tuple(
        finding_of(each, each.verdict, topology) for each in evidence if each.verdict not in (None, Verdict.PASS)
    )
    why = "".join(f"; {each.message}" for each in _each_once(evidence) if each.code in EXPLAINS_PATHS)
    own = [
        replace(one, message=f"{one.message}{why}") if one.code in ("path-forbidden", "path-unproven") else one
        for one in judged.problems
    ]
    return replace(judged, problems=tuple(own)).with_problems(problems)


def _each_once(evidence: Sequence[Evidence]) -> Iterable[Evidence]:
    """The first of each kind: equal nodes say the same."""
    return {each.code: each for each in reversed(evidence)}.values()


def finding_of(evidence: Evidence, verdict: Verdict, topology: Topology | None) -> Finding:
    """With this verdict, about its component."""
    return Finding(evidence.code, verdict, evidence.message, (component_of(evidence, topology),))


def component_of(evidence: Evidence, topology: Topology | None) -> Component:
    """What it is about."""
    if isinstance(evidence.part, int):
        return gpu_component(topology, evidence.part, evidence.host, evidence.bus_id)
    if not evidence.part:
        return Component.of_node(evidence.host)
    return Component(Kind.NIC if evidence.network else Kind.DEVICE, evidence.part, evidence.host)


def beside_metrics(runs: Sequence[RunJudgement]) -> tuple[RunJudgement, ...]:
    """The runs of a session with what their nodes say beside metrics that are slow, once all yardsticks have judged.

    What is the same of several metrics on the same nodes stands beside the worst of them. A metric below the minimum
    proves nothing where processors of one node move the data and other programs used them.
    """
    evidence = [evidence_of(judged.run, judged.topology) for judged in runs]
    runs = [_unless_busy(*pair) for pair in zip(runs, evidence, strict=True)]
    metrics = [(number, metric) for number, judged in enumerate(runs) for metric in judged.judgements]
    hosts = [frozenset(rank.host for rank in judged.run.ranks) for judged in runs]
    places: dict[tuple[str, str | int, str, frozenset[str]], dict[int, Evidence]] = {}
    for place in sorted(range(len(metrics)), key=lambda place: badness(metrics[place][1])):
        number, metric = metrics[place]
        for item in _beside(metric, runs[number].run, evidence[number]):
            places.setdefault((item.code, item.part, item.text, hosts[number]), {}).setdefault(place, item)
    told: dict[int, list[str]] = {}
    for by_place in places.values():
        place, item = next(iter(by_place.items()))
        of_runs = len({metrics[place][0] for place in by_place})
        count = f"{len(by_place)} metrics" + (f" of {of_runs} runs" if of_runs > 1 else "")
        told.setdefault(place, []).append(f"{item.short} ({count})" if len(by_place) > 1 else item.short)
    explained = (_with_reasons(metric, told.get(place, ())) for place, (_, metric) in enumerate(metrics))
    return tuple(replace(judged, judgements=tuple(islice(explained, len(judged.judgements)))) for judged in runs)


def _unless_busy(judged: RunJudgement, evidence: Sequence[Evidence]) -> RunJudgement:
    """The run, in which slow metrics are INCOMPLETE where other programs explain them."""
    alone = len({rank.host for rank in judged.run.ranks}) == 1
    metrics = list(judged.judgements)
    if alone and any(item.code == "node-busy" for item in evidence):
        for place, metric in enumerate(metrics):
            is_slow = metric.verdict in (Verdict.DEGRADED, Verdict.FAIL) and metric.code != "wrong-bytes"
            if is_slow and _by_processors(judged.run, metric.samples):
                reason = f"machine busy: run again; {metric.reason}"
                metrics[place] = replace(metric, verdict=Verdict.INCOMPLETE, reason=reason)
    verdict = worst([judged.verdict, *(metric.verdict for metric in metrics)])
    return replace(judged, judgements=tuple(metrics), verdict=verdict)


def _by_processors(run: Run, samples: Samples) -> bool:
    """Whether cores move the data of a measurement inside a node, as those of emulated GPUs, or GPUs by way of the
    host's memory.

    Copy engines that read or write pinned memory need no core.
    """
    if (
        is_rehearsal(run)
        or not run.on_gpus
        or run.header["transport"] == "staging"
        or host_memory_of(run, samples) == "pageable"
    ):
        return True
    paths = run.footer["proof"]["paths"] if run.footer else ()
    return any(re.search(pattern, path) for pattern in HOST_STAGING for path in paths)


def _beside(judgement: Judgement, run: Run, facts: Sequence[Evidence]) -> Iterator[Evidence]:
    """What the nodes and GPUs of a metric say that is slow."""
    if judgement.code in _NEEDS_NO_REASON:
        return
    ranks = [run.ranks[each] for each in judgement.samples.ranks if each < len(run.ranks)]
    hosts = {short_host(each.host) for each in ranks}
    devices = {(short_host(each.host), each.device.address) for each in ranks if each.device is not None}
    paths = (run.footer or {}).get("proof", {}).get("paths", ())
    by_nics = 1 < len(hosts) == len(ranks) and any(path.startswith("NET/") for path in paths)
    for evidence in facts:
        own = evidence.host in hosts and (not evidence.bus_id or (evidence.host, evidence.bus_id) in devices)
        crossed = not (by_nics and evidence.code in _LINKS_OF_GPUS)
        if own and crossed and (not evidence.network or len(hosts) > 1):
            yield evidence


def _with_reasons(judgement: Judgement, reasons: Sequence[str]) -> Judgement:
    if not reasons:
        return judgement
    return replace(judgement, reason=f"{judgement.reason}. Reported beside it: {few(reasons, between='; ')}")
