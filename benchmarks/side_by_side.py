"""Measures fabricbench and its peers on the same links in turn, and writes the ratios as a table.

The peers are the site's own builds: nccl-tests built with MPI, nvbandwidth, ze_peer and ze_bandwidth of Intel's
level-zero-tests, the OSU Micro-Benchmarks built with the MPI library that `mpirun` belongs to, libfabric's fi_pingpong,
and CommBench in benchmarks/commbench_messages.cpp. A peer that is not named is left out.

    python benchmarks/side_by_side.py --fabricbench build/fabricbench --ranks 4 --nccl-tests DIR --nvbandwidth FILE \
        --osu DIR --commbench FILE --output docs/results/side-by-side.md

fi_pingpong and fabricbench's transport `fabric` take the provider and the interface of the environment. Two cores are
enough, and where other work runs on them, `chrt` keeps it away (as root):

    FI_PROVIDER=tcp FI_TCP_IFACE=lo python -m benchmarks.side_by_side --host --ranks 2 --rounds 4 \
        --fabricbench build/host-openmpi/fabricbench --mpirun "chrt -r 10 mpirun.openmpi --bind-to core" \
        --fi-pingpong /usr/bin --output fabric.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabricheck.diagnosis.cross_check import one_way_us
from fabricheck.errors import UserError
from fabricheck.records.operations import GROUP_PATTERNS
from fabricheck.records.run import Groups, Run
from fabricheck.results.fabricbench import read_run
from fabricheck.suites.benchmarks import (
    SERVER_SCRIPT,
    BenchmarkRequest,
    benchmark,
    find_peer,
    options,
    server_script,
    sizes_between,
)
from fabricheck.suites.outputs import parse
from fabricheck.suites.runs import check_output, choose_samples
from fabricheck.topology.transfers import Message, Step, steps_of
from fabricheck.units import format_size, parse_size

# What was measured, such as (operation, bytes, source, destination), to a time in µs or a rate in GB/s.
Values = dict[tuple[object, ...], float]


@dataclass(frozen=True)
class Row:
    """One line of the table: ours over theirs in each round, both in `unit`."""

    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    wanted: str = ""

    @property
    def ratio_of_best(self) -> float:
        """Ours at its best round over theirs at its own: what is left where other work took some rounds' time."""
        best = max if self.unit == "GB/s" else min
        return best(self.ours) / best(self.theirs)

    def line(self) -> str:
        ratios = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        middle = [statistics.median(each) for each in (self.ours, self.theirs, ratios)]
        spread = f"{min(ratios):.3f}-{max(ratios):.3f}"
        numbers = f"{middle[0]:.4g} | {middle[1]:.4g} | {self.unit} | {middle[2]:.3f} ({spread})"
        numbers += f" | {self.ratio_of_best:.3f}"
        return f"| {self.what} | {numbers} | {self.wanted} |"


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.commands: list[str] = []

    def add(self, what: str, unit: str, ours: float, theirs: float, wanted: str = "") -> None:
        row = self.rows.setdefault(what, Row(what, unit, wanted=wanted))
        row.ours.append(ours)
        row.theirs.append(theirs)

    def run(self, command: list[str], folder: str | None = None) -> str:
        """What a command printed, in its `folder`. UserError where it fails."""
        if (text := shlex.join(command)) not in self.commands:
            self.commands.append(text)
        print(f"  {text}", file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)
        if done.returncode != 0:
            raise UserError(f"'{text}' ended with exit status {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
        return done.stdout


def launch(arguments: argparse.Namespace, ranks: int) -> list[str]:
    return [*shlex.split(arguments.mpirun), "-n", str(ranks)]


def run_fabricbench(table: Table, arguments: argparse.Namespace, ranks: int, *options: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.jsonl"
        program = [arguments.fabricbench, "--quiet", *options, "--output", str(file)]
        table.run([*launch(arguments, ranks), *program])
        run = read_run(file)
    if run.problems:
        raise UserError(run.problems[0].message)
    assert run.footer is not None
    share = run.footer["recording_ns"] / run.footer["wall_ns"]
    table.add("recording the samples, share of the run (largest)", "", max(share, 1e-9), 1.0, "≤ 0.01")
    return run


def fabricbench(table: Table, arguments: argparse.Namespace, ranks: int, *options: str) -> Values:
    """Times in µs by (operation, bytes) and, with the ranks that were measured, by (operation, bytes, *ranks)."""
    run = run_fabricbench(table, arguments, ranks, *options)
    values: Values = {}
    for samples in run.samples:
        time = statistics.median(samples.latency_us.tolist())
        where = (samples.operation, samples.bytes, *samples.ranks)
        values[samples.operation, samples.bytes] = values[where] = time
    return values


def vendor(
    table: Table, arguments: argparse.Namespace, folder: str, asked: BenchmarkRequest, more: Sequence[str] = ()
) -> Values:
    """One-way times in µs by size, from the parser of the tool, given `more` options. UserError where the output has a
    problem."""
    program = [str(Path(folder).absolute() / asked.benchmark.program), *options(asked), *more]
    with tempfile.TemporaryDirectory() as meeting:
        if asked.benchmark.has_server:
            (Path(meeting) / SERVER_SCRIPT).write_text(server_script(asked, os.environ.get("FI_TCP_IFACE", "")))
            program = ["sh", SERVER_SCRIPT, *program]
        text = table.run([*launch(arguments, asked.ranks), *program], meeting)
    output = parse(asked, text, asked.benchmark.program)
    problems = check_output(output, asked)
    if problems:
        raise UserError(problems[0].message)
    return {(each.bytes,): one_way_us(each) for each in choose_samples(output, asked)}


@dataclass(frozen=True)
class Copies:
    """Copies of one kind by fabricbench, and the tests of a `peer` that make the same, by operation.

    `sizes` is what one GPU moves, the largest last; `together`: all of them at the same time. `train`: how many follow
    one another without a wait, beside single ones.
    """

    transport: str
    options: tuple[str, ...]
    tests: Mapping[str, tuple[str, str]]  # operation: test, what the ratio must be
    sizes: tuple[str, ...]
    train: int = 0
    together: bool = False
    peer: str = "nvbandwidth"


# What the peer's buffers are, where an operation by itself is slower than one of many: nvbandwidth times those.
TRAIN_SIZES = ("2MiB", "16MiB", "512MiB")
COPIES = (
    Copies(
        "copy",
        ("--access=write", "--host-memory=pinned"),
        {
            "unidirectional": ("device_to_device_memcpy_write_ce", "≥ 0.98"),
            "host_to_device": ("host_to_device_memcpy_ce", "≥ 0.98"),
            "device_to_host": ("device_to_host_memcpy_ce", "≥ 0.98"),
            "local_copy": ("device_local_copy", "≥ 0.98"),
        },
        TRAIN_SIZES,
        train=32,
    ),
    Copies(
        "kernel",
        ("--access=write", "--host-memory=pinned"),
        {
            "unidirectional": ("device_to_device_memcpy_write_sm", "≥ 0.98"),
            "host_to_device": ("host_to_device_memcpy_sm", "≥ 0.95"),
            "device_to_host": ("device_to_host_memcpy_sm", "≥ 0.95"),
        },
        TRAIN_SIZES,
        train=32,
    ),
    Copies("copy", ("--access=read",), {"unidirectional": ("device_to_device_memcpy_read_ce", "≥ 0.98")}, ("1GiB",)),
    Copies("kernel", ("--access=read",), {"unidirectional": ("device_to_device_memcpy_read_sm", "≥ 0.95")}, ("1GiB",)),
    Copies("kernel", (), {"local_copy": ("device_local_copy", "≥ 0.95")}, ("1GiB",)),
    Copies(
        "copy",
        ("--host-memory=pinned",),
        {
            "host_to_device": ("host_to_all_memcpy_ce", ""),
            "device_to_host": ("all_to_host_memcpy_ce", ""),
            "host_bidirectional": ("host_to_all_bidirectional_memcpy_ce", ""),
        },
        ("512MiB",),
        together=True,
    ),
    Copies("copy", ("--access=write",), {"unidirectional": ("write", "≥ 0.95")}, ("256MiB",), peer="ze_peer"),
    Copies("copy", ("--access=read",), {"unidirectional": ("read", "≥ 0.95")}, ("256MiB",), peer="ze_peer"),
    Copies(
        "copy",
        ("--host-memory=pinned",),
        {"host_to_device": ("h2d", "≥ 0.95"), "device_to_host": ("d2h", "≥ 0.95")},
        ("256MiB",),
        peer="ze_bandwidth",
    ),
)


def nvbandwidth(table: Table, arguments: argparse.Namespace, test: str, size: int) -> Values:
    """Rates in GB/s by (source, destination) of two GPUs, or by the one GPU.

    A test that the machine cannot run (waived) prints no table: UserError.
    """
    text = table.run([arguments.nvbandwidth, "-t", test, "-b", str(size >> 20)])
    rates: Values = {}
    # "GPU(row) <- GPU(column)": the row is written to; with CPU(row), or no row, there is one row of GPUs.
    peers = re.search(r"GPU\(row\) (<-|->) GPU\(column\)", text)
    for row, values in re.findall(r"^ (\d+) +((?:[\d.]+|N/A)[ \d.N/A]*)$", text, re.M):
        for column, value in enumerate(values.split()):
            if value == "N/A":
                continue
            if peers is None:
                rates[column,] = float(value)
            else:
                rates[(column, int(row)) if peers[1] == "<-" else (int(row), column)] = float(value)
    if not rates:
        raise UserError(f"nvbandwidth printed no table for {test}: {text[-200:].strip()!r}")
    return rates


# As level-zero-tests of August 2026 print them (perf_tests/ze_peer, ze_bandwidth): one size of each pair or device.
_ZE_PEER = re.compile(
    r"^Bandwidth (?:Write|Read) : Device\( (\d+) \)(->|<-)Device\( (\d+) \)\nBW \[GBPS\]:.*: +([\d.]+)$", re.M
)
_ZE_BANDWIDTH = re.compile(r"^\s*\[Device (\d+) +\d+\]: +BW = +([\d.]+) GBPS", re.M)


def ze_peer(table: Table, arguments: argparse.Namespace, test: str, size: int) -> Values:
    """Rates in GB/s by (source, destination) of two devices, of copies that the source (`write`) or the other makes."""
    text = table.run([arguments.ze_peer, "-t", "transfer_bw", "-o", test, "-z", str(size)])
    rates: Values = {}
    for first, arrow, second, rate in _ZE_PEER.findall(text):
        ends = (int(first), int(second)) if arrow == "->" else (int(second), int(first))
        rates[ends] = float(rate)
    if not rates:
        raise UserError(f"ze_peer printed no rate for {test}: {text[-200:].strip()!r}")
    return rates


def ze_bandwidth(table: Table, arguments: argparse.Namespace, test: str, size: int) -> Values:
    """Rates in GB/s by device, one at a time."""
    rates: Values = {}
    for device in range(arguments.ranks):
        text = table.run([arguments.ze_bandwidth, "-t", test, "-s", str(size), "-d", str(device)])
        devices = dict(_ZE_BANDWIDTH.findall(text))
        if list(devices) != [str(device)]:
            raise UserError(f"ze_bandwidth printed no rate of device {device} for {test}: {text[-200:].strip()!r}")
        rates[device,] = float(devices[str(device)])
    return rates


RATES: Mapping[str, Callable[[Table, argparse.Namespace, str, int], Values]] = {
    "nvbandwidth": nvbandwidth,
    "ze_peer": ze_peer,
    "ze_bandwidth": ze_bandwidth,
}


def compare_copies(table: Table, arguments: argparse.Namespace, copies: Copies) -> None:
    """Ours singly and, where there are any, in trains; then the peer's at each size."""
    sizes = {size: parse_size(size) * (arguments.ranks if copies.together else 1) for size in copies.sizes}
    ways = {"": 0, " train": copies.train} if copies.train else {"": 0}
    ours = {
        way: fabricbench(
            table, arguments, arguments.ranks, f"--transport={copies.transport}", *copies.options,
            f"--operations={','.join(copies.tests)}", f"--sizes={','.join(map(str, sizes.values()))}", "--budget=0.2",
            f"--schedules={'contended' if copies.together else 'uncontended'}",
            *([f"--train={train}"] if train else []),
        )
        for way, train in ways.items()
    }  # fmt: skip
    for size, moved in sizes.items():
        for operation, (test, wanted) in copies.tests.items():
            theirs = RATES[copies.peer](table, arguments, test, parse_size(size))
            where = {gpus: (operation, moved, *gpus) for gpus in theirs}
            everywhere = (operation, moved, *range(arguments.ranks))
            for way, times in ours.items():
                # A small copy by itself is a latency, which a peer that times many does not show.
                bound = wanted if way or size == copies.sizes[-1] else ""
                what, against = f"{copies.transport} {operation} {size}{way}", f"against {copies.peer} {test}"
                if copies.together:
                    # Ours ends with the slowest GPU; nvbandwidth prints the rate of each.
                    peer = arguments.ranks * min(theirs.values())
                    table.add(
                        f"{what} on each GPU at once, {against}", "GB/s", moved / times[everywhere] / 1e3, peer, bound
                    )
                    continue
                ratios = {gpus: moved / times[where[gpus]] / 1e3 / rate for gpus, rate in theirs.items()}
                worst = min(ratios, key=ratios.__getitem__)
                of = "of all ordered pairs" if len(worst) > 1 else "GPU"
                rate = ratios[worst] * theirs[worst]
                table.add(f"{what}, the worst {of}, {against}", "GB/s", rate, theirs[worst], bound)


# What CommBench calls the way that data take, and ours.
COMMBENCH = {"copy": "ipc", "ccl": "nccl", "mpi": "mpi"}


def in_turn(step: Step, groups: Groups) -> Iterable[Message]:
    """The messages in fabricbench's order: the members of a group begin with different receivers.

    Messages of one source follow each other, so that in any other order all of them go to the same receiver at a time.
    """
    for source in dict.fromkeys(each.source for each in step):
        own = sorted((each for each in step if each.source == source), key=lambda each: each.destination)
        first = source % groups.size % len(own)
        yield from (*own[first:], *own[:first])


def compare_groups(table: Table, arguments: argparse.Namespace, transport: str) -> None:
    """All patterns between two halves of the GPUs, each message of CommBench's the same as ours."""
    titles: dict[str, tuple[str, float, float]] = {}
    run = run_fabricbench(
        table, arguments, arguments.ranks, f"--transport={transport}", f"--operations={','.join(GROUP_PATTERNS)}",
        "--sizes=1GiB", "--iterations=30", "--warmup=5",
    )  # fmt: skip
    for result in run.samples:
        assert result.groups is not None
        (step,) = steps_of(result.operation, ranks=len(result.ranks), bytes=result.bytes, groups=result.groups)
        text = ",".join(
            f"{m.source}>{m.destination}:{round(m.share * result.bytes)}" for m in in_turn(step, result.groups)
        )
        shape = f"({result.groups.count}, {result.groups.size}, {result.groups.active})"
        title = f"{transport} {result.operation} {shape} 1 GiB, against CommBench {COMMBENCH[transport]}"
        titles[title] = (text, result.bytes, statistics.median(result.latency_us.tolist()))
    lists = dict.fromkeys(text for text, _, _ in titles.values())
    program = [arguments.commbench, COMMBENCH[transport], "30", *lists]
    output = table.run([*launch(arguments, arguments.ranks), *program])
    theirs = {text: float(seconds) for text, seconds in re.findall(r"^time (\S+) ([\d.]+)$", output, re.M)}
    for title, (text, size, time) in titles.items():
        if not theirs.get(text):
            raise UserError(f"CommBench printed no time for {text}: {output[-200:].strip()!r}")
        table.add(title, "GB/s", size / time / 1e3, size / theirs[text] / 1e9, "≥ 0.98")


PEERS = ("bidirectional", "allreduce", "alltoall", "allgather", "reduce_scatter", "broadcast", "reduce")
SMALL = tuple(8 * 4**k for k in range(7))  # 8 B to 32 KiB


@dataclass(frozen=True)
class CclMode:
    """A mode of NCCL as nccl-tests have it, and the operations that it changes. `calls`: of a graph, 0 for none."""

    options: tuple[str, ...] = ()
    operations: tuple[str, ...] = PEERS
    calls: int = 0


# Several communicators at once are nothing that nccl-tests have.
CCL_MODES = {
    # Inside a node NCCL registers no buffers of a reduce_scatter.
    "registered": CclMode(("-R", "1"), ("allreduce", "alltoall", "allgather")),
    "symmetric": CclMode(("-R", "2"), ("allreduce", "allgather", "reduce_scatter")),
    "copy-engine": CclMode(("-R", "2", "-x", "2"), ("alltoall", "allgather")),
    "graph-20": CclMode(("-G", "1"), ("allreduce", "alltoall", "allgather", "reduce_scatter"), calls=20),
}


def compare_ccl(table: Table, arguments: argparse.Namespace, operation: str, name: str = "") -> None:
    """NCCL in the mode of that name, or as it is, by fabricbench and by nccl-tests."""
    mode = CCL_MODES[name] if name else CclMode()
    large = parse_size("512MiB")
    ranks = 2 if operation == "bidirectional" else arguments.ranks
    small = [size for size in SMALL if size >= 4 * ranks]
    operations = "pingpong,bidirectional" if operation == "bidirectional" else operation
    ours = fabricbench(
        table, arguments, ranks, "--transport=ccl", f"--operations={operations}", "--schedules=uncontended",
        f"--sizes={','.join(map(str, small))},{large}", "--iterations=100", "--warmup=20",
        *([f"--ccl-mode={name}"] if name else []),
    )  # fmt: skip
    peer_program = find_peer("nccl-tests", operation)
    # In a graph nothing can wait for a call.
    waits = not mode.calls
    few = BenchmarkRequest(peer_program, tuple(small), ranks, backend="cuda", buffers="D D", one_at_a_time=waits)
    many = BenchmarkRequest(peer_program, (large,), ranks, backend="cuda", buffers="D D", iterations=50, warmup=10)
    if mode.calls:
        few, many = (replace(asked, iterations=mode.calls) for asked in (few, many))
    peer_small = vendor(table, arguments, arguments.nccl_tests, few, mode.options)
    program = " ".join((peer_program.program, *mode.options))
    ccl = f"ccl {name}" if name else "ccl"
    for how, waiting in (("", False), *[(" -z 1", True)] * waits):
        largest = replace(many, one_at_a_time=waiting)
        theirs = vendor(table, arguments, arguments.nccl_tests, largest, mode.options)[largest.planned_bytes[0],]
        for what in operations.split(","):
            wanted = "≥ 0.98" if name or what in ("pingpong", "bidirectional", "allreduce", "alltoall") else ""
            title = f"{ccl} {what} 512 MiB, {ranks} ranks, against {program}{how}"
            table.add(title, "GB/s", large / ours[what, large] / 1e3, large / theirs / 1e3, wanted)
    if not mode.calls:
        compare_ccl_trains(table, arguments, operation, ranks, name)
    # For some operations nccl-tests rounds sizes otherwise.
    for size in (each for each in small if (each,) in peer_small):
        title = f"{ccl} {operation} {format_size(size)}, {ranks} ranks, against {program}{' -z 1' * waits}"
        table.add(title, "µs", ours[operation, size], peer_small[size,], "≤ 1.10")


def compare_ccl_trains(table: Table, arguments: argparse.Namespace, operation: str, ranks: int, name: str) -> None:
    """As many calls on the stream as nccl-tests time together."""
    sizes, calls, mode = sizes_between(2 << 20, 512 << 20, 4), 20, CCL_MODES[name] if name else CclMode()
    ours = fabricbench(
        table, arguments, ranks, "--transport=ccl", f"--operations={operation}", "--schedules=uncontended",
        f"--sizes={','.join(map(str, sizes))}", "--budget=0.3", f"--train={calls}",
        *([f"--ccl-mode={name}"] if name else []),
    )  # fmt: skip
    asked = BenchmarkRequest(find_peer("nccl-tests", operation), sizes, ranks, backend="cuda", buffers="D D")
    theirs = vendor(table, arguments, arguments.nccl_tests, replace(asked, iterations=calls, warmup=5), mode.options)
    for size in sizes:
        title = f"{f'ccl {name}'.strip()} {operation} {format_size(size)} train, {ranks} ranks, against nccl-tests"
        table.add(title, "GB/s", size / ours[operation, size] / 1e3, size / theirs[size,] / 1e3, "≥ 0.98")


def compare_mpi(table: Table, arguments: argparse.Namespace) -> None:
    sizes = [8, 64, 512, 4096, parse_size("4MiB" if arguments.host else "256MiB")]
    ours = fabricbench(
        table, arguments, 2, "--transport=mpi", "--operations=pingpong", "--schedules=uncontended", "--pairs=0-1",
        f"--sizes={','.join(map(str, sizes))}", "--iterations=1000", "--warmup=100",
    )  # fmt: skip
    asked = BenchmarkRequest(benchmark("osu", "latency"), sizes_between(8, sizes[-1], 2), 2, iterations=1000)
    if not arguments.host:
        asked = replace(asked, backend="cuda", buffers="D D")
    theirs = vendor(table, arguments, arguments.osu, asked)
    for size in sizes:
        mine, peer = ours["pingpong", size], theirs[size,]
        where = "host" if arguments.host else "D-D"
        title = f"mpi ping-pong {where} {format_size(size)}, against osu_latency"
        if size > 4096:
            table.add(title, "GB/s", size / mine / 1e3, size / peer / 1e3, "≥ 0.98")
        else:
            table.add(title, "µs", mine, peer, "≤ 1.10")


#: Sizes of a ping-pong of libfabric, with few and many messages each way.
FABRIC_SIZES = {"8B": (1000, 11000), "64B": (1000, 11000), "4KiB": (1000, 11000), "8MiB": (10, 60)}


def compare_fabric(table: Table, arguments: argparse.Namespace) -> None:
    """The means of two runs of ours between two of theirs, which print nothing but a mean.

    fi_pingpong connects inside its clock: two counts of messages tell what one more takes, and the few are the warm-up
    of both.
    """
    for name, (few, many) in FABRIC_SIZES.items():
        size = parse_size(name)

        def theirs(count: int, size: int = size) -> float:
            asked = BenchmarkRequest(benchmark("libfabric", "pingpong"), (size,), 2, iterations=count)
            return count * vendor(table, arguments, arguments.fi_pingpong, asked)[size,]

        def ours(count: int = many - few, few: int = few, size: int = size) -> float:
            run = run_fabricbench(
                table, arguments, 2, "--transport=fabric", "--access=send", "--buffers=host-host",
                "--operations=pingpong", "--schedules=uncontended", "--pairs=0-1", f"--sizes={size}",
                f"--iterations={count}", f"--warmup={few}",
            )  # fmt: skip
            return statistics.fmean(run.samples[0].latency_us.tolist())

        first = theirs(many) - theirs(few)
        mine = statistics.fmean([ours(), ours()])
        peer = statistics.fmean([first, theirs(many) - theirs(few)]) / (many - few)
        title = f"fabric ping-pong {format_size(size)}, against fi_pingpong"
        if size > 4096:
            table.add(title, "GB/s", size / mine / 1e3, size / peer / 1e3, "≥ 0.97")
        else:
            table.add(title, "µs", mine, peer, "≤ 1.10")


def comparisons(arguments: argparse.Namespace) -> Iterable[tuple[str, Callable[[Table], None]]]:
    for copy in COPIES:
        if getattr(arguments, copy.peer):
            name = f"{copy.peer} {copy.transport} {' '.join(copy.tests)}"
            yield name, lambda table, which=copy: compare_copies(table, arguments, which)  # type: ignore[misc]
    if arguments.commbench:
        for transport in arguments.transports.split(","):
            yield f"CommBench {transport}", lambda table, which=transport: compare_groups(table, arguments, which)  # type: ignore[misc]
    if arguments.nccl_tests:
        for operation in arguments.operations.split(","):
            yield f"nccl-tests {operation}", lambda table, which=operation: compare_ccl(table, arguments, which)  # type: ignore[misc]
        for mode in filter(None, arguments.ccl_modes.split(",")):
            for operation in (one for one in CCL_MODES[mode].operations if one in arguments.operations.split(",")):
                name = f"nccl-tests {mode} {operation}"
                yield name, lambda table, which=(operation, mode): compare_ccl(table, arguments, *which)  # type: ignore[misc]
    if arguments.osu:
        yield "OSU", lambda table: compare_mpi(table, arguments)
    if arguments.fi_pingpong:
        yield "fi_pingpong", lambda table: compare_fabric(table, arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--fabricbench", required=True, help="the program; the cuda backend, or with --host the host backend"
    )
    parser.add_argument("--mpirun", default="mpirun", help="launcher of its MPI library, with options")
    parser.add_argument("--ranks", type=int, required=True, help="GPUs of the node")
    parser.add_argument("--rounds", type=int, default=3, help="how often each pair of programs runs in turn")
    parser.add_argument("--only", default="", help="comparisons whose name, as printed, has this text")
    parser.add_argument("--nccl-tests", help="folder of nccl-tests, built with MPI=1")
    parser.add_argument("--operations", default=",".join(PEERS), help="to compare with nccl-tests")
    parser.add_argument("--ccl-modes", default=",".join(CCL_MODES), help="of NCCL, in which these are compared too")
    parser.add_argument("--nvbandwidth", help="the program")
    parser.add_argument("--ze-peer", help="the program, where ZE_FLAT_DEVICE_HIERARCHY=FLAT has it see tiles")
    parser.add_argument("--ze-bandwidth", help="the program, as ze_peer")
    parser.add_argument("--commbench", help="benchmarks/commbench_messages.cpp, compiled with the same MPI library")
    parser.add_argument("--transports", default=",".join(COMMBENCH), help="to compare with CommBench")
    parser.add_argument("--osu", help="folder with osu_latency, built with the same MPI library")
    parser.add_argument("--fi-pingpong", help="folder with fi_pingpong of the libfabric that is loaded")
    parser.add_argument("--host", action="store_true", help="fabricbench is the host backend: host buffers for OSU")
    parser.add_argument("--output", type=Path, required=True, help="Markdown file to write")
    arguments = parser.parse_args()
    for operation in arguments.operations.split(","):
        if operation not in PEERS:
            parser.error(f"nccl-tests has nothing for {operation!r}: choose from {', '.join(PEERS)}")
    for operation in filter(None, arguments.ccl_modes.split(",")):
        if operation not in CCL_MODES:
            parser.error(f"nccl-tests have no mode {operation!r}: choose from {', '.join(CCL_MODES)}")
    for operation in arguments.transports.split(","):
        if operation not in COMMBENCH:
            parser.error(f"CommBench has nothing for {operation!r}: choose from {', '.join(COMMBENCH)}")
    table = Table()
    try:
        for name, compare in comparisons(arguments):
            if arguments.only not in name:
                continue
            for turn in range(arguments.rounds):
                print(f"{name}, round {turn + 1} of {arguments.rounds}", file=sys.stderr)
                compare(table)
                write(table, arguments.output)
    except UserError as error:
        print(f"side_by_side: {error}", file=sys.stderr)
        return 2
    return 0


def write(table: Table, output: Path) -> None:
    """The table so far: a run that is ended early leaves what it has measured."""
    lines = [
        "| what | fabricbench | peer | unit | ratio, median (range of rounds) | of the best rounds | must be |",
        "|---|---|---|---|---|---|---|",
        *(row.line() for row in table.rows.values()),
        "",
        "Commands, in turn:",
        "",
        *(f"    {command}" for command in table.commands),
    ]
    output.write_text("\n".join(lines) + "\n")
    raw = {name: {"ours": row.ours, "theirs": row.theirs} for name, row in table.rows.items()}
    output.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
