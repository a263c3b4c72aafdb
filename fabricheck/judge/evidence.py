"""Evidence: what a node said of itself, and what a run's nodes are that say it."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.records.node_state import NodeState
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict

_BUSY_SHARE, _BUSY_CORES = 0.5, 1.0


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
        """Whether others kept half of its cores at work before the test began."""
        state = self.before
        return state is not None and state.cores > 0 and state.busy_cores > max(_BUSY_SHARE * state.cores, _BUSY_CORES)

    @property
    def has_others(self) -> bool:
        """Whether processes of others had a GPU of it, before or after."""
        states = (each for each in (self.before, self.after) if each is not None)
        return any(not one.name.startswith(MPS) for state in states for gpu in state.gpus for one in gpu.processes)

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
        mine = driven.setdefault(short_name(rank.host), set())
        if rank.device is not None:
            mine.add(rank.device.bus_id.lower()[-12:])
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


def short_name(host: str) -> str:
    """A node's name without its domain."""
    return host.partition(".")[0]
