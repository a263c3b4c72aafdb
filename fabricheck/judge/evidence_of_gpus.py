"""What the GPUs of a run's nodes say: links, PCIe, throttling, errors, other processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.judge.evidence import MPS, Evidence, NodeReport
from fabricheck.judge.node_rules import judge_facts, rises_of, rules_of
from fabricheck.records.node_state import GpuState
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology

#: A GPU is busy from so many percent on; a context of CUDA takes at least so much of its memory.
LEAST_BUSY, LEAST_OF_CONTEXT = 5, 100_000_000

# The links that NVML numbers; NVLink-C2C, to a GPU's own CPU, is none of them.
_NVLINK = re.compile(r"NVLink ?\d")
_PCIE = re.compile(r"PCIe (?:Gen ?)?(\d)\b")


def evidence_of_gpus(nodes: Sequence[NodeReport], topology: Topology | None) -> Iterator[Evidence]:
    """Of each GPU of each node, the worst last; nothing where a node told nothing of GPUs."""
    described, most = _described(topology), _most_links(nodes)
    for node in nodes:
        earlier = {gpu.bus_id: gpu for gpu in node.before.gpus} if node.before else {}
        for gpu in node.last.gpus:
            seen = _Gpu(node, gpu, earlier.get(gpu.bus_id) if node.after else None)
            yield from _processes(seen)
            yield from _unseen(seen)
            yield from _pcie(seen)
            links, generation = described.get(gpu.index, (most.get(gpu.name, 0), 0))
            yield from _slot(seen, generation)
            yield from _links(seen, links)
            yield from _throttled(seen)
            yield from _memory(seen)
        yield from _gone(node)


@dataclass(frozen=True)
class _Gpu:
    """A GPU of a node as it was last, and before the run where both are known."""

    node: NodeReport
    gpu: GpuState
    before: GpuState | None

    def say(self, code: str, text: str, verdict: Verdict | None) -> Evidence:
        """Evidence of this GPU; where no rank drove it, it is only told."""
        if verdict is not None and self.gpu.bus_id not in self.node.driven:
            verdict = Verdict.PASS
        return Evidence(code, self.node.host, self.gpu.index, text, verdict, self.gpu.bus_id)

    @property
    def rises(self) -> Mapping[str, int]:
        return rises_of(self.gpu.counters, self.before.counters if self.before is not None else None)

    def counted(self, kind: str, more: str = "") -> Iterator[Evidence]:
        """What the rules of a kind find in its counters; `more`: what every line ends with."""
        for rule, _, text, verdict in judge_facts(rules_of(kind), self.rises, self.node.seconds):
            yield self.say(rule.code, f"{text}{more}", verdict)


def _processes(seen: _Gpu) -> Iterator[Evidence]:
    processes = {each.pid: each for gpu in (seen.before, seen.gpu) if gpu for each in gpu.processes}
    for process in processes.values():
        used = f", {process.memory_bytes / 1e9:.3g} GB" if process.memory_bytes else ""
        who = f"process {process.pid} ({process.name or 'no name'}{used})"
        if process.name.startswith(MPS):
            yield seen.say("gpu-shared", f"CUDA MPS is on ({who})", Verdict.PASS)
        else:
            yield seen.say("gpu-in-use", f"is in use by {who}", Verdict.INVALID)


def _unseen(seen: _Gpu) -> Iterator[Evidence]:
    """A GPU at work before the test, of which the driver lists no process: it does not list those of other containers.

    Memory in use alone is not evidence: the operating system may use it on a Grace Hopper, and an idle process disturbs
    no test.
    """
    before = seen.before
    if before is None or before.processes or not before.busy_percent or not before.memory_used_bytes:
        return
    if before.busy_percent >= LEAST_BUSY and before.memory_used_bytes >= LEAST_OF_CONTEXT:
        power = f", {before.power_w:.0f} W" if before.power_w else ""
        clock = f", {before.clock_mhz} MHz" if before.clock_mhz else ""
        text = (
            f"was {before.busy_percent}% busy before the test, with {before.memory_used_bytes / 1e9:.3g} GB in use"
            f"{power}{clock}, by a process that the driver does not list"
        )
        yield seen.say("gpu-in-use", text, Verdict.INVALID)


def _pcie(seen: _Gpu) -> Iterator[Evidence]:
    gpu = seen.gpu
    generation, most = gpu.pcie_generation, gpu.pcie_most_generation
    width, widest = gpu.pcie_width, gpu.pcie_most_width
    narrow = bool(width and widest and width < widest)
    slow = bool(generation and most and generation < most)
    if not narrow and not slow:
        return
    now = f"{f'Gen {generation} ' if generation else ''}x{width or '?'}"
    full = f"{f'Gen {most} ' if most else ''}x{widest or '?'}"
    # A GPU that rests lowers the generation of its link, and never its width. Where the driver does not say whether it
    # rests (AMD's), those beside it tell: after a run none of them, or all, are at rest.
    rests = not narrow and gpu.performance_state != 0
    if gpu.performance_state is None:
        others = [each for each in seen.node.last.gpus if each.bus_id in seen.node.driven and each is not gpu]
        rests = rests and not any(each.pcie_generation == each.pcie_most_generation for each in others)
    yield seen.say("pcie-reduced", f"PCIe runs at {now} of {full}", None if rests else Verdict.DEGRADED)


def _slot(seen: _Gpu, described: int) -> Iterator[Evidence]:
    """A slot, riser or firmware setting that keeps the GPU's PCIe link under what the GPU can do.

    Where the topology has no more either it is only told: so the machine was built.
    """
    gpu = seen.gpu
    most, own = gpu.pcie_most_generation or 0, gpu.pcie_own_generation or 0
    if 0 < most < max(own, described):
        text = f"its slot has PCIe Gen {most}, and the GPU Gen {max(own, described)}"
        yield seen.say("pcie-reduced", text, Verdict.DEGRADED if most < described else None)


def _described(topology: Topology | None) -> Mapping[int, tuple[int, int]]:
    """By the GPU's index how many NVLinks it has by the topology, and its PCIe generation; 0 where that names none."""
    described = {}
    for gpu in topology.gpus if topology is not None else ():
        count = generation = 0
        for link in topology.links if topology is not None else ():
            if gpu.name in link.ends and _NVLINK.match(link.technology):
                count += link.count
            elif gpu.name in link.ends and (match := _PCIE.match(link.technology)):
                generation = int(match[1])
        described[gpu.index] = count, generation
    return described


def _most_links(nodes: Sequence[NodeReport]) -> Mapping[str, int]:
    """The most links that are active on any GPU of a model: where nothing is described, its peers tell."""
    most: dict[str, int] = {}
    for node in nodes:
        for gpu in node.last.gpus:
            most[gpu.name] = max(most.get(gpu.name, 0), sum(link.active for link in gpu.links))
    return most


def _links(seen: _Gpu, wanted: int) -> Iterator[Evidence]:
    links = seen.gpu.links
    up = {link.number for link in links if link.active}
    down = [link.number for link in links if not link.active]
    was_up = {link.number for link in seen.before.links if link.active} if seen.before else set()
    lost = sorted(was_up - up)
    # AMD's driver lists the links of its board alone: each of them should be up.
    amd = seen.gpu.name.startswith("AMD")
    wanted = len(links) if amd else wanted
    if len(up) < wanted or lost:
        during = f", and link {', '.join(map(str, lost))} went down during the test" if lost else ""
        which = f" ({', '.join(map(str, down))} inactive)" if 0 < len(down) <= 6 else ""
        text = f"{len(up)} of {max(wanted, len(up))} links to other GPUs are active{which}{during}"
        # A guest may be told that all are down, whatever they are.
        hidden = amd and not lost and not any(link.active for gpu in seen.node.last.gpus for link in gpu.links)
        text += " on all GPUs: a virtual machine may hide them" if hidden else ""
        yield seen.say("gpu-links-down", text, Verdict.PASS if hidden else Verdict.DEGRADED)
    yield from _link_errors(seen)


def _link_errors(seen: _Gpu) -> Iterator[Evidence]:
    """Errors of NVLinks during the test, each kind at the link that has most of them."""
    before = {link.number: link.counters for link in seen.before.links} if seen.before else {}
    most: dict[str, tuple[int, int]] = {}
    for link in seen.gpu.links:
        for counter, count in rises_of(link.counters, before.get(link.number)).items():
            most[counter] = max(most.get(counter, (0, 0)), (count, link.number))
    rises = {counter: count for counter, (count, _) in most.items()}
    for rule, counter, text, verdict in judge_facts(rules_of("NVLink"), rises, seen.node.seconds):
        yield seen.say(rule.code, f"NVLink {most[counter][1]} {text}", verdict)


def _throttled(seen: _Gpu) -> Iterator[Evidence]:
    gpu = seen.gpu
    clock = f" ({gpu.clock_mhz} of {gpu.clock_most_mhz} MHz)" if gpu.clock_mhz and gpu.clock_most_mhz else ""
    heat = f", {gpu.temperature_c} °C" if gpu.temperature_c is not None else ""
    reasons = {name: 1 for state in (seen.before, gpu) if state for name in state.throttle}
    now = [*judge_facts(rules_of("throttled now"), reasons)]
    for rule, _, text, verdict in now:
        yield seen.say(rule.code, f"{text}{clock}{heat}", verdict)
    if all(result.rule.code != "gpu-throttled" for result in now):
        yield from seen.counted("throttling", heat)
    if gpu.power_limit_w and gpu.power_usual_limit_w and gpu.power_limit_w < 0.99 * gpu.power_usual_limit_w:
        text = f"its power limit is {gpu.power_limit_w:.0f} W and usually {gpu.power_usual_limit_w:.0f} W"
        yield seen.say("gpu-setting", text, Verdict.PASS)


def _memory(seen: _Gpu) -> Iterator[Evidence]:
    yield from seen.counted("GPU counters", " during the test")
    # A reset, or loading the driver again, sets them to zero: what is there waits for one.
    waits = {
        name: count
        for name, count in seen.gpu.counters.items()
        if name.startswith("ecc_uncorrected") and not seen.rises.get(name)
    }
    for rule, _, text, verdict in judge_facts(rules_of("GPU counters"), waits):
        yield seen.say(rule.code, f"{text} since it was reset", verdict)
    if seen.gpu.rows_failed:
        yield seen.say("gpu-memory-errors", "rows of its memory could not be remapped", Verdict.DEGRADED)
    elif seen.gpu.rows_pending:
        yield seen.say("gpu-memory-errors", "remapped rows of its memory wait for a reset", Verdict.DEGRADED)


def _gone(node: NodeReport) -> Iterator[Evidence]:
    """GPUs that were there before the run and are not after it."""
    if node.before is None or node.after is None or node.after.notes:
        return
    left = {gpu.bus_id for gpu in node.after.gpus}
    for gpu in node.before.gpus:
        if gpu.bus_id not in left:
            text = "disappeared during the test"
            yield Evidence("gpu-missing", node.host, gpu.index, text, Verdict.DEGRADED, gpu.bus_id)
