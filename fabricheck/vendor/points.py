"""Reads tables of programs of a server and its client: perftest (ib_write_bw and its kin), ucx_perftest, fi_pingpong,
Slingshot's cxi_write_bw and its kin, and nixlbench (docs/vendor-formats.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import ANY, NUMBER, WHOLE, Block, Table, TableRow, one_time, products_agree

_MEBI = 1 << 20
_MULTIPLES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Points(Block):
    """A table of one transfer between two ends, by size. `headings`: its columns, by their titles."""

    headings: ClassVar[Mapping[str, tuple[str, re.Pattern[str]]]]
    operation = "unidirectional"
    memory: Literal["", "gpu", "host"] = "host"
    transport = "nic"

    def read_header(self, line: Line) -> None:
        """Begins the table, where all titles are known."""
        # A title may be the end of a longer one.
        longest_first = sorted(self.headings, key=len, reverse=True)
        title = re.compile("|".join(map(re.escape, longest_first)))
        titles = title.findall(line.text)
        columns = dict(self.headings[name] for name in titles)
        unknown = title.sub("", line.text).strip() or len(columns) != len(titles)
        if self.tables or unknown:
            self.invalid(line, f"the columns are not those of {self.title}, or a second table begins")
        self.tables.append(Table(line, {} if unknown else columns))

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if kind == "header":
            self.read_header(line)

    def time_us(self, row: TableRow) -> float:
        """Microseconds of one transfer in one direction."""
        raise NotImplementedError

    @property
    def tool(self) -> str:
        """The program."""
        return self.title

    def samples(self) -> Iterator[Samples]:
        """A sample for each row."""
        self.ranks = 2
        rows = [row for table in self.tables for row in table.rows]
        if not rows:
            self.incomplete(None, f"{self.title} printed no row of its table: it did not start, or failed")
        for table in self.tables:
            self.check_sizes(table, doubling=False)
        for row in rows:
            if (time := self.time_us(row)) <= 0:
                self.invalid(row.line, "a time or rate of zero is impossible")
            elif row.size > 0:
                round_trip = 2 if self.operation == "pingpong" else 1
                wrong = int(self.said.get("wrong", -1))
                yield one_time(self.operation, row.size, (0, 1), 1e3 * round_trip * time, wrong_bytes=wrong)


# Bytes of a microsecond; perftest's MB have 2^20 B.
_RATES = {"Gb/sec": 125.0, "MiB/sec": _MEBI / 1e6, "MB/sec": _MEBI / 1e6}


class Perftest(Points):
    """ib_write_bw and its kin; half of the round trip is the time of ib_send_lat."""

    title = "perftest"
    begins: ClassVar = (
        re.compile(r"# \S*ib_\w+ "),
        re.compile(r"(?:RDMA_Write|RDMA_Read|Send|Atomic)\b.* (?:BW|Latency) Test$"),
        re.compile(r"#bytes +#iterations "),
    )
    headings: ClassVar = {
        "#bytes": ("bytes", WHOLE),
        "#iterations": ("repetitions", WHOLE),
        **{f"BW peak[{unit}]": ("peak", NUMBER) for unit in _RATES},
        **{f"BW average[{unit}]": (unit, NUMBER) for unit in _RATES},
        "MsgRate[Mpps]": ("messages", NUMBER),
        **{f"t_{name}[usec]": (f"t_{name}", NUMBER) for name in ("min", "max", "typical", "avg", "stdev")},
        "99.9% percentile[usec]": ("p99.9", NUMBER),
        "99% percentile[usec]": ("p99", NUMBER),
        "CPU_Util[%]": ("load", NUMBER),
    }
    known: ClassVar = {
        "call": re.compile(r"# \S*ib_\w+ .*"),
        "title": re.compile(
            r"(?P<verb>RDMA_Write|RDMA_Read|Send) (?:Post List )?(?P<both>Bidirectional )?(?:Post List )?"
            r"(?P<what>BW|Latency) Test"
        ),
        "device": re.compile(r"Dual-port\s+: \w+\s+Device\s+: (?P<nic_device>\S+)"),
        "link": re.compile(r"Link type\s+: (?P<link_type>\w+)"),
        "mtu": re.compile(r"M(?:tu|TU)\s+: (?P<mtu>[0-9]+)\[B\]"),
        "memory": re.compile(
            r".*(?:use_cuda|use_rocm|CUDA device|CUDA Device|ROCm device|cuda memory|hipMalloc).*", re.I
        ),
        "header": re.compile(r"#bytes\s.*"),
        "rule": re.compile(r"-+"),
    }
    own = re.compile(r"#bytes|\[usec\]|BW average")
    verbs: ClassVar = {"RDMA_Write": "ib_write", "RDMA_Read": "ib_read", "Send": "ib_send"}

    @property
    def tool(self) -> str:
        """The program."""
        latency = self.said.get("what") == "Latency" or self.operation == "pingpong"
        return f"{self.verbs.get(self.said.get('verb', ''), 'ib')}_{'lat' if latency else 'bw'}"

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if kind == "memory" and "use_cuda=-1" not in line.text:
            self.memory = "gpu"
        elif kind == "header" and "t_min" in self.tables[-1].columns:
            self.operation = "pingpong"

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Its columns are parted by tabs, too."""
        super().read_row(Line(line.number, line.text.expandtabs()), tokens)

    def samples(self) -> Iterator[Samples]:
        """A sample for each row."""
        if "verb" not in self.said:
            self.invalid(None, "the title of perftest is missing: which program was it?")
        if self.said.get("both"):
            self.operation = "bidirectional"
        self.facts |= {name: self.said[name] for name in ("nic_device", "link_type", "mtu") if name in self.said}
        yield from super().samples()

    def time_us(self, row: TableRow) -> float:
        """From message to message of many under way, by the number with more digits; or half of a round trip."""
        if "t_avg" in row.values:
            return row.values["t_avg"]
        both = 2 if self.operation == "bidirectional" else 1
        unit = next((unit for unit in _RATES if unit in row.values), "Gb/sec")
        rate, messages = row.values.get(unit, 0.0), row.values.get("messages", 0.0)
        if messages > rate:
            return both / messages
        return both * row.size / (rate * _RATES[unit]) if rate else 0.0


class Cxi(Points):
    """cxi_write_bw and its kin; MB are 10^6 B, and `Bidirectional` rates add both directions (libcxi)."""

    title = "cxi"
    begins: ClassVar = (re.compile(r"CXI (?:RDMA )?(?:Loopback|Write|Read|Send) Bandwidth Test"),)
    headings: ClassVar = {
        "RDMA Size[B]": ("bytes", WHOLE),
        **dict.fromkeys(("Writes", "Reads", "Sends"), ("repetitions", re.compile(r"-|[0-9]+"))),
        "BW[Gb/s]": ("gigabits", NUMBER),
        "BW[MB/s]": ("megabytes", NUMBER),
        "PktRate[Mpkt/s]": ("packets", NUMBER),
    }
    known: ClassVar = {
        "title": re.compile(r"CXI (?:RDMA )?(?P<verb>Loopback|Write|Read|Send) Bandwidth Test"),
        "both": re.compile(r"Bidirectional\s*: (?P<both>Enabled|Disabled)"),
        "memory": re.compile(r"(?:\w+ )?[TR]X Mem\s*: GPU.*"),
        "header": re.compile(r"RDMA Size\[B\].*"),
        "rule": re.compile(r"-+"),
    }
    own = re.compile(r"\[B\]|BW\[|PktRate")

    @property
    def tool(self) -> str:
        """The program."""
        verb = self.said.get("verb", "Write").lower()
        return "cxi_gpu_loopback_bw" if verb == "loopback" else f"cxi_{verb}_bw"

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if kind == "memory":
            self.memory = "gpu"
        elif kind == "both" and match["both"] == "Enabled":
            self.operation = "bidirectional"

    def time_us(self, row: TableRow) -> float:
        """Of a message in one direction."""
        bytes_per_us = row.values.get("megabytes", 0.0) + row.values.get("gigabits", 0.0) * 1e3 / 8
        both = 2 if self.operation == "bidirectional" else 1
        return both * row.size / bytes_per_us if bytes_per_us else 0.0


class FiPingpong(Points):
    """fi_pingpong of libfabric, a run for each size or all of them."""

    title = "fi_pingpong"
    operation = "pingpong"
    begins: ClassVar = (re.compile(r"# \S*fi_pingpong "), re.compile(r"bytes +#sent +#ack "))
    headings: ClassVar = {
        **{"bytes": ("bytes", WHOLE), "#sent": ("sent", WHOLE), "#ack": ("ack", WHOLE), "total": ("total", ANY)},
        **{"time": ("elapsed", NUMBER), "MB/sec": ("megabytes", NUMBER), "usec/xfer": ("usec", NUMBER)},
        "Mxfers/sec": ("messages", NUMBER),
    }
    known: ClassVar = {
        "call": re.compile(r"# \S*fi_pingpong .*"),
        "header": re.compile(r"bytes +#sent +#ack +total +time +MB/sec +usec/xfer +Mxfers/sec"),
        "error": re.compile(r"Error at iteration.*"),
    }
    own = re.compile(r"#sent|usec/xfer")

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says, and begins the table."""
        super().read_line(kind, match, line)
        if kind == "call":
            self.said["wrong"] = "0" if " -c" in line.text else "-1"
        elif kind == "error":
            self.add(Verdict.FAIL, line, "the data were wrong")

    def is_row(self, tokens: Sequence[str]) -> bool:
        """A row begins with a size, such as 64k."""
        return tokens[0][0].isdigit()

    def read_row(self, line: Line, tokens: Sequence[str]) -> None:
        """Sizes and counts have multiples, such as 64k; 1.36s is a time, =100 what was acknowledged."""
        plain = [
            str(int(token[:-1]) * _MULTIPLES[token[-1]])
            if token[:-1].isdecimal() and token[-1] in _MULTIPLES
            else token
            for token in (each.lstrip("=").removesuffix("s") for each in tokens)
        ]
        super().read_row(line, plain)
        rows = self.tables[-1].rows if self.tables else []
        if rows and rows[-1].line is line:
            row = rows[-1]
            if row.values["sent"] != row.values["ack"]:
                self.invalid(line, "not all messages were acknowledged")
            if not products_agree(row.rounded("usec"), row.rounded("megabytes"), (row.size, 0.0)):
                self.invalid(line, "the size is printed cut, or the line is damaged: size, MB/sec and usec/xfer differ")

    def time_us(self, row: TableRow) -> float:
        """Half of the round trip."""
        return row.values.get("usec", 0.0)


class UcxPerftest(Points):
    """ucx_perftest, whose client prints neither its test nor its size: a command line, or the server's box, does."""

    title = "ucx_perftest"
    transport = "mpi"
    begins: ClassVar = (
        re.compile(r".*\bucx_perftest\b.* -t \w+"),
        re.compile(r"\| Test: "),
        re.compile(r"\| +(?:Stage|Test) +\| # iterations"),
    )
    headings: ClassVar = {}
    names = ("iterations", "typical", "average", "time", "rate", "overall rate", "messages", "overall messages")
    known: ClassVar = {
        "call": re.compile(
            r".*\bucx_perftest\b(?=.* -t (?P<test>\w+))(?=.* -s (?P<size>[0-9]+)(?: |$))(?:.* -m (?P<kind>\w+))?.*"
        ),
        "test": re.compile(r"\| Test: +(?:tag match|am|stream) (?P<words>latency|bandwidth)\b.*\|"),
        "size": re.compile(r"\| Message size: (?P<size>[0-9]+) +\|"),
        "memory": re.compile(r"\| Send memory: (?P<kind>\w+) +\|"),
        "final": re.compile(r"Final:\s+(.*)"),
        "box": re.compile(r"[|+](?!.*\((?!usec|MB/s|msg/s|automatic)).*"),
    }
    own = re.compile(r"Final:|(?:overhead|latency) \(")

    def is_row(self, tokens: Sequence[str]) -> bool:
        """Only the line `Final:` counts; those of intervals before it are of no whole run."""
        return False

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says; the last one is the row."""
        super().read_line(kind, match, line)
        if kind == "final":
            tokens = match[1].split()
            size = self.said.get("size")
            if size is None or self.operation_of() is None:
                self.invalid(line, "the test or the size of the messages is not stated: paste the command line too")
                return
            columns = {"bytes": WHOLE} | {
                name: NUMBER if name in ("iterations", "time") else ANY for name in self.names
            }
            self.tables.append(Table(line, columns))
            super().read_row(line, [size, *tokens])

    def operation_of(self) -> str | None:
        """What the test measures; None for one that cannot be read."""
        name, words = self.said.get("test", ""), self.said.get("words", "")
        if re.fullmatch(r"(?:ucp_)?(?:tag|am|stream)_lat", name) or words == "latency":
            return "pingpong"
        if re.fullmatch(r"(?:ucp_)?(?:tag|am|stream)_bw", name) or words == "bandwidth":
            return "unidirectional"
        return None

    def samples(self) -> Iterator[Samples]:
        """The sample of the last line."""
        self.operation = self.operation_of() or self.operation
        self.memory = "gpu" if self.said.get("kind", "host") not in ("host", "") else "host"
        yield from super().samples()

    def time_us(self, row: TableRow) -> float:
        """The overall overhead or latency."""
        return row.values.get("time", 0.0)


class NixlBench(Points):
    """nixlbench of NIXL: transfers of blocks between two agents."""

    title = "nixlbench"
    transport = "mpi"
    begins: ClassVar = (re.compile(r"NIXLBench Configuration"), re.compile(r"Block Size \(B\) +Batch Size"))
    headings: ClassVar = {
        **{"Block Size (B)": ("bytes", WHOLE), "Batch Size": ("batch", WHOLE)},
        "Aggregate B/W (GB/Sec)": ("all", NUMBER),
        **{"B/W (GB/Sec)": ("rate", NUMBER), "B/W (MiB/Sec)": ("mebi", NUMBER), "B/W (GiB/Sec)": ("gibi", NUMBER)},
        "Network Util (%)": ("load", NUMBER),
        **{f"Avg {name} (us)": (f"avg {name}", NUMBER) for name in ("Lat.", "Prep", "Post", "Tx")},
        **{f"P99 {name} (us)": (f"p99 {name}", NUMBER) for name in ("Prep", "Post", "Tx")},
    }
    known: ClassVar = {
        "source": re.compile(r"Initiator seg type .*: (?P<source>DRAM|VRAM)"),
        "target": re.compile(r"Target seg type .*: (?P<target>DRAM|VRAM)"),
        "backend": re.compile(r"Backend .*: (?P<backend>\w+)"),
        "verb": re.compile(r"Op type .*: (?P<verb>READ|WRITE)"),
        "devices": re.compile(r"Num initiator dev .*: (?P<devices>[0-9]+)"),
        "header": re.compile(r"Block Size \(B\).*"),
        "option": re.compile(r".*\(--\w+.*|[-*]+"),
    }
    own = re.compile(r"Block Size|GB/Sec")

    def samples(self) -> Iterator[Samples]:
        """A sample for each row."""
        if self.said.get("devices", "1") != "1":
            self.invalid(None, f"the rate is the sum of {self.said['devices']} devices: give a run of one")
        ends = {self.said.get("source"), self.said.get("target")}
        self.memory = "gpu" if ends == {"VRAM"} else "host"
        self.facts |= {name: self.said[name] for name in ("backend",) if name in self.said}
        yield from super().samples()

    def time_us(self, row: TableRow) -> float:
        """Of a block, at the rate of the batch."""
        return row.size / (1e3 * row.values["rate"]) if row.values.get("rate") else 0.0
