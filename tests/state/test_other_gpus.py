"""amd-smi's answers: in the forms of ROCm 6 (a list) and 7 (`gpu_data`); numbers as such, as text, and with units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.records.node_state import GpuProcess
from fabricheck.state.other_gpus import entries_of, link_marks, read_amd_gpus, read_intel_gpus

# The fields and forms are those of ROCm/amdsmi, amdsmi_cli/amdsmi_commands.py; the numbers are made up.
STATIC = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
    "bus": {
        "bdf": "0000:0C:00.0",
        "max_pcie_width": 16,
        "max_pcie_speed": {"value": 32, "unit": "GT/s"},
        "pcie_interface_version": "Gen 5",
    },
    "driver": {"name": "amdgpu", "version": "6.12.12"},
    "limit": {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 750, "unit": "W"}},
}
METRIC = {
    "gpu": 0,
    "power": {"socket_power": {"value": 140, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
    "clock": {
        "gfx_0": {"clk": {"value": 132, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}},
        "gfx_1": {"clk": {"value": 1805, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}},
        "gfx_2": {"clk": "N/A", "max_clk": "N/A"},
        "mem_0": {"clk": {"value": 900, "unit": "MHz"}},
    },
    "temperature": {"edge": "N/A", "hotspot": {"value": 43, "unit": "C"}},
    "pcie": {"width": "8", "speed": {"value": 16.0, "unit": "GT/s"}, "replay_count": "3"},
    "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 1},
    "throttle": {"prochot_accumulated": 0, "socket_thermal_accumulated": 17, "hbm_thermal_accumulated": "N/A"},
    "xgmi_link_status": ["U", "D", "X"],
}
PROCESS = {
    "gpu": 0,
    "process_list": [
        {
            "process_info": {
                "name": "train",
                "pid": 4711,
                "memory_usage": {"gtt_mem": {"value": 1, "unit": "B"}, "vram_mem": {"value": 9663676416, "unit": "B"}},
            }
        }
    ],
}


def test_a_gpu_of_rocm() -> None:
    driver, (gpu,) = read_amd_gpus([STATIC], [METRIC], [PROCESS])
    assert driver == "6.12.12"
    assert (gpu.name, gpu.bus_id) == ("AMD Instinct MI300X", "0000:0c:00.0")
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.pcie_most_generation, gpu.pcie_most_width) == (4, 8, 5, 16)
    assert (gpu.clock_mhz, gpu.clock_most_mhz, gpu.temperature_c) == (1805, 2100, 43)
    assert gpu.throttle == ()
    assert gpu.counters == {
        "ecc_corrected": 5,
        "ecc_uncorrected": 1,
        "pcie_replays": 3,
        "throttled_prochot": 0,
        "throttled_thermal_socket": 17,
    }
    assert [(link.number, link.active) for link in gpu.links] == [(0, True), (1, False)]
    assert gpu.processes == (GpuProcess(4711, "train", 9663676416),)


def test_the_list_may_be_wrapped_and_no_process_may_be_words() -> None:
    """`No running processes detected` stands where processes would."""
    assert entries_of(json.dumps({"gpu_data": [STATIC]})) == entries_of(json.dumps([STATIC])) == [STATIC]
    idle = {"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]}
    throttled = {"gpu": 0, "power": {"throttle_status": "THROTTLED"}}
    _, (gpu,) = read_amd_gpus([STATIC], [throttled], [idle])
    assert (gpu.processes, gpu.throttle, gpu.pcie_width, gpu.links) == ((), ("throttled",), None, ())
    with pytest.raises(ValueError):
        entries_of("ERROR: no devices")


PORTS, PEERS = ["U", "D", "U", "X"], ["SELF", "U/D", "U", "N/A"]
# By amdsmi_commands.py and amdsmi_logger.py of ROCm 6.2 (traffic, no state), 6.4, 7.0 and later.
XGMI = {
    "6.2": ([{"gpu": 0, "bdf": "a", "link_metrics": {"link_type": "XGMI", "links": [{"gpu": 1, "read": "N/A"}]}}], []),
    "6.4": ({"xgmi_source_status": [{"gpu": 0, "bdf": "a", "link_status": PORTS}]}, [True, False, True]),
    "7": (
        {
            "xgmi_metric": [[{"gpu": 0, "bdf": "a", "link_metrics": {"links": []}}]],
            "link_port_status": [{"gpu": 0, "bdf": "a", "link_status": PORTS}],
            "link_status": [{"gpu": 0, "bdf": "a", "link_status": PEERS}],
        },
        [True, False, True],
    ),
    "7, of peers": ({"link_status": [{"gpu": 0, "bdf": "a", "link_status": PEERS}]}, [True, False, True]),
    "7, unknown": ({"link_status": [{"gpu": 0, "bdf": "a", "link_status": ["SELF", "N/A"]}]}, []),
}


@pytest.mark.parametrize("version", XGMI)
def test_links_of_each_version(version: str) -> None:
    content, wanted = XGMI[version]
    _, (gpu,) = read_amd_gpus([{"gpu": 0}], [], [], link_marks(json.dumps(content)))
    assert [link.active for link in gpu.links] == wanted


@pytest.mark.parametrize(
    "limit",
    [
        {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 700, "unit": "W"}},
        {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, "socket_power_limit": 700}, "ppt1": "N/A"},
    ],
    ids=["ROCm 6", "ROCm 7"],
)
def test_limits_of_power(limit: dict[str, Any]) -> None:
    _, (gpu,) = read_amd_gpus([{"gpu": 0, "limit": limit}], [], [])
    assert (gpu.power_limit_w, gpu.power_usual_limit_w) == (700, 750)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("N/A"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "unit", "clk", "pid", "name", "process_info", "bdf"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*STATIC, *METRIC, "process_list"]), values).map(lambda one: {**one, "gpu": 0}))
def test_no_answer_ends_the_collector(entry: dict[str, Any]) -> None:
    _, gpus = read_amd_gpus([entry], [entry], [entry])
    assert len(gpus) == 1


def test_cards_with_their_links_and_processes(tmp_path: Path) -> None:
    """xpu-smi lists itself on each card that it asks."""
    device = tmp_path / "bus/pci/devices/0000:18:00.0"
    device.mkdir(parents=True)
    for name, text in {
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
    }.items():
        (device / name).write_text(text + "\n")
    name = "Intel(R) Data Center GPU Max 1550"
    discovery = {"device_list": [{"device_id": 0, "device_name": name, "pci_bdf_address": "0000:18:00.0"}]}
    users = {
        "device_util_by_proc_list": [
            {"device_id": 0, "process_id": 1, "process_name": "xpu-smi", "mem_size": 0},
            {"device_id": 0, "process_id": 2, "process_name": "/usr/bin/python", "mem_size": 5726404},
            {"device_id": 1, "process_id": 3, "process_name": "other"},
        ]
    }
    (gpu,) = read_intel_gpus(discovery, users, tmp_path)
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.pcie_most_generation, gpu.pcie_most_width) == (4, 8, 5, 16)
    assert gpu.processes == (GpuProcess(2, "python"),)
    assert read_intel_gpus({"error": "no device"}, {}, tmp_path) == ()
