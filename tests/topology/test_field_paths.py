"""Which paths are right and which are faults on machines of the market, by the facts of their nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.results.guards import compile_patterns, path_mistakes
from fabricheck.results.proof_logs import read_log, reasons_of
from fabricheck.topology.model import Cpu, Gpu, Link, Nic, Switch, Topology
from fabricheck.topology.transport_paths import Paths, ccl_paths, mpi_paths


def node(*models: str, links: tuple[Link, ...] = (), gpus: int = 2) -> Topology:
    names = tuple(f"gpu{index}" for index in range(gpus))
    return Topology(
        "made-up",
        "a test",
        tuple(Gpu(name, index, "a GPU") for index, name in enumerate(names)),
        (Cpu("numa0"),),
        (Switch("nvswitch", "NVSwitch"),),
        tuple(Nic(f"nic{at}", model, 400.0, "a test") for at, model in enumerate(models)),
        links,
    )


def nvlinks(*pairs: tuple[str, str], technology: str = "NVLink4") -> tuple[Link, ...]:
    return tuple(Link(pair, technology, 18, 200.0, "a test") for pair in pairs)


SWITCHED = nvlinks(("gpu0", "nvswitch"), ("gpu1", "nvswitch"))


def right(paths: Paths, *taken: str) -> bool:
    proof = {"paths": dict.fromkeys(taken, 1), "evidence": "NCCL_DEBUG"}
    return not list(
        path_mistakes(proof, compile_patterns(paths.forbidden), compile_patterns(paths.required), paths.described)
    )


ROCE, IB, CXI, EFA = "RoCE 400 Gb/sec (4X NDR)", "InfiniBand 400 Gb/sec (4X NDR)", "Slingshot (cxi)", "EFA 400 Gb/sec"
# Models of NICs of a node; paths that are right; those that are faults.
BETWEEN = [
    ((ROCE,), ["NET/IB/0/GDRDMA"], ["NET/IB/0", "NET/Socket/0"]),
    (("Ethernet 400 Gb/sec (4X NDR)",), ["NET/IB/0/GDRDMA"], ["NET/IB/0", "NET/Socket/0"]),
    (("Broadcom Thor 2 (BCM57608)",), ["NET/IB/3/GDRDMA"], ["NET/IB/3", "NET/Socket/0"]),
    (("AMD Pollara 400",), ["NET/RCCL-ANP/0/GDRDMA", "NET/IB/0/GDRDMA"], ["NET/RCCL-ANP/0", "NET/FastSocket/0"]),
    (
        (IB,),
        ["NET/IBext_v8/0/GDRDMA", "NET/IBext/0(8)/GDRDMA/Shared"],
        ["NET/IBext_v8/0", "NET/AWS Libfabric/0/GDRDMA"],
    ),
    ((IB,), ["NET/gIB/0/GDRDMA", "NET/Vendor/0/GDRDMA(PCI)", "P2P/MNNVL"], ["NET/Vendor/0", "NET/Socket/0"]),
    (
        (CXI,),
        ["NET/AWS Libfabric/0/GDRDMA", "NET/Libfabric/1/GDRDMA"],
        ["NET/AWS Libfabric/0", "NET/OFI/0", "NET/Socket/0", "NET/IB/0/GDRDMA"],
    ),
    ((EFA, EFA), ["NET/AWS Libfabric/0/GDRDMA"], ["NET/AWS Libfabric/0", "NET/OFI/0", "NET/Socket/0"]),
    ((IB, ROCE), ["NET/IB/0/GDRDMA"], ["NET/IB/0", "NET/Socket/0"]),
    ((ROCE, EFA), ["NET/IB/0/GDRDMA", "NET/Libfabric/0/GDRDMA"], ["NET/IB/0", "NET/Libfabric/0", "NET/Socket/0"]),
    ((IB, "Ethernet"), ["NET/IB/0/GDRDMA"], ["NET/IB/0", "NET/Socket/0"]),
    # A cloud's plugin over NICs without RDMA.
    (("Ethernet",), ["NET/Socket/0", "NET/GPUDirectTCPX_v7/0/GDRDMA", "NET/FastSocket/0"], ["P2P/CUMEM"]),
]


@pytest.mark.parametrize(("models", "good", "bad"), BETWEEN, ids=[" and ".join(each[0]) for each in BETWEEN])
def test_paths_between_nodes(models: tuple[str, ...], good: list[str], bad: list[str]) -> None:
    paths = ccl_paths(node(*models, links=SWITCHED), 2)
    assert [path for path in good if not right(paths, path)] == []
    assert [path for path in bad if right(paths, path)] == []


@pytest.mark.parametrize(
    ("channels", "good", "bad"),
    [
        ("none", [["NET/IB/0"], ["NET/IB/0/GDRDMA"]], [["NET/Socket/0"], ["P2P/CUMEM"]]),
        ("some", [["NET/IB/0", "NET/IB/0/GDRDMA"]], [["NET/IB/0"], ["NET/Socket/0", "NET/IB/0/GDRDMA"]]),
        ("all", [["NET/IB/0/GDRDMA"]], [["NET/IB/0", "NET/IB/0/GDRDMA"]]),
    ],
)
def test_gpudirect_is_demanded_where_the_library_uses_it(
    channels: str, good: list[list[str]], bad: list[list[str]]
) -> None:
    paths = ccl_paths(replace(node(ROCE, links=SWITCHED), gpudirect_rdma=channels), 2)
    assert [each for each in good if not right(paths, *each)] == []
    assert [each for each in bad if right(paths, *each)] == []


def test_nodes_of_one_nvlink_domain() -> None:
    rack = replace(node(IB, links=SWITCHED), nvlink_domain_nodes=18)
    for nodes in (2, 18):
        assert right(ccl_paths(rack, nodes), "P2P/MNNVL")
        assert not right(ccl_paths(rack, nodes), "NET/IB/0/GDRDMA")
    assert right(ccl_paths(rack, 36), "P2P/MNNVL", "NET/IB/0/GDRDMA")
    assert right(ccl_paths(replace(rack, ccl_path_between_nodes="NET/IB/GDRDMA"), 2), "NET/IB/0/GDRDMA")


BRIDGED = (("gpu0", "gpu1"), ("gpu2", "gpu3"))


@pytest.mark.parametrize("technology", ["NVLink3", "Infinity Fabric"])
def test_bridges_join_pairs_and_not_the_node(technology: str) -> None:
    bridged = node(links=nvlinks(*BRIDGED, technology=technology), gpus=4)
    assert right(ccl_paths(bridged, 1), "P2P/CUMEM", "SHM/direct/direct")
    assert not right(ccl_paths(bridged, 1), "SHM/direct/direct")
    ring = node(links=nvlinks(*BRIDGED, ("gpu1", "gpu2"), technology=technology), gpus=4)
    assert not right(ccl_paths(ring, 1), "P2P/CUMEM", "SHM/direct/direct")


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (ROCE, "host: rc_mlx5/mlx5_0:1", "host: tcp/eth0"),
        (ROCE, "host: rc_verbs/bnxt_re0:1", "btl tcp"),
        (EFA, "OFI provider efa", "OFI provider tcp"),
        (CXI, "OFI provider cxi", "OFI provider tcp"),
    ],
)
def test_mpi_goes_by_rdma_where_there_is_some(model: str, good: str, bad: str) -> None:
    paths = mpi_paths(node(model), 2)
    assert right(paths, good)
    assert not right(paths, bad)


def log(said: str, path: str) -> str:
    return "".join(f"n1:1:2 [0] NCCL INFO {text}\n" for text in (said, f"Channel 00/0 : 0[0] -> 1[1] via {path}"))


@pytest.mark.parametrize(
    ("said", "path", "described", "told"),
    [
        ("NCCL_P2P_LEVEL set by environment to LOC", "SHM/direct", "P2P", "NCCL_P2P_LEVEL=LOC"),
        ("NCCL_IB_DISABLE set by environment to 1.", "NET/Socket/0", "NET/IB/GDRDMA", "NCCL_IB_DISABLE=1"),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "NET/IB/0", "NET/IB/GDRDMA", "HCA 0 'mlx5_0'"),
        ("NET/IB : No device found.", "NET/Socket/0", "NET/IB/GDRDMA", "no device found"),
    ],
)
def test_the_librarys_own_reason_stands_beside_the_path(said: str, path: str, described: str, told: str) -> None:
    proof = read_log("nccl", log(said, path))
    assert any(told in reason for reason in reasons_of(proof.facts, described, proof.paths))
    given = {"paths": dict(proof.paths), "evidence": proof.evidence, "facts": dict(proof.facts)}
    (mistake,) = path_mistakes(given, compile_patterns([r"^SHM", r"^NET/"]), (), described)
    assert told in mistake


# Of each path variables that may have turned it off, also such as no table has, and those that did not.
CHOSEN = {
    "P2P": ({"NCCL_P2P_DISABLE=1", "RCCL_P2P_NEW=0"}, {"NCCL_NET=IB", "NCCL_P2P_DISABLE=0", "FI_PROVIDER=efa"}),
    "NET/IB/GDRDMA": (
        {"NCCL_IB_HCA=mlx5", "NCCL_NET_GDR_C2C=0", "FI_PROVIDER=tcp", "NCCL_GDR_NEXT=1"},
        {"NCCL_DEBUG=INFO", "NCCL_P2P_LEVEL=LOC", "UCX_TLS=tcp", "NCCL_IB_DISABLE=0", "HSA_XNACK=1"},
    ),
    "MNNVL": ({"NCCL_MNNVL_ENABLE=0"}, {"NCCL_MNNVL_ENABLE=1"}),
    "InfiniBand": ({"UCX_TLS=tcp", "OMPI_MCA_btl=tcp,self"}, {"UCX_LOG_LEVEL=info", "NCCL_NET=IB"}),
    "OFI/cxi": ({"FI_PROVIDER=tcp", "MPICH_OFI_NEW=1"}, {"FI_LOG_LEVEL=info", "NCCL_IB_DISABLE=1"}),
}


@pytest.mark.parametrize("path", CHOSEN)
def test_a_variable_is_a_reason_by_its_name_and_not_by_a_list(path: str) -> None:
    for variables, told in zip(CHOSEN[path], (True, False), strict=True):
        reasons = reasons_of(dict(variable.split("=") for variable in variables), path, [])
        assert set(reasons) == {f"{variable} is set" for variable in variables if told}
