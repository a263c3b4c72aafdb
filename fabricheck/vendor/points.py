"""Reads tables of programs of a server and its client: perftest (ib_write_bw and its kin), ucx_perftest, those of
libfabric (fi_pingpong, fabtests), Slingshot's cxi_write_bw and its kin, and nixlbench (docs/vendor-tools.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.printed import Line
from fabricheck.vendor.block import Block
from fabricheck.vendor.printed_tables import ANY, NUMBER, WHOLE, Column, Table, Test

# MB of 2^20 B, and Gb, in B/us.
_MEBI, _GIGABIT = (1 << 20) / 1e6, 125.0
_COUNT = re.compile(r"=?[0-9]+[kmg]?|-")
_SIZE = Column("bytes", re.compile(r"[0-9]+(?:\.[0-9])?[kmg]?"))
# Latencies that are not half of a round trip: what one side alone began and saw completed.
_ONE_SIDED = {"ib_read_lat": "get", "cxi_read_lat": "get", "cxi_write_lat": "put"}
_ENDINGS = {"BW": "bw", "Bandwidth": "bw", "Latency": "lat"}


class Points(Block):
    """A table of one transfer between two ends, by size.

    `shown`: the facts that are shown of what its lines say; `programs`: how those are called of which one, such as the
    `example`, has to be named, by the caller where no line does, since what was measured follows from it.
    """

    test = Test("unidirectional", streams=1)
    memory: Literal["", "gpu", "host"] = "host"
    transport = "nic"
    shown: ClassVar[Sequence[str]] = ()
    programs: ClassVar[re.Pattern[str] | None] = None
    example: ClassVar[str] = ""

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says."""
        super().read_line(kind, match, line)
        if kind == "memory":
            self.memory = "gpu"
        elif kind == "error":
            self.add(Verdict.FAIL, line, "the data were wrong")
        if kind == "both":
            self.test = Test("bidirectional", streams=2)
        if "verb" in match.re.groupindex:
            verb = match["verb"].removeprefix("RDMA_").lower().replace("loopback", "gpu_loopback")
            self.said["program"] = f"{self.title.replace('perftest', 'ib')}_{verb}_{_ENDINGS[match['what']]}"

    @property
    def tool(self) -> str:
        """The program, or its suite."""
        said = self.said.get("program") or self.asked.tool or ""
        return said if self.programs is not None and self.programs.fullmatch(said) else self.title

    def samples(self) -> Iterator[Samples]:
        """A sample for each row."""
        self.ranks = 2
        self.facts |= {name: self.said[name] for name in self.shown if name in self.said}
        if not any(table.rows for table in self.tables):
            self.incomplete(None, f"{self.title} printed no row of its table: it did not start, or failed")
        latency = self.tool.endswith(("lat", "pingpong"))
        if latency:
            self.test = Test(_ONE_SIDED.get(self.tool, "pingpong"), pair=True)
        if self.programs is not None and self.tool == self.title:
            self.missing = f"--tool PROGRAM  # such as {self.example}"
            self.invalid(None, f"which program of {self.title} it was is not stated: paste its command line too")
        for table in self.tables:
            if latency and "time" not in table.columns:
                self.invalid(table.line, f"the columns are not those of {self.tool}")
                return
            self.check_sizes(table, doubling=False)
            yield from self.measured(table, self.test, 2)


class Perftest(Points):
    """ib_write_bw and its kin. Half of the round trip is the time of all latency tests but that of reads."""

    title = "perftest"
    repeats = False  # people round one of both
    shown = ("nic_device", "link_type", "mtu")
    programs = re.compile(r"ib_(?:write|read|send)_(?:bw|lat)")
    example = "ib_write_bw"
    begins: ClassVar = (
        re.compile(r"# \S*ib_\w+ "),
        re.compile(r"(?:RDMA_\w+|Send\w*|Atomic) .*(?:BW|Latency) Test$"),
        re.compile(r"#bytes +#iterations "),
    )
    headings: ClassVar = {
        r"#bytes": Column("bytes", WHOLE),
        r"#iterations": Column("repetitions", WHOLE),
        r"BW average\[Gb/sec\]": Column("rate", unit=_GIGABIT),
        r"BW average\[M(?:i?)B/sec\]": Column("rate", unit=_MEBI),
        r"MsgRate\[Mpps\]": Column("messages"),
        r"t_avg\[usec\]": Column("time"),
        r"BW peak\[\S+\]|t_(?:min|max|typical|stdev)\[usec\]": Column(""),
        r"99(?:\.9)?% percentile\[usec\]|CPU_Util\[%\]|tps average": Column(""),
    }
    known: ClassVar = {
        "memory": re.compile(
            r"(?!.*use_cuda=-1).*(?:use_cuda|use_rocm|CUDA device|ROCm device|cuda memory|hipMalloc).*"
            r"|Use ROCm memory : ON",
            re.I,
        ),
        "call": re.compile(r"# \S*ib_\w+ .*"),
        "both": re.compile(
            r"(?P<verb>RDMA_Write|RDMA_Read|Send)(?:_imm)? Bidirectional (?:Post List )?(?P<what>BW) Test"
        ),
        "title": re.compile(r"(?P<verb>RDMA_Write|RDMA_Read|Send)(?:_imm)? (?:Post List )?(?P<what>BW|Latency) Test"),
        "device": re.compile(r"Dual-port\s+: \w+\s+Device\s+: (?P<nic_device>\S+)"),
        "link": re.compile(r"Link type\s+: (?P<link_type>\w+)"),
        "mtu": re.compile(r"M(?:tu|TU)\s+: (?P<mtu>[0-9]+)\[B\]"),
        "header": re.compile(r"#bytes\s.*"),
        "rule": re.compile(r"-+"),
    }
    own = re.compile(r"#bytes|\[usec\]|BW average")


class Cxi(Points):
    """cxi_write_bw and its kin; MB are 10^6 B, and `Bidirectional` rates add both directions (libcxi).

    The latency of a send is half of the round trip, that of a write or read what one side saw.
    """

    title = "cxi"
    begins: ClassVar = (re.compile(r"CXI (?:RDMA )?(?:Loopback|Write|Read|Send) (?:Bandwidth|Latency) Test"),)
    programs = re.compile(r"cxi_(?:gpu_loopback_bw|(?:write|read|send)_(?:bw|lat))")
    example = "cxi_write_bw"
    headings: ClassVar = {
        r"(?:RDMA|Send) Size\[B\]|Bytes": Column("bytes", WHOLE),
        r"Writes|Reads|Sends": Column("", _COUNT),
        r"BW\[Gb/s\]": Column("rate", unit=_GIGABIT),
        r"BW\[MB/s\]": Column("rate"),
        r"Mean\[us\]": Column("time"),
        r"PktRate\[Mpkt/s\]|(?:Min|Max|StdDev)\[us\]": Column(""),
    }
    known: ClassVar = {
        "title": re.compile(r"CXI (?:RDMA )?(?P<verb>Loopback|Write|Read|Send) (?P<what>Bandwidth|Latency) Test"),
        "both": re.compile(r"Bidirectional\s*: Enabled"),
        "memory": re.compile(r"(?:\w+ )?[TR]X Mem\s*: GPU.*"),
        "header": re.compile(r"(?:(?:RDMA|Send) Size\[B\]|Bytes ).*"),
        "rule": re.compile(r"-+"),
    }
    own = re.compile(r"\[B\]|BW\[|PktRate|\[us\]")


class Libfabric(Points):
    """fi_pingpong of libfabric, a run for each size or all of them, and the benchmarks of fabtests, whose table does
    not name its program. A time is half of a round trip, or that from message to message.
    """

    title = "fabtests"
    programs = re.compile(r"fi_(?:\w+_)?(?:pingpong|bw)")
    example = "fi_rma_bw"
    begins: ClassVar = (
        re.compile(rf"(?:.*[ /])?{programs.pattern}(?: +-.*| +\S+| *:)?$"),
        re.compile(r"bytes +(?:#sent +#ack|iters) "),
    )
    headings: ClassVar = {
        r"bytes": _SIZE,
        r"#sent": Column("sent", _COUNT),
        r"#ack": Column("ack", _COUNT),
        r"iters": Column("repetitions", _COUNT),
        r"total|Mxfers/sec": Column("", ANY),
        r"time": Column("elapsed", ANY),
        r"MB/sec": Column("rate"),
        r"usec/xfer": Column("time"),
    }
    known: ClassVar = {
        "checked": re.compile(r"# \S*(?P<program>fi_pingpong) .*-c.*"),
        "memory": re.compile(rf"(?:.*[ /])?(?P<program>{programs.pattern}) .*-D *(?:cuda|rocr|ze)\b.*"),
        "call": re.compile(rf"(?:.*[ /])?(?P<program>{programs.pattern})(?: +-.*| +\S+| *:)?"),
        "header": re.compile(r"bytes +(?:#sent|iters) +.*"),
        "record": re.compile(
            r"- \{ xfer_size: (\d+), iterations: (\d+), total: (\d+), time: (\S+), MB/sec: (\S+), usec/xfer: (\S+), "
            r"Mxfers/sec: (\S+) \}"
        ),
        "error": re.compile(r"Error at iteration.*"),
    }
    own = re.compile(r"#sent|usec/xfer|xfer_size")

    def read_line(self, kind: str, match: re.Match[str], line: Line) -> None:
        """Keeps what a line says; a record is a row of a table without a heading."""
        if kind == "header" and "#sent" in line.text:
            self.said["program"] = "fi_pingpong"
        super().read_line(kind, match, line)
        if kind == "checked":
            self.unchecked = 0
        elif kind == "record":
            if not self.tables:
                titles = "bytes iters total time MB/sec usec/xfer Mxfers/sec"
                self.tables.append(Table(line, self.columns_of(titles)))
            self.read_row(line, match.groups())


class UcxPerftest(Points):
    """ucx_perftest, whose client prints neither its test nor its size: a command line, or the server's box, does."""

    title = "ucx_perftest"
    transport = "mpi"
    begins: ClassVar = (
        re.compile(r".*\bucx_perftest\b.* -t \w+"),
        re.compile(r"\| Test: "),
        re.compile(r"\| +(?:Stage|Test) +\| # iterations"),
    )
    # The overall time; a row of nothing but that is a test of several threads.
    columns: ClassVar = {"bytes": Column("bytes", WHOLE), "repetitions": Column("repetitions", WHOLE)} | {
        name: Column(name, NUMBER if name == "time" else ANY) for name in ("p50", "last", "time", *"abcd")
    }
    known: ClassVar = {
        "call": re.compile(
            r".*\bucx_perftest\b(?:(?=.* -t (?:ucp_)?(?:tag|am|stream)_(?P<what>lat|b)w?\b))?"
            r"(?=.* -s (?P<size>[0-9]+)(?: |$))(?:.* -m (?P<kind>\w+))?.*"
        ),
        "test": re.compile(r"\| Test: +(?:tag match|am|stream) (?P<what>lat|b)(?:ency|andwidth)\b.*\|"),
        "size": re.compile(r"\| Message size: (?P<size>[0-9]+) +\|"),
        "memory of": re.compile(r"\| Send memory: +(?P<kind>\w+) +\|"),
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
        if kind != "final":
            return
        if not self.said.keys() >= {"size", "what"}:
            self.invalid(line, "the test or the size of the messages is not stated: paste the command line too")
            return
        self.test = Test("pingpong", pair=True) if self.said["what"] == "lat" else Test("unidirectional", pair=True)
        self.memory = "host" if self.said.get("kind", "host") == "host" else "gpu"
        self.tables.append(Table(line, self.columns))
        self.read_row(line, [self.said["size"], *match[1].split()])


class NixlBench(Points):
    """nixlbench of NIXL: transfers of blocks between two agents."""

    title = "nixlbench"
    transport = "mpi"
    shown = ("backend",)
    begins: ClassVar = (re.compile(r"NIXLBench Configuration"), re.compile(r"Block Size \(B\) +Batch Size"))
    headings: ClassVar = {
        r"Block Size \(B\)": Column("bytes", WHOLE),
        r"B/W \(GB/Sec\)": Column("rate", unit=1e3),
        r"Batch Size": Column("", WHOLE),
        r"Aggregate B/W \(GB/Sec\)|B/W \((?:MiB|GiB)/Sec\)|Network Util \(%\)|(?:Avg|P99) \w+\.? \(us\)": Column(""),
    }
    known: ClassVar = {
        "source": re.compile(r"Initiator seg type .*: (?P<source>DRAM|VRAM)"),
        "target": re.compile(r"Target seg type .*: (?P<target>DRAM|VRAM)"),
        "backend": re.compile(r"Backend .*: (?P<backend>\w+)"),
        "devices": re.compile(r"Num initiator dev .*: (?P<devices>[0-9]+)"),
        "header": re.compile(r"Block Size \(B\).*"),
        "option": re.compile(r".*\(--\w+.*|[-*]+"),
    }
    own = re.compile(r"Block Size|GB/Sec")

    def samples(self) -> Iterator[Samples]:
        """A sample for each row."""
        if self.said.get("devices", "1") != "1":
            self.invalid(None, f"the rate is the sum of {self.said['devices']} devices: give a run of one")
        self.memory = "gpu" if {self.said.get("source"), self.said.get("target")} == {"VRAM"} else "host"
        yield from super().samples()
