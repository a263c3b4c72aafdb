"""Reads what fi_pingpong (libfabric), ucx_perftest (UCX) and perftest (ib_write_bw and its kin) print: programs of a
server on one node and its client on another, a run for each size (docs/vendor-formats.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fabricheck.records.run import Samples
from fabricheck.results.vendor_output import TextRow, ToolReader, VendorOutput, read_tool
from fabricheck.results.vendor_text import Line, fixed_number, one_time

#: The operation of each test of ucx_perftest that is read.
UCX_TESTS = {"tag_lat": "pingpong", "tag_bw": "unidirectional"}

_MULTIPLES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FI_HEADING = ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"]
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
# How a run is announced by the script that starts it: the client does not print its size.
_PERFTEST_CALL = re.compile(r"# \S*ib_(?:write_bw|read_bw|(send_lat)) -F -s (\d+) .*", re.ASCII)
_LATENCIES = ("bytes", "iterations", "least", "most", "typical", "time", "deviation", "99%", "99.9%")
_RATES = ("bytes", "iterations", "peak", "gbps", "rate")  # of 10^6 messages a second
_UCX_CALL = re.compile(r"# \S*ucx_perftest -t (\w+) -s (\d+) -n \d+ -w \d+", re.ASCII)


def parse_server_client(text: str, path: str = "", *, tool: str, sizes: Sequence[int] | None = None) -> VendorOutput:
    """The measurements in the output of the clients of one `tool`: `fi_pingpong`, `ucx_perftest`, or `ib_write_bw` and
    its kin; one after another.

    `sizes`: those that were requested, in bytes. The time of a ping-pong is the round trip, twice the tool's; that of a
    stream is from message to message. Whatever the text holds, this returns.
    """
    reader = {"fi_pingpong": _FiPingpong, "ucx_perftest": _UcxPerftest}.get(tool, _Perftest)
    return read_tool(reader, text, path, 2, tool=tool, sizes=sizes)


def _number(token: str) -> float | None:
    return float(token) if _NUMBER.fullmatch(token) else None


def _any(_: str) -> float:
    """Of the last interval alone, which may have had no iteration (`inf`)."""
    return 0.0


def _rounded(token: str) -> float | None:
    """A size or a count as fi_pingpong prints it, `1.5k`."""
    scale = _MULTIPLES.get(token[-1:], 1)
    number = _number(token.rstrip("kmg"))
    return None if number is None else number * scale


def _seconds(token: str) -> float | None:
    return _number(token.removesuffix("s")) if token.endswith("s") else None


@dataclass
class _Reader(ToolReader):
    rows: list[TextRow] = field(default_factory=list)
    operation: str = "pingpong"

    def name_and_ranks(self) -> tuple[str, int | None]:
        return str(self.tool), 2

    def check(self) -> Iterator[Samples]:
        if not self.rows:
            self.complaints.incomplete(None, f"{self.title} printed no row of its table: it did not start, or failed")
        elif self.sizes is not None:
            self.check_planned(self.rows[-1].line, [row.size for row in self.rows], self.sizes)
        for row in self.rows:
            if not row.values["time"]:
                self.complaints.invalid(row.line, "a time of zero is impossible")
            else:
                yield from self.complaints.sample(row.line, self.sample(row))

    def sample(self, row: TextRow) -> Samples | None:
        """One record of a row, whose `time` is in us."""
        back_and_forth = 2 if self.operation == "pingpong" else 1
        nanoseconds = 1e3 * back_and_forth * row.values["time"]
        wrong = int(row.values.get("wrong", -1))
        return one_time(self.operation, row.size, (0, 1), nanoseconds, implementation="transfers", wrong_bytes=wrong)


@dataclass
class _FiPingpong(_Reader):
    title = "fi_pingpong"

    has_heading: bool = False
    checks: bool = False

    def read(self, line: Line, text: str) -> None:
        tokens = text.split()
        if text.startswith("# "):
            self.checks = " -c" in text
        elif tokens == _FI_HEADING:
            self.has_heading = True
        elif text.startswith("Error at iteration"):
            self.complaints.fail(line, "the data were wrong")
        elif self.has_heading and tokens[0][0].isdigit():
            columns = {
                **{"bytes": _rounded, "sent": _rounded, "ack": lambda token: _rounded(token.lstrip("="))},
                **{"total": _rounded, "elapsed": _seconds, "rate": fixed_number, "time": fixed_number},
                "messages": fixed_number,
            }
            if (row := self.row(line, tokens, columns)) is not None:
                if row.values["sent"] != row.values["ack"]:
                    self.complaints.invalid(line, "not all messages were acknowledged")
                self.rows.append(TextRow(line, row.size, {**row.values, "wrong": 0 if self.checks else -1}, row.ends))


@dataclass
class _UcxPerftest(_Reader):
    title = "ucx_perftest"

    size: int | None = None

    def read(self, line: Line, text: str) -> None:
        if (call := _UCX_CALL.fullmatch(text)) is not None:
            self.size, self.operation = int(call[2]), UCX_TESTS.get(call[1], "")
            if not self.operation:
                self.complaints.invalid(line, f"the test {call[1]} of ucx_perftest is not one that can be read")
        elif text.startswith("Final:"):
            names = ("iterations", "typical", "average", "time", "rate", "overall rate", "messages", "overall messages")
            columns = {name: _number if name in ("iterations", "time") else _any for name in names}
            if self.size is None:
                self.complaints.invalid(line, "the size of the messages is not stated")
            elif (row := self.row(line, text.split()[1:], columns)) is not None:
                self.rows.append(TextRow(line, self.size, row.values, row.ends))
            self.size = None


@dataclass
class _Perftest(_Reader):
    """Half of the round trip is the time of ib_send_lat; ib_write_bw and ib_read_bw have many messages under way."""

    title = "perftest"

    size: int | None = None

    def read(self, line: Line, text: str) -> None:
        if (call := _PERFTEST_CALL.fullmatch(text)) is not None:
            self.size, self.operation = int(call[2]), "pingpong" if call[1] else "unidirectional"
        elif self.size is not None and re.match(r"\d+\s+\d+\s", text):
            names = _LATENCIES if self.operation == "pingpong" else _RATES
            plain = replace(line, text=line.text.expandtabs())
            if (row := self.row(plain, text.split(), dict.fromkeys(names, _number))) is not None:
                if row.size != self.size:
                    self.complaints.invalid(line, f"the row is of {row.size} B instead of {self.size}")
                time = row.values.get("time") or self._time_us(row)
                self.rows.append(TextRow(line, row.size, {**row.values, "time": time}, row.ends))
            self.size = None

    def _time_us(self, row: TextRow) -> float:
        """From message to message, by the number that has more digits; 0 where there is none."""
        rate, gbps = row.values.get("rate", 0.0), row.values.get("gbps", 0.0)
        if gbps > rate:
            return 8e-3 * row.size / gbps
        return 1 / rate if rate else 0.0
