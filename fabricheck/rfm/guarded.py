"""Reads what a test left, with all that keeps it from being what the test requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import reframe as rfm

from fabricheck import mpi
from fabricheck.records.operations import ONE_PATH
from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run
from fabricheck.results.guards import least_sent, require, require_fresh
from fabricheck.rfm.job_end import own_status, words_of_job
from fabricheck.rfm.paths import nics_of, with_logs
from fabricheck.topology.transport_paths import Paths


def read_guarded(
    test: rfm.RegressionTest,
    file: Path,
    status: int,
    environment: Mapping[str, str | None],
    paths_of: Callable[[bool], Paths],
) -> Run:
    """The run in a result file, with all that keeps it from being the run that `test` requested as problems.

    `status`: fabricbench's exit status. `environment`: variables that have to be in effect (`None`: unset). `paths_of`:
    the transport paths to check, given whether all data stayed inside their nodes.
    """
    run = read_run(file)
    sent = bool(least_sent(run))
    paths = paths_of(bool(run.samples) and not sent)
    # Copies and kernels go over NVLink, whose bytes no interface counts.
    is_over_nodes = test.num_nodes > 1 and test.transport not in ONE_PATH
    # Else what their networks carried is MPI's start alone.
    over_network = is_over_nodes and sent
    extras = test.current_environ.extras
    if test.transport == "mpi" and is_over_nodes:
        run = with_logs(run, test.output() + test.errors())
    problems = require(
        run,
        transport=test.transport,
        backend=test.backend,
        ranks=test.num_tasks,
        nodes=test.num_nodes,
        devices=test.backend != "host" and not extras.get("share_devices", False),
        exit_code=own_status(run, status, test.errors()),
        operations=test.operations,
        environment=environment,
        mpi_library=mpi.LIBRARIES.get(extras.get("mpi", "")),
        plan=test.chosen_settings(),
        paths_forbidden=paths.forbidden,
        paths_required=paths.required,
        described=paths.described,
        interfaces=test.current_partition.extras.get("network_interfaces", []) if over_network else [],
        nics=nics_of(test.current_partition.fullname) if over_network else [],
        verified=test.verified,
    )
    told = (*test.away, *words_of_job(test, run, status, test.errors()), *run.problems, *problems)
    said = test.output() if file.parent.samefile(test.stagedir) else ""  # other launches of the job are --quiet
    return replace(run, problems=(*told, *require_fresh(run, not_before=test.started, output=said)))
