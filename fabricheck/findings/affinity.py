"""Whether ranks ran on the cores next to their GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabricheck.findings.case_runs import CaseRun
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

_MOST_NAMED = 3


def find_far_cores(runs: Sequence[CaseRun]) -> Iterator[Finding]:
    """Ranks whose cores are all on another NUMA node than their GPU, a line for each partition.

    Ranks that may use cores of several NUMA nodes, and GPUs whose NUMA node the driver does not know (-1), say nothing.
    """
    domains_by_host: dict[str, dict[tuple[str, int], str]] = {}
    for run in runs:
        for rank in run.run.ranks:
            if rank.device is None or min(rank.numa_node, rank.device.numa_node) < 0:
                continue
            if rank.numa_node != rank.device.numa_node:
                place = f"local rank {rank.local_rank} on {rank.host}, cores on {rank.numa_node} and GPU on "
                of_partition = domains_by_host.setdefault(run.partition, {})
                of_partition[rank.host, rank.local_rank] = f"{place}{rank.device.numa_node}"
    for partition, ranks in domains_by_host.items():
        named = "; ".join([ranks[key] for key in sorted(ranks)[:_MOST_NAMED]])
        more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
        advice = "bind ranks to the cores next to their GPU (launcher_options of the environment, such as --cpu-bind)"
        yield Finding(
            "affinity",
            Verdict.PASS,
            f"{partition}: ranks ran on another NUMA node than their GPU: {named}{more}: {advice}",
        )
