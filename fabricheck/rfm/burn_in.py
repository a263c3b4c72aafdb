"""A test that keeps compute, traffic and host copies going at the same time, for as long as the site wants."""

from __future__ import annotations

import math
from dataclasses import replace

import reframe.core.runtime as rt
from reframe.core.builtins import variable

from fabricheck.fleet.settings import KEY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.rfm.command_line import MeasurementPlan
from fabricheck.rfm.duration import job_seconds
from fabricheck.rfm.launch import SHARE_OF_JOB, first_environments, nodes_of
from fabricheck.rfm.measure import FabricbenchCheck


class BurnInCheck(FabricbenchCheck):
    """A measurement of one operation and size, and after it the load (fabricbench's `--burn-in`).

    The contract, by phase, where it differs from FabricbenchCheck's:

    - *init*: GPUs by *CCL, partitions without by MPI, in one environment, so that a GPU is loaded once.
    - *setup*: all nodes of the partition, each by itself over a fleet and where their number is unknown. The
      time limit of the job follows `load_minutes`, also where the partition has one.
    - *sanity*: the result has windows of a load.
    """

    nodes = 0
    #: How long the load lasts, in minutes (`fabricheck run --minutes`).
    load_minutes = variable(float, value=10.0)

    def fitting_systems(self) -> list[str]:
        """Partitions with GPUs for *CCL, and those without for MPI."""
        wants_gpus = self.transport != "mpi"
        partitions = rt.runtime().system.partitions
        return [each.fullname for each in partitions if ("gpu" in each.features) == wants_gpus]

    def fitting_environments(self) -> list[str]:
        """The first of each partition: a load does not depend on the MPI library."""
        return first_environments(self.gpu_libraries if self.transport != "mpi" else ["mpi"])

    def set_nodes(self) -> None:
        """All of the partition, and the time that the load needs."""
        partition = self.current_partition
        self.nodes = 0 if nodes_of(partition) > 1 and KEY not in partition.extras else 1
        self.time_limit, self.is_limit_given = f"{job_seconds(self.load_seconds):.0f}s", True
        self.job_time = f"{math.ceil(job_seconds(self.load_seconds) / SHARE_OF_JOB)}s"
        super().set_nodes()

    @property
    def load_seconds(self) -> float:
        """Seconds of the load."""
        return 60 * float(self.load_minutes)

    def plan(self) -> MeasurementPlan:
        """With the load behind the measurement."""
        return replace(super().plan(), burn_in=self.load_seconds)

    def judge(self) -> RunJudgement:
        """INVALID where the run had no load."""
        judged = super().judge()
        if judged.run.header and judged.run.footer is not None and judged.run.burn_in is None:
            text = f"{judged.run.path}: the run has no burn-in"
            return judged.with_problems([Finding("wrong-plan", Verdict.INVALID, text)])
        return judged
