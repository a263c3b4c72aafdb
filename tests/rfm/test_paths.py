"""Which paths the checks ask the guards for, by transport, nodes and tool."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from fabricheck.results.proof_logs import FALL_BACKS
from fabricheck.rfm.paths import ANY_PATH, paths_of, paths_of_suite, setting_of, with_logs
from fabricheck.topology.transport_paths import Paths
from tests.support.made_runs import made_run


def test_ccl_is_held_to_the_path_of_the_site() -> None:
    assert paths_of("ccl", "leonardo:gpu", 1, {}).required == ("^P2P",)
    assert "^NET/" in paths_of("ccl", "leonardo:gpu", 1, {}).forbidden
    assert paths_of("ccl", "leonardo:gpu", 2, {}).described == "NET/IB/GDRDMA"
    assert "^NET/" not in paths_of("ccl", "leonardo:gpu", 2, {}).forbidden


def test_data_of_groups_of_a_node_stay_in_it() -> None:
    between = paths_of("ccl", "leonardo:gpu", 2, {})
    inside = paths_of("ccl", "leonardo:gpu", 2, {}, inside=True)
    assert (inside.required, inside.described, inside.forbidden) == (("^P2P",), "P2P", between.forbidden)
    assert paths_of("mpi", "leonardo:gpu", 2, {}, inside=True).required == ()


def test_what_an_environment_demands_is_demanded_of_its_transport() -> None:
    extras = {"required_paths": {"mpi": ["^cuda: .*cuda_ipc"]}}
    assert paths_of("mpi", "hgx-h200:gpu", 1, extras) == Paths((), ("^cuda: .*cuda_ipc",))
    assert paths_of("copy", "hgx-h200:gpu", 1, extras) == ANY_PATH


def test_a_suite_takes_no_fall_back() -> None:
    ccl = paths_of("ccl", "leonardo:gpu", 2, {})
    assert paths_of_suite(ccl, "ccl", "cuda", 2) == ccl
    assert paths_of_suite(Paths((), ("cuda_ipc",)), "mpi", "host", 1) == ANY_PATH
    assert paths_of_suite(Paths((), ("cuda_ipc",)), "mpi", "cuda", 1) == Paths(FALL_BACKS, ("cuda_ipc",))
    between = paths_of("mpi", "leonardo:gpu", 2, {})
    assert (between.described, paths_of_suite(between, "mpi", "host", 2)) == ("InfiniBand", between)


def test_what_the_library_wrote_to_the_jobs_output_is_evidence_too() -> None:
    """Lines as Open MPI 4.1.4 writes them."""
    run = made_run(["nid001", "nid002"], [])
    run = replace(run, footer={"proof": {"paths": {}, "evidence": None, "interfaces": {"nid001": {"hsn0": 5}}}})
    said = (
        "[vm:08747] mca: bml: Using self btl for send to [[20184,1],1] on node nid002\n"
        "[vm:08747] mca: bml: Using tcp btl for send to [[20184,1],0] on node nid001\n"
    )
    found = with_logs(run, said).footer
    assert found == {
        "proof": {
            "paths": {"btl tcp": 1},
            "evidence": "OMPI_MCA_btl_base_verbose",
            "interfaces": {"nid001": {"hsn0": 5}},
        }
    }
    assert with_logs(run, "").footer == run.footer
    proven = replace(run, footer={"proof": {"paths": {"host: rc_mlx5/a": 2}, "evidence": "UCX_PROTO_INFO"}})
    both = with_logs(proven, said).footer
    assert both is not None
    assert both["proof"]["paths"] == {"btl tcp": 1, "host: rc_mlx5/a": 2}


def test_a_nic_is_on_the_way_inside_a_node_too() -> None:
    assert paths_of("fabric", "alps:gpu", 1, {}) == paths_of("fabric", "alps:gpu", 2, {})
    assert paths_of("fabric", "alps:gpu", 1, {}).described == "OFI/cxi"


def test_a_nic_is_asked_for_by_its_name_in_the_topology() -> None:
    test = SimpleNamespace(nic="2", access="read", current_partition=SimpleNamespace(fullname="alps:gpu"))
    assert (setting_of(test, "nic"), setting_of(test, "access")) == ("hsn2", "read")
    test.nic = "all"
    assert setting_of(test, "nic") == "hsn0+hsn1+hsn2+hsn3"
    test.nic = "near"
    assert setting_of(test, "nic") == "near"
