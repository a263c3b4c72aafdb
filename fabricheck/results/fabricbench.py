"""Reads the result file of fabricbench (docs/formats.md) and guards it: nothing doubtful comes out unmarked.

`read_run` looks at one file by itself. What only the caller can know (which transport was requested, how the program
ended, when the job started) is in `fabricheck.results.guards`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from pydantic import JsonValue

from fabricheck.errors import UserError
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.rehearsal import EMULATED, is_emulated
from fabricheck.records.run import Rank, Run, Samples, describe_places, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.results.burn_in import BurnInLines
from fabricheck.results.fabricbench_format import (
    READABLE_FORMATS,
    ErrorModel,
    FooterModel,
    HeaderModel,
    HostMemoryModel,
    JsonObject,
    RankModel,
    SamplesModel,
    SeriesModel,
    with_todays_words,
)
from fabricheck.results.fabricbench_records import (
    Key,
    describe,
    key_of,
    mistaken_names,
    mode_mistakes,
    order_mistake,
    plan_mistakes,
    planned_keys,
    rank_of,
    samples_mistakes,
    samples_of,
    timed_ns,
)
from fabricheck.results.node_state import read_states
from fabricheck.results.strict_json import BadLineError, parse_line, validate
from fabricheck.wholefile import open_file

#: What the benchmark did, by the kind of its error.
_ENDS = {
    "timeout": "timed out",
    "crash": "crashed",
    "library": "failed in a library",
    "memory": "ran out of memory",
    "input": "refused its input",
    "unsupported": "does not support this",
}
# What the GPU runtime calls an allocation of each kind.
_ALLOCATED = {"managed": "managed", "migrated": "managed"}

# A rank of whose communicator NCCL's RAS has no data, as fabricbench joins its lines.
_LOST_RANK = re.compile(r"\bRank (\d+) -- GPU \d+")

# A longer list of the same complaint says nothing more.
_LONGEST_LIST = 5
# A thousand iterations of each of 100,000 pairs and sizes: no run has so many.
_MOST_BYTES = 1 << 30


def read_run(path: str | PathLike[str]) -> Run:
    """The run in a result file, with every problem of it; each problem is one line that names the file and the line.

    Whatever the file holds, this returns. A run without problems is complete, consistent in itself and made by the
    benchmark as its header says. `header` is empty where the header is not valid. What nodes said beside it is in
    it too. Raises UserError only when there is no file to read.
    """
    return replace(_read(path).run(), states=read_states(Path(path)))


def read_unsupported(path: str | PathLike[str]) -> str | None:
    """What of a measurement the machine does not support, where the benchmark ended for that reason and wrote it down.

    None for a run that ended in any other way. Raises UserError only when there is no file to read.
    """
    error = _read(path).error
    return error.message if error is not None and error.kind == "unsupported" else None


def _read(path: str | PathLike[str]) -> _Reader:
    try:
        reader = _Reader(str(path))
        with open_file(Path(path), _MOST_BYTES) as file:
            reader.read(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{str(path)!r} cannot be read: {reason}") from None
    return reader


def _one_line(text: str, limit: int = 600) -> str:
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+", " ", text.encode("utf-8", "replace").decode("utf-8")).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _show(value: JsonValue) -> str:
    return repr(value) if isinstance(value, (str, int, float, type(None))) else f"a {type(value).__name__}"


# What a verdict on a line of a result file means, and the kinds of errors that fabricbench tells of.
_CODES = {
    Verdict.INVALID: "result-damaged",
    Verdict.INCOMPLETE: "result-incomplete",
    Verdict.FAIL: "wrong-bytes",
}
_CODE_OF_ERROR = {"timeout": "rank-hangs", "crash": "rank-crashed"}


@dataclass
class _Reader:
    path: str
    problems: list[Finding] = field(default_factory=list)
    header: HeaderModel | None = None
    raw_header: JsonObject = field(default_factory=dict)
    messages: dict[Key, Sequence[Sequence[int]]] = field(default_factory=dict)
    samples: list[Samples] = field(default_factory=list)
    load: BurnInLines = field(default_factory=BurnInLines)
    keys: list[Key] = field(default_factory=list)
    of_samples: list[Finding] = field(default_factory=list)
    sample_lines: list[int] = field(default_factory=list)
    footer: FooterModel | None = None
    raw_footer: JsonObject = field(default_factory=dict)
    error: ErrorModel | None = None
    end: int = 0  # line of the footer or of the error record
    last: int = 0  # the last line of the file
    planned: Counter[Key] = field(default_factory=Counter)
    unreadable: int = 0  # lines that should have held something and did not
    foreign: bool = False  # a line is JSON without the field that all lines of fabricbench have, or the first none

    def invalid(self, line: int, message: str) -> None:
        self.problems.append(self.problem(line, message, Verdict.INVALID))

    def problem(self, line: int, message: str, verdict: Verdict, code: str = "") -> Finding:
        return Finding(code or _CODES[verdict], verdict, _one_line(f"{self.path}:{line}: {message}"))

    def incomplete(self, line: int, message: str) -> None:
        self.problems.append(self.problem(line, message, Verdict.INCOMPLETE))

    def read(self, lines: Iterable[bytes]) -> None:
        before: bytes | None = None
        for line in lines:
            if before is not None:
                self.read_next(before, is_last=False)
            before = line
            if self.end and self.last > self.end:
                break
        else:
            if before is not None:
                self.read_next(before, is_last=True)
        if not self.last:
            self.incomplete(1, "the file is empty: the benchmark ended before it wrote a header; see its error output")
            return
        if self.unreadable == self.last and (self.last > 1 or self.foreign):
            self.problems.clear()
            self.invalid(
                1,
                "unknown format: not of fabricbench or a tool of `judge --help`; about nodes: `fabricheck init`",
            )
            return
        if self.unreadable > _LONGEST_LIST:
            self.invalid(1, f"{self.unreadable} of its lines could not be read")
        self.check_file()
        if self.header is not None:
            self.check_ranks(self.header)
            self.planned = Counter(planned_keys(self.header))
            for mistake in plan_mistakes(self.header, self.planned):
                self.invalid(1, mistake)
            self.problems += self.of_samples
            self.complain((self.last, mistake) for mistake in self.load.mistakes(self.header))
            self.check_against_plan()
        if self.footer is not None:
            self.check_footer(self.footer)
        # A planted defect that was found has made its problem by now.
        injected = self.header.plan.injected if self.header is not None else None
        if injected is not None and not self.problems and not self.load.shows(injected):
            self.invalid(1, f"a planted defect was requested ({injected}) and not detected")

    def read_next(self, line: bytes, *, is_last: bool) -> None:
        self.last += 1
        number = self.last
        if self.end:
            self.invalid(number, f"the run ends in line {self.end}, and more lines follow: two runs wrote here")
            return
        try:
            self.read_line(number, line.removesuffix(b"\n"))
        except BadLineError as error:
            self.unreadable += 1
            self.foreign = self.foreign or (number == 1 and not line.lstrip().startswith(b"{"))
            if is_last:
                self.incomplete(number, f"the last line {error}: the file was cut off; run the benchmark again")
            elif self.unreadable <= _LONGEST_LIST:
                self.invalid(number, f"the line {error}: something else wrote into the file, or it was changed")

    def read_line(self, number: int, line: bytes) -> None:
        value = with_todays_words(parse_line(line))
        kind = value.get("record")
        self.foreign = self.foreign or "record" not in value
        if number == 1 and kind not in ("header", "error"):
            self.invalid(number, "the file does not begin with a header: it is not a complete result of fabricbench")
        if kind == "header":
            self.read_header(number, value)
        elif kind == "samples":
            samples = validate(SamplesModel, value)
            if samples.index != len(self.samples):
                self.invalid(
                    number,
                    f"samples line {samples.index} is at the place of "
                    f"line {len(self.samples)}: lines were lost, repeated or moved",
                )
            key = key_of(samples, samples.bytes)
            kept_of = 0
            if self.header is not None:
                if samples.iterations > len(samples.times_ns) and order_mistake(samples, self.header) is None:
                    kept_of = samples.iterations
                self.of_samples += [
                    self.problem(number, message, verdict)
                    for message, verdict in samples_mistakes(samples, describe(key), self.header)
                ]
            self.keys.append(key)
            self.sample_lines.append(number)
            # As an array at once: lists of numbers take ten times as much memory.
            self.samples.append(samples_of(samples, self.messages.get(key, ()), kept_of))
        elif kind in ("burn_in", "window", "node"):
            self.load.read(kind, value)
        elif kind == "footer":
            self.footer, self.raw_footer, self.end = validate(FooterModel, value), value, number
            self.check_run_id(number, self.footer.run_id)
        elif kind == "error":
            self.error, self.end = validate(ErrorModel, value), number
            self.check_run_id(number, self.error.run_id)
        else:
            raise BadLineError(f"is of the unknown kind {_show(kind)}")

    def read_header(self, number: int, value: JsonObject) -> None:
        if number != 1:
            self.invalid(number, "there is a second header: two runs wrote into one file")
            return
        version = value.get("format")
        if type(version) is not int or version not in READABLE_FORMATS:
            readable = " and ".join(map(str, READABLE_FORMATS))
            self.invalid(
                number,
                f"the format version is {_show(version)} and this version reads {readable}: use matching versions",
            )
            return
        header = validate(HeaderModel, value)
        if any(each.device is not None and is_emulated(each.device.name, each.device.uuid) for each in header.ranks):
            header = header.model_copy(update={"platform": EMULATED})
        self.header, self.raw_header = header, {**value, "platform": header.platform}
        for series in header.plan.series:
            if isinstance(series, SeriesModel) and series.messages:
                ends = {end for message in series.messages for end in message[:2]}
                # A message between others is a mistake of the plan, which is said; nothing is to be looked for in it.
                if ends <= {*series.ranks}:
                    self.messages[key_of(series, series.bytes[0])] = series.messages

    def check_run_id(self, number: int, run_id: str) -> None:
        if self.header is not None and run_id != self.header.run_id:
            self.invalid(
                number, f"run_id {run_id} differs from that of the header ({self.header.run_id}): two runs are mixed"
            )

    def check_file(self) -> None:
        if self.error is not None:
            code = _CODE_OF_ERROR.get(self.error.kind, "benchmark-failed")
            ended = self.problem(self.end, self.describe_error(self.error), Verdict.INCOMPLETE, code)
            self.problems.append(replace(ended, components=self.nodes_of_error(self.error)))
        elif self.footer is None and not any(each.verdict is Verdict.INCOMPLETE for each in self.problems):
            self.incomplete(self.last, "there is no footer: the run was cut off; see the benchmark's error output")

    def ranks(self) -> tuple[Rank, ...]:
        header = self.header
        return tuple(rank_of(each, header.platform) for each in header.ranks) if header is not None else ()

    def nodes_of_error(self, error: ErrorModel) -> tuple[Component, ...]:
        """The nodes of the ranks that the error, or the library, misses; none where that is all of them."""
        missing = {*error.missing_ranks, *map(int, _LOST_RANK.findall(error.library or ""))}
        lost = {rank.host for rank in self.ranks() if rank.rank in missing}
        others = {rank.host for rank in self.ranks()} - lost
        return tuple(map(Component.of_node, sorted(lost))) if others else ()

    def describe_error(self, error: ErrorModel) -> str:
        what = f" during {error.operation} of {error.bytes:,} B" if error.operation is not None else ""
        if self.header is not None and self.header.plan.ccl_mode is not None:
            what += f" in the mode {self.header.plan.ccl_mode} of *CCL"
        text = f"the benchmark {_ENDS[error.kind]}{what}: {error.message}"
        if error.missing_ranks:
            where = describe_places([each for each in self.ranks() if each.rank in error.missing_ranks])
            where = f" (on {where})" if where else ""
            plural = "s" if len(error.missing_ranks) > 1 else ""
            if "did not arrive" not in error.message:
                what = "ended early" if error.kind == "crash" else "did not arrive"
                text += f"; rank{plural} {list_ranks(error.missing_ranks)}{where} {what}"
        if error.library is not None:
            ccl = self.header.libraries.get("ccl") if self.header is not None else None
            text += f"; {ccl.name if ccl is not None else 'NCCL'} says: {error.library}"
        return text

    def check_ranks(self, header: HeaderModel) -> None:
        for position, rank in enumerate(header.ranks):
            if rank.rank != position:
                self.invalid(
                    1,
                    f"rank {rank.rank} is at place {position} of the header: a rank is missing, repeated or moved",
                )
                break
        gpu = header.backend != "host"
        for rank in header.ranks:
            if gpu != (rank.device is not None):
                what = "has no device" if gpu else "names a device in the host backend"
                self.invalid(1, f"rank {rank.rank} {what}")
        if gpu == (header.platform == "host"):
            self.invalid(1, f"the backend {header.backend} cannot run on the platform {header.platform}")
        self.check_platform(header)
        if not header.plan.shared_devices:
            self.check_devices(header.ranks, worldwide=header.platform == "nvidia")
        self.check_host_memory(header)
        for mistake in mistaken_names(header):
            self.invalid(1, mistake)

    def check_platform(self, header: HeaderModel) -> None:
        """A rehearsal is one on all its ranks."""
        devices = {each.rank: each.device for each in header.ranks if each.device is not None}
        real = [rank for rank, device in devices.items() if not is_emulated(device.name, device.uuid)]
        if header.platform == EMULATED and (real or not devices):
            first = f"ranks {list_ranks(real)} used real GPUs" if real else "no rank used a GPU"
            self.invalid(1, f"{first} in a run on emulated ones: use separate runs for rehearsals and measurements")

    def check_host_memory(self, header: HeaderModel) -> None:
        kind = header.plan.host_memory
        if header.plan.uses_host_memory and kind is None:
            self.invalid(1, "buffers in host memory are planned, and their kind is not given")
        elif kind is not None and not header.plan.uses_host_memory:
            self.invalid(1, f"the plan names {kind} host memory, and no measurement uses it")
        wanted = _ALLOCATED.get(kind or "", kind)
        for rank in header.ranks:
            memory = rank.host_memory
            if (memory is None) != (kind is None):
                self.invalid(1, f"the host memory of rank {rank.rank} is unknown")
            elif memory is not None and memory.allocation != wanted:
                self.invalid(1, f"the host memory of rank {rank.rank} was {memory.allocation} instead of {wanted}")
            elif memory is not None:
                self.check_numa_node(rank.rank, memory, placed=header.plan.host_numa in {"local", "remote"})

    def check_numa_node(self, rank: int, memory: HostMemoryModel, *, placed: bool) -> None:
        """Host memory lies where it was to; what the driver holds or the runtime places, as far as that is known."""
        wanted, actual = memory.wanted_numa_node, memory.numa_node
        known = placed or (actual >= 0 and memory.allocation != "managed")
        if wanted not in (-1, actual) and known:
            self.invalid(
                1,
                f"the host memory of rank {rank} was on NUMA node {actual} instead of {wanted}: is node {wanted} full "
                "(numactl --hardware)?",
            )
        elif wanted < 0 and placed:
            self.invalid(1, f"no library placed the host memory of rank {rank} as planned")

    def check_devices(self, ranks: Sequence[RankModel], *, worldwide: bool) -> None:
        """`worldwide`: no two GPUs of the world have one UUID; others number theirs by node."""
        drivers: dict[tuple[str, str], int] = {}
        for rank in ranks:
            if rank.device is None:
                continue
            first = drivers.setdefault(("" if worldwide else rank.host, rank.device.uuid), rank.rank)
            if first != rank.rank:
                self.invalid(
                    1,
                    f"ranks {first} and {rank.rank} used the same device {rank.device.uuid} of {rank.host}: bind one "
                    "rank to a GPU, or share devices on purpose with --share-devices",
                )

    def check_against_plan(self) -> None:
        planned = self.planned
        lines = dict(zip(self.keys, self.sample_lines, strict=True))
        measured = Counter(self.keys)
        self.complain(((lines[key], f"{describe(key)} appears more than once") for key, n in measured.items() if n > 1))
        self.complain((lines[key], f"{describe(key)} was not planned") for key in measured if key not in planned)
        # A run that ended early lacks records anyway, and a line that could not be read has said so.
        if self.footer is None or self.unreadable:
            return
        if self.header is not None and self.header.plan.burn_in is not None and not self.load.windows:
            self.incomplete(self.last, "the burn-in has no windows")
        missing = [key for key in planned if key not in measured]
        self.complain(((self.last, f"{describe(key)} is missing") for key in missing), Verdict.INCOMPLETE)

    def complain(self, complaints: Iterable[tuple[int, str]], verdict: Verdict = Verdict.INVALID) -> None:
        complaints = list(complaints)
        for line, message in complaints[:_LONGEST_LIST]:
            self.problems.append(self.problem(line, message, verdict))
        if len(complaints) > _LONGEST_LIST:
            line, message = complaints[_LONGEST_LIST]
            text = f"{message}, and so on: {len(complaints)} in all"
            self.problems.append(self.problem(line, text, verdict))

    def check_footer(self, footer: FooterModel) -> None:
        if self.unreadable:
            return
        counted = {
            "records": (footer.records, len(self.samples)),
            "samples": (footer.samples, sum(each.times_ns.size for each in self.samples)),
            "wrong_bytes": (footer.wrong_bytes, sum(max(each.wrong_bytes, 0) for each in self.samples)),
            "windows": (footer.windows, len(self.load.windows)),
            "wrong_words": (footer.wrong_words, self.load.wrong_words),
        }
        # Of order statistics nobody knows which iterations went together.
        if not any(each.kept_of for each in self.samples):
            counted["timed_ns"] = footer.timed_ns, timed_ns(self.samples)
        for name, (said, counted_value) in counted.items():
            if said != counted_value:
                self.invalid(self.end, f"the footer has {name} {said}, and the lines give {counted_value}")
        if footer.timed_ns > footer.wall_ns:
            self.invalid(
                self.end, f"{footer.timed_ns} ns of measurements are more than the {footer.wall_ns} ns of the run"
            )
        for fault in footer.clocks[:_LONGEST_LIST]:
            text = f"on rank {fault.rank} {fault.clock} runs at {100 * fault.ratio:.1f}% of {fault.against}"
            self.problems.append(self.problem(self.end, text, Verdict.INVALID, "wrong-clock"))
        if (footer.proof.evidence is None) != (not footer.proof.paths):
            self.invalid(self.end, "the proof of the transport has paths without evidence, or evidence without paths")
        if self.header is not None:
            for mistake in mode_mistakes(self.header, footer.proof):
                self.invalid(self.end, mistake)

    def run(self) -> Run:
        run = Run(
            path=self.path,
            header=self.raw_header,
            ranks=self.ranks(),
            samples=tuple(self.samples),
            footer=self.raw_footer if self.footer is not None else None,
            problems=tuple(self.problems),
        )
        is_damaged = any(one.verdict is Verdict.INVALID for one in self.problems)
        return run if self.header is None or is_damaged else self.load.added_to(run, self.header.plan.burn_in)
