"""Whether what GPUs sent to other nodes left by the NICs that the topology associates with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fabricheck.errors import UserError
from fabricheck.expectation.placement import gpu_of_ranks
from fabricheck.judge.evidence import Evidence, short_name
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Topology
from fabricheck.topology.nic import nic_of

# The kernel counts more than the kept iterations, never less, where it counts them at all. A library may stripe a GPU's
# data over some NICs; of one that it does not use at all there is next to nothing.
_COUNTED, _TAKEN = 0.9, 0.2
_FEWEST_BYTES = 1 << 20


def evidence_of_association(run: Run, topology: Topology | None) -> Iterator[Evidence]:
    """A NIC that sent next to nothing of what its GPUs sent by *CCL, while all NICs of the node sent it together.

    Silent where the kernel does not count what a library sends by RDMA, and where no GPU has a NIC of its own. MPI
    libraries may spread the data of each rank over all NICs.
    """
    sent = (run.footer or {}).get("proof", {}).get("interfaces", {})
    if topology is None or not sent or run.header.get("transport") != "ccl":
        return
    for host, least in _least_sent(run, topology).items():
        counted = {nic.name: int(sent.get(host, {}).get(nic.name, 0)) for nic in topology.nics}
        whole = sum(least.values())
        if whole < _FEWEST_BYTES or sum(counted.values()) < _COUNTED * whole:
            continue
        for nic, bytes_ in least.items():
            if counted[nic] < _TAKEN * bytes_:
                most = max(counted, key=lambda name: counted[name] - least.get(name, 0))
                text = (
                    f"it sent {counted[nic] / 1e6:,.0f} MB where its GPUs sent {bytes_ / 1e6:,.0f} MB, and {most} "
                    f"{counted[most] / 1e6:,.0f} MB: the library associates GPUs with other NICs than the topology"
                )
                yield Evidence("nic-association", short_name(host), nic, text, Verdict.INVALID, network=True)


def _least_sent(run: Run, topology: Topology) -> dict[str, Counter[str]]:
    """By host and NIC, the bytes that pairs of GPUs on different nodes have at least sent; by the kept iterations."""
    try:
        gpus = {rank: topology.gpu(index) for rank, index in gpu_of_ranks(run).items()}
    except UserError:
        return {}  # devices that the topology does not have: others say so
    hosts = {each.rank: each.host for each in run.ranks}
    found: dict[str, Counter[str]] = {}
    for each in run.samples:
        if each.operation not in PAIRS or len({hosts.get(rank) for rank in each.ranks}) < 2:
            continue
        for rank in each.ranks[:1] if each.operation == "unidirectional" else each.ranks:
            nic = nic_of(topology, gpus[rank]) if rank in gpus else None
            if nic is not None:
                found.setdefault(hosts[rank], Counter())[nic.name] += each.bytes * int(each.times_ns.size)
    return found
