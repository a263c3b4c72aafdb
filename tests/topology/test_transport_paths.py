"""Which paths *CCL and MPI have to take: on each system by its hardware, else as the file says; and what others are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fabricheck.results.guards import compile_patterns, path_mistakes
from fabricheck.topology.model import Nic, find_topology
from fabricheck.topology.transport_paths import Paths, ccl_paths, mpi_paths, nic_paths
from tests.support.effort import effort
from tests.support.nodes import ROOT


def mistakes(paths: Paths, *taken: str) -> list[str]:
    proof = {"paths": dict.fromkeys(taken, 1), "evidence": "NCCL_DEBUG" if taken else None}
    forbidden, required = compile_patterns(paths.forbidden), compile_patterns(paths.required)
    return list(path_mistakes(proof, forbidden, required, paths.described))


def paths(system: str, nodes: int) -> Paths:
    return ccl_paths(find_topology(system, ROOT / "site_configs"), nodes)


@pytest.mark.parametrize(
    ("system", "inside", "between"),
    [
        ("alps", "P2P", "NET/OFI/GDRDMA"),
        ("lumi", "P2P", "NET/OFI/GDRDMA"),
        ("leonardo", "P2P", "NET/IB/GDRDMA"),
        ("summit", "P2P", "NET/IB/GDRDMA"),
        ("frontier", "P2P", "NET/OFI/GDRDMA"),
        ("dgx-a100", "P2P", "NET/IB/GDRDMA"),
        ("hgx-h200", "P2P", "any network but sockets"),
        ("local", "", "any network but sockets"),
        ("emulated", "", "NET/Socket"),
    ],
)
def test_the_default_follows_from_the_hardware(system: str, inside: str, between: str) -> None:
    assert (paths(system, 1).described, paths(system, 2).described) == (inside, between)


def test_tcp_below_the_plugin_is_not_slingshot() -> None:
    alps = paths("alps", 2)
    assert mistakes(alps, "NET/AWS Libfabric/0/GDRDMA", "NET/OFI provider cxi") == []
    assert "provider tcp" in mistakes(alps, "NET/AWS Libfabric/0/GDRDMA", "NET/OFI provider tcp;ofi_rxm")[0]


@pytest.mark.parametrize(
    ("system", "channel"), [("alps", "NET/IB/0/GDRDMA"), ("leonardo", "NET/AWS Libfabric/0/GDRDMA")]
)
def test_a_plugin_of_another_fabric_is_named_with_the_variable_that_chose_it(system: str, channel: str) -> None:
    proof = {"paths": {channel: 4}, "evidence": "NCCL_DEBUG", "facts": {"NCCL_NET_PLUGIN": "other"}}
    wanted = paths(system, 2)
    forbidden, required = compile_patterns(wanted.forbidden), compile_patterns(wanted.required)
    (message,) = path_mistakes(proof, forbidden, required, wanted.described)
    assert channel in message and wanted.described in message and "NCCL_NET_PLUGIN=other" in message


@pytest.mark.parametrize("channel", ["NET/AWS Libfabric/1", "NET/OFI/1", "NET/Libfabric/1"])
def test_a_channel_of_slingshot_without_gpudirect_rdma(channel: str) -> None:
    alps = paths("alps", 2)
    (message,) = mistakes(alps, "NET/AWS Libfabric/0/GDRDMA", channel, "NET/OFI provider cxi")
    assert f"{channel}, which" in message and "NET/OFI/GDRDMA" in message
    assert "FI_HMEM" in message and "nvidia_peermem" not in message  # which is of verbs alone
    aurora = replace(find_topology("aurora", ROOT / "site_configs"), ccl_path_between_nodes=None)
    assert ccl_paths(aurora, 2).described == "NET/OFI"


def test_a_site_may_say_another_path() -> None:
    leonardo = find_topology("leonardo", ROOT / "site_configs")
    said = replace(leonardo, ccl_path_in_node="SHM", ccl_path_between_nodes="NET/IB")
    assert mistakes(ccl_paths(said, 1), "SHM/direct/direct") == []
    assert mistakes(ccl_paths(said, 2), "SHM/direct/direct", "NET/IB/1") == []


def mpi(system: str, *taken: str, nodes: int = 2) -> list[str]:
    return mistakes(mpi_paths(find_topology(system, ROOT / "site_configs"), nodes), *taken)


@pytest.mark.parametrize(
    ("system", "described", "right", "wrong"),
    [
        ("alps", "OFI/cxi", "OFI provider cxi", "OFI provider tcp;ofi_rxm"),
        ("leonardo", "InfiniBand", "cuda: rc_mlx5/mlx5_0:1", "host: tcp/ib0"),
        ("leonardo", "InfiniBand", "btl openib", "btl tcp"),
        ("summit", "InfiniBand", "pml pami", "btl tcp"),
        ("emulated", "TCP", "host: tcp/hsn0", "host: rc_mlx5/mlx5_0:1"),
        ("hgx-h200", "any network but TCP", "host: dc_mlx5/mlx5_0:1", "btl tcp"),
    ],
)
def test_mpi_between_nodes_is_held_to_the_network(system: str, described: str, right: str, wrong: str) -> None:
    assert mpi(system, right, "btl vader") == []
    (mistake, *_) = mpi(system, wrong)
    assert wrong in mistake
    assert mistake.endswith(f"the site's path is {described}")
    assert mpi(system) == [f"no library reported the path of the data: {described} is not proven"]
    assert mpi(system, "btl vader") != []


def test_inside_a_node_mpi_is_held_to_what_the_file_says() -> None:
    leonardo = find_topology("leonardo", ROOT / "site_configs")
    assert mpi("leonardo", nodes=1) == []
    said = mpi_paths(replace(leonardo, mpi_path_in_node="IPC", mpi_path_between_nodes="TCP"), 1)
    assert mistakes(said, "cuda: cuda_ipc/cuda") == []
    assert "the site's path is IPC" in mistakes(said, "cuda: cuda_copy/cuda")[0]
    assert mistakes(mpi_paths(replace(leonardo, mpi_path_between_nodes="TCP"), 2), "btl tcp") == []


@pytest.mark.parametrize(
    ("system", "taken", "wrong"),
    [
        ("leonardo", ["OFI provider verbs;ofi_rxm registered"], False),
        ("leonardo", ["OFI provider verbs;ofi_rxm"], False),  # between hosts
        ("leonardo", ["OFI provider tcp;ofi_rxm"], True),
        ("leonardo", ["OFI provider verbs;ofi_rxm staged"], True),
        ("alps", ["OFI provider cxi registered"], False),
        ("alps", ["OFI provider cxi registered", "OFI provider cxi staged"], True),
        ("alps", ["OFI provider tcp"], True),
        ("alps", [], True),
        ("emulated", ["OFI provider tcp;ofi_rxm staged"], False),
    ],
)
def test_nics_are_used_by_their_own_provider_and_reach_device_memory(
    system: str, taken: list[str], wrong: bool
) -> None:
    assert bool(mistakes(nic_paths(find_topology(system, ROOT / "site_configs")), *taken)) == wrong


# What libraries call a core provider: by name, by its domains on machines of each kind.
_NAMES = {
    "cxi": ("cxi", "cxi0", "cxi3"),
    "efa": ("efa", "rdmap0s31-rdm", "rdmap16s27-dgrm", "efa_0-rdm"),
    "verbs": ("verbs", "mlx5_0", "mlx5_bond_0", "bnxt_re3", "rocep1s0f1"),
    "tcp": ("tcp", "sockets"),
}
_LAYERED = ("{}", "{};ofi_rxm", "shm+{}:lnx", "{};ofi_rxd", "sm2+{}:lnx")
_SYSTEMS = {"cxi": "alps", "efa": "alps", "verbs": "leonardo"}


@pytest.mark.parametrize("seed", range(effort(100)))
def test_a_provider_is_the_same_by_whatever_name(seed: int) -> None:
    rng = random.Random(seed)
    demanded = rng.choice(list(_SYSTEMS))
    core = rng.choice([demanded, demanded, "tcp"])
    path = f"OFI provider {rng.choice(_LAYERED).format(rng.choice(_NAMES[core]))}"
    topology = find_topology(_SYSTEMS[demanded], ROOT / "site_configs")
    if demanded == "efa":
        topology = replace(topology, nics=(Nic("rdmap0s0", "EFA 200 Gb/sec", 200.0, "made"),))
    assert bool(mistakes(mpi_paths(topology, 2), path)) == (core != demanded), f"seed {seed}: {path}"
