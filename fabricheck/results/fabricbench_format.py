"""The lines of fabricbench's result file, format versions 1 and 2 (docs/formats.md).

Both are closed: an unknown field, a missing one or one of another type makes a line invalid. Only the maps whose
keys are names from outside (`environment`, `libraries`, `paths`) are open.

Long because each field has its meaning below it, from which docs/schemas is made.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    TypeAdapter,
    ValidationError,
)

from fabricheck.records.metrics import MOST_RANKS
from fabricheck.records.operations import (
    SETTINGS,
    Backend,
    HostKind,
    Implementation,
    Operation,
    PlannedOperation,
    Schedule,
    Transport,
    uses_host_memory,
)

FORMAT = 2

# Files of version 1 list each pair, and are read as ever.
READABLE_FORMATS = (1, FORMAT)


_LARGEST = (1 << 63) - 1
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Positive = Annotated[int, Field(ge=1, le=_LARGEST)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Text = Annotated[str, Field(min_length=1)]


def parse_utc(text: str) -> datetime:
    """The moment of a `started_utc` field, such as `2026-11-21T05:54:06Z`; ValueError for any other form."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    if moment.strftime("%Y-%m-%dT%H:%M:%SZ") != text:
        raise ValueError("write the time as 2026-11-21T05:54:06Z")
    return moment


def _is_utc(text: str) -> str:
    parse_utc(text)
    return text


Moment = Annotated[str, AfterValidator(_is_utc)]


def _is_finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return number


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class DeviceModel(_Line):
    """A GPU as the runtime reports it; `index` counts the node's visible devices, `numa_node` is -1 where unknown."""

    index: Count
    """among the node's visible devices"""
    name: Text
    bus_id: Text
    """PCI address"""
    uuid: Text
    numa_node: Annotated[int, Field(ge=-1)]
    """-1 where the kernel does not state it"""
    memory_bytes: Positive
    tile: Count | None = None
    """where a card has several devices: its number among those of the card that the process sees"""


class HostMemoryModel(_Line):
    """What host buffers really are: as the GPU runtime (`allocation`) and the kernel (`numa_node`) say."""

    allocation: Literal["pageable", "pinned", "noncoherent", "managed", "device"]
    """by the GPU runtime; `device` only of a fault"""
    numa_node: Annotated[int, Field(ge=-1)]
    """of the first page, by the kernel; -1 where it does not state it, as for memory of a driver"""
    wanted_numa_node: Annotated[int, Field(ge=-1)]
    """where it was to lie: near the device unless `host_numa` says otherwise; -1: unknown. Memory elsewhere is
    INVALID; of managed memory the runtime decides"""


class NicModel(_Line):
    """A NIC that a rank used by libfabric, and whether it reached the GPU's memory itself or by a copy on the host."""

    name: Text
    """as the kernel has it"""
    provider: Text
    """as libfabric has it"""
    bus_id: Text | None = None
    """only of PCI devices"""
    gbps: Annotated[float, AfterValidator(_is_finite), Field(gt=0)] | None = None
    """rate of the link, Gb/s, where it is known"""
    device_memory: Literal["registered", "staged", "unproven"] | None = None
    """only where buffers lie on a device: the NIC reads and writes it itself, the provider copies it through the host,
    or it does not tell"""


class RankModel(_Line):
    """An MPI rank: its host and cores, and the device, host memory and NICs that it used."""

    rank: Count
    host: Text
    local_rank: Count
    """number of the rank on its node"""
    pid: Positive
    cpus: str
    """affinity, as a list such as `0-15,32`"""
    numa_node: Annotated[int, Field(ge=-1)]
    """-1 where the kernel does not state it"""
    device: DeviceModel | None
    """null with the host backend"""
    host_memory: HostMemoryModel | None = None
    """only where the plan has buffers in host memory"""
    nics: Annotated[list[NicModel], Field(min_length=1)] | None = None
    """only with the transport `fabric`"""


class LibraryModel(_Line):
    """A library that was in use, with the version that it reports of itself."""

    name: Text
    version: str
    driver: str | None = None
    """of `gpu`"""
    device_hierarchy: Literal["flat", "composite", "combined"] | None = None
    """of `gpu` with Level Zero: whether tiles are devices of their own (ZE_FLAT_DEVICE_HIERARCHY)"""


class DifferenceModel(_Line):
    """A recorded variable whose value on `rank` differs from that of rank 0; None: it is unset there."""

    rank: Count
    name: Text
    value: str | None
    """null where the variable is unset on that rank"""


class ClockModel(_Line):
    """The clock of the iterations, with the smallest step and the cost of a reading, in nanoseconds."""

    source: Text
    resolution_ns: Positive
    """smallest step"""
    overhead_ns: Count
    """cost of a reading"""


class IterationsModel(_Line):
    """How many iterations were planned; of `adaptive`, the bounds and the time budget of a size."""

    mode: Literal["fixed", "adaptive"]
    minimum: Positive
    """equal to `maximum` with `fixed`"""
    maximum: Positive
    budget_s: Annotated[float, AfterValidator(_is_finite), Field(gt=0)] | None
    """seconds for one size; null with `fixed`"""


# n groups of g ranks, k of each active.
Groups = Annotated[list[Positive], Field(min_length=3, max_length=3)]

# Source, destination and bytes.
Message = Annotated[list[Count], Field(min_length=3, max_length=4)]


class SeriesModel(_Line):
    """One pair or group of one operation; each of its sizes is one samples line."""

    operation: PlannedOperation
    implementation: Implementation
    schedule: Schedule
    round: Annotated[int, Field(ge=-1, le=_LARGEST)]
    """-1 where there are no rounds"""
    ranks: Annotated[list[Count], Field(min_length=1)]
    """as of [samples](#result-samples)"""
    groups: Groups | None = None
    """`[n, g, k]`, as of [samples](#result-samples)"""
    bytes: Annotated[list[Positive], Field(min_length=1)]
    """the sizes: each is one samples line"""
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    """of matrices: source, destination and bytes of each, and the step where it is not the first"""
    aggressors: Annotated[list[Count], Field(min_length=2)] | None = None
    """ranks that disturb the victim"""


class RuleModel(_Line):
    """The rule by which each rank knows the pairs of a round, in place of a list of them."""

    ranks: Annotated[int, Field(ge=2, lt=MOST_RANKS)]
    """of all nodes"""
    group: Positive
    """ranks of a node; 1: all pairs, more: pairs of ranks that have the same place in their groups"""
    directions: Literal[1, 2]
    """2: either rank of a pair begins once"""
    turns: Positive | None = None
    """fewer rounds than there are, by `--turns`; all where it is left out"""
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """sum of all pairs, by which a reader knows that it evaluates the same rule ([rounds](formats.md#results))"""


class RuledSeriesModel(_Line):
    """All pairs of one operation and schedule, by a rule; from format version 2 on."""

    operation: Operation
    implementation: Implementation
    schedule: Schedule
    rule: RuleModel
    """gives the pairs and rounds"""
    bytes: Annotated[list[Positive], Field(min_length=1)]


def _kind_of_series(value: object) -> str:
    return (
        "by rule" if isinstance(value, RuledSeriesModel) or (isinstance(value, dict) and "rule" in value) else "listed"
    )


_AnySeries = Annotated[
    Annotated[SeriesModel, Tag("listed")] | Annotated[RuledSeriesModel, Tag("by rule")], Discriminator(_kind_of_series)
]


_CCL_MODE = r"(?:registered|symmetric|copy-engine|graph-[1-9][0-9]{0,3}|communicators-[2-8])"
# How NCCL was used beyond its defaults: one mode, or several such as `registered,graph-20`.
CclMode = Annotated[str, Field(pattern=rf"^{_CCL_MODE}(?:,{_CCL_MODE})*$")]


class BurnInPlanModel(_Line):
    """What went on at the same time after the plan itself was measured, and for how long."""

    seconds: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    """all phases together"""
    alone_seconds: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    """of each phase in which only the products, the traffic or the copies go on"""
    window_seconds: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    """at least, since windows end at whole iterations"""
    product: Literal["bfloat16", "float16", "float32", "float64"]
    """type of the numbers that are multiplied"""
    order: Positive
    """rows and columns of the matrices"""
    copy_bytes: Positive
    """of a copy between host and device, in each direction"""


class PlanModel(_Line):
    """What was to be measured: the options of fabricbench as they took effect (docs/formats.md)."""

    operations: Annotated[list[Operation], Field(min_length=1)]
    implementation: Literal["automatic", "transfers", "library"]
    """as requested"""
    schedules: Annotated[list[Schedule], Field(min_length=1)]
    sizes: Annotated[list[Positive], Field(min_length=1)]
    warmup: Count
    """iterations that are not kept, of each size"""
    rounds: Text | None = None
    """the file of `--rounds`, whose rounds were measured in place of all pairs"""
    step_transports: Annotated[list[Transport], Field(min_length=3, max_length=3)] | None = None
    """of the steps of striping: split, translate, assemble; the run's transport where it is left out"""
    matrix: Text | None = None
    """the file whose messages the sparse operations sent, or several with commas: a step each"""
    ccl_mode: CclMode | None = None
    """how NCCL was used beyond its defaults: `registered`, `symmetric`, `copy-engine`, `graph-N`, `communicators-N`,
    or several with commas ([how it is measured](methodology.md))"""
    split: Annotated[str, Field(pattern=r"^(?:nodes|rails|[1-9][0-9]{0,6}x[1-9][0-9]{0,6})$")] | None = None
    """the groups of collectives, each a series: `nodes`, `rails`, or `NxS`: N ranks that are S apart. `uncontended`: a
    group by itself; `contended`: all groups at the same time, the time of each its own; all ranks together where it
    is left out"""
    train: Annotated[int, Field(ge=2)] | None = None
    """an iteration is so many operations without a wait in between, fewer (1 at least) where 8 such iterations would
    take longer than `budget_s`; its time is that of one of them, and its metrics have `train` in their names; each
    operation by itself where it is left out"""
    iterations: IterationsModel
    datatype: Text
    """of the numbers that reductions add up: `float32`, `float16`, `bfloat16`, `float8_e4m3`, `float8_e5m2`; of a
    vendor tool in its own words"""
    in_place: Literal["yes"] | None = None
    """the result of collectives lies where their input was: allreduce, allgather, reduce_scatter, reduce; elsewhere
    where it is left out"""
    verify: Literal["batch", "every", "off"] | bool
    """when data are compared with what was sent"""
    injected: str | None
    """a planted defect (tests only), or null"""
    shared_devices: bool
    """whether ranks were allowed to share a device"""
    series: Annotated[list[_AnySeries], Field(min_length=1)]
    """what a complete run has"""
    access: Literal["write", "read", "send"] | None = None
    """of the transports `copy`, `kernel` and `fabric`, also of a step: the source or the destination moves the data;
    `send` (`fabric`): both, by a message"""
    nic: Annotated[str, Field(pattern=r"^[\w.:@+-]+(?:,[\w.:@+-]+)*$")] | None = None
    """of the transport `fabric`: the NIC `near` each rank's GPU, messages in stripes over `all`, or names or numbers
    with commas: that of each rank of a node in their order, several of a rank joined by `+`"""
    handles: Literal["vmm", "fabric"] | None = None
    """how ranks of `copy` and `kernel` reach each other's memory: by CUDA's virtual memory management, or by handles
    of the fabric of an NVLink domain, also between nodes; by the runtime's own (IPC) where it is left out"""
    buffers: Literal["host-device", "device-host", "host-host"] | None = None
    """where the buffers of the first and of the second rank of a pair lie; both on devices where it is left out"""
    host_memory: HostKind | None = None
    """the kind of the host buffers; `migrated`: managed memory whose pages are on the other side when an iteration
    begins"""
    host_numa: Literal["any", "local", "remote"] | None = None
    """on which NUMA node the host buffers were to lie, seen from the device"""
    burn_in: BurnInPlanModel | None = None
    """the load after the measurement (`--burn-in`)"""

    @property
    def uses_host_memory(self) -> bool:
        """Whether any series has a buffer in host memory."""
        return any(uses_host_memory(series.operation, self.buffers) for series in self.series)

    @property
    def verifies(self) -> bool:
        """Whether data were compared with what was sent."""
        return self.verify not in (False, "off")


def is_plan_setting(name: str, value: str) -> bool:
    """Whether fabricbench has an option of a plan by this name, with this value."""
    if name not in SETTINGS:
        return False
    kind: Any = PlanModel.model_fields[name].annotation
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


class HeaderModel(_Line):
    """The first line of a result: what ran, where, with which software, and what was planned."""

    record: Literal["header"]
    format: Literal[1, 2]
    """version of the format; files of version 1 list each pair where version 2 has a rule"""
    run_id: RunId
    """32 hexadecimal digits, drawn for each run; repeated in the footer, and with the MPI library on stdout, by which
    a check knows its own file"""
    program: Text
    """`fabricbench`"""
    version: Text
    backend: Backend
    """what the program was built for"""
    platform: Literal["host", "nvidia", "amd", "intel", "cpu", "emulated"]
    """the devices that the backend runs on (HIP also has an NVIDIA platform; `cpu`: a processor takes a GPU's place).
    `emulated` is written by the reader, where the name of a device begins with `emulated ` or its UUID with
    `GPU-656d756c`: a rehearsal ([emulated nodes](../lab/README.md))"""
    transport: Transport
    """what moves the data"""
    started_utc: Moment
    """such as `2026-11-21T05:54:06Z`"""
    command: list[str]
    """the arguments"""
    case: Text | None = None
    """the test that the run is, as `--case` names it: `PingPong,%transport=mpi,@local:default+openmpi`"""
    ranks: Annotated[list[RankModel], Field(min_length=1)]
    """in rank order"""
    local_rank_source: Text
    """the environment variable that gave the node-local rank, or `order on the node`"""
    oversubscribed: bool
    """some ranks share a core because a node has fewer cores than ranks"""
    few_cores: bool = False
    """ranks drive GPUs of several nodes and have no core beside their own for the threads with which libraries send;
    they yield it while they wait"""
    libraries: dict[str, LibraryModel]
    """by `mpi`; by `ccl`, `fabric` (libfabric) and `gpu` where they are used"""
    environment: dict[str, str]
    """of rank 0, those of `src/data/variables.txt`, the names that libraries document; a value that looks like a
    credential is `<redacted>`, as in `command`"""
    set_by_library: list[Text] = []
    """variables of `environment` that NCCL or RCCL took from a file when it started (`/etc/nccl.conf`, `~/.nccl.conf`,
    that of `NCCL_CONF_FILE`)"""
    environment_differences: list[DifferenceModel]
    """where another rank differs"""
    library_differences: list[DifferenceModel] = []
    """the same of `libraries`, with name, version and driver in one text (`NCCL 2.28.9`)"""
    clock: ClockModel
    host_copy_gbps: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    """bandwidth of one `memcpy` between two buffers in the memory of rank 0's node, in Gb/s (bytes copied, counted
    once): the best of nine readings before each plan of the launch so far"""
    plan: PlanModel
    expected_records: Positive
    """number of samples lines that a complete run has"""


class AggressorModel(_Line):
    """What went on beside a victim: ranks, size of messages, and in each attack the time of a repetition."""

    ranks: Annotated[list[Count], Field(min_length=2)]
    bytes: Positive
    """size of `--aggressor-size`"""
    times_ns: Annotated[list[Positive], Field(min_length=1)]
    """for each attack the mean time of a repetition"""


class SamplesModel(_Line):
    """A series: one operation between `ranks` at one size in bytes, with its times in nanoseconds, in order."""

    record: Literal["samples"]
    index: Count
    """0, 1, 2, … without gaps"""
    operation: Operation
    """[what it measures](metrics.md#operations)"""
    implementation: Implementation
    """a list of point-to-point transfers, or the library's own collective"""
    schedule: Schedule
    """this pair or group alone on the machine, or with the other pairs of its round at the same time"""
    round: Annotated[int, Field(ge=-1, le=_LARGEST)]
    """index of the round among the rounds of this operation and schedule, or among those of the file of `--rounds`; -1
    where there are none"""
    ranks: Annotated[list[Count], Field(min_length=1)]
    """source and destination of a pair (a ping-pong starts at the first); all ranks of a group in order; one rank
    alone, or those that go at the same time, of a path between memories; the root of a rooted collective is the
    first"""
    groups: Groups | None = None
    """`[n, g, k]`; only of [patterns between groups](formats.md#results) and of striping"""
    bytes: Positive
    """size of the buffer ([by operation](metrics.md#operations))"""
    warmup: Count
    """iterations that were not kept"""
    iterations: Annotated[int, Field(ge=1, le=1 << 40)] = 0
    """the length of `times_ns`; where it is more, `times_ns` are [order
    statistics](formats.md#results) of so many"""
    rank_error: Annotated[float, Field(ge=0, le=1 << 40, allow_inf_nan=False)] = 0.0
    """only of order statistics: the standard error of the rank of the median, from the order that they have lost
    (batch means)"""
    stopped: Literal["fixed", "converged", "budget", "maximum"]
    """why the iterations ended"""
    wrong_bytes: Annotated[int, Field(ge=-1, le=_LARGEST)]
    """bytes that differed from what they had to be; -1 if the data were not verified"""
    verified_after: Positive | None = None
    """every byte had to arrive in one of so many iterations, on average"""
    statistic: Literal["iterations", "mean"] = "iterations"
    """`mean`: of a vendor tool that prints no iterations, so `times_ns` is one mean"""
    aggressor: AggressorModel | None = None
    """only of the `contended` record of a victim"""
    times_ns: Annotated[list[Positive], Field(min_length=1)]
    """one an iteration, in order: the maximum over `ranks`; of a ping-pong with `cold_times_ns` that of `ranks[0]`"""
    cold_times_ns: Annotated[list[Positive], Field(min_length=1)] | None = None
    """of ping-pongs below 16 KiB: the first of the three round trips of each iteration, the maximum over `ranks`;
    `times_ns` are those of the third"""


class BurnInModel(_Line):
    """What multiplied matrices on each rank, and whether its first product is right by whole-number arithmetic."""

    record: Literal["burn_in"]
    by: list[Text]
    """by rank: a library with its version, or `kernel`"""
    why_no_library: Text | None = None
    """the first reason of a rank that has none"""
    wrong_rows: list[Count]
    """by rank: rows of the first product that are wrong"""


class TimesModel(_Line):
    """How long iterations of a window took, by rank, in nanoseconds; 0 where there were none."""

    count: list[Count]
    median_ns: list[Count]
    p99_ns: list[Count]
    max_ns: list[Count]


class ProductsModel(TimesModel):
    """The products of a window: time from the end of the one before, and what differs from the first product."""

    wrong_words: list[Count]
    first_wrong: list[Annotated[list[Count], Field(min_length=2, max_length=2)] | None]
    """by rank: number of the first wrong product and of the word in it; null: none"""


class TrafficModel(TimesModel):
    """The iterations of the plan's operation in a window, each by the rank's own clock."""

    wrong_bytes: list[Count]
    """by rank, of the window's last iteration"""


class WindowModel(_Line):
    """A part of the burn-in, a second or more: what went on and how fast it was, by rank."""

    record: Literal["window"]
    window: Count
    """0, 1, 2, … without gaps"""
    phase: Literal["compute", "traffic", "copies", "together"]
    begin_ns: Count
    """since the burn-in began, by the clock of rank 0"""
    end_ns: Count
    utc: Moment
    """when it began"""
    products: ProductsModel | None = None
    traffic: TrafficModel | None = None
    copies: TimesModel | None = None
    """`copy_bytes` to the device and as many back at the same time"""
    ring: TimesModel | None = None
    """by how much the rank held up its right neighbour after a product of equal size on each"""
    allreduce: TimesModel | None = None
    """the same of an allreduce: how much later than the first rank it came"""


# Least, mean and most.
Gauge = Annotated[list[Annotated[float, AfterValidator(_is_finite)]], Field(min_length=3, max_length=3)]


class LoadedGpuModel(_Line):
    """A GPU in a window: gauges with least, mean and most; what it does not tell is absent."""

    bus_id: Text
    index: Count | None = None
    clock_mhz: Gauge | None = None
    memory_clock_mhz: Gauge | None = None
    power_w: Gauge | None = None
    temperature_c: Gauge | None = None
    throttle: dict[str, Count] = {}
    """by reason, the samples in which it was in effect"""
    counters: dict[str, Count] = {}
    """at the end of the window"""


class LoadedNicModel(_Line):
    """A NIC in a window, with the kernel's counters that grew."""

    name: Text
    grew: dict[str, Count]
    """growth in the window"""


class LoadedNodeModel(_Line):
    """What a node reports of its GPUs and NICs in a window, read once a second."""

    record: Literal["node"]
    window: Count
    host: Text
    samples: Count
    """how often it was read"""
    gpus: list[LoadedGpuModel]
    """that ranks drive"""
    xids: list[Annotated[list[Text | Count], Field(min_length=2, max_length=2)]] = []
    """PCI address and number"""
    nics: list[LoadedNicModel] = []
    unread: list[Text] = []
    """what cannot be read, and why"""


class CclModeProofModel(_Line):
    """What was looked for to prove a mode of *CCL, and by operation the sizes at which it was and was not found."""

    evidence: Text
    """what was looked for"""
    proven: dict[Operation, list[Positive]]
    """by operation the sizes in bytes at which it was found"""
    unproven: dict[Operation, list[Positive]]
    """those at which it was not"""


class RemarkModel(_Line):
    """What *CCL's log warns of, or gives as a reason; `ranks`: the first of the `of_ranks` that do."""

    text: Text
    """such as `GPU Direct RDMA Disabled for HCA 0`; 64 remarks at most"""
    warning: bool
    """a warning, or a reason not to use what there is"""
    ranks: Annotated[list[Count], Field(min_length=1)]
    of_ranks: Positive
    """how many ranks log it"""


class PausesModel(_Line):
    """When a rank did not run: it was stopped, its node paused, or the quota of its cgroup was used up."""

    count: Count = 0
    """wake-ups of a thread that sleeps 20 ms, which came more than 50 ms late"""
    total_ns: Count = 0
    """by how much they were late together"""
    longest_ns: Count = 0
    at_ms: list[Count] = []
    """when the first 32 began, milliseconds after the header"""
    throttled_ns: Count = 0
    """for how long the quota of its cgroup, or of one above it, kept it from running"""


class ProofModel(_Line):
    """Which transport paths the data took, with the library's log line or the counters that prove it."""

    paths: dict[str, Positive]
    """how many channels took each path, such as `P2P/CUMEM`; empty where a library reports none. With the transport
    `fabric`: libfabric's providers, with what becomes of device memory"""
    evidence: str | None
    """such as `NCCL_DEBUG`; null where a library reports no path"""
    facts: dict[str, str] = {}
    """of vendor tools only: what the library reported about itself, and the variables in effect"""
    only: dict[str, list[Count]] = {}
    """for each path that not every node reported, the first ranks that reported it, eight at most (`{"NET/Socket/0":
    [4, 5]}`)"""
    interfaces: dict[str, dict[str, Count]] = {}
    """where there are several nodes, the bytes that each of their network interfaces sent from the header to the
    footer, as the kernel counted them (whatever sent them, and not what bypasses these counters)"""
    pauses: dict[str, PausesModel] = {}
    """by rank, as text: the times from the header on in which it did not run though it had work; ranks without are left
    out"""
    remarks: list[RemarkModel] = []
    """NCCL's or RCCL's warnings, and its reasons not to use what there is"""
    ccl_modes: dict[CclMode, CclModeProofModel] = {}
    """by each mode of `ccl_mode` in the plan"""


class LoadedModel(_Line):
    """A shared library that rank 0 had loaded at the end: its file without links, and what its linker named it by."""

    path: Text
    """without links"""
    build_id: Text = ""
    """of the linker, where the file has one"""


class ClockFaultModel(_Line):
    """A clock of a rank that from the header to the footer ran more than 0.5% faster or slower than another."""

    rank: Count
    clock: Text
    against: Text
    ratio: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    """of how fast the two run"""


class FooterModel(_Line):
    """The last line of a complete result, with the counts of what stands before it and times in nanoseconds."""

    record: Literal["footer"]
    run_id: RunId
    status: Literal["complete"]
    records: Count
    """number of samples lines"""
    samples: Count
    """number of times in all of them"""
    wrong_bytes: Count
    wall_ns: Positive
    """from the start of the program"""
    timed_ns: Positive
    """inside the clock: over all measurements and iterations, the time of the slowest of the groups that were measured
    together"""
    setup_ns: Count
    """start of MPI, allocation, handle exchange and creation of communicators"""
    verify_ns: Count
    """filling and checking data"""
    recording_ns: Count
    """gathering, reducing and writing samples"""
    proof: ProofModel
    loaded: list[LoadedModel] = []
    """`fabricheck upgrade` finds by them which packages differ"""
    windows: Count = 0
    """number of window lines"""
    wrong_words: Count = 0
    """of all products, and wrong rows of the first ones"""
    clocks: list[ClockFaultModel] = []
    """those that were wrong, for which all times are INVALID"""
    settings: dict[str, str] = {}
    """only with `--library-settings`: how MPI (by MPI_T), UCX, libfabric and NCCL (by its log) are set, by the variable
    that sets it; `fabricheck upgrade` finds by them which defaults changed"""


class ErrorModel(_Line):
    """The last line of a run that failed: the kind of failure, and the operation and ranks concerned."""

    record: Literal["error"]
    run_id: RunId
    kind: Literal["timeout", "crash", "library", "memory", "input", "unsupported"]
    """`timeout`: an iteration did not end in its time; `crash`: a signal; `library`: a call failed; `unsupported`: the
    machine does not support what the measurement needs (exit status 6, and no header)"""
    message: str
    operation: Operation | None
    """null where nothing was measured at that time"""
    bytes: Positive | None
    """as `operation`"""
    missing_ranks: list[Count]
    """those that did not arrive in time"""
    library: Text | None = None
    """only where a run over NCCL or RCCL timed out: the library's errors and warnings, and what its RAS subsystem
    answered (NCCL 2.24 and later), in one line of at most 1,500 characters"""


JsonObject = dict[str, JsonValue]


def with_todays_words(value: JsonObject) -> JsonObject:
    """A header or an error line as it is written today.

    Up to version 0.1 a header had `port` for `backend`, and an error the kind "lack" for `unsupported`.
    """
    if value.get("record") == "header" and "port" in value and "backend" not in value:
        return {"backend" if key == "port" else key: field for key, field in value.items()}
    if value.get("record") == "error" and value.get("kind") == "lack":
        return {**value, "kind": "unsupported"}
    return value
