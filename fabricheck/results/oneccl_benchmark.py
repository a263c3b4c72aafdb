"""Reads the output of oneCCL's own `benchmark` (uxlfoundation/oneCCL, examples/benchmark; docs/vendor-formats.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fabricheck.records.run import Samples
from fabricheck.results.vendor_output import HEADINGS, TextRow, ToolReader, VendorOutput, read_tool
from fabricheck.results.vendor_text import LARGEST_RANKS, Line, fixed_number, looks_like_number, one_time, whole_number

PROGRAM = "benchmark"
#: By its own name: the operation, and whether a size is the share of one rank.
_COLLECTIVES = {
    "allreduce": ("allreduce", False),
    "reduce": ("reduce", False),
    "reduce_scatter": ("reduce_scatter", False),
    "bcast": ("broadcast", False),
    "broadcast": ("broadcast", False),
    "allgather": ("allgather", True),
    "alltoall": ("alltoall", True),
}
_ELEMENT_BYTES = {"int8": 1, "int32": 4, "int64": 8, "uint64": 8, "float16": 2, "float32": 4, "float64": 8}
_ELEMENT_BYTES["bfloat16"] = 2
# Of times that are all zero the deviation is no number.
_DEVIATION = ("deviation", lambda token: 0.0 if token in ("nan", "-nan") else fixed_number(token))
_HEADINGS = {**HEADINGS, "#elem_count": ("elements", whole_number), "stddev[%]": _DEVIATION}
_COLUMNS = ("#bytes", "#elem_count", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]", "stddev[%]")
_FURTHER_COLUMN = "wait_t_avg[usec]"
# Of the list "options:", what says how it was measured, and what it can be. With several buffers, or one for both
# directions, #bytes mean something else.
_OPTIONS = {
    "processes": r"[0-9]{1,9}",
    "warmup_iters": r"[0-9]{1,9}",
    "iter_policy": r"off|auto",
    "buf_count": r"1",
    "inplace": r"0",
    "check": r"off|last|all",
    "elem_counts": r"\[[0-9 ]*\]",
}
_OPTION = re.compile(r"([a-z_ ]{1,20}):\s*(.*)", re.ASCII)
_HEADING = re.compile(r"# Benchmarking: (.+)", re.ASCII)
_PROCESSES = re.compile(r"# #processes: ([0-9]{1,9})", re.ASCII)


def parse_oneccl_benchmark(
    text: str, path: str = "", *, ranks: int | None = None, sizes: tuple[int, ...] | None = None
) -> VendorOutput:
    """The measurements in the standard output of one run of one collective with one datatype.

    `ranks` and `sizes` (those that were requested, in bytes) are what a caller knows. A time is `t_max[usec]`, the
    mean of the slowest rank; `bytes` is `#bytes`, times the ranks where that is the share of one. Whatever the text
    holds, this returns.
    """
    return read_tool(_Reader, text, path, ranks, sizes=sizes)


@dataclass
class _Reader(ToolReader):
    title = "oneCCL's benchmark"
    never_zero = ("maximum",)

    options: dict[str, str] = field(default_factory=dict)
    collective: str = ""
    processes: int | None = None
    columns: tuple[str, ...] = ()
    rows: list[TextRow] = field(default_factory=list)
    ended: bool = False

    def name_and_ranks(self) -> tuple[str, int | None]:
        return f"{PROGRAM} {self.collective}".strip(), self.processes

    def read(self, line: Line, text: str) -> None:
        if set(text) <= set("#-"):
            return
        if self.ended and (text.startswith("#") or looks_like_number(text.split(maxsplit=1)[0])):
            self.complaints.invalid(line, "two outputs are in one text")
        elif text.startswith("#bytes"):
            self.read_columns(line, tuple(text.split()))
        elif text == "# All done":
            self.ended = True
        elif (heading := _HEADING.fullmatch(text)) is not None:
            if self.collective:
                self.complaints.invalid(line, "there are several tables: run one collective and datatype at a time")
            self.collective = heading[1].strip()
        elif (processes := _PROCESSES.fullmatch(text)) is not None and self.processes is None:
            self.processes = min(int(processes[1]), LARGEST_RANKS)
        elif text.startswith("#") or "[usec]" in text or "Benchmarking" in text:
            self.complaints.invalid(line, "this is not a line of oneCCL's benchmark that can be read")
        elif text == "FAILED" or "unexpected value" in text or ("expected" in text and "got" in text):
            self.complaints.fail(line, "the data were wrong")
        elif looks_like_number(text.split(maxsplit=1)[0]) and "|CCL_" not in text:
            self.read_row(line, text.split())
        elif not self.collective and (option := _OPTION.fullmatch(text)) is not None:
            self.read_option(line, option[1], option[2].strip())

    def read_option(self, line: Line, name: str, value: str) -> None:
        fact = {"datatype": "datatype", "reduction": "redop"}.get(name)
        if (fact in self.facts) or name in self.options:
            self.complaints.invalid(line, "an option appears twice: two outputs are in one text")
        elif fact is not None:
            self.facts[fact] = value
        elif name in _OPTIONS and re.fullmatch(_OPTIONS[name], value, re.ASCII) is None:
            self.complaints.invalid(line, f"{name} is not one with which the table can be read")
        elif name in _OPTIONS:
            self.options[name] = value

    def read_columns(self, line: Line, names: tuple[str, ...]) -> None:
        if self.columns or names not in (_COLUMNS, (*_COLUMNS, _FURTHER_COLUMN)):
            self.complaints.invalid(line, "the columns are not those of oneCCL's benchmark")
        self.columns = self.columns or (*_COLUMNS, *names[len(_COLUMNS) :])

    def read_row(self, line: Line, tokens: list[str]) -> None:
        if not self.columns:
            self.complaints.invalid(line, "this is not a row of the table")
            return
        columns = dict(_HEADINGS.get(name, (name, lambda _: 0.0)) for name in self.columns)
        if (row := self.row(line, tokens, columns)) is not None:
            self.rows.append(row)

    def check(self) -> Iterator[Samples]:
        complaints = self.complaints
        if not self.collective or not self.columns or not self.processes or self.options.keys() != _OPTIONS.keys():
            complaints.incomplete(None, "the heading of oneCCL's benchmark is missing: it did not start, or is another")
            return
        if not self.ended:
            complaints.incomplete(None, "'# All done' is missing: the output was cut off, or the run crashed")
        if self.ranks not in (None, self.processes) or self.options["processes"] != str(self.processes):
            said = f"{self.options['processes']} and {self.processes}"
            complaints.invalid(None, f"options and table have {said} processes" + self.not_asked())
        if self.collective not in _COLLECTIVES:
            complaints.invalid(None, f"{self.collective!r} is not a collective that can be read, or several")
            return
        self.check_sizes()
        yield from (each for each in self.samples_of(self.rows, self.sample, self.mistake) if each.bytes > 0)

    def buffer_bytes(self, row: TextRow, operation: str, *, shares: bool) -> int:
        """Bytes of the buffer of one rank; what a reduce_scatter cannot share equally it leaves out."""
        processes = self.processes or 1
        if operation == "reduce_scatter":
            return (
                int(row.values["elements"]) // processes * processes * (row.size // max(int(row.values["elements"]), 1))
            )
        return row.size * processes if shares else row.size

    def not_asked(self) -> str:
        return f" instead of {self.ranks}" if self.ranks is not None else ""

    def check_sizes(self) -> None:
        sizes = [row.size for row in self.rows]
        counts = [whole_number(each) for each in self.options["elem_counts"].strip("[]").split()]
        element = _ELEMENT_BYTES.get(self.facts.get("datatype", ""), 0)
        said = [element * each for each in counts if each is not None]
        if self.sizes is not None and said != list(self.sizes):
            self.complaints.invalid(None, "the sizes are not the requested ones")
        self.check_planned(None, sizes, list(self.sizes) if self.sizes is not None else said)
        if not sizes:
            self.complaints.invalid(None, "there are no rows")

    def mistake(self, row: TextRow) -> str | None:
        """What cannot be true of a row."""
        element = _ELEMENT_BYTES.get(self.facts.get("datatype", ""))
        if element is None or row.size != int(row.values["elements"]) * element:
            return "#bytes and #elem_count are not of one datatype"
        return None

    def sample(self, row: TextRow) -> Samples | None:
        operation, shares = _COLLECTIVES[self.collective]
        checked = self.options["check"] != "off"
        self.facts["validation"] = "passed" if checked else "off"
        return one_time(
            operation,
            self.buffer_bytes(row, operation, shares=shares),
            tuple(range(self.processes or 0)),
            1e3 * row.values["maximum"],
            implementation="library",
            wrong_bytes=0 if checked else -1,
            # With the policy `auto` large sizes have fewer.
            warmup=int(self.options["warmup_iters"]) if self.options["iter_policy"] == "off" else -1,
        )
