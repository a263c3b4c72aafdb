"""Which GPU uses which NIC, by the driver's table, the PCI tree and NUMA nodes."""

from __future__ import annotations

import pytest

from fabricheck.site.found import FoundGpu, FoundNic
from fabricheck.site.nics import associate
from fabricheck.site.nvidia import TopoTable


def gpu(index: int, pci: str | None = None, numa: int | None = None) -> FoundGpu:
    return FoundGpu(index, "A100", "sm_80", numa, pci)


def nic(name: str, pci: str | None = None, numa: int | None = None) -> FoundNic:
    return FoundNic(name, "InfiniBand", 200.0, numa, "test", pci)


def test_the_drivers_table_pairs_each_gpu_with_its_own() -> None:
    """The order of the NICs becomes that of their GPUs; one that is near no GPU is left out."""
    rows = {
        0: {"mlx5_1": "PIX", "mlx5_0": "SYS", "mlx5_9": "NODE"},
        1: {"mlx5_1": "SYS", "mlx5_0": "PXB", "mlx5_9": "SYS"},
    }
    nics = (nic("mlx5_0"), nic("mlx5_1"), nic("mlx5_9"))
    found, left, notes = associate([gpu(0), gpu(1)], nics, TopoTable(rows, {}))
    assert found is not None and (found.scheme, found.nics) == ("one-to-one", ("mlx5_1", "mlx5_0"))
    assert [one.name for one in left] == ["mlx5_1", "mlx5_0"]
    assert notes == ["mlx5_9: left out of the topology: near no GPU"]


@pytest.mark.parametrize("nics", [(nic("a"), nic("b")), (nic("a", numa=0), nic("b", numa=0), nic("c", numa=0))])
def test_what_nobody_says_is_dynamic(nics: tuple[FoundNic, ...]) -> None:
    found, left, _ = associate([gpu(0, numa=0), gpu(1, numa=0)], nics, None)
    assert found is not None and found.scheme == "dynamic"
    assert left == nics
