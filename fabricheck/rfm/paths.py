"""Which transport paths a test allows and which it demands, as regular expressions for the paths of a proof."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fabricheck.results.proof_logs import FALL_BACKS, HOST_STAGING

# Inside a node whose GPUs have links of their own, *CCL has no reason to go another way.
DIRECT_LINKS = ("nvlink", "xgmi")


@dataclass(frozen=True)
class Paths:
    """Paths that the libraries must not, and must, have reported (docs/results-format.md, `proof`)."""

    forbidden: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


ANY_PATH = Paths()


def paths_of(transport: str, features: Collection[str], extras: Mapping[str, Mapping[str, Sequence[str]]]) -> Paths:
    """Those of fabricbench over `transport`, on a partition with `features`.

    The environment's `extras["required_paths"]` adds to what is demanded, by transport.
    """
    required = tuple(extras.get("required_paths", {}).get(transport, ()))
    if transport != "ccl":
        return Paths((), required)
    if {*DIRECT_LINKS} & set(features):
        return Paths(HOST_STAGING, ("^P2P", *required))
    return Paths(("^NET/Socket",), required)


def paths_of_suite(paths: Paths, backend: str, nodes: int) -> Paths:
    """Those of a vendor tool, given fabricbench's."""
    if nodes > 1:
        # Between nodes a network is the right path, as long as it is the fast one.
        return Paths(FALL_BACKS, tuple(each for each in paths.required if each != "^P2P"))
    if backend == "host":
        # What has to be seen is how device memory went.
        return replace(paths, required=())
    return replace(paths, forbidden=(*paths.forbidden, *FALL_BACKS))
