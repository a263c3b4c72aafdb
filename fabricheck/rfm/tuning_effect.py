"""A job that launches fabricbench with and without a setting, interleaved, and says what the setting changes today."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import reframe.core.runtime as rt
from reframe.core.builtins import run_after, variable
from reframe.core.exceptions import ReframeError, ReframeSyntaxError
from reframe.core.pipeline import RegressionTestPlugin

from fabricheck.diagnosis.rounds import FOLDER, RoundLaunch, Sides, launches, require_alike, write_sides
from fabricheck.diagnosis.tuning_effect import EffectKind, TuningResult, compare_rounds
from fabricheck.errors import UserError
from fabricheck.judge.constants import FEWEST_ROUNDS
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.rfm.container import rank_command
from fabricheck.rfm.guarded import read_guarded
from fabricheck.rfm.launch import profile_of
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.paths import ANY_PATH
from fabricheck.tuning import Profile, TuningVariable

WHOLE_PROFILE = "whole-profile"

# The variable by which each library is told InfiniBand's service level.
SERVICE_LEVELS = {"ccl": "NCCL_IB_SL", "mpi": "UCX_IB_SL"}


def settings_to_compare() -> list[str]:
    """The variables of the tuning profiles of this system's partitions, and the whole profile: values of a parameter.

    To be called in the class body of a test, which ReFrame reads when it knows the system.
    """
    variables = [each.variable for profile in _profiles_of_system() for each in profile.settings]
    return [*dict.fromkeys(variables), WHOLE_PROFILE]


def _profiles_of_system() -> list[Profile]:
    return [profile_of(partition.extras) for partition in rt.runtime().system.partitions]


class InterleavedCheck(FabricbenchCheck):
    """Launches fabricbench as usual, then `rounds` times on either of two sides, and compares the sides.

    The contract, by phase, where it differs from FabricbenchCheck's:

    - *class body*: a test names beside it who says in `sides` what is compared (`TuningComparison`):
      `class TuningOfNode(rfm.RunOnlyRegressionTest, TuningComparison, InterleavedCheck)`.
    - *run*: the first launch has the site's own tuning and is the measurement of this test, judged and stored as any
      other; it also warms up. The launches to compare follow in the order A B, B A, A B, …, with nothing but the
      compared variables different; they are kept in the folder `rounds` and never stored.
      A job ends with the first launch that fails, but for side A where B is the site's: it has a second chance, and
      where it fails again, the setting is needed.
    - *sanity*: every launch is guarded as the first is: the variables of its side were in effect, or unset, on all
      ranks, ranks and devices are the same. What the libraries have to prove of their path is asked of sides that have
      all of the site's tuning; the other is the question.
    - *performance*: the gain of each metric is a performance variable; PerformanceError with DEGRADED where the
      site's own tuning costs performance.
    """

    #: Launches of either side; an even number, so that what drifts steadily cancels.
    rounds = variable(int, value=8)

    job_time = "60m"
    further_files = (FOLDER,)
    #: None where the sides cannot be compared.
    comparison: TuningResult | None = None

    @run_after("init")
    def need_rounds(self) -> None:
        """Hook after init. Raises ReframeSyntaxError for an odd number of rounds, or too few."""
        if self.rounds < FEWEST_ROUNDS or self.rounds % 2:
            raise ReframeSyntaxError(f"rounds is {self.rounds}, and has to be an even number")

    def sides(self) -> Sides:
        """What is compared; asked before the run, when `tuning` is known."""
        raise NotImplementedError

    def write_command(self) -> None:
        """The job launches side A and B alternately after the first launch, each with its variables.

        Raises ReframeError where a side would remove a variable that the tuning profile protects.
        """
        super().write_command()
        self.compared = self.sides()
        safety = {each.variable for each in self.profile.settings if each.without == "harms"}
        if safety & {*self.compared.a, *self.compared.b}:
            raise ReframeError(f"the tuning profile does not allow to remove {', '.join(sorted(safety))}")
        write_sides(Path(self.stagedir), self.compared)
        commands = [
            "[ $status -eq 0 ] || exit $status",
            f"ended() {{ status=$?; echo $status > {FOLDER}/$1.status; return $status; }}",
        ]
        for turn in launches(self.rounds):
            commands += [
                f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
                for name, value in self.compared.of(turn.side).items()
            ]
            output = str(turn.result(Path()))
            program = [self.executable, *self.plan().options(output), "--quiet"]
            second_chance = turn == RoundLaunch(1, "a") and self.compared.site == "b"
            commands += [
                rank_command(self, " ".join(program)),
                f"ended {turn.name}{'' if second_chance else ' || exit $status'}",
            ]
        self.postrun_cmds[-1:-1] = commands

    def judge(self) -> RunJudgement:
        """The judgement of the first launch, with the problems of all; `comparison` is set where there are none."""
        judged = super().judge()
        if any(each.verdict is not Verdict.DEGRADED for each in judged.problems):
            return judged
        case = Path(self.stagedir)
        runs = {
            each.name: self.read_side(case, each)
            for each in launches(self.rounds)
            if each.exit_status(case) == 0 and each.result(case).exists()
        }
        policy = self.system_judge().policy
        problems = [problem for run in runs.values() for problem in run.problems]
        problems += require_alike([judged.run, *runs.values()], {*self.compared.a, *self.compared.b})
        if not problems:
            try:
                self.comparison = compare_rounds(case, self.compared, runs, policy)
            except UserError as error:
                problems.append(Finding("not-measured", Verdict.INCOMPLETE, str(error)))
        return judged.with_problems(problems)

    def read_side(self, case: Path, launch: RoundLaunch) -> Run:
        """The run of one launch, checked with the variables of its side."""
        environment = {**self.wanted_environment(), **self.compared.of(launch.side)}
        paths = self.paths if self.compared.site in (launch.side, "a") else lambda inside: ANY_PATH
        return read_guarded(self, launch.result(case), 0, environment, paths)

    def further_metrics(self) -> Iterable[tuple[str, float]]:
        """The gain of each effect: how many times as fast side B is as side A."""
        for effect in self.comparison.effects if self.comparison is not None else ():
            yield "".join(letter if letter.isalnum() else "_" for letter in effect.name.lower()) + "_gain", effect.gain

    def further_problems(self) -> Iterable[Finding]:
        """DEGRADED where the site's own tuning costs performance."""
        if self.comparison is not None and self.comparison.verdict is not Verdict.PASS:
            hurt = f"{len(self.comparison.of(EffectKind.HURTS))} of {len(self.comparison.effects)} metrics"
            yield Finding("setting-hurts", self.comparison.verdict, f"{self.compared.title} hurts {hurt}")


class TuningComparison(RegressionTestPlugin):
    """What one variable of the partition's tuning profile changes, or the whole profile; for an InterleavedCheck.

    `setting`, a parameter with the values of `settings_to_compare`, says which. A variable: A is the profile without
    it, B the whole profile. The whole profile: A is none of it, but for what the profile marks with `without`, B all of
    it. Variables that the transport does not read make no test; those of another partition's profile do not apply, nor
    do those that the profile says are never to be taken away.
    """

    @run_after("init")
    def drop_unread_variables(self) -> None:
        """Hook after init: no test for a variable that the transport's libraries do not read."""
        settings = [each for profile in _profiles_of_system() for each in profile.settings]
        readers = {each.library for each in settings if each.variable == self.setting}
        if readers and not readers & {*self.libraries}:
            self.valid_systems: list[str] = []

    @run_after("setup")
    def drop_unset_variables(self) -> None:
        """Hook after setup: skips what the profile does not set, or protects."""
        name, chosen = self.profile.name, self.chosen()
        if self.setting == WHOLE_PROFILE:
            nothing = f"the tuning profile {name} has no setting of {self.transport} that can be removed"
            self.leave_out_if(not chosen, nothing)
            alone = f"{', '.join(map(str, chosen))} is all that can be removed of the profile {name}: see its test"
            self.leave_out_if(len(chosen) == 1, alone)
        else:
            self.leave_out_if(not chosen, f"the tuning profile {name} does not set {self.setting}")
            harmful = any(each.without == "harms" for each in chosen)
            never = f"the tuning profile {name} needs {self.setting} for safety, so it is not removed"
            self.leave_out_if(harmful, never)

    def chosen(self) -> tuple[TuningVariable, ...]:
        """The settings of the profile that side A does not have."""
        profile: Profile = self.profile
        if self.setting == WHOLE_PROFILE:
            return profile.dispensable(self.libraries)
        return tuple(each for each in profile.read_by(self.libraries) if each.variable == self.setting)

    def sides(self) -> Sides:
        """A without the chosen settings, B with them, which is the site's own tuning."""
        chosen = self.chosen()
        title = str(chosen[0])
        if self.setting == WHOLE_PROFILE:
            title = f"the whole profile {self.profile.name} ({', '.join(map(str, chosen))})"
        return Sides(
            title=title,
            rounds=self.rounds,
            a={each.variable: None for each in chosen},
            b={each.variable: each.value for each in chosen},
            site="b",
            environment=self.current_environ.name,
        )


class ServiceLevelComparison(RegressionTestPlugin):
    """What another InfiniBand service level changes, for an InterleavedCheck: A is the site's tuning, B has that level.

    A site asks for it by naming the level to try, `extras["service_level"]` of a partition; elsewhere there is no test.
    Median and 99th percentile of the iterations are compared.
    """

    @run_after("init")
    def leave_out_where_nobody_asked(self) -> None:
        """Hook after init: no test where no partition names a `service_level`."""
        if not any("service_level" in partition.extras for partition in rt.runtime().system.partitions):
            self.valid_systems: list[str] = []

    @run_after("setup")
    def leave_out_without_level(self) -> None:
        """Hook after setup: skips a partition without `service_level`."""
        level = self.current_partition.extras.get("service_level")
        where = self.current_partition.fullname
        self.leave_out_if(level is None, f"{where} names no service_level in its extras for this test")
        self.level = str(level)

    def sides(self) -> Sides:
        """A with the site's own service level, B with the one to try."""
        name = SERVICE_LEVELS[self.transport]
        return Sides(
            title=f"{name}={self.level} against {self.tuning.get(name, 'the default')}",
            rounds=self.rounds,
            a={name: self.tuning.get(name)},
            b={name: self.level},
            site="a",
            environment=self.current_environ.name,
            percentiles=(50.0, 99.0),
        )
