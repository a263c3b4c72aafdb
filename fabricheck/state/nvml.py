"""How NVML is asked, and what it says of the NVIDIA GPUs of this node that does not change.

This module prints `gpu_facts()` as JSON when it is run; `ask_gpu_facts` runs that as a program of its own, since
a call of NVML can hang in the driver for ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pynvml

from fabricheck.state.programs import ask, module_command

LINKS_A_GPU = 36  # more than any GPU has
_T = TypeVar("_T")


class NvmlUnavailable(Exception):
    """NVML does not answer at all. `absent`: there is no NVIDIA driver, which is no fault of a node without GPUs."""

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


@contextmanager
def opened() -> Iterator[None]:
    """NVML while the context lasts. Raises NvmlUnavailable with the reason."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = getattr(error, "value", None)
        absent = code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        hints = {
            pynvml.NVML_ERROR_NO_PERMISSION: ": this user may not read /dev/nvidiactl",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ": the driver was updated; reboot",
        }
        raise NvmlUnavailable(f"NVML: {error}{hints.get(code, '')}", absent=absent) from None
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers, or None where this GPU, driver or library does not tell."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def field(handle: Any, number: int, scope: int = 0) -> int | None:
    """A field of `nvmlDeviceGetFieldValues`, or None where this GPU or driver does not tell."""
    values = answer(pynvml.nvmlDeviceGetFieldValues, handle, [(number, scope)])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if values[0].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return int(values[0].value.ullVal)
    return int(values[0].value.uiVal)


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def gpu_facts() -> dict[str, Any]:
    """`driver`, `gpus` and `problems`: what does not change while a driver is loaded, for a site's files.

    Of each GPU its index, name, arch, UUID, PCI address, memory (MiB, clock in MHz, width in bits), NUMA node, PCIe
    link at most, NVLink-C2C to its CPU (links, MB/s of one), MIG mode, and its NVLinks: how many there are
    (`nvlinks_total`) and each that is active. A GPU that does not answer is a problem, and the others stand. Raises
    NvmlUnavailable.
    """
    driver, gpus, problems = each_gpu(_gpu)
    return {"driver": driver or "unknown", "gpus": gpus, "problems": problems}


def each_gpu(facts: Callable[[Any, int], _T]) -> tuple[str, list[_T], list[str]]:
    """The driver's version, of each GPU what `facts` of its handle and index gives, and a line for each that does not
    answer. Raises NvmlUnavailable."""
    with opened():
        gpus, problems = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(facts(pynvml.nvmlDeviceGetHandleByIndex(index), index))
            except pynvml.NVMLError as error:
                problems.append(f"GPU {index} does not respond: NVML: {error}")
        return text(answer(pynvml.nvmlSystemGetDriverVersion) or ""), gpus, problems


def _gpu(handle: Any, index: int) -> dict[str, Any]:
    links = {number: answer(pynvml.nvmlDeviceGetNvLinkState, handle, number) for number in range(LINKS_A_GPU)}
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory, mig = answer(pynvml.nvmlDeviceGetMemoryInfo, handle), answer(pynvml.nvmlDeviceGetMigMode, handle)
    uuid = answer(pynvml.nvmlDeviceGetUUID, handle)
    return {
        "index": index,
        "name": text(pynvml.nvmlDeviceGetName(handle)),
        "uuid": text(uuid) if uuid else None,
        "arch": f"sm_{major}{minor}",
        "bus_id": text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower(),
        "numa_node": answer(pynvml.nvmlDeviceGetNumaNodeId, handle),
        "memory_mib": memory.total >> 20 if memory else None,
        "memory_clock_mhz": answer(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "memory_bus_bits": answer(pynvml.nvmlDeviceGetMemoryBusWidth, handle),
        "pcie_generation": answer(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": answer(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "c2c_links": field(handle, pynvml.NVML_FI_DEV_C2C_LINK_COUNT),
        "c2c_mbps": field(handle, pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW),
        "mig": bool(mig and mig[0]),
        "nvlinks_total": sum(state is not None for state in links.values()),
        "nvlinks": [_nvlink(handle, number) for number, state in links.items() if state == 1],
    }


def _nvlink(handle: Any, number: int) -> dict[str, Any]:
    """An active NVLink: PCI address and kind of what it leads to, and its speed in MB/s where the driver tells."""
    kinds = {
        pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
        pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
        pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "cpu",
    }
    remote = answer(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
    return {
        "link": number,
        "version": answer(pynvml.nvmlDeviceGetNvLinkVersion, handle, number),
        "speed_mbps": field(handle, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, number),
        "remote_kind": kinds.get(answer(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number), "unknown"),
        "remote_bus_id": text(remote.busId).lower() if remote is not None else None,
    }


def ask_gpu_facts(seconds: float = 60.0) -> dict[str, Any]:
    """`gpu_facts()` in a process of its own. Raises NvmlUnavailable, also where NVML hangs."""
    got = ask(module_command("fabricheck.state.nvml"), seconds)
    if not got.given:
        raise NvmlUnavailable(f"NVML: {got.problem}")
    content: dict[str, Any] = json.loads(got.output)
    if "unavailable" in content:
        raise NvmlUnavailable(content["unavailable"], absent=content["absent"])
    return content


def _main() -> None:
    try:
        content = gpu_facts()
    except NvmlUnavailable as error:
        content = {"unavailable": str(error), "absent": error.absent}
    print(json.dumps(content))


if __name__ == "__main__":
    _main()
