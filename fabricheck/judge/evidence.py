"""Evidence: what a node said of itself, what the nodes of a run are that say it, and what its settings and the kernel's
log mean. What only explains something stands beside a slow metric or a wrong path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabricheck.judge.node_rules import judge_settings
from fabricheck.records.component import short_host
from fabricheck.records.node_state import KernelEvent, NodeState
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict


@dataclass(frozen=True)
class Evidence:
    """One thing that a node said. `code`: its row of the catalogue.

    `text`: what is wrong, with its amount; what to do next, the catalogue has.

    `verdict`: INVALID where the measurement means nothing, DEGRADED where a part is at fault whatever it measured, PASS
    where it is only told; `None` where it counts beside a slow metric alone. `part`: the index of a GPU, else the name
    of a port or device; `bus_id` of a GPU. A `network` matter is none of metrics inside a node.
    """

    code: str
    host: str
    part: str | int
    text: str
    verdict: Verdict | None
    bus_id: str = ""
    network: bool = False

    @property
    def short(self) -> str:
        """Node, part and what is wrong with it, without the part's address."""
        part = f"GPU {self.part}" if isinstance(self.part, int) else self.part
        return ": ".join(filter(None, (self.host, part, self.text)))

    @property
    def message(self) -> str:
        """The same as `short`, with the PCI address of a GPU."""
        return f"{self.short}, at {self.bus_id}" if self.bus_id else self.short


#: What processes of CUDA MPS are called, which serve those of a job.
MPS = "nvidia-cuda-mps"


@dataclass(frozen=True)
class NodeReport:
    """A node of a run with what it said; `driven`: PCI addresses of the GPUs that its ranks drove.

    `seconds` between the two states; 0 where one is missing.
    """

    host: str
    before: NodeState | None
    after: NodeState | None
    driven: frozenset[str]

    @property
    def last(self) -> NodeState:
        """What it said last."""
        state = self.after or self.before
        assert state is not None
        return state

    @property
    def is_busy(self) -> bool:
        """Whether others kept more than a third of its cores at work before the test began."""
        state = self.before
        return state is not None and state.cores > 0 and 3 * state.busy_cores > state.cores

    @property
    def has_others(self) -> bool:
        """Whether processes of others had a GPU of it, before or after."""
        for state in (self.before, self.after):
            processes = [process for gpu in state.gpus for process in gpu.processes] if state is not None else []
            if any(not process.name.startswith(MPS) for process in processes):
                return True
        return False

    @property
    def seconds(self) -> float:
        """Seconds between the two states; 0.0 if either is missing."""
        if self.before is None or self.after is None:
            return 0.0
        return max(self.after.time_s - self.before.time_s, 0.0)


def nodes_of(run: Run) -> tuple[NodeReport, ...]:
    """The nodes of a run that said anything, in the order of its ranks."""
    driven: dict[str, set[str]] = {}
    for rank in run.ranks:
        mine = driven.setdefault(short_host(rank.host), set())
        if rank.device is not None:
            mine.add(rank.device.address)
    states = run.states
    hosts = list(driven) or sorted({*states.before, *states.after})
    nodes = (
        NodeReport(each, states.before.get(each), states.after.get(each), frozenset(driven.get(each, ())))
        for each in hosts
    )
    return tuple(each for each in nodes if each.before is not None or each.after is not None)


def busy_hosts(run: Run) -> list[str]:
    """The nodes of a run that others used while it was measured."""
    return [node.host for node in nodes_of(run) if node.is_busy or node.has_others]


#: What may be why the data took another path than they should.
EXPLAINS_PATHS = frozenset(
    ("no-peer-memory", "memlock-limited", "shm-small", "imex-off", "fabric-not-ready", "acs-on", "iommu-on")
)


def evidence_of_rules(nodes: Sequence[NodeReport]) -> Iterator[Evidence]:
    """What the rules say of each node, by what it said last."""
    for node in nodes:
        state = node.last
        for rule, _, text, verdict in judge_settings("node", state.settings, state):
            yield Evidence(rule.code, node.host, "", text, verdict, network=rule.network)
        for gpu in state.gpus:
            for rule, _, text, verdict in judge_settings("GPU", gpu.settings, state):
                yield Evidence(rule.code, node.host, gpu.index, text, verdict, gpu.bus_id)
        yield from evidence_of_events(node)


def evidence_of_events(node: NodeReport) -> Iterator[Evidence]:
    """Events of the test one by one; of earlier ones how many there were of each part, and whether it still waits for
    its recovery."""
    known = {event.key for event in node.before.logged} if node.before else set()
    watched = node.before is not None and node.after is not None
    gpus = {gpu.bus_id: gpu.index for gpu in node.last.gpus}
    earlier: dict[tuple[str, str, bool], list[KernelEvent]] = {}
    for event in node.last.logged:
        if watched and event.key not in known:
            text = f"{_title(event)} during the test: {event.text}"
            verdict = _DURING_A_TEST.get(event.severity, Verdict.DEGRADED)
            part = gpus.get(event.bus_id, event.part)
            yield Evidence(event.code, node.host, part, text, verdict, network=event.network)
            continue
        # What a program did, and what was ended, was of another job; a GPU that responds is not lost.
        responds = event.code == "gpu-missing" and event.part in gpus
        waits = event.severity == "fatal" and not event.recovered and not responds
        if event.severity not in ("program", "ended") and event.code:
            earlier.setdefault((event.code, event.part, waits), []).append(event)
    for (code, part, waits), events in earlier.items():
        count = f" {len(events)} times" if len(events) > 1 else ""
        text = f"{_title(events[-1])}{count} since the node started"
        # A cable is pulled, and corrected errors are usual.
        quiet = events[-1].network or events[-1].severity == "corrected"
        verdict = Verdict.DEGRADED if waits else None if quiet else Verdict.PASS
        if waits:
            text += f", without recovery: {events[-1].recovery}, then `dmesg --clear`: {events[-1].text}"
        yield Evidence(code, node.host, gpus.get(part, part), text, verdict, network=events[-1].network)


#: Of an event in the kernel's log during a test, by its severity; DEGRADED of those that are not here.
_DURING_A_TEST = {"corrected": None, "ended": Verdict.INCOMPLETE}


def _title(event: KernelEvent) -> str:
    """What it is in two words, such as `Xid 79`."""
    names = {"xid": f"Xid {event.number}", "sxid": f"SXid {event.number} of an NVSwitch"}
    return names.get(event.kind, event.kind.replace("-", " "))
