"""What a test of a vendor suite is made of beside its measurement: the suite, which is fetched and built once for each
environment, and what follows from it."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.builtins import fixture, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.core.meta import make_test
from reframe.core.pipeline import RegressionTestPlugin

from fabricheck.errors import UserError
from fabricheck.records.operations import backend_of
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.results.environment import without_values
from fabricheck.rfm.build_fabricbench import built_on_login_node
from fabricheck.rfm.container import rank_command
from fabricheck.rfm.foreign import say_once
from fabricheck.rfm.job_end import EXIT_STATUS
from fabricheck.rfm.launch import fitting_partitions
from fabricheck.rfm.paths import paths_of, paths_of_suite
from fabricheck.suite import suite_root
from fabricheck.suites.benchmarks import (
    FACTOR,
    REDUCTIONS,
    SERVER_SCRIPT,
    Benchmark,
    BenchmarkRequest,
    benchmark,
    lengths_file,
    options,
    server_script,
    sizes_between,
)
from fabricheck.suites.build import CHECKED, Toolchain, build_once, explain_failure
from fabricheck.suites.outputs import parse
from fabricheck.suites.sources import (
    NotAvailableError,
    Source,
    SourceKind,
    Tool,
    fetch,
    find_program,
    find_source,
    load_tools,
    site_setting,
)
from fabricheck.topology.transport_paths import Paths
from fabricheck.units import parse_size

ERRORS = "vendor.err"
OUTPUT = "vendor.out"
CHECKED_OUTPUT = "checked.out"
BUILD_LOG = "build.log"

# How a launcher begins to tell that the ranks have ended: Slurm's, and Open MPI's and MPICH's in frames.
OF_LAUNCHER = re.compile(r"(?:srun|slurmstepd\S*|mpirun|mpiexec): |[-=]{9}|Primary job ")

# What an environment needs to have besides MPI.
NEEDED = {
    "nccl-tests": ["nccl"],
    "rccl-tests": ["rccl"],
    "oneccl": ["oneccl"],
    "libfabric": ["libfabric"],
    # Where NICs are measured.
    "ucx": ["libfabric"],
    "perftest": ["libfabric"],
}


def vendor_tool(name: str) -> Tool:
    """The tool of that name in config/vendor.yaml; UserError where there is none."""
    tools = _tools(suite_root() / "config" / "vendor.yaml")
    if name not in tools:
        raise UserError(f"config/vendor.yaml has no tool {name!r}: choose from {', '.join(tools)}")
    return tools[name]


# Every test asks, as often as it has parameters.
_tools = functools.lru_cache(load_tools)


class BuildVendor(rfm.CompileOnlyRegressionTest):
    """Fetches a suite and builds it, unless it was built before (`fabricheck.building`).

    An installed one is taken as it is. A subclass names the `tool`. What the environment's `extras` say of compilers
    and libraries is described in docs/vendor-tools.md. Skipped, saying what to set, where the site has none and the
    release cannot be fetched.
    """

    tool = variable(str)
    descr = "build a vendor suite"
    build_system = "CustomBuild"
    build_time_limit = "60m"
    sourcesdir = None

    @run_after("init")
    def choose_where(self) -> None:
        """Hook after init: whether it is built on this machine or in a job."""
        self.build_locally = built_on_login_node(self.valid_systems)

    @run_after("setup")
    def fetch(self) -> None:
        """Hook after setup: finds or downloads the suite; skips the environment where neither can be done."""
        tool = vendor_tool(self.tool)
        setting = site_setting(self.tool, tool, self.current_environ.extras)
        self.skip_if(setting is None, f"{tool.title} is left out here: {tool.how_to_say}")
        self.source: Source = find_source(tool, str(setting))
        try:
            self.tree = fetch(tool, self.source, Path(self.stagedir) / "fetched")
        except NotAvailableError as error:
            self.skip(str(error))

    @run_before("compile")
    def configure(self) -> None:
        """Hook before compile: the command that builds the suite; none where it is installed."""
        build: Any = self.build_system  # its name in the class, ReFrame's object from here on
        self.installed = Path(self.stagedir) / "installed"
        tree = self.tree
        if tree is None:
            build.commands = ["true"]
            return
        chain = Toolchain.of(self.current_environ.extras, self.current_environ.features)
        script = build_once(self.tool, chain, tree, self.installed)
        # ReFrame would end at the first command that fails and show the last lines, not the first error.
        build.commands = [f"( {script} ) > {BUILD_LOG} 2>&1 && echo 0 > {EXIT_STATUS} || echo $? > {EXIT_STATUS}"]

    @property
    def module(self) -> str | None:
        """The module to load for the suite; None where it is a folder."""
        return self.source.where if self.source.kind is SourceKind.MODULE else None

    @property
    def root(self) -> Path:
        """The folder below which the suite's programs are."""
        return self.installed if self.tree is not None else Path(self.source.where)

    def program(self, name: str) -> str | None:
        """The path of a program of the suite, or its name where a module brings it; `None` where it has none."""
        if self.module is not None:
            return name
        path = find_program(self.root, name)
        return str(path) if path is not None else None

    def checked_program(self, name: str) -> str | None:
        """The program of that name that checks its data, where it is another one."""
        path = find_program(self.installed / CHECKED, name)
        return str(path) if path is not None else None

    @sanity_function
    def is_built(self) -> bool:
        """The sanity function. Raises SanityError with the first error of the build, or if the program is missing."""
        tool = vendor_tool(self.tool)
        if self.tree is not None:
            status = (Path(self.stagedir) / EXIT_STATUS).read_text().strip()
            if status != "0":
                log = (Path(self.stagedir) / BUILD_LOG).read_text(errors="replace")
                raise SanityError(f"INCOMPLETE: {explain_failure(tool, log, int(status or -1))}")
        if self.program(tool.program) is None:
            raise SanityError(f"INCOMPLETE: the build of {tool.title} left no {tool.program}")
        return True


def built(name: str, tool: str) -> Any:
    """The suite of a tool as a fixture of this name. Variables of a fixture would be in the names of its tests."""
    return fixture(make_test(name, (BuildVendor,), {"tool": tool}, module=__name__), scope="environment")


class OsuSuite(RegressionTestPlugin):
    """The OSU Micro-Benchmarks over MPI."""

    tool = "osu"
    transport = "mpi"
    suite = built("BuildOsu", "osu")


class NcclTestsSuite(RegressionTestPlugin):
    """nccl-tests."""

    tool = "nccl-tests"
    transport = "ccl"
    suite = built("BuildNcclTests", "nccl-tests")
    buffers = "D D"


class RcclTestsSuite(RegressionTestPlugin):
    """rccl-tests."""

    tool = "rccl-tests"
    transport = "ccl"
    suite = built("BuildRcclTests", "rccl-tests")
    buffers = "D D"


class OneCclSuite(RegressionTestPlugin):
    """oneCCL's own benchmark."""

    tool = "oneccl"
    transport = "ccl"
    suite = built("BuildOneCcl", "oneccl")
    buffers = "D D"


class ImbSuite(RegressionTestPlugin):
    """The Intel MPI Benchmarks."""

    tool = "imb"
    transport = "mpi"
    suite = built("BuildImb", "imb")


class LibfabricSuite(RegressionTestPlugin):
    """libfabric's own fi_pingpong, between two nodes."""

    tool = "libfabric"
    transport = "fabric"
    suite = built("BuildLibfabric", "libfabric")
    buffers = "H H"
    nodes = 2


class UcxSuite(RegressionTestPlugin):
    """UCX's own ucx_perftest, between two nodes: what an MPI library that uses UCX builds on."""

    tool = "ucx"
    transport = "mpi"
    suite = built("BuildUcx", "ucx")
    buffers = "H H"
    nodes = 2


class PerftestSuite(RegressionTestPlugin):
    """perftest (ib_write_bw and its kin), between two nodes: over verbs alone."""

    tool = "perftest"
    transport = "fabric"
    suite = built("BuildPerftest", "perftest")
    nodes = 2


class SuiteParts(RegressionTestPlugin):
    """What follows from the suite (`OsuSuite` and the others) and its benchmark `bench`, for a FabricbenchCheck.

    The class body of a test says `sizes` (smallest and largest, as `8B:1MiB`), `buffers` (`H H`, `D D`, `H D`, `D H`)
    and `nodes`, which may be parameters. Only environments are selected whose site has the tool, or can fetch it; two
    ranks run benchmarks between two, on one node or on two.
    """

    iterations = variable(int, value=100)

    @run_after("init")
    def name_operation(self) -> None:
        """Hook after init: `operations` is what the benchmark measures, by fabricbench's name."""
        self.operations = [self.benchmark.operation]

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark `bench` of the suite. Raises UserError for an unknown name."""
        return benchmark(self.tool, self.bench)

    @property
    def on_device(self) -> bool:
        """Whether a buffer is in device memory."""
        return "D" in self.buffers or self.transport == "ccl"

    @property
    def partition_features(self) -> list[str]:
        """What a partition needs: GPUs for device buffers."""
        return ["gpu"] if self.on_device else []

    def fitting_systems(self) -> list[str]:
        """Partitions with `partition_features`, and with several nodes for a test between nodes."""
        return fitting_partitions(self.partition_features, several_nodes=self.nodes > 1)

    def fitting_environments(self) -> list[str]:
        """Environments that have the tool, or can fetch it, and whose MPI library takes such buffers."""
        features = ["mpi", *NEEDED.get(self.tool, ())]
        if self.on_device and self.transport == "mpi" and self.benchmark.operation in REDUCTIONS:
            features.append("device-collectives")
        return environments_with(self.tool, features)

    @property
    def backend(self) -> str:
        """The environment's backend for device buffers, else `host`."""
        return backend_of(self.current_environ.extras) if self.on_device else "host"

    def choose_operations(self) -> None:
        """All of them: what the environment cannot do was not selected."""

    def set_ranks(self) -> None:
        """As for FabricbenchCheck; two ranks, on `nodes` nodes, for a benchmark of a pair."""
        super().set_ranks()
        if self.benchmark.pair and self.bench != "mbw_mr":
            self.num_tasks = 2
            self.num_tasks_per_node = 2 // self.nodes
            if self.backend != "host":
                self.num_gpus_per_node = self.num_tasks_per_node

    def asked(self) -> BenchmarkRequest:
        """What the tool is to measure: sizes in bytes as the tool counts them, ranks, buffers and iterations."""
        first, _, last = self.chosen_sizes().partition(":")
        program = self.benchmark
        smallest, largest = parse_size(first), parse_size(last or first)
        if not program.pair:
            if program.shares:
                largest = max(largest // self.num_tasks, smallest)
            elif program.tool != "imb" or program.operation in REDUCTIONS:
                smallest = max(smallest, 4)
            if program.tool == "nccl-tests" and program.buffer_bytes(smallest, self.num_tasks) == 0:
                smallest = 16 * self.num_tasks
        return BenchmarkRequest(
            benchmark=program,
            sizes=sizes_between(smallest, max(largest, smallest), FACTOR[self.tool]),
            ranks=self.num_tasks,
            backend=self.backend,
            buffers=self.buffers if self.backend != "host" else "H",
            iterations=self.iterations,
        )

    def checking_command(self, program: str, asked: BenchmarkRequest) -> list[str]:
        """The run that checks the data, where that is another one; nothing where this build of the suite cannot."""
        checking: str | None = program if self.tool in ("osu", "libfabric") else None
        if self.tool == "imb" and not asked.device:
            checking = self.suite.checked_program(asked.benchmark.program)
        if checking is None:
            return []
        run = rank_command(self, shlex.join(self.words(checking, asked.checking)))
        failed = f"{{ status=$?; echo $status > {EXIT_STATUS}; exit $status; }}"
        return [f"{run} > {CHECKED_OUTPUT} 2> {ERRORS} || {failed}"]

    def words(self, program: str, asked: BenchmarkRequest) -> list[str]:
        """What the launcher starts as each rank of the tool."""
        return [*(["sh", SERVER_SCRIPT] if asked.benchmark.has_server else []), program, *options(asked)]

    def suite_program(self, asked: BenchmarkRequest) -> str:
        """The program to run, after the files that it reads are in the stage directory; its module is loaded, where the
        site has the suite as one."""
        stage = Path(self.stagedir)
        if asked.benchmark.tool == "imb":
            (stage / "lengths").write_text(lengths_file(asked))
        if asked.benchmark.has_server:
            interfaces = self.current_partition.extras.get("network_interfaces", [""])
            (stage / SERVER_SCRIPT).write_text(server_script(asked, interfaces[0]))
        name = f"{asked.benchmark.program}-GPU" if self.tool == "imb" and asked.device else asked.benchmark.program
        program = self.suite.program(name)
        if program is None:
            raise SanityError(f"INCOMPLETE: the suite in {self.suite.root} has no {name}")
        if self.suite.module is not None:
            self.modules = [self.suite.module]
        return str(program)

    def paths(self, inside: bool) -> Paths:
        """As for FabricbenchCheck, for what this tool's log can show."""
        where, extras = self.current_partition.fullname, self.current_environ.extras
        paths = paths_of(self.transport, where, self.nodes, extras, inside=inside)
        return paths_of_suite(paths, self.transport, self.backend, self.nodes)

    def output(self) -> str:
        """What the job and the tool wrote, in which the MPI library's own lines are."""
        files = [Path(self.stagedir) / name for name in (OUTPUT, ERRORS)]
        job: str = super().output()
        return job + "".join(each.read_text(errors="replace") for each in files if each.exists())

    def last_words(self) -> str:
        """The tool's own last line in its error output, or the launcher's where it has none."""
        file = Path(self.stagedir) / ERRORS
        text = file.read_text(errors="replace") if file.exists() else ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        own = list(itertools.takewhile(lambda line: not OF_LAUNCHER.match(line), lines)) or lines
        return f": {without_values(own[-1])[:200]}" if own else ""

    def checked_output(self, asked: BenchmarkRequest) -> VendorOutput | None:
        """What the run that checks the data printed; `None` where there is none."""
        file = Path(self.stagedir) / CHECKED_OUTPUT
        return parse(asked.checking, file.read_text(errors="replace"), CHECKED_OUTPUT) if file.exists() else None


def environments_with(tool: str, features: Sequence[str]) -> list[str]:
    """As ReFrame's `valid_prog_environs`: the environments that have `features` and do not leave the tool out.

    They get a feature of their own, as an environment of the same name may be left out in another partition. Where
    all leave it out, one line on stderr says so: a check that silently does not exist is a check that passes.
    """
    known = vendor_tool(tool)
    environs = [each for partition in rt.runtime().system.partitions for each in partition.environs]
    fitting = [each for each in environs if set(features) <= set(each.features)]
    chosen = [each for each in fitting if site_setting(tool, known, each.extras) is not None]
    if fitting and not chosen:
        say_once(f"{known.title} is left out on {rt.runtime().system.name}: {known.how_to_say}")
    own = f"has-{tool}"
    for environment in chosen:
        if own not in environment.features:
            environment.features.append(own)
    return [" ".join(f"+{each}" for each in (own, *features))]


def library_path(mpicxx: str | None) -> list[str]:
    """Where a program that was built elsewhere, such as Intel's, finds this environment's MPI library."""
    if mpicxx is None or not Path(mpicxx).is_absolute():
        return []
    folder = shlex.quote(str(Path(mpicxx).parent.parent / "lib"))
    return [f"export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"]
