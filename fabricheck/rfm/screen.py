"""A test of the network of a fleet: pairs of all good nodes, the suspects again, and a collective of what is good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import reframe.core.runtime as rt

from fabricheck.fleet.record import LAUNCHES, TROUBLES, Fleet, read_findings
from fabricheck.fleet.settings import KEY
from fabricheck.jsonfile import read_json
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.guarded import read_guarded
from fabricheck.rfm.job_end import RESULT, faults_of_nodes, not_judged
from fabricheck.rfm.measure import FabricbenchCheck


class FleetScreen(FabricbenchCheck):
    """One job step after another over the good nodes of a fleet (fabricheck.fleet.screen).

    The contract, by phase, where it differs from FabricbenchCheck's:

    - *init*: only partitions inside the job of a fleet (`fabricheck run --nodes`).
    - *run*: launches over all nodes that are not excluded; nodes with which MPI does not start are found and excluded.
    - *sanity*: each launch left a result file, which is guarded for the nodes that it was over.
    - *performance*: what the parts of the network lose is found by the session, which has all files.
    """

    nodes = 0
    rank_a_port = True
    node_state = False
    job_time = "30m"
    fleet_launcher = "fabricheck.fleet.screen"
    further_files = ("*.jsonl*", LAUNCHES, FOLDER)

    def fitting_systems(self) -> list[str]:
        """Partitions that are a fleet inside of its job; with GPUs, where the transport needs them."""
        partitions = [each for each in rt.runtime().system.partitions if KEY in each.extras]
        needed = set() if self.transport == "mpi" else {"gpu"}
        return [each.fullname for each in partitions if needed <= set(each.features)]

    def set_nodes(self) -> None:
        """All nodes of the job; two at least, or the test is skipped."""
        super().set_nodes()
        self.leave_out_if(self.num_nodes < 2, "a network needs two nodes, and this job has one")

    def judge(self) -> RunJudgement:
        """The problems of all launches. Raises SanityError where there was none."""
        stage, folder = Path(self.stagedir), Path(self.current_partition.extras[KEY])
        launches = read_json(stage / LAUNCHES) if (stage / LAUNCHES).exists() else []
        problems = [replace(each, verdict=Verdict.INCOMPLETE) for each in read_findings(stage / TROUBLES)]
        status = self.exit_status()
        if status != 0:
            why = f": {ended}" if (ended := Fleet.read(folder).ended) else self.stderr_tail()
            problems.append(
                Finding("network-not-screened", Verdict.INCOMPLETE, f"the network was not screened as a whole{why}")
            )
        for launch in launches:
            self.num_nodes, self.operations = launch["nodes"], launch["operations"]
            self.num_tasks = self.num_nodes * self.num_tasks_per_node
            file = stage / launch["file"]
            if not file.exists():
                problems.append(Finding("not-measured", Verdict.INCOMPLETE, f"{launch['file']} was not measured"))
                continue
            problems += read_guarded(self, file, 0, self.wanted_environment(), self.paths).problems
        if not launches:
            faults = faults_of_nodes(stage / RESULT, self.current_partition.fullname)
            none = Finding("not-measured", Verdict.INCOMPLETE, f"nothing was launched{self.stderr_tail()}")
            raise not_judged(stage, [*faults, *problems] or [none])
        if any(one.verdict is Verdict.INVALID for one in problems):
            raise not_judged(stage, problems)
        self.fleet_problems = tuple(problems)
        return RunJudgement(Run(str(stage), {}, (), (), None), Verdict.PASS, (), ())
