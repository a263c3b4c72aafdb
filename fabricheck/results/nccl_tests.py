"""Reads the text that nccl-tests and rccl-tests print (docs/vendor-formats.md), whatever their version."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from fabricheck.records.run import Samples
from fabricheck.results.nccl_table import (
    OWN_ALLTOALL,
    Config,
    Half,
    NcclRow,
    NcclTestsTable,
    Number,
    Placement,
    config_of,
)
from fabricheck.results.nccl_tests_json import clean_nccl_tests_json, parse_nccl_tests_json
from fabricheck.results.vendor_output import ToolReader, VendorOutput, read_tool, token_ends
from fabricheck.results.vendor_text import LARGEST_SIZE, Line, is_plain, whole_number

__all__ = ["clean_nccl_tests_json", "parse_nccl_tests", "parse_nccl_tests_json"]

_VERSION = re.compile(
    r"# nccl-tests version (\S+)(?: \([0-9a-f]{4,40}\))? nccl-headers=([0-9]{1,9}) nccl-library=([0-9]{1,9})\s*",
    re.ASCII,
)
_RCCL_VERSION = re.compile(r"#? ?rccl-tests:? [Vv]ersion:? (\S{1,60})(?: .*)?", re.ASCII)
_STARTING = re.compile(r"# Collective test (starting|concluded): (\S+)\s*", re.ASCII)
_CONFIG = re.compile(
    r"# nThread ([0-9]{1,9}) nGpus ([0-9]{1,9}) minBytes ([0-9]{1,19}) maxBytes ([0-9]{1,19}) "
    r"step: ([0-9]{1,19})\((factor|bytes)\) warmup iters: ([0-9]{1,9}) iters: ([0-9]{1,9})"
    r"(?: agg iters: ([0-9]{1,9}))? validation: ([0-9]{1,9})(?: graph: ([0-9]{1,9}))?.*",
    re.ASCII,
)
_RANK = re.compile(
    r"#\s+Rank\s+([0-9]{1,9})\s+(?:Group\s+([0-9]{1,9})\s+)?Pid\s+[0-9]+\s+on\s+(\S+)\s+device\s+[0-9]+\s+\[[^\]]*\]\s+(\S.*)",
    re.ASCII,
)
# What a web page leaves of a line whose sign it took for a heading's.
_WITHOUT_SIGN = re.compile(
    r"nThread [0-9]|Using devices|Rank +[0-9]+ +(?:Group|Pid)|size +count|\(B\) +\(elem"
    r"|(?:out-of|in)-place|Out of bounds v|Avg bus b"
)
_REDUCING = re.compile(r"# Reducing maxBytes to ([0-9]{1,19}) due to memory limitation\s*", re.ASCII)
_BOUNDS = re.compile(r"# Out of bounds values\s+: ([0-9]{1,9}) (OK|FAILED)\s*", re.ASCII)
_AVERAGE = re.compile(r"# Avg bus bandwidth\s+: ([0-9.e+-]+)(?: (OK|FAILED))?\s*", re.ASCII)
_TIMED = re.compile(r"(?:0|[1-9][0-9]*)(?:\.([0-9]{1,2}))?|[0-9](?:\.([0-9]))?e\+([0-9]{2})", re.ASCII)
_WRONG = re.compile(r"(?:0|[1-9][0-9]{0,5})|[1-9](?:\.[0-9]{1,5})?e\+[0-9]{2}", re.ASCII)
_OLD_ERROR = re.compile(r"[0-9]e[+-][0-9]{2}", re.ASCII)
_SHORTENED = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]{2})?", re.ASCII)

_RATE_WIDTH = 6
_LEADING = ("size", "count", "type", "redop", "root")
_HALF = ("time", "algbw", "busbw", "#wrong")
_OLD_HALF = ("time", "algbw", "busbw", "error")
_PER_ITERATION = ("i_min", "i_max", "i_p99", "i_cv%")
_UNITS = {"size": "(B)", "count": "(elements)", "time": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", "i_cv%": "(%)"}


def parse_nccl_tests(text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None) -> VendorOutput:
    """The measurements in the standard output of one run of one test of nccl-tests or rccl-tests.

    `ranks` is how many were to take part, where the caller knows, and `tool` the program (`all_reduce_perf`): versions
    before 2.16.7 do not print it. The times are means. Whatever the text holds, this returns.
    """
    return read_tool(_Reader, text, path, ranks, tool=tool)


@dataclass
class _Reader(ToolReader):
    title = "nccl-tests"
    words = 3

    started: str | None = None
    concluded: bool = False
    groups: list[int] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    units_read: bool = False
    header: Line | None = None
    ends: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table = NcclTestsTable(self.complaints, facts=self.facts)
        self.styles = {"fitted", "classic"}

    def name_and_ranks(self) -> tuple[str, int | None]:
        return self.table.tool or self.table.suite, self.table.ranks

    def read(self, line: Line, text: str) -> None:
        if _WITHOUT_SIGN.match(text) is not None:
            text = f"# {text}" if text.startswith(("Using", "Out", "Avg", "nThread")) else f"#  {text}"
        if text.startswith(("#", "rccl-tests")):
            self.read_comment(line, text)
        elif "# " in text and any(each in text for each in ("Rank ", "nThread", "size  ", "Out of bounds", "Avg bus")):
            self.complaints.invalid(line, "a line is inside another: outputs are mixed")
        elif self.is_row(tokens := text.split()):
            self.read_row(line, tokens)

    def read_comment(self, line: Line, text: str) -> None:
        table = self.table
        if (match := _RANK.fullmatch(text)) is not None:
            if int(match[1]) != len(self.devices):
                twice = " (without MPI, each rank is rank 0 of its own)" if match[1] == "0" else ""
                self.complaints.invalid(line, f"rank {len(self.devices)} is expected here{twice}")
            self.groups.append(int(match[2] or 0))
            self.devices.append(match[4].strip())
        elif (match := _CONFIG.fullmatch(text)) is not None:
            self.read_config(line, match)
        elif (match := _VERSION.fullmatch(text)) is not None:
            self.version = match[1]
            table.facts |= {"nccl_headers": match[2], "nccl_library": match[3]}
            table.own_alltoall = min(int(match[2]), int(match[3])) >= OWN_ALLTOALL
        elif (match := _RCCL_VERSION.fullmatch(text)) is not None:
            self.version, table.suite, table.own_alltoall = match[1], "rccl-tests", True
        elif (match := _STARTING.fullmatch(text)) is not None:
            self.read_start_or_end(line, match[1], program_of(match[2]))
        elif (match := _REDUCING.fullmatch(text)) is not None:
            self.complaints.incomplete(line, "the largest sizes were left out: not enough memory")
            if table.config is not None:
                table.config = replace(table.config, maximum=int(match[1]))
        elif not self.read_footer(line, text):
            self.read_header(line, text.lstrip("#").split())

    def read_start_or_end(self, line: Line, which: str, name: str) -> None:
        if which == "starting" and self.started is None:
            self.started = name
        elif which == "concluded" and name == self.started and not self.concluded:
            self.concluded = True
        else:
            self.complaints.invalid(line, "two outputs are in one text")

    def read_footer(self, line: Line, text: str) -> bool:
        """Whether `text` is a line of the footer, which is then read."""
        if (match := _BOUNDS.fullmatch(text)) is not None:
            if self.table.out_of_bounds is not None or (match[1] == "0") != (match[2] == "OK"):
                self.complaints.invalid(line, "this is not a footer, or a second one")
            self.table.out_of_bounds = int(match[1])
        elif (match := _AVERAGE.fullmatch(text)) is not None:
            self.read_average(line, match)
        return match is not None

    def read_config(self, line: Line, match: re.Match[str]) -> None:
        if self.table.config is not None:
            self.complaints.invalid(line, "a second test begins: two outputs are in one text")
            return
        threads, gpus, minimum, maximum, step = (int(match[group]) for group in range(1, 6))
        factor = match[6] == "factor"
        if threads * gpus < 1 or maximum > LARGEST_SIZE or step < 1 or (factor and step < 2):
            self.complaints.invalid(line, "these options are impossible")
            return
        self.table.config = Config(
            minimum, maximum, step, factor, int(match[7]), int(match[8]), int(match[10]), threads * gpus
        )
        names = {"iterations": 8, "aggregated_iterations": 9, "graph_launches": 11}
        self.table.facts |= {name: match[group] for name, group in names.items() if match[group] is not None}

    def read_average(self, line: Line, match: re.Match[str]) -> None:
        if self.table.average is not None or _SHORTENED.fullmatch(match[1]) is None:
            self.complaints.invalid(line, "this is not a footer, or a second one")
            return
        value = float(match[1])
        # %g prints six significant digits.
        self.table.average = value, 0.5 * 10.0 ** (math.floor(math.log10(value)) - 5) if value > 0 else 0.0
        if match[2] == "FAILED":
            self.complaints.fail(line, "the bandwidth is under NCCL_TESTS_MIN_BW")

    def read_header(self, line: Line, names: list[str]) -> None:
        if "time" in names or "algbw" in names or "busbw" in names or "cputime" in names:
            self.read_columns(line, names)
        elif names and any("-place" in name for name in names):
            placements: list[Placement] = []
            if "out-of-place" in names:
                placements.append("out-of-place")
            if "in-place" in names:
                placements.append("in-place")
            if (
                self.placements
                or self.header is not None
                or [name for name in names if name in placements] != placements
            ):
                self.complaints.invalid(line, "this is not a header of a table, or a second one")
            self.placements = placements
        elif any(name in ("(GB/s)", "(us)", "(B)") for name in names):
            wanted = [_UNITS.get(name, "(us)") for name in self.columns if name in _UNITS or name.startswith("i_")]
            if names[: len(wanted)] != wanted or self.units_read:
                self.complaints.invalid(line, "the units are not those of the columns")
            self.units_read = True

    def read_columns(self, line: Line, names: list[str]) -> None:
        if self.header is not None:
            self.complaints.invalid(line, "a second table begins: two outputs are in one text")
            return
        self.header = line
        if "cputime" in names:
            self.complaints.invalid(line, "the times are CPU times: run without -C")
            return
        leading = [name for name in _LEADING if name in names]
        rest = names[len(leading) :]
        halves = ((*_HALF, *_PER_ITERATION), _HALF, _OLD_HALF)
        if rest[-1:] == ["timestamp"]:
            rest = rest[:-1]
        known = any(rest == [*half] * count for half in halves for count in (1, 2))
        if names[: len(leading)] != leading or leading[:3] != [*_LEADING[:3]] or not known:
            self.complaints.invalid(line, "the columns are not those of nccl-tests")
        elif names.count("time") < len(self.placements):
            self.complaints.invalid(line, "the table does not name in-place and out-of-place columns")
        else:
            # In this order; the line above may have been cut, or lost.
            self.placements = ["out-of-place", "in-place"] if names.count("time") == 2 else self.placements
            self.placements = self.placements or ["out-of-place"]
            self.columns = names

    def read_row(self, line: Line, tokens: list[str]) -> None:
        if not self.columns:
            if self.header is None:
                self.complaints.invalid(line, "numbers before the header")
            return
        width = len(self.columns) + ("timestamp" in self.columns)  # a date and a time of day
        if not is_plain(line.text) or len(tokens) != width:
            self.complaints.invalid(
                line, f"this is not a row of {width} columns; a log in the same file damages it (set NCCL_DEBUG_FILE)"
            )
            return
        try:
            row = self.row_of_halves(line, tokens)
        except ValueError as error:
            self.complaints.invalid(line, str(error))
            return
        self.table.rows.append(row)
        self.ends.append(self.columns_ends(line.text, tokens))

    def columns_ends(self, text: str, tokens: Sequence[str]) -> tuple[int, ...]:
        """Where the columns end, without what a rate of 1000.00 in a field of six moves those after it."""
        ends, moved = [], 0
        for index, end in enumerate(token_ends(text)):
            if index < len(self.columns) and self.columns[index] in ("algbw", "busbw"):
                moved += max(len(tokens[index]) - _RATE_WIDTH, 0)
            ends.append(end - moved)
        return tuple(ends)

    def row_of_halves(self, line: Line, tokens: list[str]) -> NcclRow:
        start = self.columns.index("time")
        leading = dict(zip(self.columns[:start], tokens[:start], strict=True))
        length = (len([name for name in self.columns if name != "timestamp"]) - start) // self.columns.count("time")
        halves = []
        for index, placement in enumerate(self.placements):
            first = start + index * length
            names = self.columns[first : first + length]
            halves.append(self.half(placement, dict(zip(names, tokens[first : first + length], strict=True))))
        root = leading.get("root", "-1")
        size, count = whole_number(leading["size"]), whole_number(leading["count"])
        if size is None or count is None or (root != "-1" and whole_number(root) is None):
            raise ValueError("size, count or root is not a whole number")
        return NcclRow(line, size, count, leading["type"], leading.get("redop", "none"), int(root), tuple(halves))

    def half(self, placement: Placement, cells: dict[str, str]) -> Half:
        time, algbw, busbw = (self.number(cells[name], name) for name in ("time", "algbw", "busbw"))
        wrong: int | None = None
        if "error" in cells:  # before 2.10: the largest difference, judged by the footer
            if cells["error"] != "N/A" and _OLD_ERROR.fullmatch(cells["error"]) is None:
                raise ValueError(f"{cells['error'][:20]!r} is not an error")
            wrong = None if cells["error"] == "N/A" else 0
        elif cells["#wrong"] != "N/A":
            if _WRONG.fullmatch(cells["#wrong"]) is None:
                raise ValueError(f"{cells['#wrong'][:20]!r} is not a number of wrong elements")
            wrong = int(float(cells["#wrong"]))
        if "i_min" in cells:
            lowest, highest, late, _ = (self.number(cells[name], name)[0] for name in _PER_ITERATION)
            if not 0 < lowest <= late <= highest:
                raise ValueError(f"i_min, i_p99 and i_max are not in this order ({placement})")
        return Half(placement, time, algbw, busbw, wrong)

    def number(self, token: str, name: str) -> Number:
        match = _TIMED.fullmatch(token)
        if match is None:
            raise ValueError(f"{token[:20]!r} is not a number of nccl-tests")
        if match[3] is not None:
            half = 0.5 * 10.0 ** (int(match[3]) - len(match[2] or ""))
            styles = {"fitted"}
        else:
            decimals = len(match[1] or "")
            half = 0.5 * 10.0**-decimals
            styles = _styles(token, decimals, name)
        self.styles &= styles
        if not self.styles:
            raise ValueError(f"{token!r} has another number of decimals than nccl-tests prints")
        return float(token), half

    def check(self) -> Iterable[Samples]:
        complaints, table = self.complaints, self.table
        asked = program_of(self.tool) if self.tool is not None else None
        table.tool = self.started or asked
        if asked is not None and self.started not in (None, asked):
            complaints.invalid(None, f"this is the output of {self.started} instead of {self.tool}")
        if self.started is not None and not self.concluded and table.average is None:
            complaints.incomplete(None, "the test did not conclude: the output was cut off, or the run did not end")
        if self.columns and not self.units_read:
            complaints.invalid(self.header, "the table has no units")
        lost = len(table.rows) > 1 and not any("  " in row.where.text for row in table.rows)
        if lost:
            text = "its columns cannot be separated (copied from a chat?): give the original file"
            complaints.incomplete(self.header, text)
        else:
            self.check_alignment(list(zip((row.where for row in table.rows), self.ends, strict=True)))
        self.check_ranks()
        return table.check()

    def check_ranks(self) -> None:
        table = self.table
        if not self.devices and table.config is None and self.ranks is not None and table.rows:
            # The heading is not there: the caller says how many ranks, and the rows say the rest.
            table.ranks, table.config = self.ranks, config_of(table.rows)
            table.facts["options"] = "not said"
        if not self.devices and table.config is not None and self.ranks is not None:
            table.ranks = self.ranks
        if not self.devices or table.config is None:
            return
        counts = {self.groups.count(group) for group in set(self.groups)}
        if len(counts) != 1 or len(self.devices) % table.config.devices_per_process:
            self.complaints.invalid(None, f"{len(self.devices)} ranks are listed: some are missing, or groups differ")
        table.ranks = max(counts)
        if self.ranks not in (None, len(self.devices)):
            self.complaints.invalid(None, f"{len(self.devices)} ranks took part instead of {self.ranks}")
        names = dict.fromkeys(self.devices)
        table.facts["devices"] = ", ".join(f"{self.devices.count(name)} x {name}" for name in names)


def program_of(path: str) -> str:
    """The name of a test; packages call those that were built with MPI by names of their own."""
    return PurePath(path).name.removesuffix("_mpi")


def _styles(token: str, decimals: int, name: str) -> set[str]:
    """Which way of rounding prints `token`: `fitted` to the width of the column (since 2.17), or by magnitude."""
    width = _RATE_WIDTH if name in ("algbw", "busbw") else 7
    styles = set()
    if len(token) <= width and (decimals == 2 or len(token) + (1 if decimals == 1 else 3) > width):
        styles.add("fitted")
    value = float(token)
    if name in ("algbw", "busbw"):
        classic = decimals == 2
    else:
        classic = (
            (decimals == 2 and value <= 100)
            or (decimals == 1 and 100 <= value <= 10000)
            or (decimals == 0 and value >= 10000)
        )
    if classic:
        styles.add("classic")
    return styles
