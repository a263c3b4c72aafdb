"""What the programs of the vendor suites measure, in fabricbench's terms, and the options for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fabricheck.errors import UserError
from fabricheck.records.operations import PAIRS

REDUCTIONS = ("allreduce", "reduce_scatter", "reduce")

# OMB takes no size of its own: it doubles. The others are asked for the factor of fabricbench's own checks.
FACTOR = {
    **{"osu": 2, "nccl-tests": 4, "rccl-tests": 4, "imb": 4, "oneccl": 4},
    **dict.fromkeys(("libfabric", "ucx", "perftest"), 1024),
}

# The TCP port on which the server of a tool that consists of a server and a client waits: the tools' defaults.
_PORTS = {"libfabric": 47592, "ucx": 13337, "perftest": 18515}
SERVER_SCRIPT = "server-client.sh"

# nccl-tests cut what each rank has of a collective that gathers or scatters to multiples of 16 B.
_NCCL_ALIGNMENT = 16

# By how much fewer iterations a stream of OMB is asked for.
_WINDOWED = 5

# What `options` has nccl-tests look for in their own help, with what is asked for where it is there.
NCCL_REPORT = "report.json"
# What OMB calls device memory (its option -d), by backend.
_OSU_DEVICES = {"cuda": "cuda", "hip": "rocm", "sycl": "sycl"}
# Of perftest, whose build may have one of them or none.
_PERFTEST_DEVICES = {"cuda": "--use_cuda=0", "hip": "--use_rocm=0"}


# What a program is called, by its tool and the name of a benchmark.
_PROGRAMS = {
    "osu": "osu_{}",
    "nccl-tests": "{}_perf",
    "imb": "IMB-MPI1",
    "oneccl": "benchmark",
    "libfabric": "fi_{}",
    "ucx": "ucx_perftest",
    "perftest": "ib_{}",
}
# By tool, of each benchmark the operation that it measures, by fabricbench's name.
_OPERATIONS = {
    "osu": {
        "latency": "pingpong",
        "bw": "unidirectional",
        "bibw": "bidirectional",
        "mbw_mr": "unidirectional",
        "alltoall": "alltoall",
        "allreduce": "allreduce",
        "allgather": "allgather",
        "reduce_scatter": "reduce_scatter",
        "bcast": "broadcast",
        "reduce": "reduce",
    },
    "nccl-tests": {
        "sendrecv": "bidirectional",
        "all_reduce": "allreduce",
        "alltoall": "alltoall",
        "all_gather": "allgather",
        "reduce_scatter": "reduce_scatter",
        "broadcast": "broadcast",
        "reduce": "reduce",
    },
    "imb": {"PingPong": "pingpong", "Sendrecv": "bidirectional", "Alltoall": "alltoall", "Allreduce": "allreduce"},
    "libfabric": {"pingpong": "pingpong"},
    "ucx": {"tag_lat": "pingpong", "tag_bw": "unidirectional"},
    "perftest": {"write_bw": "unidirectional", "read_bw": "unidirectional", "send_lat": "pingpong"},
    "oneccl": {name: name for name in ("allreduce", "alltoall", "allgather", "reduce_scatter", "broadcast", "reduce")},
}


@dataclass(frozen=True)
class Benchmark:
    """One program (or one benchmark of IMB's program) and what it measures; `operation` is fabricbench's name."""

    tool: str
    name: str
    operation: str

    @property
    def program(self) -> str:
        """The name of the program."""
        return _PROGRAMS[self.tool].format(self.name)

    @property
    def pair(self) -> bool:
        """Whether it runs between two ranks."""
        return self.operation in PAIRS

    @property
    def shares(self) -> bool:
        """Whether the size that the tool is told, and prints, is the share of one rank; the buffer is as many times
        larger as there are ranks."""
        return self.tool in ("osu", "imb", "oneccl") and self.operation in ("alltoall", "allgather")

    def buffer_bytes(self, size: int, ranks: int) -> int:
        """Size of the buffer, by the conventions of docs/formats.md, where `size` is requested of the tool."""
        if self.tool == "nccl-tests":
            split = self.operation in ("allgather", "reduce_scatter", "alltoall")
            granule = _NCCL_ALIGNMENT * ranks if split else 4
            return size // granule * granule
        if self.tool == "oneccl" and self.operation == "reduce_scatter":
            return size // (4 * ranks) * (4 * ranks)
        return size * ranks if self.shares else size

    @property
    def checks_apart(self) -> bool:
        """Whether the tool checks its data only in a run of its own, whose times do not count, or not at all (UCX,
        perftest)."""
        return self.tool in ("osu", "imb", "libfabric", "ucx", "perftest")

    @property
    def has_server(self) -> bool:
        """Whether it consists of a server and a client, which no launcher of MPI tells of each other."""
        return self.tool in _PORTS


def benchmark(tool: str, name: str) -> Benchmark:
    """The benchmark `name` of a tool; rccl-tests have those of nccl-tests. UserError where there is none."""
    family = "nccl-tests" if tool == "rccl-tests" else tool
    known = _OPERATIONS.get(family, {})
    if name not in known:
        raise UserError(f"{tool} has no known benchmark {name!r}: choose from {', '.join(known) or 'none'}")
    return Benchmark(family, name, known[name])


def find_peer(tool: str, operation: str) -> Benchmark:
    """The benchmark of a tool that measures the same as an operation of fabricbench. UserError where there is none."""
    for name, measured in _OPERATIONS.get(tool, {}).items():
        if measured == operation:
            return benchmark(tool, name)
    raise UserError(f"{tool} has nothing that measures {operation}")


def sizes_between(smallest: int, largest: int, factor: int) -> tuple[int, ...]:
    """`smallest`, and `factor` times the one before as long as that is not above `largest`, in bytes.

    Raises ValueError where there are none.
    """
    if not 0 < smallest <= largest or factor < 2:
        raise ValueError(f"no sizes from {smallest} to {largest} by {factor}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


@dataclass(frozen=True)
class BenchmarkRequest:
    """What a run of a vendor tool is to measure. `sizes` are those that the tool is told, each `FACTOR` times the last.

    `buffers` is where rank 0 and rank 1 have their data, `H` or `D`; `H` alone where all have it on the host.
    `check`: OMB checks its data, which refills buffers between iterations and so makes them slower; nccl-tests always
    check, outside the clock. `one_at_a_time`: nccl-tests wait for each iteration, as fabricbench does, instead of
    letting them overlap.
    """

    benchmark: Benchmark
    sizes: tuple[int, ...]
    ranks: int
    backend: str = "host"
    buffers: str = "H"
    iterations: int = 100
    warmup: int = 20
    check: bool = False
    one_at_a_time: bool = False

    @property
    def device(self) -> bool:
        """Whether any buffer is on the device."""
        return "D" in self.buffers

    @property
    def checking(self) -> BenchmarkRequest:
        """The short run that checks the data of all sizes, of a tool that `checks_apart`."""
        return replace(self, check=True, iterations=2, warmup=1)

    @property
    def planned_bytes(self) -> tuple[int, ...]:
        """The buffers that a complete run has measured, in bytes, without those too small to be cut into shares."""
        planned = (self.benchmark.buffer_bytes(size, self.ranks) for size in self.sizes)
        return tuple(dict.fromkeys(size for size in planned if size > 0))

    @property
    def series(self) -> list[dict[str, Any]]:
        """`plan.series` of the result file: a pair of the first and second rank, or all of them.

        `mbw_mr` has half of the ranks send to the other half at the same time.
        """
        benchmark = self.benchmark
        series = {"operation": benchmark.operation, "implementation": "transfers" if benchmark.pair else "library"}
        size = list(self.planned_bytes)
        if benchmark.name == "mbw_mr" and self.ranks > 2:
            half = self.ranks // 2
            return [
                {**series, "schedule": "contended", "round": 0, "ranks": [rank, rank + half], "bytes": size}
                for rank in range(half)
            ]
        ranks = [0, 1] if benchmark.pair else list(range(self.ranks))
        return [{**series, "schedule": "uncontended", "round": -1, "ranks": ranks, "bytes": size}]


def options(asked: BenchmarkRequest) -> list[str]:
    """The program's arguments; the sizes of IMB are in the file `lengths` (`lengths_file`), and those of a tool with a
    server in its script (`server_script`). Raises UserError for memory of GPUs that the tool has no option for."""
    benchmark = asked.benchmark
    if benchmark.tool == "libfabric":
        # With both it would print each byte; -v tells the provider.
        how = "-c" if asked.check else "-v"
        return [how, "-e", "rdm", "-m", "tagged", "-I", str(asked.iterations), "-S", "SIZE"]
    if benchmark.tool == "ucx":
        counts = ["-n", str(asked.iterations), "-w", str(asked.warmup)]
        return ["-t", benchmark.name, "-s", "SIZE", *counts]
    if benchmark.tool == "perftest":
        # -F: nothing about the clock of the cores in the middle of the table.
        if asked.device and asked.backend not in _PERFTEST_DEVICES:
            raise UserError(f"perftest has no option for memory of GPUs by {asked.backend}: leave out Perftest")
        where = [_PERFTEST_DEVICES[asked.backend]] if asked.device else []
        rates = [] if benchmark.operation == "pingpong" else ["--report_gbits"]
        return ["-F", "-s", "SIZE", "-n", str(asked.iterations), *rates, *where]
    first, last = asked.sizes[0], asked.sizes[-1]
    if benchmark.tool == "osu":
        # Each iteration of a stream is a window of 64 messages.
        share = _WINDOWED if benchmark.operation in ("unidirectional", "bidirectional") else 1
        counts = ["-i", str(max(1, asked.iterations // share)), "-x", str(asked.warmup // share)]
        counts += ["-c"] if asked.check else []
        options = ["-m", f"{first}:{last}", *counts]
        if benchmark.operation in REDUCTIONS:
            # Sums of MPI_CHAR overflow, which OMB 7.4 takes for wrong data.
            options += ["-T", "mpi_float"]
        if not benchmark.pair:
            options += ["-f", "-M", str(max(512 << 20, 4 * max(asked.planned_bytes)))]
        if asked.device:
            options += ["-d", _OSU_DEVICES[asked.backend]]
        return [*options, *(asked.buffers.split() if benchmark.pair and asked.device else [])]
    if benchmark.tool == "imb":
        # Lengths are cut at the largest of -msglog, iterations at a volume of 40 MB.
        options = [
            benchmark.name,
            "-npmin",
            str(asked.ranks),
            "-msglen",
            "lengths",
            "-msglog",
            f"0:{(last - 1).bit_length()}",
        ]
        options += ["-iter", f"{asked.iterations},{asked.iterations * last // 10**6 + 1}", "-iter_policy", "off"]
        options += ["-mem", str(1 + (4 * max(asked.planned_bytes) >> 30))]
        return [*options, *(["-mem_alloc_type", "device"] if asked.device else [])]
    if benchmark.tool == "oneccl":
        options = ["--backend", asked.backend, "--coll", benchmark.name, "--dtype", "float32"]
        options += ["--elem_counts", ",".join(str(size // 4) for size in asked.sizes)]
        options += ["--iters", str(asked.iterations), "--warmup_iters", str(asked.warmup), "--iter_policy", "off"]
        return [*options, "--check", "last"]
    options = ["-b", str(first), "-e", str(last), "-f", str(FACTOR["nccl-tests"]), "-g", "1"]
    options += ["-n", str(asked.iterations), "-w", str(asked.warmup), "-c", "1"]
    return [*options, *(["-z", "1"] if asked.one_at_a_time else [])]


def nccl_report_command(program: str, variable: str = "REPORT") -> str:
    """A shell command that sets a variable to the options by which this version of nccl-tests reports JSON and times.

    Versions and forks differ (`-J` and `-I` may mean something else), so the program's own help is asked.
    """
    return (
        f"{variable}=; {variable}_HELP=$({program} -h 2>&1); "
        f'case "${variable}_HELP" in *--output_file*) {variable}="-J {NCCL_REPORT}";; esac; '
        f'case "${variable}_HELP" in *--per_iter_timing*) {variable}="${variable} -I 1";; esac'
    )


def server_script(asked: BenchmarkRequest, interface: str = "") -> str:
    """The shell script that each of two ranks runs with a tool that has a server, and its arguments: rank 0 is the
    server of each size, rank 1 its client, which prints. `interface`: the server's, by name; empty: the node's first.

    They meet by files in the job's folder, which both nodes have. A client that came too early would fail, and that of
    a server that ended before it listened would hide why. A node without the device that perftest needs says so.
    """
    sizes = " ".join(map(str, asked.sizes))
    port = f"{_PORTS[asked.benchmark.tool]:04X}"
    address = (
        f"ip -4 -o address show dev {interface} | awk '{{print $4}}' | cut -d/ -f1" if interface else "hostname -I"
    )
    need = "ls -d /sys/class/infiniband/*" if asked.benchmark.tool == "perftest" else "true"
    return f"""\
rank=${{OMPI_COMM_WORLD_RANK:-${{PMIX_RANK:-${{PMI_RANK:-${{PALS_RANKID:-$SLURM_PROCID}}}}}}}}
listens() {{ cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | grep -q ":{port} [0-9A-F:]* 0A "; }}
{need} > /dev/null 2>&1 || {{ echo "$(hostname) has no InfiniBand or RoCE device: /sys/class/infiniband" >&2; exit 1; }}
for size in {sizes}; do
  ready=server-of-$size
  command=$(echo "$*" | sed "s/SIZE/$size/")
  if [ "$rank" = 0 ]; then
    $command > /dev/null & server=$!
    until listens; do kill -0 $server 2> /dev/null || {{ wait $server; exit 1; }}; sleep 0.05; done
    {address} | cut -d' ' -f1 > $ready.part
    [ -s $ready.part ] || {{ echo "this node has no address{f" on {interface}" if interface else ""}" >&2; exit 1; }}
    mv $ready.part $ready
    wait $server || exit
    rm -f $ready
  else
    until [ -s $ready ]; do sleep 0.05; ls > /dev/null; done
    echo "# $command"
    $command "$(cat $ready)" || exit
    while [ -e $ready ]; do sleep 0.05; ls > /dev/null; done
  fi
done
"""


def lengths_file(asked: BenchmarkRequest) -> str:
    """The content of IMB's file of message lengths."""
    return "".join(f"{size}\n" for size in asked.sizes)
