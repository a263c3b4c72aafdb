"""Which way the data of a test take: transport paths that it allows and demands, its NIC, and whether by the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fabricheck.records.operations import OPERATIONS
from fabricheck.records.run import Run
from fabricheck.results.proof_logs import (
    FALL_BACKS,
    TransportProof,
    merge_proofs,
    read_log,
)
from fabricheck.rfm.launch import topology_of
from fabricheck.topology.transport_paths import Paths, ccl_paths, data_nics, mpi_paths, nic_paths

ANY_PATH = Paths()


def paths_of(
    transport: str, where: str, nodes: int, extras: Mapping[str, Mapping[str, Sequence[str]]], *, inside: bool = False
) -> Paths:
    """Those of fabricbench over `transport` on `nodes` nodes of `where`, a `system:partition`.

    The environment's `extras["required_paths"]` adds to what is demanded, by transport. Data that stay `inside` the
    nodes have to take a path there; that of all ranks may have made connections between nodes.
    """
    topology, paths = topology_of(where), ANY_PATH
    library_paths = {"ccl": ccl_paths, "mpi": mpi_paths}.get(transport)
    if topology is not None and library_paths is not None:
        paths = library_paths(topology, nodes)
        if inside:
            alone = library_paths(topology, 1)
            paths = replace(paths, required=alone.required, described=alone.described)
    elif topology is not None and transport == "fabric":
        paths = nic_paths(topology)
    return replace(paths, required=(*paths.required, *extras.get("required_paths", {}).get(transport, ())))


def nics_of(where: str) -> tuple[str, ...]:
    """The names of the NICs of a node of `where`, a `system:partition`."""
    topology = topology_of(where)
    return tuple(nic.name for nic in topology.nics) if topology is not None else ()


def setting_of(test: Any, name: str) -> str:
    """The value of a setting of a plan: an attribute of the test, but for a NIC, by its number in the topology, or all
    of them: their names there."""
    value = str(getattr(test, name))
    topology = topology_of(test.current_partition.fullname) if name == "nic" else None
    if topology is None:
        return value
    nics = [nic.name for nic in data_nics(topology)]
    return nics[int(value)] if value.isdecimal() else "+".join(nics) if value == "all" else value


def goes_by_host(test: Any) -> bool:
    """Whether what a test sends goes between GPUs and the host's memory, from or to it or over it."""
    sides = {side[0].lower() for side in re.split("[- ]", getattr(test, "buffers", "")) if side}
    on_host = any(OPERATIONS[name].host for name in getattr(test, "operations", ()))
    return test.transport == "staging" or on_host or sides == {"h", "d"}


def with_logs(run: Run, text: str) -> Run:
    """`run` with what its MPI library wrote to the job's output (`text`) beside the paths that its file proves.

    Open MPI, MPICH, Intel MPI and libfabric log there what `fabricheck.mpi.LOGGING` asks them for.
    """
    if run.footer is None:
        return run
    proof = run.footer["proof"]
    libraries = ("openmpi", "cray-mpich", "mpich", "intel-mpi", "libfabric")
    logs = (read_log(library, text) for library in libraries)
    merged = merge_proofs(TransportProof(proof["paths"], proof["evidence"]), *logs)
    return replace(run, footer={**run.footer, "proof": {**proof, "paths": merged.paths, "evidence": merged.evidence}})


def paths_of_suite(paths: Paths, transport: str, backend: str, nodes: int) -> Paths:
    """Those of a vendor tool, given fabricbench's."""
    if transport == "ccl":
        return paths
    if backend == "host" and nodes == 1:
        # What has to be seen is how device memory went.
        return replace(paths, required=())
    # Between nodes the site's path says what may not be.
    return paths if nodes > 1 else replace(paths, forbidden=(*paths.forbidden, *FALL_BACKS))
