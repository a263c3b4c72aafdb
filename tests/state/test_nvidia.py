"""What NVML is asked of a GPU, by its own calling convention."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from fabricheck.state.nvidia import _fabric


@pytest.mark.parametrize(
    ("state", "status", "domain", "said"),
    [
        (3, 0, 0, {"fabric": "completed"}),
        (2, 9, 0, {"fabric": "in progress, error 9"}),
        (0, 0, 0, {}),
        (3, 0, 0x8F, {"fabric": "completed", "NVLink domain 8f000000": "clique 7"}),
    ],
)
def test_nvml_writes_of_the_fabric_where_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, state: int, status: int, domain: int, said: dict[str, str]
) -> None:
    pointer = ctypes.POINTER(pynvml.c_nvmlGpuFabricInfo_t)

    def call(handle: int, info: Any) -> int:
        info.contents.state, info.contents.status, info.contents.cliqueId = state, status, 7
        info.contents.clusterUuid[0] = domain
        return 0

    by_address = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, pointer)(call)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", lambda name: by_address)
    assert _fabric(None) == said
