"""Reads the result file of fabricbench (docs/results-format.md) and guards it: nothing doubtful comes out unmarked.

`read_run` looks at one file by itself. What only the caller can know (which transport was asked for, how the program
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
from fabricheck.records.operations import GROUP_PATTERNS, MEMORY_PATHS, PAIRS, SPARSE, STRIPING, VICTIMS
from fabricheck.records.rehearsal import EMULATED, is_emulated
from fabricheck.records.run import Run, describe_places
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.results.fabricbench_format import (
    FORMAT,
    ErrorModel,
    FooterModel,
    HeaderModel,
    JsonObject,
    RankModel,
    SamplesModel,
    SeriesModel,
    with_todays_words,
)
from fabricheck.results.fabricbench_records import rank_of, samples_of
from fabricheck.results.guards import list_ranks
from fabricheck.results.node_names import mistaken_names
from fabricheck.results.node_state import read_states
from fabricheck.results.strict_json import BadLineError, parse_line, validate

# What makes two samples lines the same measurement, and what a planned series must agree with.
_Key = tuple[str, str, int, tuple[int, ...], tuple[int, ...], str, int]

# What the GPU runtime calls an allocation of each kind.
_ALLOCATED = {"managed": "managed", "migrated": "managed"}

# A longer list of the same complaint says nothing more.
_LONGEST_LIST = 5


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
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{str(path)!r} cannot be read: {reason}; give a file written by fabricbench --output"
        ) from None
    reader = _Reader(str(path))
    reader.read(content)
    return reader


def _one_line(text: str, limit: int = 600) -> str:
    clean = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+", " ", text.encode("utf-8", "replace").decode("utf-8")).strip()
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _show(value: JsonValue) -> str:
    return repr(value) if isinstance(value, (str, int, float, type(None))) else f"a {type(value).__name__}"


def _key(each: SamplesModel | SeriesModel, size: int) -> _Key:
    groups = tuple(each.groups or ())
    return each.operation, each.schedule, size, tuple(each.ranks), groups, each.implementation, each.round


def _describe(key: _Key) -> str:
    operation, schedule, size, ranks, groups, *_ = key
    shape = f" {'x'.join(map(str, groups))}" if groups else ""
    return f"{operation}{shape} {schedule} of {size} B on ranks {list_ranks(ranks)}"


@dataclass
class _Reader:
    path: str
    problems: list[Problem] = field(default_factory=list)
    header: HeaderModel | None = None
    raw_header: JsonObject = field(default_factory=dict)
    samples: list[SamplesModel] = field(default_factory=list)
    sample_lines: list[int] = field(default_factory=list)
    footer: FooterModel | None = None
    raw_footer: JsonObject = field(default_factory=dict)
    error: ErrorModel | None = None
    end: int = 0  # line of the footer or of the error record
    last: int = 0  # the last line of the file
    unreadable: bool = False  # some line that should have held samples did not

    def invalid(self, line: int, message: str, verdict: Verdict = Verdict.INVALID) -> None:
        self.problems.append(Problem(verdict, _one_line(f"{self.path}:{line}: {message}")))

    def incomplete(self, line: int, message: str) -> None:
        self.invalid(line, message, Verdict.INCOMPLETE)

    def read(self, content: bytes) -> None:
        lines = content.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        self.last = len(lines)
        if not lines:
            self.incomplete(1, "the file is empty: the benchmark ended before it wrote a header; see its error output")
            return
        for number, line in enumerate(lines, start=1):
            if self.end:
                self.invalid(number, f"something follows the end of the run in line {self.end}: two runs wrote here")
                break
            try:
                self.read_line(number, line)
            except BadLineError as error:
                self.unreadable = True
                if number == self.last:
                    self.incomplete(number, f"the last line {error}: the file was cut off; run the benchmark again")
                else:
                    self.invalid(number, f"the line {error}: something else wrote into the file, or it was changed")
        self.check_file()
        if self.header is not None:
            self.check_ranks(self.header)
            self.check_plan(self.header)
            for number, each in zip(self.sample_lines, self.samples, strict=True):
                self.check_samples(number, each, self.header)
            self.check_against_plan(self.header)
        if self.footer is not None:
            self.check_footer(self.footer)
        # A planted defect that was found has made its problem by now.
        if self.header is not None and self.header.plan.injected is not None and not self.problems:
            self.invalid(1, f"a planted defect was requested ({self.header.plan.injected}) and nothing noticed it")

    def read_line(self, number: int, line: bytes) -> None:
        value = with_todays_words(parse_line(line))
        kind = value.get("record")
        if number == 1 and kind not in ("header", "error"):
            self.invalid(number, "the file does not begin with a header: it is not a whole result of fabricbench")
        if kind == "header":
            self.read_header(number, value)
        elif kind == "samples":
            each = validate(SamplesModel, value)
            if each.index != len(self.samples):
                self.invalid(
                    number,
                    f"samples line {each.index} stands where number {len(self.samples)} belongs: "
                    "lines were lost, doubled or moved",
                )
            self.samples.append(each)
            self.sample_lines.append(number)
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
        if type(version) is not int or version != FORMAT:
            self.invalid(
                number, f"the format version is {_show(version)} and this program reads {FORMAT}: use matching versions"
            )
            return
        header = validate(HeaderModel, value)
        if any(each.device is not None and is_emulated(each.device.name, each.device.uuid) for each in header.ranks):
            header = header.model_copy(update={"platform": EMULATED})
        self.header, self.raw_header = header, {**value, "platform": header.platform}

    def check_run_id(self, number: int, run_id: str) -> None:
        if self.header is not None and run_id != self.header.run_id:
            self.invalid(
                number, f"run_id {run_id} is not that of the header ({self.header.run_id}): two runs are mixed"
            )

    def check_file(self) -> None:
        if self.error is not None:
            self.incomplete(self.end, self.describe_error(self.error))
        elif self.footer is None and not any(each.verdict is Verdict.INCOMPLETE for each in self.problems):
            self.incomplete(self.last, "there is no footer: the run was cut off; see the benchmark's error output")

    def describe_error(self, error: ErrorModel) -> str:
        what = f" during {error.operation} of {error.bytes} B" if error.operation is not None else ""
        text = f"the benchmark ended with an error of kind {error.kind}{what}: {error.message}"
        if error.missing_ranks:
            ranks = self.header.ranks if self.header is not None else ()
            where = describe_places([rank_of(each) for each in ranks if each.rank in error.missing_ranks])
            where = f" (on {where})" if where else ""
            plural = "s" if len(error.missing_ranks) > 1 else ""
            if "did not arrive" not in error.message:
                text += f"; rank{plural} {list_ranks(error.missing_ranks)}{where} did not arrive"
        return text

    def check_ranks(self, header: HeaderModel) -> None:
        for position, each in enumerate(header.ranks):
            if each.rank != position:
                self.invalid(
                    1,
                    f"rank {each.rank} stands in place {position} of the header: a rank is missing, doubled or moved",
                )
                break
        gpu = header.backend != "host"
        for each in header.ranks:
            if gpu != (each.device is not None):
                what = "has no device, so nothing says what it drove" if gpu else "names a device in the host backend"
                self.invalid(1, f"rank {each.rank} {what}")
        if gpu == (header.platform == "host"):
            self.invalid(1, f"the backend {header.backend} cannot run on the platform {header.platform}")
        self.check_platform(header)
        if not header.plan.shared_devices:
            self.check_devices(header.ranks)
        self.check_host_memory(header)
        for mistake in mistaken_names(header):
            self.invalid(1, mistake)

    def check_platform(self, header: HeaderModel) -> None:
        """A rehearsal is one on all its ranks."""
        devices = {each.rank: each.device for each in header.ranks if each.device is not None}
        real = [rank for rank, device in devices.items() if not is_emulated(device.name, device.uuid)]
        if header.platform == EMULATED and (real or not devices):
            first = f"ranks {list_ranks(real)} drove real GPUs" if real else "no rank drove a GPU"
            self.invalid(1, f"{first} in a run on emulated ones: rehearse and measure in runs of their own")

    def check_host_memory(self, header: HeaderModel) -> None:
        kind = header.plan.host_memory
        if header.plan.uses_host_memory and kind is None:
            self.invalid(1, "buffers in host memory are planned, and nothing says of which kind")
        elif kind is not None and not header.plan.uses_host_memory:
            self.invalid(1, f"the plan names {kind} host memory, and nothing in it uses host memory")
        wanted = _ALLOCATED.get(kind or "", kind)
        for each in header.ranks:
            found = each.host_memory
            if (found is None) != (kind is None):
                self.invalid(1, f"nothing shows what the host memory of rank {each.rank} was")
            elif found is not None and found.allocation != wanted:
                self.invalid(1, f"the host memory of rank {each.rank} was {found.allocation} and not {wanted}")
            elif found is not None and found.wanted_numa_node not in (-1, found.numa_node):
                self.invalid(
                    1,
                    f"the host memory of rank {each.rank} lay on NUMA node {found.numa_node} and not on "
                    f"{found.wanted_numa_node}, where it was wanted",
                )
            elif found is not None and (found.wanted_numa_node >= 0) != (header.plan.host_numa in {"local", "remote"}):
                self.invalid(1, f"nothing put the host memory of rank {each.rank} where the plan says")

    def check_devices(self, ranks: Sequence[RankModel]) -> None:
        drivers: dict[tuple[str, str], int] = {}
        for each in ranks:
            if each.device is None:
                continue
            first = drivers.setdefault((each.host, each.device.uuid), each.rank)
            if first != each.rank:
                self.invalid(
                    1,
                    f"ranks {first} and {each.rank} drove the same device {each.device.uuid} of {each.host}: bind one "
                    "rank to a GPU, or share devices on purpose with --share-devices",
                )

    def check_plan(self, header: HeaderModel) -> None:
        plan = header.plan
        planned = sum(len(series.bytes) for series in plan.series)
        if planned != header.expected_records:
            self.invalid(1, f"expected_records is {header.expected_records} and the plan has {planned}")
        # A pair may be in several of the rounds that the user has written down.
        depth = 5 if plan.rounds is None else None
        keys = Counter(_key(series, size)[:depth] for series in plan.series for size in series.bytes)
        if len(keys) != planned:
            self.invalid(1, "the plan has a measurement twice")
        for series in plan.series:
            self.check_group(1, series, header)
            self.check_company(series, header)
        if {series.operation for series in plan.series} != set(plan.operations):
            self.invalid(1, "the series of the plan are not for the operations of the plan")
        if {series.schedule for series in plan.series} != set(plan.schedules):
            self.invalid(1, "the series of the plan are not for the schedules of the plan")
        iterations = plan.iterations
        if iterations.minimum > iterations.maximum or (
            iterations.mode == "fixed" and iterations.minimum != iterations.maximum
        ):
            self.invalid(1, f"the plan has {iterations.minimum} to {iterations.maximum} iterations")

    def check_group(self, line: int, each: SamplesModel | SeriesModel, header: HeaderModel) -> None:
        operation, ranks = each.operation, each.ranks
        if max(ranks) >= len(header.ranks):
            self.invalid(line, f"rank {max(ranks)} is not in this run of {len(header.ranks)} ranks")
        elif len(set(ranks)) != len(ranks):
            self.invalid(line, f"{operation} has a rank twice in {list_ranks(ranks)}")
        elif operation not in MEMORY_PATHS and len(ranks) < 2:
            self.invalid(line, f"{operation} is between ranks, and rank {ranks[0]} is alone")
        elif operation in PAIRS and len(ranks) != 2:
            self.invalid(line, f"{operation} is between two ranks, not {len(ranks)}")
        elif (each.groups is not None) != (operation in GROUP_PATTERNS or operation in STRIPING):
            what = "has groups" if each.groups is not None else "does not say which groups"
            self.invalid(line, f"{operation} {what}")
        elif each.groups is not None:
            self.check_groups(line, operation, ranks, *each.groups)

    def check_company(self, series: SeriesModel, header: HeaderModel) -> None:
        """The messages of a matrix, and the ranks beside a victim, which only a series has."""
        operation, messages, aggressors = series.operation, series.messages, series.aggressors
        if (messages is not None) != (operation in SPARSE):
            self.invalid(1, f"{operation} {'has messages' if messages else 'does not say which messages'} in the plan")
        if (aggressors is not None) != (operation in VICTIMS):
            self.invalid(1, f"{operation} {'has aggressors' if aggressors else 'names no aggressors'} in the plan")
        for source, destination, size in messages or ():
            if source == destination or size == 0 or not {source, destination} <= set(series.ranks):
                self.invalid(1, f"{operation} has a message from rank {source} to rank {destination}")
                return
        if messages is not None and [sum(size for *_, size in messages)] != series.bytes:
            self.invalid(1, f"the messages of {operation} are not the bytes of the plan")
        if aggressors is not None and (
            max(aggressors) >= len(header.ranks)
            or len({*aggressors, *series.ranks}) < len(aggressors) + len(series.ranks)
        ):
            self.invalid(1, f"{operation} has an aggressor twice, among its victims or from outside")

    def check_groups(self, line: int, operation: str, ranks: Sequence[int], *groups: int) -> None:
        count, size, active = groups
        striping = operation in STRIPING
        two = striping or GROUP_PATTERNS[operation][0] == "asymmetric"
        if count < 2 or active > size or (two and count != 2) or (striping and active < 2):
            self.invalid(line, f"{operation} cannot be among (n, g, k) = {groups}")
        elif list(ranks) != list(range(count * size)):
            self.invalid(line, f"{operation} among (n, g, k) = {groups} is not on ranks {list_ranks(ranks)}")

    def check_samples(self, line: int, each: SamplesModel, header: HeaderModel) -> None:
        self.check_group(line, each, header)
        plan, count = header.plan.iterations, len(each.times_ns)
        what = _describe(_key(each, each.bytes))
        if each.iterations not in (0, count):
            self.invalid(line, f"{what} says {each.iterations} iterations and has {count} times")
        if plan.mode == "fixed":
            if count != plan.maximum or each.stopped != "fixed" or each.warmup != header.plan.warmup:
                self.invalid(
                    line,
                    f"{what} has {count} iterations after {each.warmup} of warm-up ({each.stopped}) where "
                    f"{plan.maximum} after {header.plan.warmup} were planned",
                )
        elif (
            count > plan.maximum
            or each.stopped == "fixed"
            or (each.stopped == "maximum" and count != plan.maximum)
            or each.warmup > header.plan.warmup
        ):
            self.invalid(
                line,
                f"{what} has {count} iterations after {each.warmup} of warm-up ({each.stopped}) where at most "
                f"{plan.maximum} after at most {header.plan.warmup} were planned",
            )
        if each.wrong_bytes > 0:
            self.invalid(
                line, f"{what} brought {each.wrong_bytes} wrong bytes: the data are not what was sent", Verdict.FAIL
            )
        elif header.plan.verifies != (each.wrong_bytes == 0):
            said = "were not verified though the plan says so" if header.plan.verifies else "were verified against plan"
            self.invalid(line, f"the data of {what} {said}")

    def check_against_plan(self, header: HeaderModel) -> None:
        planned = Counter(_key(series, size) for series in header.plan.series for size in series.bytes)
        lines = {_key(each, each.bytes): number for number, each in zip(self.sample_lines, self.samples, strict=True)}
        measured = Counter(_key(each, each.bytes) for each in self.samples)
        self.complain(
            ((lines[key], f"{_describe(key)} is there more than once") for key, n in measured.items() if n > 1)
        )
        self.complain((lines[key], f"{_describe(key)} was not planned") for key in measured if key not in planned)
        # A run that ended early lacks records anyway, and a line that could not be read has said so.
        if self.footer is None or self.unreadable:
            return
        missing = [key for key in planned if key not in measured]
        self.complain(((self.last, f"{_describe(key)} is missing") for key in missing), Verdict.INCOMPLETE)

    def complain(self, complaints: Iterable[tuple[int, str]], verdict: Verdict = Verdict.INVALID) -> None:
        complaints = list(complaints)
        for line, message in complaints[:_LONGEST_LIST]:
            self.invalid(line, message, verdict)
        if len(complaints) > _LONGEST_LIST:
            line, message = complaints[_LONGEST_LIST]
            self.invalid(line, f"{message}, and so on: {len(complaints)} in all", verdict)

    def check_footer(self, footer: FooterModel) -> None:
        if self.unreadable:
            return
        counted = {
            "records": (footer.records, len(self.samples)),
            "samples": (footer.samples, sum(len(each.times_ns) for each in self.samples)),
            "wrong_bytes": (footer.wrong_bytes, sum(max(each.wrong_bytes, 0) for each in self.samples)),
            "timed_ns": (footer.timed_ns, _timed_ns(self.samples)),
        }
        for name, (said, found) in counted.items():
            if said != found:
                self.invalid(self.end, f"the footer says {name} {said} and the lines give {found}")
        if footer.timed_ns > footer.wall_ns:
            self.invalid(self.end, f"{footer.timed_ns} ns inside the clock do not fit into {footer.wall_ns} ns of run")
        if (footer.proof.evidence is None) != (not footer.proof.paths):
            self.invalid(self.end, "the proof of the transport has paths without evidence, or evidence without paths")

    def run(self) -> Run:
        header = self.header
        series = header.plan.series if header is not None else []
        messages = {_key(each, each.bytes[0]): each.messages for each in series if each.messages}
        return Run(
            path=self.path,
            header=self.raw_header,
            ranks=tuple(rank_of(each) for each in header.ranks) if header is not None else (),
            samples=tuple(samples_of(each, messages.get(_key(each, each.bytes), [])) for each in self.samples),
            footer=self.raw_footer if self.footer is not None else None,
            problems=tuple(self.problems),
        )


def _timed_ns(samples: Sequence[SamplesModel]) -> int:
    """The time inside the clock: of pairs that go at the same time, each iteration counts as its slowest pair."""
    total = 0
    rounds: dict[tuple[str, str, str, int, int], list[list[int]]] = {}
    for each in samples:
        if each.round < 0:
            total += sum(each.times_ns)
        else:
            key = (each.operation, each.implementation, each.schedule, each.round, each.bytes)
            rounds.setdefault(key, []).append(each.times_ns)
    for together in rounds.values():
        total += sum(max(times) for times in zip(*together, strict=False))
    return total
