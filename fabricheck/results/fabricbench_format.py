"""The lines of fabricbench's result file, format versions 1 and 2, as docs/results-format.md defines them.

Both are closed: an unknown field, a missing one or one of another type makes a line invalid. Only the maps whose
keys are names from outside (`environment`, `libraries`, `paths`) are open.
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


def _is_finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return number


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class DeviceModel(_Line):
    """A GPU as the runtime reports it; `index` counts the node's visible devices, `numa_node` is -1 where unknown."""

    index: Count
    name: Text
    bus_id: Text
    uuid: Text
    numa_node: Annotated[int, Field(ge=-1)]
    memory_bytes: Positive
    tile: Count | None = None  # where a card has several devices: its number on the card


class HostMemoryModel(_Line):
    """What host buffers really are: as the GPU runtime (`allocation`) and the kernel (`numa_node`) say."""

    allocation: Literal["pageable", "pinned", "noncoherent", "managed", "device"]
    numa_node: Annotated[int, Field(ge=-1)]
    wanted_numa_node: Annotated[int, Field(ge=-1)]


class NicModel(_Line):
    """A NIC that a rank used by libfabric, and whether it reached the GPU's memory itself or by a copy on the host."""

    name: Text
    provider: Text
    bus_id: Text | None = None
    gbps: Annotated[float, AfterValidator(_is_finite), Field(gt=0)] | None = None
    device_memory: Literal["registered", "staged", "unproven"] | None = None


class RankModel(_Line):
    """An MPI rank: its host and cores, and the device, host memory and NICs that it used."""

    rank: Count
    host: Text
    local_rank: Count
    pid: Positive
    cpus: str
    numa_node: Annotated[int, Field(ge=-1)]
    device: DeviceModel | None
    host_memory: HostMemoryModel | None = None
    nics: Annotated[list[NicModel], Field(min_length=1)] | None = None


class LibraryModel(_Line):
    """A library that was in use, with the version that it reports of itself."""

    name: Text
    version: str
    driver: str | None = None
    # Level Zero's: whether tiles are devices of their own (ZE_FLAT_DEVICE_HIERARCHY).
    device_hierarchy: Literal["flat", "composite", "combined"] | None = None


class DifferenceModel(_Line):
    """A recorded variable whose value on `rank` differs from that of rank 0; None: it is unset there."""

    rank: Count
    name: Text
    value: str | None


class ClockModel(_Line):
    """The clock of the iterations, with the smallest step and the cost of a reading, in nanoseconds."""

    source: Text
    resolution_ns: Positive
    overhead_ns: Count


class IterationsModel(_Line):
    """How many iterations were planned; of `adaptive`, the bounds and the time budget of a size."""

    mode: Literal["fixed", "adaptive"]
    minimum: Positive
    maximum: Positive
    budget_s: Annotated[float, AfterValidator(_is_finite), Field(gt=0)] | None


# n groups of g ranks, k of each active.
Groups = Annotated[list[Positive], Field(min_length=3, max_length=3)]

# Source, destination and bytes.
Message = Annotated[list[Count], Field(min_length=3, max_length=3)]


class SeriesModel(_Line):
    """One pair or group of one operation; each of its sizes is one samples line."""

    operation: Operation
    implementation: Implementation
    schedule: Schedule
    round: Annotated[int, Field(ge=-1, le=_LARGEST)]
    ranks: Annotated[list[Count], Field(min_length=1)]
    groups: Groups | None = None
    bytes: Annotated[list[Positive], Field(min_length=1)]
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    aggressors: Annotated[list[Count], Field(min_length=2)] | None = None


class RuleModel(_Line):
    """The rule by which each rank knows the pairs of a round, in place of a list of them."""

    ranks: Annotated[int, Field(ge=2, lt=MOST_RANKS)]
    group: Positive
    directions: Literal[1, 2]
    turns: Positive | None = None
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class RuledSeriesModel(_Line):
    """All pairs of one operation and schedule, by a rule; from format version 2 on."""

    operation: Operation
    implementation: Implementation
    schedule: Schedule
    rule: RuleModel
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


class PlanModel(_Line):
    """What was to be measured: the options of fabricbench as they took effect (docs/results-format.md)."""

    operations: Annotated[list[Operation], Field(min_length=1)]
    implementation: Literal["automatic", "transfers", "library"]
    schedules: Annotated[list[Schedule], Field(min_length=1)]
    sizes: Annotated[list[Positive], Field(min_length=1)]
    warmup: Count
    rounds: Text | None = None  # the file whose rounds were measured in place of all pairs
    # Of the steps of striping: split, translate, assemble; the run's transport where it is left out.
    step_transports: Annotated[list[Transport], Field(min_length=3, max_length=3)] | None = None
    matrix: Text | None = None  # the file whose messages the sparse operations sent
    ccl_mode: CclMode | None = None
    # The groups of collectives that go at the same time: nodes, rails, or NxS, N ranks that are S apart.
    split: Annotated[str, Field(pattern=r"^(?:nodes|rails|[1-9][0-9]{0,6}x[1-9][0-9]{0,6})$")] | None = None
    train: Annotated[int, Field(ge=2)] | None = None  # operations of an iteration, without a wait in between
    iterations: IterationsModel
    datatype: Text  # of the numbers that reductions add up; in a vendor tool's own words where that measured
    in_place: Literal["yes"] | None = None  # the result of collectives lies where their input was
    verify: Literal["batch", "every", "off"] | bool
    injected: str | None
    shared_devices: bool
    series: Annotated[list[_AnySeries], Field(min_length=1)]
    access: Literal["write", "read", "send"] | None = None
    nic: Annotated[str, Field(pattern=r"^[\w.:@+-]+(?:,[\w.:@+-]+)*$")] | None = None  # of the transport fabric
    handles: Literal["vmm", "fabric"] | None = None
    buffers: Literal["host-device", "device-host", "host-host"] | None = None
    host_memory: HostKind | None = None
    host_numa: Literal["any", "local", "remote"] | None = None

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
    run_id: RunId
    program: Text
    version: Text
    backend: Backend
    platform: Literal["host", "nvidia", "amd", "intel", "cpu", "emulated"]
    transport: Transport
    started_utc: Annotated[str, AfterValidator(_is_utc)]
    command: list[str]
    case: Text | None = None  # the test that the run is, as ReFrame's report names it
    ranks: Annotated[list[RankModel], Field(min_length=1)]
    local_rank_source: Text
    oversubscribed: bool
    few_cores: bool = False
    libraries: dict[str, LibraryModel]
    environment: dict[str, str]
    set_by_library: list[Text] = []
    environment_differences: list[DifferenceModel]
    library_differences: list[DifferenceModel] = []
    clock: ClockModel
    host_copy_gbps: Annotated[float, AfterValidator(_is_finite), Field(gt=0)]
    plan: PlanModel
    expected_records: Positive


class AggressorModel(_Line):
    """What went on beside a victim: ranks, size of messages, and in each attack the time of a repetition."""

    ranks: Annotated[list[Count], Field(min_length=2)]
    bytes: Positive
    times_ns: Annotated[list[Positive], Field(min_length=1)]


class SamplesModel(_Line):
    """A series: one operation between `ranks` at one size in bytes, with its times in nanoseconds, in order."""

    record: Literal["samples"]
    index: Count
    operation: Operation
    implementation: Implementation
    schedule: Schedule
    round: Annotated[int, Field(ge=-1, le=_LARGEST)]
    ranks: Annotated[list[Count], Field(min_length=1)]
    groups: Groups | None = None
    bytes: Positive
    warmup: Count
    # The length of times_ns, said twice, or of how many that holds the order statistics; 0 where it is left out.
    iterations: Annotated[int, Field(ge=1, le=1 << 40)] = 0
    rank_error: Annotated[float, Field(ge=0, le=1 << 40, allow_inf_nan=False)] = 0.0
    stopped: Literal["fixed", "converged", "budget", "maximum"]
    wrong_bytes: Annotated[int, Field(ge=-1, le=_LARGEST)]
    statistic: Literal["iterations", "mean"] = "iterations"  # mean: of a vendor tool that prints no iterations
    aggressor: AggressorModel | None = None
    times_ns: Annotated[list[Positive], Field(min_length=1)]


class CclModeProofModel(_Line):
    """What was looked for to prove a mode of *CCL, and by operation the sizes at which it was and was not found."""

    evidence: Text
    proven: dict[Operation, list[Positive]]
    unproven: dict[Operation, list[Positive]]


class RemarkModel(_Line):
    """What *CCL's log warns of, or gives as a reason; `ranks`: the first of the `of_ranks` that do."""

    text: Text
    warning: bool
    ranks: Annotated[list[Count], Field(min_length=1)]
    of_ranks: Positive


class ProofModel(_Line):
    """Which transport paths the data took, with the library's log line or the counters that prove it."""

    paths: dict[str, Positive]
    evidence: str | None
    facts: dict[str, str] = {}
    only: dict[str, list[Count]] = {}
    interfaces: dict[str, dict[str, Count]] = {}
    remarks: list[RemarkModel] = []
    ccl_modes: dict[CclMode, CclModeProofModel] = {}


class LoadedModel(_Line):
    """A shared library that rank 0 had loaded at the end: its file without links, and what its linker named it by."""

    path: Text
    build_id: Text = ""


class FooterModel(_Line):
    """The last line of a complete result, with the counts of what stands before it and times in nanoseconds."""

    record: Literal["footer"]
    run_id: RunId
    status: Literal["complete"]
    records: Count
    samples: Count
    wrong_bytes: Count
    wall_ns: Positive
    timed_ns: Positive
    setup_ns: Count
    verify_ns: Count
    recording_ns: Count
    proof: ProofModel
    loaded: list[LoadedModel] = []


class ErrorModel(_Line):
    """The last line of a run that failed: the kind of failure, and the operation and ranks concerned."""

    record: Literal["error"]
    run_id: RunId
    kind: Literal["timeout", "crash", "library", "memory", "input", "unsupported"]
    message: str
    operation: Operation | None
    bytes: Positive | None
    missing_ranks: list[Count]
    library: Text | None = None  # what NCCL or RCCL says of a run that hung


JsonObject = dict[str, JsonValue]


def with_todays_words(value: JsonObject) -> JsonObject:
    """A header or an error line as it is written today.

    Up to version 0.1 a header had `port` for `backend`, and an error the kind `lack` for `unsupported`.
    """
    if value.get("record") == "header" and "port" in value and "backend" not in value:
        return {"backend" if key == "port" else key: field for key, field in value.items()}
    if value.get("record") == "error" and value.get("kind") == "lack":
        return {**value, "kind": "unsupported"}
    return value
