"""A job in which fabricbench and a vendor tool measure the same, interleaved."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from reframe.core.builtins import variable

from fabricheck.diagnosis.cross_check import compare_rounds, table
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.command_line import MeasurementPlan
from fabricheck.rfm.container import rank_command
from fabricheck.rfm.job_end import EXIT_STATUS, RESULT, not_judged
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.suite_parts import ERRORS, SuiteParts, library_path
from fabricheck.suites.benchmarks import BenchmarkRequest, find_peer
from fabricheck.suites.outputs import parse
from fabricheck.suites.runs import check_output, choose_samples
from fabricheck.units import size_label

RATIOS = "ratios.md"


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
