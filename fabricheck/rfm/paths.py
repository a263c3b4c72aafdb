"""Which transport paths a test allows and which it demands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fabricheck.results.proof_logs import FALL_BACKS
from fabricheck.suite import suite_root
from fabricheck.topology.transport_paths import Paths, ccl_paths

ANY_PATH = Paths()


def paths_of(transport: str, where: str, nodes: int, extras: Mapping[str, Mapping[str, Sequence[str]]]) -> Paths:
    """Those of fabricbench over `transport` on `nodes` nodes of `where`, a `system:partition`.

    The environment's `extras["required_paths"]` adds to what is demanded, by transport.
    """
    from fabricheck.topology.model import find_topology

    paths = ANY_PATH
    if transport == "ccl":
        paths = ccl_paths(find_topology(where, suite_root() / "site_configs"), nodes)
    return replace(paths, required=(*paths.required, *extras.get("required_paths", {}).get(transport, ())))


def paths_of_suite(paths: Paths, transport: str, backend: str, nodes: int) -> Paths:
    """Those of a vendor tool, given fabricbench's."""
    if transport == "ccl":
        return paths
    if backend == "host" and nodes == 1:
        # What has to be seen is how device memory went.
        return replace(paths, required=())
    return replace(paths, forbidden=(*paths.forbidden, *FALL_BACKS))
