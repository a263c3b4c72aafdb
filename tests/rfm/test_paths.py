"""Which paths the checks ask the guards for, by transport, nodes and tool."""

from __future__ import annotations

from fabricheck.results.proof_logs import FALL_BACKS
from fabricheck.rfm.paths import ANY_PATH, paths_of, paths_of_suite
from fabricheck.topology.transport_paths import Paths


def test_ccl_is_held_to_the_path_of_the_site() -> None:
    assert paths_of("ccl", "leonardo:gpu", 1, {}).required == ("^P2P",)
    assert "^NET/" in paths_of("ccl", "leonardo:gpu", 1, {}).forbidden
    assert paths_of("ccl", "leonardo:gpu", 2, {}).described == "NET/IB/GDRDMA"
    assert "^NET/" not in paths_of("ccl", "leonardo:gpu", 2, {}).forbidden


def test_what_an_environment_demands_is_demanded_of_its_transport() -> None:
    extras = {"required_paths": {"mpi": ["^cuda: .*cuda_ipc"]}}
    assert paths_of("mpi", "hgx-h200:gpu", 1, extras) == Paths((), ("^cuda: .*cuda_ipc",))
    assert paths_of("copy", "hgx-h200:gpu", 1, extras) == ANY_PATH


def test_a_suite_takes_no_fall_back() -> None:
    ccl = paths_of("ccl", "leonardo:gpu", 2, {})
    assert paths_of_suite(ccl, "ccl", "cuda", 2) == ccl
    assert paths_of_suite(Paths((), ("cuda_ipc",)), "mpi", "host", 1) == ANY_PATH
    assert paths_of_suite(Paths((), ("rc_mlx5",)), "mpi", "cuda", 2) == Paths(FALL_BACKS, ("rc_mlx5",))
