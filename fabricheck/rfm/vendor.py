"""The vendor suites through ReFrame: fetched and built once for each environment, run and judged as fabricbench is."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.core.runtime as rt
from reframe.core.builtins import fixture, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.operations import backend_of
from fabricheck.records.run import Run
from fabricheck.records.verdict import Problem, Verdict, worst
from fabricheck.results.environment import without_values
from fabricheck.results.fabricbench import read_run
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.results.nccl_tests_json import parse_nccl_tests_json
from fabricheck.results.proof_logs import FALL_BACKS
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.rfm.measure import EXIT_STATUS, RESULT, FabricbenchCheck, launch_command, summary
from fabricheck.suite import suite_root
from fabricheck.suites.benchmarks import (
    FACTOR,
    NCCL_REPORT,
    REDUCTIONS,
    Asked,
    Benchmark,
    benchmark,
    lengths_file,
    nccl_report_command,
    options,
    sizes_between,
)
from fabricheck.suites.build import CHECKED, Toolchain, build_commands, explain_failure
from fabricheck.suites.outputs import parse
from fabricheck.suites.proof import LOGS, VARIABLES, proof_of
from fabricheck.suites.runs import (
    Job,
    Measured,
    check_output,
    choose_samples,
    drop_environment,
    verified_by,
    write_result,
)
from fabricheck.suites.sources import (
    Kind,
    NotAvailableError,
    Source,
    Tool,
    fetch,
    find_program,
    find_source,
    load_tools,
    what_the_site_says,
)
from fabricheck.units import parse_size

OUTPUT = "vendor.out"
ERRORS = "vendor.err"
CHECKED_OUTPUT = "checked.out"
PLACE = "place"
STARTED = "started"
WALL = "wall-ns"
BUILD_LOG = "build.log"

AT_CHECKING = Problem(Verdict.INCOMPLETE, "the run that checks the data did not end well, so nothing was timed")

# What an environment needs to have besides MPI.
NEEDED = {"nccl-tests": ["nccl"], "rccl-tests": ["rccl"]}


def vendor_tool(name: str) -> Tool:
    """The tool of that name in config/vendor.yaml; UserError where there is none."""
    tools = _tools(suite_root() / "config" / "vendor.yaml")
    if name not in tools:
        raise UserError(f"config/vendor.yaml has no tool {name!r}: choose from {', '.join(tools)}")
    return tools[name]


# Every test asks, as often as it has parameters.
_tools = functools.lru_cache(load_tools)


class FetchVendor(rfm.RunOnlyRegressionTest):
    """Lays the source tree of a tool into its stage directory, or finds the installed one.

    Skipped, saying what to set, where the site has none and the release cannot be fetched.
    """

    tool = variable(str)
    descr = "fetch a vendor suite"
    local = True
    executable = "true"
    sourcesdir = None

    @run_before("run")
    def fetch(self) -> None:
        tool = vendor_tool(self.tool)
        said = what_the_site_says(self.tool, tool, self.current_environ.extras)
        self.skip_if(said is None, f"{tool.title} is left out here: {tool.how_to_say}")
        self.source: Source = find_source(tool, str(said))
        try:
            self.tree = fetch(tool, self.source, Path(self.stagedir) / "fetched")
        except NotAvailableError as error:
            self.skip(str(error))

    @sanity_function
    def is_there(self) -> bool:
        return self.source.is_installed or (self.tree is not None and self.tree.is_dir())


class BuildVendor(rfm.CompileOnlyRegressionTest):
    """Builds what was fetched, once for each partition and environment; an installed suite is taken as it is.

    A subclass names the `tool` and fetches it as the fixture `fetched`. What the environment's `extras` say of
    compilers and libraries is described in docs/vendor-suites.md.
    """

    tool = variable(str)
    descr = "build a vendor suite"
    build_system = "CustomBuild"
    build_locally = True
    build_time_limit = "60m"
    sourcesdir = None

    @run_before("compile")
    def configure(self) -> None:
        build: Any = self.build_system  # its name in the class, ReFrame's object from here on
        self.installed = Path(self.stagedir) / "installed"
        tree = self.fetched.tree
        if tree is None:
            build.commands = ["true"]
            return
        chain = Toolchain.of(self.current_environ.extras, self.current_environ.features)
        commands = build_commands(self.tool, chain, tree, self.installed)
        copy = shlex.quote(str(Path(self.stagedir) / "build"))
        script = " && ".join([f"cp -a {shlex.quote(str(tree))} {copy}", f"cd {copy}", *commands])
        # ReFrame would end at the first command that fails and show the last lines, not the first error.
        build.commands = [f"( {script} ) > {BUILD_LOG} 2>&1 && echo 0 > {EXIT_STATUS} || echo $? > {EXIT_STATUS}"]

    @property
    def module(self) -> str | None:
        return self.fetched.source.where if self.fetched.source.kind is Kind.MODULE else None

    @property
    def root(self) -> Path:
        return Path(self.stagedir) if self.fetched.tree is not None else Path(self.fetched.source.where)

    def program(self, name: str) -> str | None:
        """The path of a program of the suite, or its name where a module brings it; `None` where it has none."""
        if self.module is not None:
            return name
        found = find_program(self.installed, name) or find_program(self.root, name)
        return str(found) if found is not None else None

    def checked_program(self, name: str) -> str | None:
        """The program of that name that checks its data, where it is another one."""
        found = find_program(self.installed / CHECKED, name)
        return str(found) if found is not None else None

    @sanity_function
    def is_built(self) -> bool:
        tool = vendor_tool(self.tool)
        if self.fetched.tree is not None:
            status = (Path(self.stagedir) / EXIT_STATUS).read_text().strip()
            if status != "0":
                log = (Path(self.stagedir) / BUILD_LOG).read_text(errors="replace")
                raise SanityError(f"INCOMPLETE: {explain_failure(tool, log, int(status or -1))}")
        if self.program(tool.program) is None:
            raise SanityError(f"INCOMPLETE: the build of {tool.title} left no {tool.program} behind")
        return True


class FetchOsu(FetchVendor):
    tool = "osu"


class FetchNcclTests(FetchVendor):
    tool = "nccl-tests"


class FetchRcclTests(FetchVendor):
    tool = "rccl-tests"


class FetchImb(FetchVendor):
    tool = "imb"


class BuildOsu(BuildVendor):
    tool = "osu"
    fetched = fixture(FetchOsu, scope="environment")


class BuildNcclTests(BuildVendor):
    tool = "nccl-tests"
    fetched = fixture(FetchNcclTests, scope="environment")


class BuildRcclTests(BuildVendor):
    tool = "rccl-tests"
    fetched = fixture(FetchRcclTests, scope="environment")


class BuildImb(BuildVendor):
    tool = "imb"
    fetched = fixture(FetchImb, scope="environment")


@functools.cache
def _say_once(text: str) -> None:
    print(f"fabricheck: {text}", file=sys.stderr)


def environments_with(tool: str, features: Sequence[str]) -> list[str]:
    """Names of the environments of this system that have `features` and do not leave the tool out.

    Where all leave it out, one line on stderr says so: a check that silently does not exist is a check that passes.
    """
    known = vendor_tool(tool)
    environs = [each for partition in rt.runtime().system.partitions for each in partition.environs]
    fitting = [each for each in environs if set(features) <= set(each.features)]
    chosen = [each.name for each in fitting if what_the_site_says(tool, known, each.extras) is not None]
    if fitting and not chosen:
        _say_once(f"{known.title} is left out on {rt.runtime().system.name}: {known.how_to_say}")
    return list(dict.fromkeys(chosen))


class VendorCheck(FabricbenchCheck):
    """Runs one benchmark of a vendor suite and judges it by the rules for fabricbench (`FabricbenchCheck`).

    The contract, by phase, where it differs:

    - *class body*: `bench` (a name in fabricheck.suites.benchmarks), `sizes` (smallest and largest, as `8B:1MiB`),
      `buffers` (`H H`, `D D`, `H D`, `D H`) and `nodes`, which may be parameters. The class of a suite says the rest.
    - *init*: only environments whose site has the tool, or can fetch it.
    - *setup*: two ranks for benchmarks between two, on one node or on two.
    - *run*: fabricbench first, for one message, which tells where the ranks are; then the tool, with validation.
    - *sanity*: the tool's output becomes `result.jsonl`, which is guarded and judged as if fabricbench had written it.
      A JSON report of nccl-tests, which holds the whole environment, is never kept.
    """

    iterations = variable(int, value=100)

    @run_after("init")
    def select(self) -> None:
        device = "D" in self.buffers or self.transport == "ccl"
        features = ["mpi", *NEEDED.get(self.tool, ())]
        if device and self.transport == "mpi" and self.benchmark.operation in REDUCTIONS:
            features.append("device-collectives")
        self.valid_systems = [
            " ".join(["+multinode" if self.nodes > 1 else "-emulated", *(["+gpu"] if device else [])])
        ]
        self.valid_prog_environs = environments_with(self.tool, features)
        self.sourcesdir = None
        self.time_limit = "20m"
        self.keep_files = [RESULT, EXIT_STATUS, OUTPUT]
        self.operations = [self.benchmark.operation]

    @run_after("setup")
    def leave_out_collectives(self) -> None:
        """Nothing: what the environment cannot do was not selected."""

    @property
    def backend(self) -> str:
        backend = backend_of(self.current_environ.extras)
        return backend if "D" in self.buffers or self.transport == "ccl" else "host"

    @run_after("setup")
    def set_pair(self) -> None:
        if self.benchmark.pair and self.bench != "mbw_mr":
            self.num_tasks = 2
            self.num_tasks_per_node = 2 // self.nodes
            if self.backend != "host":
                self.num_gpus_per_node = self.num_tasks_per_node

    @property
    def benchmark(self) -> Benchmark:
        return benchmark(self.tool, self.bench)

    def asked(self) -> Asked:
        first, _, last = self.chosen_sizes().partition(":")
        each = self.benchmark
        smallest, largest = parse_size(first), parse_size(last)
        if not each.pair:
            if each.shares:
                largest = max(largest // self.num_tasks, smallest)
            elif each.tool != "imb" or each.operation in REDUCTIONS:
                smallest = max(smallest, 4)
            if each.tool in ("nccl-tests", "rccl-tests") and each.buffer_bytes(smallest, self.num_tasks) == 0:
                smallest = 16 * self.num_tasks
        return Asked(
            benchmark=each,
            sizes=sizes_between(smallest, largest, FACTOR[self.tool]),
            ranks=self.num_tasks,
            backend=self.backend,
            buffers=self.buffers if self.backend != "host" else "H",
            iterations=self.iterations,
        )

    @run_before("run")
    def command(self) -> None:
        each = self.asked()
        program = self.suite_program(each)
        launch = launch_command(self)
        self.executable = shlex.quote(program)
        self.executable_opts = [*map(shlex.quote, options(each)), "> " + OUTPUT, "2> " + ERRORS]
        self.prerun_cmds = [
            *library_path(self.current_environ.extras.get("mpicxx")),
            *place_command(launch, self.fabricbench.program, self.place_transport(), self.num_tasks, self.nodes),
            f"mkdir -p {LOGS}",
            *(f'export {name}="{value}"' for name, value in VARIABLES[self.transport].items()),
        ]
        if each.benchmark.tool == "imb":
            (Path(self.stagedir) / "lengths").write_text(lengths_file(each))
        self.prerun_cmds += self.checking_command(launch, program, each)
        if each.benchmark.tool in ("nccl-tests", "rccl-tests"):
            # The report holds the whole environment.
            self.prerun_cmds += ["umask 077", nccl_report_command(self.executable)]
            self.executable_opts.insert(-2, "$REPORT")
        self.prerun_cmds += [f"date -u +%FT%TZ > {STARTED}", "BEGIN=$(date +%s%N)"]
        self.postrun_cmds = [
            "status=$?",
            f"echo $(( $(date +%s%N) - BEGIN )) > {WALL}",
            f"echo $status > {EXIT_STATUS}",
            "exit $status",
        ]

    def checking_command(self, launch: str, program: str, asked: Asked) -> list[str]:
        """The run that checks the data, where that is another one; nothing where this build of the suite cannot."""
        checking: str | None = program if self.tool == "osu" else None
        if self.tool == "imb" and not asked.device:
            checking = self.suite.checked_program(asked.benchmark.program)
        if checking is None:
            return []
        run = shlex.join([checking, *options(asked.checking)])
        failed = f"{{ status=$?; echo $status > {EXIT_STATUS}; exit $status; }}"
        return [f"{launch} {run} > {CHECKED_OUTPUT} 2> {ERRORS} || {failed}"]

    def suite_program(self, asked: Asked) -> str:
        """The program to run; its module is loaded, where the site has the suite as one."""
        name = f"{asked.benchmark.program}-GPU" if self.tool == "imb" and asked.device else asked.benchmark.program
        program = self.suite.program(name)
        if program is None:
            raise SanityError(f"INCOMPLETE: the suite in {self.suite.root} has no {name}")
        if self.suite.module is not None:
            self.modules = [self.suite.module]
        return str(program)

    def place_transport(self) -> str:
        """What fabricbench tells the place with: the way of the check, or one that needs nothing of the MPI library."""
        backend = backend_of(self.current_environ.extras)
        return self.transport if self.backend == backend else "staging"

    @property
    def verified(self) -> bool:
        """Intel's builds of IMB cannot check their data; those that were made here can, of host memory."""
        return self.tool != "imb" or (self.suite.fetched.tree is not None and self.backend == "host")

    def paths(self) -> tuple[list[str], list[str]]:
        forbidden, required = super().paths()
        if self.nodes > 1:
            # Between nodes a network is the right way, as long as it is the fast one.
            return [*FALL_BACKS], [each for each in required if each != "^P2P"]
        if self.backend == "host":
            # What has to be seen is how device memory went.
            return forbidden, []
        return [*forbidden, *FALL_BACKS], required

    def last_words(self) -> str:
        """The last line of the tool's error output."""
        file = Path(self.stagedir) / ERRORS
        text = file.read_text(errors="replace") if file.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()]
        return f": {without_values(lines[-1].strip())[:200]}" if lines else ""

    @run_before("sanity")
    def drop_secrets(self) -> None:
        for report in Path(self.stagedir).glob(f"{NCCL_REPORT}*"):
            drop_environment(report)

    def judge(self) -> RunJudgement:
        status = self.exit_status()
        folder = Path(self.stagedir)
        place = self.read_place()
        if not (folder / OUTPUT).exists():
            if (checked := self.checked_output(self.asked())) is not None:
                raise SanityError(summary([*checked.problems, AT_CHECKING], self.last_words()))
            raise SanityError(f"INCOMPLETE: {self.tool} left no output (exit status {status}){self.last_words()}")
        asked = self.asked()
        output = parse_report(folder, asked) or parse(asked, (folder / OUTPUT).read_text(errors="replace"), OUTPUT)
        samples, problems = choose_samples(output, asked), list(check_output(output, asked))
        if checked := self.checked_output(asked):
            problems += check_output(checked, asked.checking)
            samples = verified_by(samples, checked)
        job = Job(
            command=(self.executable, *self.executable_opts[:-2]),
            transport=self.transport,
            started=parse_utc((folder / STARTED).read_text().strip()),
            wall_ns=int((folder / WALL).read_text()),
            proof=proof_of(self.transport, folder / LOGS),
        )
        write_result(folder / RESULT, Measured(place, asked, output, samples, job), problems)
        judged = super().judge()
        every = (*problems, *judged.problems)
        return replace(judged, problems=every, verdict=worst([judged.verdict, *(each.verdict for each in problems)]))

    def checked_output(self, asked: Asked) -> VendorOutput | None:
        """What the run that checks the data printed; `None` where there is none."""
        file = Path(self.stagedir) / CHECKED_OUTPUT
        return parse(asked.checking, file.read_text(errors="replace"), CHECKED_OUTPUT) if file.exists() else None

    def read_place(self) -> Run:
        file = Path(self.stagedir) / PLACE
        if not file.exists():
            raise SanityError("INCOMPLETE: fabricbench, which tells where the ranks are, did not run")
        place = read_run(file)
        if place.problems:
            worst_of = place.problems[0]
            raise SanityError(f"{worst_of.verdict.value}: {worst_of.message}")
        return place


def library_path(mpicxx: str | None) -> list[str]:
    """Where a program that was built elsewhere, such as Intel's, finds this environment's MPI library."""
    if mpicxx is None or not Path(mpicxx).is_absolute():
        return []
    folder = shlex.quote(str(Path(mpicxx).parent.parent / "lib"))
    return [f"export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"]


def place_command(launch: str, program: str, transport: str, ranks: int, nodes: int) -> list[str]:
    """The command whose header tells where the ranks are, on which devices, with which libraries and variables."""
    arguments = [
        program,
        f"--transport={transport}",
        "--operations=pingpong",
        "--schedules=uncontended",
        "--pairs=0-1",
        "--sizes=8B",
        "--iterations=10",
        f"--expect-ranks={ranks}",
        f"--expect-nodes={nodes}",
        "--quiet",
        f"--output={PLACE}",
    ]
    return [f"{launch} {shlex.join(arguments)} || exit"]


def parse_report(folder: Path, asked: Asked) -> VendorOutput | None:
    """The JSON report of nccl-tests, which has the times of the iterations; `None` where the version writes none."""
    report = folder / NCCL_REPORT
    if not report.exists():
        return None
    return parse_nccl_tests_json(report.read_text(), NCCL_REPORT, ranks=asked.ranks, tool=asked.benchmark.program)


class OsuCheck(VendorCheck):
    """One benchmark of the OSU Micro-Benchmarks over MPI."""

    tool = "osu"
    transport = "mpi"
    suite = fixture(BuildOsu, scope="environment")


class NcclTestsCheck(VendorCheck):
    """One program of nccl-tests."""

    tool = "nccl-tests"
    transport = "ccl"
    suite = fixture(BuildNcclTests, scope="environment")
    buffers = "D D"


class RcclTestsCheck(VendorCheck):
    """One program of rccl-tests."""

    tool = "rccl-tests"
    transport = "ccl"
    suite = fixture(BuildRcclTests, scope="environment")
    buffers = "D D"


class ImbCheck(VendorCheck):
    """One benchmark of the Intel MPI Benchmarks."""

    tool = "imb"
    transport = "mpi"
    suite = fixture(BuildImb, scope="environment")
