from __future__ import annotations

from collections.abc import Collection

import pytest

from fabricheck.results import proof_logs
from fabricheck.results.guards import compile_patterns, path_mistakes
from fabricheck.results.proof_logs import (
    FALL_BACKS,
    HOST_STAGING,
    TransportProof,
    facts_of_remarks,
    merge_proofs,
    read_log,
    reasons_of,
)
from tests.vendor.mutations import DATA


def mistakes(
    proof: TransportProof, *, forbidden: Collection[str] = FALL_BACKS, required: Collection[str] = ()
) -> tuple[str, ...]:
    """What a guard would say of the proof in a footer."""
    given = {"paths": dict(proof.paths), "evidence": proof.evidence}
    return tuple(path_mistakes(given, compile_patterns(forbidden), compile_patterns(required)))


# Lines in the forms of NCCL 2.28, of RCCL 2.18 with the OFI plugin, and of older ones.
P2P = """\
n1:10:11 [0] NCCL INFO NCCL version 2.28.3+cuda13.0
n1:10:11 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.
n1:10:11 [0] NCCL INFO NCCL_AUTH_TOKEN set by environment to abc
n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
[1,1]<stdout>:n1:10:11 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM
n1:10:11 [0] NCCL INFO Bootstrap: Using eth0 via nothing
"""
CXI = """\
n1:10:11 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)
n1:10:11 [0] NCCL INFO Using network AWS Libfabric
n1:10:11 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
SOCKET = """\
n1:10:11 [0] NCCL INFO NET/IB : No device found.
n1:10:11 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n1:10:11 [0] NCCL INFO Using network Socket
n1:10:11 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0
"""
CUDA_TABLE = """\
[1.1] [n1:8779 :0] | ucp_context_0 inter-node cfg#2 | tagged message by ucp_tag_send* from cuda/GPU0 |
[1.1] [n1:8779 :0] | 0..2284 | eager short | tcp/eth0 |
[1.1] [n1:8779 :0] | 3515..inf | rendezvous | 50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_1:1 |
"""
# In the form of Cray MPICH 8.1.
MPICH = """\
MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)
PE 0: MPICH environment settings =====================================
PE 0:   MPICH_GPU_SUPPORT_ENABLED                      = 1
PE 0:   MPICH_MEM_DEBUG_FNAME                          =
PE 0:   MPICH_OFI_USE_PROVIDER                         = {provider}
PE 0:   MPICH_OFI_NIC_POLICY                           = NUMA
PE 0:   FI_CXI_RDZV_THRESHOLD                          = 16384
"""


def test_nccl_by_peer_to_peer() -> None:
    proof = read_log("nccl", P2P)
    assert proof.paths == {"P2P/CUMEM": 2}
    assert proof.facts == {"library": "NCCL 2.28.3", "NCCL_NVLS_ENABLE": "0"}
    assert mistakes(proof, forbidden=(*FALL_BACKS, *HOST_STAGING), required=["^P2P/"]) == ()


def test_nccl_over_slingshot() -> None:
    proof = read_log("nccl", CXI)
    assert proof.paths == {"NET/AWS Libfabric/0/GDRDMA": 1, "NET/OFI provider cxi": 1}
    assert proof.facts == {"network": "AWS Libfabric"}
    assert mistakes(proof, required=["^NET/OFI provider cxi$"]) == ()


@pytest.mark.parametrize(
    ("log", "path"),
    [
        (SOCKET, "NET/Socket/0"),
        (CXI.replace("cxi", "tcp;ofi_rxm"), "NET/OFI provider tcp;ofi_rxm"),
        (CXI.replace("Provider is cxi", "provider is sockets"), "NET/OFI provider sockets"),
    ],
)
def test_a_fall_back_of_nccl_is_invalid(log: str, path: str) -> None:
    (mistake,) = mistakes(read_log("nccl", log))
    assert mistake.startswith(f"the data took {path}, which this check forbids")


def test_staging_through_the_host_is_a_fall_back_where_the_gpus_see_each_other() -> None:
    proof = read_log("nccl", P2P.replace("P2P/CUMEM", "SHM/direct/direct"))
    assert mistakes(proof) == ()
    assert "the data took SHM/direct/direct" in mistakes(proof, forbidden=HOST_STAGING)[0]


def test_a_real_log_of_ucx() -> None:
    proof = read_log("ucx", (DATA / "logs" / "host_mpich_ucx.txt").read_text())
    assert set(proof.paths) == {"host: cma/memory", "host: self/memory", "host: sysv/memory"}
    assert proof.facts == {"library": "UCX 1.20.1", "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info"}
    assert mistakes(proof, required=["^host: sysv/"]) == ()
    assert mistakes(proof, required=["cuda_ipc/"]) != ()


def test_lanes_of_device_memory_in_ucx() -> None:
    proof = read_log("ucx", CUDA_TABLE)
    assert proof.paths == {"cuda: rc_mlx5/mlx5_0:1": 1, "cuda: rc_mlx5/mlx5_1:1": 1, "cuda: tcp/eth0": 1}
    assert "the data took cuda: tcp/eth0" in mistakes(proof)[0]
    assert "the data took cuda: tcp/eth0" in mistakes(proof, forbidden=HOST_STAGING)[0]


def test_a_real_log_of_intel_mpi() -> None:
    text = (DATA / "logs" / "host_intel_mpi_debug10.txt").read_text()
    proof = read_log("intel-mpi", text)
    assert proof.paths == {"shm": 1}
    assert proof.facts["library"] == "Intel MPI 2021.19.0"
    assert proof.facts["I_MPI_FABRICS"] == "shm"
    fallen = read_log("intel-mpi", text + "[0] MPI startup(): libfabric provider: tcp;ofi_rxm\n")
    assert "the data took OFI provider tcp;ofi_rxm" in mistakes(fallen)[0]


def test_the_display_of_mpich() -> None:
    proof = read_log("cray-mpich", MPICH.format(provider="cxi"))
    assert proof.paths == {"OFI provider cxi": 1}
    assert proof.facts["library"] == "CRAY MPICH 8.1.27.26"
    assert mistakes(proof, required=["provider cxi$"]) == ()
    assert proof.facts["MPICH_GPU_SUPPORT_ENABLED"] == "1"
    assert proof.facts["MPICH_OFI_NIC_POLICY"] == "NUMA"
    assert "MPICH_OFI_NUM_NICS" not in proof.facts
    assert "OFI provider tcp" in mistakes(read_log("cray-mpich", MPICH.format(provider="tcp")))[0]


def test_the_summary_of_mpich() -> None:
    text = (DATA / "logs" / "host_mpich_debug_summary.txt").read_text()
    proof = read_log("mpich", text)
    assert proof.paths == {"OFI provider sockets": 1}
    assert proof.facts == {"MPIDI_OFI_ENABLE_HMEM": "0", "num_nics": "1", "library": "MPICH 5.0.2"}
    assert "the data took OFI provider sockets" in mistakes(proof)[0]
    assert mistakes(read_log("mpich", text.replace("provider: sockets -", "provider: cxi -"))) == ()


def test_the_log_of_oneccl() -> None:
    proof = read_log("oneccl", (DATA / "logs" / "host_oneccl_info.txt").read_text())
    assert (proof.paths, proof.evidence) == ({"SHM/MPI": 1}, "CCL_LOG_LEVEL")
    assert proof.facts["library"] == "oneCCL 2021.17.2"
    assert (proof.facts["stream"], proof.facts["CCL_ATL_TRANSPORT"]) == ("cpu", "mpi")
    assert "CCL_ALLREDUCE" not in proof.facts  # it was not set
    assert mistakes(proof, forbidden=HOST_STAGING) != ()


def test_oneccl_between_nodes_whose_devices_reach_each_other() -> None:
    text = (DATA / "logs" / "host_oneccl_info.txt").read_text()
    proof = read_log(
        "oneccl", text.replace("single_node: 1", "single_node: 0").replace("p2p_access: 0", "p2p_access: 1")
    )
    assert proof.paths == {"NET/MPI": 1, "P2P/LevelZero": 1}


def test_the_log_of_libfabric() -> None:
    log = (
        "libfabric:77:1700000000::core:core:fi_fabric_():1503<info> Opened fabric: cxi\n"
        "libfabric:77:1700000000::core:core:fi_fabric_():1509<info> Using cxi provider 2.1, path:/lib/libcxi-fi.so\n"
    )
    proof = read_log("libfabric", log)
    assert proof.paths == {"OFI provider cxi": 1}
    assert proof.facts == {"fabric": "cxi"}


def test_the_log_of_open_mpi() -> None:
    """Lines of Open MPI 4.1.4 with btl_base_verbose and mtl_base_verbose, and of its pml over TCP."""
    log = (
        "[vm:08747] mca: bml: Using self btl for send to [[20184,1],1] on node nid001\n"
        "[vm:08747] mca: bml: Using tcp btl for send to [[20184,1],0] on node nid002\n"
        "[vm:08747] mca: bml: Not using vader btl for send to [[20184,1],0] on node nid001 because tcp btl has higher\n"
        "[vm:08747] select: component ob1 selected\n"
        "[vm:07416] btl: tcp: Using interface: hsn0 \n"
    )
    proof = read_log("openmpi", log)
    assert (proof.paths, proof.evidence) == ({"btl tcp": 1}, "OMPI_MCA_btl_base_verbose")
    assert proof.facts == {"pml": "ob1", "interface": "hsn0"}
    assert read_log("openmpi", "[n1:1] mtl_ofi_component.c:366: mtl:ofi:prov: cxi\n").paths == {"OFI provider cxi": 1}
    assert read_log("openmpi", "[n1:1] select: component pami selected\n").paths == {"pml pami": 1}


def test_the_log_of_an_older_ucx_has_endpoints_and_no_tables() -> None:
    """A line of UCX 1.13.1."""
    log = "[1.1] [n1:1:0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/hsn0) rma(a/b)"
    assert read_log("ucx", log).paths == {"host: self/memory0": 1, "host: tcp/hsn0": 1}


def test_a_log_without_paths_proves_nothing() -> None:
    for library in proof_logs._LOGS:
        proof = read_log(library, "srun: warning\n")
        assert (proof.paths, proof.evidence) == ({}, None)
        assert mistakes(proof) == ()
        assert "no library reported" in mistakes(proof, required=["P2P"])[0]


def test_logs_are_put_together() -> None:
    both = merge_proofs(read_log("nccl", P2P), read_log("nccl", P2P), read_log("libfabric", ""), TransportProof())
    assert both.paths == {"P2P/CUMEM": 4}
    assert both.evidence == "NCCL_DEBUG"


def test_a_provider_that_nothing_goes_over_is_no_path() -> None:
    """The plugin opens one wherever it is loaded: a node of Alps would seem to send its own data over the network."""
    provider = "n1:10:11 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)\n"
    inside = "n1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    across = "n1:10:11 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/AWS Libfabric/0/GDRDMA\n"
    assert set(read_log("nccl", provider + inside).paths) == {"P2P/CUMEM"}
    assert "NET/OFI provider cxi" in read_log("nccl", provider + inside + across).paths


def test_what_fabricbench_kept_of_a_log_gives_the_same_reasons() -> None:
    remarks = [
        {"text": "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "warning": False, "ranks": [0], "of_ranks": 1},
        {"text": "Error: No space left on device (28)", "warning": True, "ranks": [3], "of_ranks": 1},
    ]
    facts = facts_of_remarks({"remarks": remarks})
    assert facts == {"GPUDirect RDMA": "Disabled for HCA 0 'mlx5_0'", "warning": "Error: No space left on device (28)"}
    reasons = reasons_of(facts, "NET/IB/GDRDMA", ["NET/IB/0"])
    assert any("HCA 0" in each for each in reasons) and any("No space" in each for each in reasons)
