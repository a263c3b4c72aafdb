"""What NVML reports of the NVIDIA GPUs of this node now: links, clocks, errors, processes (`records/node_state.py`)."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from fabricheck.records.node_state import NVLINK_DOMAIN, GpuLink, GpuProcess, GpuState
from fabricheck.state.capture import LINKS_A_GPU, answer, decode, each_gpu, read_field

# NVML's bits (nvml.h, nvmlClocksEventReason*): what holds a GPU's clocks down. Being idle (1) is not among them.
_THROTTLE = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_POLICIES = {
    "throttled_ns_power": pynvml.NVML_PERF_POLICY_POWER,
    "throttled_ns_thermal": pynvml.NVML_PERF_POLICY_THERMAL,
    "throttled_ns_board_limit": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    "throttled_ns_reliability": pynvml.NVML_PERF_POLICY_RELIABILITY,
}
_LINK_ERRORS = {
    "replay": pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    "recovery": pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    "crc_flit": pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    "crc_data": pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
}
# Since NVLink5 the driver counts by fields; errors that FEC does not correct, and what the link did about them.
_LINK_FIELDS = {
    "effective_errors": pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    "symbol_errors": pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
    "recoveries_failed": pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
}
_FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}


def gpu_states() -> tuple[str, tuple[GpuState, ...], tuple[str, ...]]:
    """The driver's version, the GPUs, and a line for each that does not answer.

    Raises fabricheck.state.capture.NvmlUnavailable where NVML answers nothing.
    """
    driver, gpus, notes = each_gpu(_gpu)
    return driver, tuple(gpus), tuple(notes)


def _gpu(handle: Any, index: int) -> GpuState:
    def ask(name: str, *arguments: Any) -> Any:
        return answer(f"nvmlDeviceGet{name}", handle, *arguments)

    def watts(name: str) -> float | None:
        milliwatts = ask(name)
        return None if milliwatts is None else milliwatts / 1000

    reasons = ask("CurrentClocksEventReasons")
    if reasons is None:
        reasons = ask("CurrentClocksThrottleReasons") or 0
    rows = ask("RemappedRows")
    # Before Ampere memory has pages that are retired, and not rows.
    retired = ask("RetiredPagesPendingStatus") if rows is None else None
    usage, memory = ask("UtilizationRates"), ask("MemoryInfo", pynvml.nvmlMemory_v2)
    return GpuState(
        index=index,
        name=decode(pynvml.nvmlDeviceGetName(handle)),
        uuid=decode(ask("UUID") or ""),
        bus_id=decode(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:],
        pcie_generation=ask("CurrPcieLinkGeneration"),
        pcie_width=ask("CurrPcieLinkWidth"),
        pcie_most_generation=ask("MaxPcieLinkGeneration"),
        pcie_most_width=ask("MaxPcieLinkWidth"),
        pcie_own_generation=ask("GpuMaxPcieLinkGeneration"),
        performance_state=ask("PerformanceState"),
        clock_mhz=ask("ClockInfo", pynvml.NVML_CLOCK_SM),
        clock_most_mhz=ask("MaxClockInfo", pynvml.NVML_CLOCK_SM),
        power_w=watts("PowerUsage"),
        power_limit_w=watts("EnforcedPowerLimit"),
        power_usual_limit_w=watts("PowerManagementDefaultLimit"),
        temperature_c=ask("Temperature", pynvml.NVML_TEMPERATURE_GPU),
        throttle=tuple(name for bit, name in _THROTTLE.items() if reasons & bit),
        settings=_settings(handle),
        counters=_counters(handle),
        rows_pending=bool(rows and rows[2]) or bool(retired),
        rows_failed=bool(rows and rows[3]),
        links=tuple(link for number in range(LINKS_A_GPU) if (link := _link(handle, number)) is not None),
        processes=_processes(handle),
        busy_percent=None if usage is None else max(usage.gpu, usage.memory),
        memory_used_bytes=None if memory is None else int(memory.used),
    )


def _settings(handle: Any) -> dict[str, str]:
    """ECC, MIG, persistence and compute mode, those that the GPU has."""
    ecc, mig = answer("nvmlDeviceGetEccMode", handle), answer("nvmlDeviceGetMigMode", handle)
    by_name = {
        "ECC": ecc[0] if ecc else None,
        "MIG": mig[0] if mig else None,
        "persistence mode": answer("nvmlDeviceGetPersistenceMode", handle),
    }
    settings = {name: "on" if value else "off" for name, value in by_name.items() if value is not None}
    settings |= _fabric(handle)
    mode = answer("nvmlDeviceGetComputeMode", handle)
    return settings if mode is None else {**settings, "compute mode": _COMPUTE_MODES.get(mode, str(mode))}


def _fabric(handle: Any) -> dict[str, str]:
    """Of GPUs on NVSwitches from Hopper on: whether the fabric manager has taken them in, and the domain of NVLink that
    joins nodes, if any (nvml.h, nvmlGpuFabricInfo_t)."""
    info = pynvml.c_nvmlGpuFabricInfo_t()
    # pynvml hands it on as it is: without its address NVML writes somewhere, and the program ends.
    if answer("nvmlDeviceGetGpuFabricInfo", handle, ctypes.byref(info)) is None or info.state not in _FABRIC_STATES:
        return {}
    state = _FABRIC_STATES[info.state]
    by_name = {"fabric": f"{state}, error {info.status}" if info.status else state}
    if not any(info.clusterUuid):
        return by_name
    # GPUs of one domain reach each other only within a clique. Other racks are other domains, and may have others.
    return {**by_name, f"{NVLINK_DOMAIN} {bytes(info.clusterUuid).hex()[:8]}": f"clique {info.cliqueId}"}


def _counters(handle: Any) -> dict[str, int]:
    volatile = pynvml.NVML_VOLATILE_ECC
    counters: dict[str, int | None] = {
        "ecc_corrected": answer(
            "nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile
        ),
        "ecc_uncorrected": answer(
            "nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile
        ),
        "pcie_replays": answer("nvmlDeviceGetPcieReplayCounter", handle),
    }
    for name, policy in _POLICIES.items():
        spent = answer("nvmlDeviceGetViolationStatus", handle, policy)
        counters[name] = None if spent is None else int(spent.violationTime)
    return {name: int(value) for name, value in counters.items() if value is not None}


def _link(handle: Any, number: int) -> GpuLink | None:
    """None where the GPU has no such link."""
    state = answer("nvmlDeviceGetNvLinkState", handle, number)
    if state is None:
        return None
    errors = {
        name: answer("nvmlDeviceGetNvLinkErrorCounter", handle, number, counter)
        for name, counter in _LINK_ERRORS.items()
    }
    if all(value is None for value in errors.values()):
        errors = {name: read_field(handle, number_of, number) for name, number_of in _LINK_FIELDS.items()}
    return GpuLink(
        number=number,
        active=state == pynvml.NVML_FEATURE_ENABLED,
        counters={name: int(value) for name, value in errors.items() if value is not None},
    )


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    """Processes that compute. Those that only show a desktop are not among them."""
    processes = []
    for process in answer("nvmlDeviceGetComputeRunningProcesses", handle) or ():
        name = answer("nvmlSystemGetProcessName", process.pid)
        used = getattr(process, "usedGpuMemory", None)
        processes.append(GpuProcess(int(process.pid), decode(name).rpartition("/")[2] if name else "", used))
    return tuple(processes)
