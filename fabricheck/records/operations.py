"""The operations that are measured, and the settings they are measured with: tables for readers, judge and checks.

fabricbench has the same table (src/fabricbench), and a test compares the two. A new operation is a line in each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

Family = Literal["pair", "collective", "group", "striping", "training", "sparse", "victim", "memory"]


@dataclass(frozen=True)
class Traits:
    """What an operation is.

    `family`: `pair` of two ranks; `collective` of a group; `group`, a pattern between groups of ranks (CommBench,
    section 4.3); `striping`, a message in stripes, its parts, or whole (section 4.2); `training`, collectives of groups
    and, at the same time, across them; `sparse`, the messages of matrices (section 4.4); `victim`, a pattern alone and
    beside an aggressor; `memory`, a path of a GPU by itself.
    `round_trip`: its times are those of there and back. `rooted`: a collective with one root, the first rank.
    `in_place`: a collective that libraries know with its result where its input was.
    `host`: between a GPU's own memory and that of the host. `victim`: the pattern that an aggressor disturbs.
    `pattern`: family and direction of a pattern between groups.
    """

    family: Family
    round_trip: bool = False
    rooted: bool = False
    in_place: bool = False
    host: bool = False
    victim: str = ""
    pattern: tuple[str, str] = ("", "")


OPERATIONS: Mapping[str, Traits] = {
    "pingpong": Traits("pair", round_trip=True),
    "unidirectional": Traits("pair"),
    "bidirectional": Traits("pair"),
    "alltoall": Traits("collective"),
    "allreduce": Traits("collective", in_place=True),
    "allgather": Traits("collective", in_place=True),
    "reduce_scatter": Traits("collective", in_place=True),
    "broadcast": Traits("collective", rooted=True),
    "reduce": Traits("collective", rooted=True, in_place=True),
    "rail_unidirectional": Traits("group", pattern=("rail", "unidirectional")),
    "rail_bidirectional": Traits("group", pattern=("rail", "bidirectional")),
    "rail_omnidirectional": Traits("group", pattern=("rail", "omnidirectional")),
    "asymmetric_unidirectional": Traits("group", pattern=("asymmetric", "unidirectional")),
    "asymmetric_bidirectional": Traits("group", pattern=("asymmetric", "bidirectional")),
    "symmetric_unidirectional": Traits("group", pattern=("symmetric", "unidirectional")),
    "symmetric_bidirectional": Traits("group", pattern=("symmetric", "bidirectional")),
    "symmetric_omnidirectional": Traits("group", pattern=("symmetric", "omnidirectional")),
    "striping": Traits("striping"),
    "striping_pipelined": Traits("striping"),
    "striping_split": Traits("striping"),
    "striping_translate": Traits("striping"),
    "striping_assemble": Traits("striping"),
    "striping_direct": Traits("striping"),
    "training_step": Traits("training"),
    "sparse": Traits("sparse"),
    "sparse_intra": Traits("sparse"),
    "sparse_inter": Traits("sparse"),
    "sparse_alltoallv": Traits("sparse"),
    "victim_pingpong_alltoall": Traits("victim", round_trip=True, victim="pingpong"),
    "victim_pingpong_incast": Traits("victim", round_trip=True, victim="pingpong"),
    "victim_alltoall_alltoall": Traits("victim", victim="alltoall"),
    "victim_alltoall_incast": Traits("victim", victim="alltoall"),
    "host_to_device": Traits("memory", host=True),
    "device_to_host": Traits("memory", host=True),
    "host_bidirectional": Traits("memory", host=True),
    "host_read": Traits("memory", host=True),
    "host_stream": Traits("memory", host=True),
    "host_triad": Traits("memory", host=True),
    "local_copy": Traits("memory"),
}


#: What goes on at the same time in a burn-in, of which each window is an iteration: `uncontended` alone, `contended`
#: with the others. Products of matrices by each GPU, the plan's operation, and copies between host and device.
LOADS = ("product", "traffic", "copies")

#: Bytes of the numbers that reductions add up, by type; that of a run is float32 where nothing else is said.
DATA_TYPES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1}


def _of(*families: Family) -> tuple[str, ...]:
    return tuple(name for name, traits in OPERATIONS.items() if traits.family in families)


PAIRS = _of("pair")
#: Those that use both directions, so that a pair is measured once.
SYMMETRIC_PAIRS = ("pingpong", "bidirectional")
#: Those in which data go in one direction at a time.
ONE_AT_A_TIME = ("pingpong", "unidirectional")
COLLECTIVES = _of("collective")
MEMORY_PATHS = _of("memory")
#: Of these, what goes one way: data do not share a path with others.
ONE_WAY_MEMORY_PATHS = tuple(name for name in MEMORY_PATHS if name != "host_bidirectional")
STRIPING = _of("striping")
TRAINING = _of("training")
SPARSE = _of("sparse")
#: Patterns that are lists of messages.
LISTED = _of("group", "striping", "training", "sparse", "victim")
#: Those of groups of ranks, which have a number, a size and active members.
SHAPED = _of("group", "striping", "training")
#: What no transfers stand in for, where an MPI library's own collectives cannot take device memory.
COLLECTIVES_ONLY = ("allreduce", "reduce_scatter", "reduce", "training_step", "sparse_alltoallv")
ROOTED = tuple(name for name, traits in OPERATIONS.items() if traits.rooted)
HOST_PATHS = tuple(name for name, traits in OPERATIONS.items() if traits.host)
ROUND_TRIPS = tuple(name for name, traits in OPERATIONS.items() if traits.round_trip)
#: Transports that take the one path of a message that the hardware has; a library may take several.
ONE_PATH = ("copy", "kernel")
GROUP_PATTERNS: Mapping[str, tuple[str, str]] = {name: OPERATIONS[name].pattern for name in _of("group")}
VICTIMS: Mapping[str, str] = {name: OPERATIONS[name].victim for name in _of("victim")}


def _known(name: str) -> str:
    if name not in OPERATIONS:
        raise ValueError(f"there is no operation {name!r}: choose from {', '.join(OPERATIONS)}")
    return name


def _known_in_plan(name: str) -> str:
    return name if name in LOADS else _known(name)


Operation = Annotated[str, AfterValidator(_known)]
#: The plan of a run that was read has what goes on under load, too.
PlannedOperation = Annotated[str, AfterValidator(_known_in_plan)]
Implementation = Literal["transfers", "library"]
Schedule = Literal["uncontended", "contended"]
Transport = Literal["staging", "copy", "kernel", "ccl", "mpi", "fabric", "cores"]
HostKind = Literal["pageable", "pinned", "noncoherent", "managed", "migrated"]
Backend = Literal["host", "cuda", "hip", "sycl"]


@dataclass(frozen=True)
class Setting:
    """An option of fabricbench that the plan of a run repeats, and that a check may set.

    `text`: what people read of a value, empty where it is of no interest. `usual`: the value of a run that has none.
    `kernels`: with it the library runs other code, which values of runs without it do not judge. `among`: the values
    that fabricbench gives it. Another value is a vendor tool's own word, such as MPI_CHAR, and counts as usual.
    """

    text: str = ""
    usual: str | None = None
    kernels: bool = False
    among: Collection[str] = ()

    def is_usual(self, value: object) -> bool:
        """Whether a run with this value is one without the setting."""
        return value in (None, self.usual) or bool(self.among and value not in self.among)


#: Where buffers lie, who moves the data and how.
SETTINGS: Mapping[str, Setting] = {
    "access": Setting("by {}", usual="write"),
    "buffers": Setting("{} buffers"),
    "ccl_mode": Setting("mode {}", kernels=True),
    "datatype": Setting("{}", usual="float32", kernels=True, among=DATA_TYPES),
    "host_memory": Setting("{} host memory"),
    "host_numa": Setting("{} to the GPU", usual="any"),
    "in_place": Setting("in place"),
    "nic": Setting("NIC {}", usual="near"),
    "split": Setting("split {}"),
    "train": Setting("trains of {}"),
    "verify": Setting(),
}


def chosen_settings(plan: Mapping[str, object]) -> Mapping[str, str]:
    """The settings of a plan that are not the usual ones."""
    return {name: str(plan[name]) for name, setting in SETTINGS.items() if not setting.is_usual(plan.get(name))}


def kernel_settings(plan: Mapping[str, object]) -> Mapping[str, str]:
    """Those with which the library runs other code than by default."""
    return {name: value for name, value in chosen_settings(plan).items() if SETTINGS[name].kernels}


def backend_of(extras: Mapping[str, object]) -> str:
    """The backend of fabricbench that the `extras` of an environment ask for; `host` where they name none."""
    return str(extras.get("backend", "host"))


def bus_factor(operation: str, ranks: int) -> float:
    """The factor by which nccl-tests multiplies size / time of a collective, to compare it with links (its
    PERFORMANCE.md)."""
    if operation == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("alltoall", "allgather", "reduce_scatter") else 1.0


def uses_host_memory(operation: str, buffers: str | None) -> bool:
    """Whether an operation has buffers in host memory, given where those of a pair lie."""
    return operation in HOST_PATHS or (operation in PAIRS and buffers is not None)
