"""A test that runs one benchmark of a vendor suite and is judged as fabricbench is, and one that alternates the two."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from reframe.core.builtins import variable

from fabricheck.diagnosis.cross_check import compare_rounds, table
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.operations import backend_of
from fabricheck.records.run import Run
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.rfm.command_line import MeasurementPlan, place_options
from fabricheck.rfm.container import container_of, rank_command
from fabricheck.rfm.job_end import EXIT_STATUS, RESULT, no_result, not_judged
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.suite_parts import ERRORS, OUTPUT, SuiteParts, library_path
from fabricheck.suites.benchmarks import NCCL_REPORT, BenchmarkRequest, find_peer, nccl_report_command
from fabricheck.suites.outputs import LOGS, VARIABLES, parse, parse_report, proof_of
from fabricheck.suites.runs import (
    Job,
    VendorRun,
    check_output,
    choose_samples,
    drop_environment,
    verified_by,
    write_result,
)
from fabricheck.units import size_label

PLACE = "place"
STARTED = "started"
WALL = "wall-ns"
RATIOS = "ratios.md"

AT_CHECKING = Finding(
    "benchmark-failed", Verdict.INCOMPLETE, "the run that checks the data failed, so nothing was timed"
)


class VendorCheck(SuiteParts, FabricbenchCheck):
    """Runs one benchmark of a vendor suite and judges it by the rules for fabricbench (`FabricbenchCheck`).

    A test names its suite beside it: `class OsuPairs(rfm.RunOnlyRegressionTest, OsuSuite, VendorCheck)`.
    The contract, by phase, where it differs:

    - *class body*: `bench` (a name in fabricheck.suites.benchmarks), and what `SuiteParts` asks for.
    - *run*: fabricbench first, for one message, which tells where the ranks are; then the tool, with validation.
    - *sanity*: the tool's output becomes `result.jsonl`, which is guarded and judged as if fabricbench had written it.
      A JSON report of nccl-tests, which holds the whole environment, is never kept.
    """

    job_time = "20m"
    further_files = (OUTPUT,)

    def write_command(self) -> None:
        """The job runs fabricbench for the place of the ranks, then the check of the data, then the tool, timed."""
        asked = self.asked()
        program = self.suite_program(asked)
        place = place_options(self.place_transport(), self.num_tasks, self.nodes, PLACE)
        self.executable, *words = map(shlex.quote, self.words(program, asked))
        self.executable_opts = [*words, "> " + OUTPUT, "2> " + ERRORS]
        self.prerun_cmds = [
            *library_path(self.current_environ.extras.get("mpicxx")),
            f"{rank_command(self, shlex.join([self.fabricbench.program, *place]))} || exit",
            f"mkdir -p {LOGS}",
            *(f'export {name}="{value}"' for name, value in VARIABLES[self.tool].items()),
        ]
        self.prerun_cmds += self.checking_command(program, asked)
        if asked.benchmark.tool == "nccl-tests":
            # In a container the launcher asks for the help, since Pyxis is a part of srun.
            program_call = rank_command(self, self.executable) if container_of(self) else self.executable
            # The report holds the whole environment.
            self.prerun_cmds += ["umask 077", nccl_report_command(program_call)]
            self.executable_opts.insert(-2, "$REPORT")
        self.prerun_cmds += [f"date -u +%FT%TZ > {STARTED}", "BEGIN=$(date +%s%N)"]
        self.postrun_cmds = [
            "status=$?",
            f"echo $(( $(date +%s%N) - BEGIN )) > {WALL}",
            f"echo $status > {EXIT_STATUS}",
            "exit $status",
        ]

    def place_transport(self) -> str:
        """What fabricbench tells the place with: that of the check, or one that needs nothing of the MPI library."""
        backend = backend_of(self.current_environ.extras)
        return self.transport if self.backend == backend else "staging"

    @property
    def verified(self) -> bool:
        """Intel's builds of IMB cannot check their data; IMB that was made here can, of host memory. UCX and perftest
        never do."""
        if self.tool == "imb":
            return self.suite.tree is not None and self.backend == "host"
        return self.tool not in ("ucx", "perftest")

    def clean_up(self) -> None:
        """Takes the job's environment out of a JSON report of nccl-tests."""
        for report in Path(self.stagedir).glob(f"{NCCL_REPORT}*"):
            drop_environment(report)

    def judge(self) -> RunJudgement:
        """Writes the tool's output as a result file, and judges that with the problems of the output first.

        Raises SanityError where the tool left no output, or nothing measured in it, or fabricbench did not run.
        """
        status = self.exit_status()
        folder = Path(self.stagedir)
        place = self.read_place()
        asked = self.asked()
        if not (folder / OUTPUT).exists():
            if (checked := self.checked_output(asked)) is not None:
                raise not_judged(folder, [*checked.problems, AT_CHECKING], self.stderr_tail())
            raise no_result(self, f"{self.tool} left no output (exit status {status})")
        text = (folder / OUTPUT).read_text(errors="replace")
        output = read_report(folder, asked) or parse(asked, text, OUTPUT)
        samples, problems = choose_samples(output, asked), list(check_output(output, asked))
        if checked := self.checked_output(asked):
            problems += check_output(checked, asked.checking)
            samples = verified_by(samples, checked)
        if problems and not samples:
            raise not_judged(folder, problems, self.last_words())
        job = Job(
            command=(self.executable, *self.executable_opts[:-2]),
            transport=self.transport,
            started=parse_utc((folder / STARTED).read_text().strip()),
            wall_ns=int((folder / WALL).read_text()),
            proof=proof_of(self.tool, folder / LOGS, self.output()),
        )
        write_result(folder / RESULT, VendorRun(place, asked, output, samples, job), problems)
        return super().judge().with_problems(problems, first=True)

    def read_place(self) -> Run:
        """fabricbench's run, whose header has the place of the ranks. Raises SanityError where it did not run."""
        file = Path(self.stagedir) / PLACE
        if not file.exists():
            text = "fabricbench, which reports where the ranks are, did not run"
            raise not_judged(file.parent, [Finding("not-measured", Verdict.INCOMPLETE, text)])
        place = read_run(file)
        if place.problems:
            raise not_judged(file.parent, place.problems)
        return place


def read_report(folder: Path, asked: BenchmarkRequest) -> VendorOutput | None:
    """The JSON report of nccl-tests, which has the times of the iterations; `None` where the version writes none."""
    report = folder / NCCL_REPORT
    if not report.exists():
        return None
    return parse_report(report.read_text(), NCCL_REPORT, asked)


class CrossCheck(SuiteParts, FabricbenchCheck):
    """Alternates fabricbench and a vendor tool (A B A B …) and passes only where they agree at large sizes.

    A test names the suite beside it: `class CrossCheckOsu(rfm.RunOnlyRegressionTest, OsuSuite, CrossCheck)`. Its class
    body says the `operation` (fabricbench's name), and `sizes`, `buffers` and `nodes` as for `SuiteParts`; with host
    buffers a partition needs the feature `exclusive`. The result file is that of fabricbench's first round, judged as
    ever; the ratios with their intervals are performance variables and lie in `ratios.md`
    (`fabricheck.diagnosis.cross_check`).
    """

    #: 6 at least, or there is no 95% interval.
    rounds = variable(int, value=7)

    job_time = "20m"
    further_files = (RATIOS,)

    @property
    def partition_features(self) -> list[str]:
        """Two benchmarks agree within 3% only where nothing else runs: host memory needs a partition that says so."""
        return ["gpu"] if self.on_device else ["exclusive"]

    @property
    def bench(self) -> str:
        """The tool's benchmark that measures the same `operation`. Raises UserError where it has none."""
        return find_peer(self.tool, self.operation).name

    def asked(self) -> BenchmarkRequest:
        """As for `SuiteParts`, without iterations that overlap."""
        return replace(super().asked(), one_at_a_time=True)

    def write_command(self) -> None:
        """The job runs fabricbench and the tool alternately, `rounds` times; they leave `ours-N` and `theirs-N`."""
        asked = self.asked()
        program = self.suite_program(asked)
        words = self.words(program, asked)
        theirs = rank_command(self, shlex.join(words))
        self.prerun_cmds = library_path(self.current_environ.extras.get("mpicxx"))
        self.prerun_cmds += self.checking_command(program, asked)
        for turn in range(1, self.rounds + 1):
            ours = [self.fabricbench.program, *self.plan_of(asked).options(f"ours-{turn}")]
            self.prerun_cmds.append(f"{rank_command(self, shlex.join(ours))} || exit")
            if turn < self.rounds:
                self.prerun_cmds.append(f"{theirs} > theirs-{turn} 2> {ERRORS} || exit")
        self.executable = shlex.quote(words[0])
        self.executable_opts = [*map(shlex.quote, words[1:]), f"> theirs-{self.rounds}", f"2> {ERRORS}"]
        self.postrun_cmds = ["status=$?", f"echo $status > {EXIT_STATUS}", f"cp ours-1 {RESULT}", "exit $status"]

    def plan_of(self, asked: BenchmarkRequest) -> MeasurementPlan:
        """What fabricbench measures in each round: what the tool is told to measure."""
        return MeasurementPlan(
            transport=self.transport,
            operations=[self.operation],
            schedules=["uncontended"],
            pairs="0-1" if asked.benchmark.pair else "",
            sizes=",".join(map(str, asked.planned_bytes)),
            iterations=asked.iterations,
            warmup=asked.warmup,
            timeout=self.timeout,
            ranks=self.num_tasks,
            nodes=self.nodes,
            settings={"access": "send"} if self.transport == "fabric" else {},
            more=["--quiet"],
        )

    def judge(self) -> RunJudgement:
        """The judgement of fabricbench's first round, with the problems of all rounds; writes the table of ratios.

        Raises SanityError where a round left no file.
        """
        folder, asked = Path(self.stagedir), self.asked()
        judged = super().judge()
        ours, theirs, problems = [], [], []
        for turn in range(1, self.rounds + 1):
            files = [folder / f"ours-{turn}", folder / f"theirs-{turn}"]
            lost = [file.name for file in files if not file.exists()]
            if lost:
                text = f"round {turn} of {self.rounds} left no {lost[0]}"
                raise not_judged(folder, [Finding("not-measured", Verdict.INCOMPLETE, text)], self.stderr_tail())
            run = read_run(files[0])
            output = parse(asked, files[1].read_text(errors="replace"), files[1].name)
            problems += [*run.problems, *check_output(output, asked)]
            ours.append(run.samples)
            theirs.append(choose_samples(output, asked))
        if checked := self.checked_output(asked):
            problems += check_output(checked, asked.checking)
        self.comparisons = compare_rounds(ours, theirs, asked.benchmark.program)
        (folder / RATIOS).write_text(table(self.comparisons))
        return judged.with_problems(problems, first=True)

    def further_metrics(self) -> Iterable[tuple[str, float]]:
        """The median ratio of fabricbench to the tool (unit `x`), for each operation and size."""
        return ((f"{each.operation}_{size_label(each.bytes)}_ratio", each.ratio) for each in self.comparisons)

    def further_problems(self) -> Iterable[Finding]:
        """The ratios at large sizes that are not 1 within the tolerance, or not surely."""
        if not self.comparisons:
            return (Finding("not-measured", Verdict.INCOMPLETE, "nothing was compared"),)
        return (
            Finding("tools-disagree", each.verdict, each.reason)
            for each in self.comparisons
            if each.verdict is not Verdict.PASS
        )
