"""Kernel logs at random: failures of devices as drivers write them, among other lines, with and without recovery."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

#: What a log planted: the finding, the part as it is named, how bad it is, and whether the log has its recovery.
Planted = tuple[str, str, str, bool]

# NVIDIA's Xid catalog: numbers that reset or restart a GPU, by what they are about, and those of applications.
_FATAL_XIDS = {
    "gpu-memory-errors": (48, 64, 95, 140, 171, 172),
    "gpu-link-errors": (74, 136, 155),
    "gpu-xid": (46, 62, 109, 110, 119, 120, 143, 158, 167, 169),
    "gpu-missing": (79,),
}
_OF_PROGRAMS = (13, 31, 43, 45, 68, 69)
_BLOCKS = {
    "umc": "gpu-memory-errors",
    "xgmi_wafl": "gpu-link-errors",
    "pcie_bif": "pcie-errors",
    "sdma": "gpu-errors",
    "gfx": "gpu-errors",
    "mmhub": "gpu-errors",
}
_NOISE = (
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "NVRM: GPU at PCI:0000:18:00: GPU-b850f46d-d5ea-c752-ddf3-c4453e44d3f7",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    "amdgpu 0000:c1:00.0: amdgpu: ring gfx uses VM inv eng 0 on hub 0",
    "mlx5_core 0000:1a:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:1a:00.0 ens1np0: Link up",
    "hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_INIT (0x2)",
    "pcieport 0000:40:01.1: AER: enabled with IRQ 35",
    "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
)


@dataclass(frozen=True)
class KernelLog:
    """Records as /dev/kmsg has them, and what they say."""

    records: tuple[tuple[float, str], ...]
    planted: frozenset[Planted]

    def write(self, file: Path) -> Path:
        """Write it as /dev/kmsg would be read: a record a line, a line break in a record as `\\x0a`."""
        lines = [f"4,{at},{int(at_s * 1e6)},-;{text}" for at, (at_s, text) in enumerate(self.records)]
        file.write_text("".join(line.replace("\n", "\\x0a") + "\n" for line in lines), encoding="utf-8")
        return file


def draw_log(rng: random.Random) -> KernelLog:
    """Up to four failures of different devices."""
    buses = rng.sample(range(1, 256), 8)
    now, records, planted = rng.uniform(1, 1000), [], set()
    for bus in buses[: rng.randint(0, 4)]:
        texts, recovery, truth = _failure(rng, f"{rng.choice((0, 0, 1)):04x}:{bus:02x}:00")
        recovered = bool(recovery) and rng.random() < 0.4
        gap_s = rng.choice((1e-5, 0.02))
        for text in (*texts, *([recovery] if recovered else [])):
            now += rng.uniform(0.1, 100)
            # A message of several lines is one record, or one a line at the same time, or soon.
            lines = [text] if rng.random() < 0.5 else text.split("\n")
            records += [(now + at * gap_s, line) for at, line in enumerate(lines)]
            if rng.random() < 0.5:
                now += rng.uniform(0.1, 100)
                records.append((now, rng.choice(_NOISE)))
        if truth is not None:
            planted.add((*truth, recovered))
    return KernelLog(tuple(records), frozenset(planted))


def _failure(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str] | None]:
    """The texts of a failure, that of its recovery, and what it is: None of one that is none of the machine."""
    return rng.choice((_xid, _program, _nvlink5, _lost, _sxid, _ras, _aer, _mlx5, _link, _hung, _reset))(rng, bus)


_NONE = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
_LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15"


def _xid(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    code = rng.choice(list(_FATAL_XIDS))
    number = rng.choice(_FATAL_XIDS[code])
    who = rng.choice(("pid='<unknown>', name=<unknown>, ", "pid=1234, name=python3, ", ""))
    texts = [f"NVRM: Xid (PCI:{bus}): {number}, {who}an error of the hardware"]
    return texts, f"NVRM: Xid (PCI:{bus}): {_NONE}", (code, f"{bus}.0", "fatal")


def _program(rng: random.Random, bus: str) -> tuple[list[str], str, None]:
    return [f"NVRM: Xid (PCI:{bus}): {rng.choice(_OF_PROGRAMS)}, pid=77, name=a.out, Ch 00000010"], "", None


def _nvlink5(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    """Blackwell's NVLink errors, whose lines say how bad they are."""
    word, severity = rng.choice((("Fatal", "fatal"), ("Nonfatal", "error")))
    unit = rng.choice(((144, "SAW_MVB"), (145, "RLW_SRC_TRACK"), (147, "TREX"), (149, "NETIR_LINK_EVT")))
    text = f"NVRM: Xid (PCI:{bus}): {unit[0]}, {unit[1]} {word} XC0 i0 Link {rng.randint(0, 17):02d} (0x000000a4 0x0)"
    return [text], f"NVRM: Xid (PCI:{bus}): {_NONE}", ("gpu-link-errors", f"{bus}.0", severity)


def _lost(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    text = rng.choice(
        (
            f"NVRM: The NVIDIA GPU {bus}.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            f"NVRM: GPU {bus}.0: GPU has fallen off the bus.",
            f"NVRM: GPU at PCI:{bus}: GPU has fallen off the bus.",
            f"NVRM: GPU {bus}.0: RmInitAdapter failed! (0x24:0x65:1437)",
        )
    )
    return [text], "", ("gpu-missing", f"{bus}.0", "fatal")


def _sxid(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    word, severity = rng.choice((("Fatal", "fatal"), ("Non-fatal", "error")))
    number = rng.choice((11001, 12028, 14017, 19084, 20034, 23001))
    text = f"nvidia-nvswitch3: SXid (PCI:{bus}.0): {number}, {word}, Link {rng.randint(0, 63)} an error (First)"
    return [text], "", ("nvswitch-error", f"{bus}.0", severity)


def _ras(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    block = rng.choice(list(_BLOCKS))
    words = (
        ("uncorrectable hardware errors", "fatal"),
        ("correctable hardware errors", "corrected"),
        ("deferred hardware errors", "error"),
        ("poison consumption", "error"),
    )
    word, severity = rng.choice(words)
    form = rng.choice(("socket: 3, die: 0, 3 new {} detected in {} block",
                       "{{7}}socket: 1, die: 0 12 {} detected in total in {} block",
                       "2 {} detected in {} block"))  # fmt: skip
    driver = rng.choice(("amdgpu: ", ""))
    text = f"amdgpu {bus}.0: {driver}{form.format(word, rng.choice((block, block.upper())))}"
    return [text], f"amdgpu {bus}.0: {driver}GPU reset(2) succeeded!", (_BLOCKS[block], f"{bus}.0", severity)


def _aer(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    word, severity = rng.choice(
        (
            ("Corrected", "corrected"),
            ("Correctable", "corrected"),
            ("Uncorrected (Non-Fatal)", "error"),
            ("Uncorrectable (Fatal)", "fatal"),
        )
    )
    texts = [
        f"pcieport {bus}.0: AER: Multiple Error received: {bus}.0",
        f"pcieport {bus}.0: {rng.choice(('AER: ', ''))}PCIe Bus Error: severity={word}, type=Data Link Layer",
        f"pcieport {bus}.0:   device [8086:352a] error status/mask=00000041/00002000",
    ]
    return texts, f"pcieport {bus}.0: AER: device recovery successful", ("pcie-errors", f"{bus}.0", severity)


def _mlx5(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    if rng.random() < 0.5:
        text = rng.choice(("Port module event[error]: module 0, Cable error, High Temperature",
                           "mlx5_pcie_event:299: Detected insufficient power on the PCIe slot (27W)"))  # fmt: skip
        return [f"mlx5_core {bus}.0: {text}"], "", ("nic-errors", f"{bus}.0", "error")
    text = rng.choice(("poll_health:825:(pid 0): device's health compromised - reached miss count",
                       "print_health_info:433:(pid 0): Health issue observed, severity(3) ERROR:"))  # fmt: skip
    recovery = f"mlx5_core {bus}.0: mlx5_health_try_recover:338:(pid 9): health recovery succeeded"
    return [f"mlx5_core {bus}.0: {text}"], recovery, ("nic-errors", f"{bus}.0", "fatal")


def _link(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    port, cassini, omni_path = f"ens{bus[5:7]}np0", f"cxi{bus[5:7]}", f"hfi1_{bus[5:7]}"
    name, head, down, up = rng.choice(
        (
            (port, f"mlx5_core {bus}.0 {port}: ", "Link down", "Link up"),
            (port, f"bnxt_en {bus}.0 {port}: ", "NIC Link is Down", "NIC Link is Up, 400000 Mbps"),
            (cassini, f"cxi_core {bus}.0: {cassini}[hsn0] CXI_EVENT_LINK_", "DOWN", "UP"),
            (cassini, f"cxi_ss1 {bus}.0: {cassini}[hsn0]: CXI_EVENT_LINK_", "DOWN", "UP"),
            (omni_path, f"hfi1 {bus}.0: {omni_path}: logical state changed to PORT_", "DOWN (0x1)", "ACTIVE (0x4)"),
        )
    )
    return [head + down], head + up, ("nic-flaps", name, "error")


def _hung(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    killed = "emory: Killed process 4242 (python3) total-vm:1kB"
    if rng.random() < 0.3:
        return [rng.choice(("Memory cgroup out of m", "Out of m")) + killed], "", ("out-of-memory", "", "ended")
    text = rng.choice(
        (
            "INFO: task nvidia-smi:4242 blocked for more than 120 seconds.",
            "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:99]",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
        )
    )
    return [text], "", ("task-blocked", "", "error")


def _reset(rng: random.Random, bus: str) -> tuple[list[str], str, tuple[str, str, str]]:
    """Of AMD's driver, and GPUs that Intel's drivers gave up."""
    amd, again = f"amdgpu {bus}.0: amdgpu: GPU reset", f"[drm] Initialized xe 1.1.0 for {bus}.0 on minor 0"
    text, recovery, severity = rng.choice(
        (
            (f"{amd} begin!. Source:  3", f"{amd}(2) succeeded!", "error"),
            (f"{amd}(3) failed", f"{amd}(2) succeeded!", "fatal"),
            (f"xe {bus}.0: [drm] *ERROR* CRITICAL: Xe has declared device {bus}.0 as wedged.", again, "fatal"),
            (f"i915 {bus}.0: [drm] *ERROR* Failed to initialize GPU, declaring it wedged!", again, "fatal"),
        )
    )
    return [text], recovery, ("gpu-reset", f"{bus}.0", severity)
