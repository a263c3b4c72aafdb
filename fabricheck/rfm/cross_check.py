"""A job in which fabricbench and a vendor tool measure the same in turn."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, run_after, run_before, variable
from reframe.core.exceptions import PerformanceError, SanityError

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Problem, Verdict, worst
from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.measure import EXIT_STATUS, RESULT, FabricbenchCheck, launch_command, summary
from fabricheck.rfm.vendor import (
    ERRORS,
    BuildImb,
    BuildNcclTests,
    BuildOsu,
    VendorCheck,
    library_path,
)
from fabricheck.suites.benchmarks import Asked, lengths_file, options, peer
from fabricheck.suites.cross_check import compare_rounds, table
from fabricheck.suites.outputs import parse
from fabricheck.suites.runs import check_output, choose_samples
from fabricheck.units import size_label

RATIOS = "ratios.md"


class WitnessCheck(VendorCheck):
    """Alternates fabricbench and a vendor tool (A B A B …) and passes only where they agree at large sizes.

    The class body of a test says the `operation` (fabricbench's name), and `sizes`, `buffers` and `nodes` as for
    VendorCheck; with host buffers a partition needs the feature `exclusive`. The result file is that of fabricbench's
    first round, judged as ever; the ratios with their intervals are performance variables and lie in `ratios.md`
    (`fabricheck.interleaved.cross_check`).
    """

    #: 6 at least, or there is no 95% interval.
    rounds = variable(int, value=7)

    @run_after("init")
    def need_a_quiet_machine(self) -> None:
        """Two benchmarks agree within 3% only where nothing else runs: host memory needs a partition that says so."""
        if "D" not in self.buffers:
            self.valid_systems = [f"+exclusive {' '.join(self.valid_systems).replace('*', '')}".strip()]

    @property
    def bench(self) -> str:
        return peer(self.tool, self.operation).name

    @property
    def verified(self) -> bool:
        return True

    def asked(self) -> Asked:
        return replace(super().asked(), one_at_a_time=True)

    @run_before("run")
    def command(self) -> None:
        asked = self.asked()
        program = self.suite_program(asked)
        launch = launch_command(self)
        if asked.benchmark.tool == "imb":
            (Path(self.stagedir) / "lengths").write_text(lengths_file(asked))
        theirs = shlex.join([program, *options(asked)])
        self.prerun_cmds = library_path(self.current_environ.extras.get("mpicxx"))
        self.prerun_cmds += self.checking_command(launch, program, asked)
        for turn in range(1, self.rounds + 1):
            self.prerun_cmds.append(f"{launch} {self.fabricbench_command(asked, turn)} || exit")
            if turn < self.rounds:
                self.prerun_cmds.append(f"{launch} {theirs} > theirs-{turn} 2> {ERRORS} || exit")
        self.executable = shlex.quote(program)
        self.executable_opts = [*map(shlex.quote, options(asked)), f"> theirs-{self.rounds}", f"2> {ERRORS}"]
        self.postrun_cmds = ["status=$?", f"echo $status > {EXIT_STATUS}", f"cp ours-1 {RESULT}", "exit $status"]
        self.keep_files = [RESULT, EXIT_STATUS, RATIOS]

    def fabricbench_command(self, asked: Asked, turn: int) -> str:
        pair = ["--pairs=0-1"] if asked.benchmark.pair else []
        return shlex.join(
            [
                self.fabricbench.program,
                f"--transport={self.transport}",
                f"--operations={self.operation}",
                "--schedules=uncontended",
                *pair,
                f"--sizes={','.join(map(str, asked.planned_bytes))}",
                f"--iterations={asked.iterations}",
                f"--warmup={asked.warmup}",
                f"--timeout={self.timeout:g}",
                f"--expect-ranks={self.num_tasks}",
                f"--expect-nodes={self.nodes}",
                "--quiet",
                f"--output=ours-{turn}",
            ]
        )

    def judge(self) -> RunJudgement:
        folder, asked = Path(self.stagedir), self.asked()
        # FabricbenchCheck's, not VendorCheck's: the result file is fabricbench's own.
        judged = FabricbenchCheck.judge(self)
        ours, theirs, problems = [], [], []
        for turn in range(1, self.rounds + 1):
            files = [folder / f"ours-{turn}", folder / f"theirs-{turn}"]
            lost = [file.name for file in files if not file.exists()]
            if lost:
                raise SanityError(f"INCOMPLETE: round {turn} of {self.rounds} left no {lost[0]}{self.last_words()}")
            run = read_run(files[0])
            output = parse(asked, files[1].read_text(errors="replace"), files[1].name)
            problems += [*run.problems, *check_output(output, asked)]
            ours.append(run.samples)
            theirs.append(choose_samples(output, asked))
        if checked := self.checked_output(asked):
            problems += check_output(checked, asked.checking)
        self.comparisons = compare_rounds(ours, theirs, asked.benchmark.program)
        (folder / RATIOS).write_text(table(self.comparisons))
        verdict = worst([judged.verdict, *(each.verdict for each in problems)])
        return replace(judged, problems=(*problems, *judged.problems), verdict=verdict)

    @run_before("performance")
    def set_ratios(self) -> None:
        for each in self.comparisons:
            name = f"{each.operation}_{size_label(each.bytes)}_ratio"
            self.perf_variables[name] = sn.make_performance_function(lambda value=each.ratio: value, "x")
            self.reference[f"{self.current_partition.fullname}:{name}"] = (1, None, None, "x")

    @run_after("performance")
    def witnesses_agree(self) -> None:
        bad = [Problem(each.verdict, each.reason) for each in self.comparisons if each.verdict is not Verdict.PASS]
        if bad or not self.comparisons:
            raise PerformanceError(summary(bad, "") if bad else "INCOMPLETE: nothing was compared")


class NcclWitness(WitnessCheck):
    """fabricbench over NCCL beside nccl-tests."""

    tool = "nccl-tests"
    transport = "ccl"
    buffers = "D D"
    suite = fixture(BuildNcclTests, scope="environment")


class OsuWitness(WitnessCheck):
    """fabricbench over MPI beside the OSU benchmarks."""

    tool = "osu"
    transport = "mpi"
    suite = fixture(BuildOsu, scope="environment")


class ImbWitness(WitnessCheck):
    """fabricbench over MPI beside the Intel MPI Benchmarks."""

    tool = "imb"
    transport = "mpi"
    suite = fixture(BuildImb, scope="environment")
