"""What the kernel says of this node beside its ports: versions, governor, load, memory, NVIDIA's errors in its log."""

from __future__ import annotations

import os
import platform
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fabricheck.records.node_state import KernelEvent, Xid
from fabricheck.state.capture import read

# NVRM: Xid (PCI:0000:18:00): 79, pid=…, GPU has fallen off the bus.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
_ADDRESS = r"(?P<part>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
#: What is looked for beside XIDs: NVSwitch's errors (NVIDIA Fabric Manager User Guide, SXid), resets and lost XGMI of
#: AMD's GPUs (Linux, amdgpu_device.c and amdgpu_ras.c), PCIe errors (aer.c), links of ports (their drivers),
#: and processes that the kernel ended for want of memory, a cgroup's or the node's (mm/oom_kill.c).
EVENTS: Mapping[str, re.Pattern[str]] = {
    "sxid": re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:(?P<part>[0-9a-fA-F:.]+)\): \d+, .*"),
    "gpu-reset": re.compile(rf"amdgpu {_ADDRESS}: (?:amdgpu: )?GPU reset (?:begin|\(\d+\) failed).*"),
    "amd-ras": re.compile(
        rf"amdgpu {_ADDRESS}: (?:amdgpu: )?(?:.*uncorrectable .*error.*detected|socket: .*XGMI.*error).*"
    ),
    "pcie-aer": re.compile(rf"{_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=.*"),
    "out-of-memory": re.compile(r"(?:Memory cgroup out|Out) of memory: Killed process \d+ \([^)]*\)"),
    "link-down": re.compile(
        r"(?:mlx5_core|bnxt_en|ionic|ice) [0-9a-f:.]+ (?P<part>[\w.-]+): (?:NIC )?Link (?:is )?[Dd]own.*"
    ),
}
_MOST_XIDS = 100
_MOST_NAMED = 3


def versions(proc: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> dict[str, str]:
    """The kernel, and drivers that say theirs."""
    by_name = {"kernel": platform.release()}
    for name in ("amdgpu", "mlx5_core", "i915", "xe", "cxi_ss1"):
        if text := read(sysfs / "module" / name / "version"):
            by_name[name] = text
    model = re.search(r"^model name\s*:\s*(.*)$", read(proc / "cpuinfo"), re.MULTILINE)
    return {**by_name, "processor": model[1] if model else platform.machine()}


def settings(sysfs: Path = Path("/sys")) -> dict[str, str]:
    """What an administrator chooses: governor, transparent huge pages, NUMA balancing is the kernel's own."""
    governors = {
        read(file) for file in sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor") if read(file)
    }
    huge = re.search(r"\[(\w+)\]", read(sysfs / "kernel/mm/transparent_hugepage/enabled"))
    by_name = {"governor": "/".join(sorted(governors)), "transparent huge pages": huge[1] if huge else ""}
    return {name: value for name, value in by_name.items() if value}


def memory(proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes of memory, and those that a program could have now."""
    kibibytes = {
        name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", read(proc / "meminfo"), re.MULTILINE)
    }
    return kibibytes.get("MemTotal", 0) << 10, kibibytes.get("MemAvailable", 0) << 10


def load(seconds: float, proc: Path = Path("/proc")) -> tuple[float, tuple[str, ...]]:
    """How many cores were busy for `seconds`, and the programs that had most of them, as `cc1plus 0.9`.

    This process and those that started it do not count.
    """
    begin, before = time.monotonic(), _spent(proc)
    busy = _busy(proc)
    time.sleep(seconds)
    took, after = time.monotonic() - begin, _spent(proc)
    second = os.sysconf("SC_CLK_TCK") * took
    by_name: Counter[str] = Counter()
    own, mine = 0, _ancestors(proc)
    for pid, (name, ticks) in after.items():
        spent = ticks - before.get(pid, (name, ticks))[1]
        if pid in mine:
            own += spent
        else:
            by_name[name] += spent
    named = [
        f"{name} {ticks / second:.1f}" for name, ticks in by_name.most_common(_MOST_NAMED) if ticks / second > 0.05
    ]
    return max(_busy(proc) - busy - own, 0) / second, tuple(named)


def _ancestors(proc: Path) -> set[int]:
    """This process, its parent, and so on."""
    pids, pid = set(), os.getpid()
    while pid > 1 and pid not in pids:
        pids.add(pid)
        fields = read(proc / str(pid) / "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return pids


def _busy(proc: Path) -> int:
    """Ticks that cores spent at work since the start."""
    words = read(proc / "stat").partition("\n")[0].split()
    user, nice, system, _, _, irq, soft, *_ = (*map(int, words[1:8]), 0, 0, 0, 0, 0, 0, 0)
    return user + nice + system + irq + soft


def _spent(proc: Path) -> dict[int, tuple[str, int]]:
    """Name and ticks of each process."""
    seconds_by_pid = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            text = read(folder / "stat")
            name, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            if len(fields) > 12:
                seconds_by_pid[int(folder.name)] = (name, int(fields[11]) + int(fields[12]))
    return seconds_by_pid


def xids(log: Path = Path("/dev/kmsg")) -> tuple[Xid, ...] | None:
    """The errors of NVIDIA's GPUs since the node started, as far back as the kernel's log reaches; None where it may
    not be read."""
    matches = _matches(log, {"xid": _XID})
    if matches is None:
        return None
    return tuple(
        Xid(int(match[2]), match[1].lower(), at, match[3].strip()[:200]) for _, match, at in matches[-_MOST_XIDS:]
    )


def events(log: Path = Path("/dev/kmsg")) -> tuple[KernelEvent, ...] | None:
    """What else the log says of GPUs, switches and ports (`EVENTS`); None where it may not be read."""
    matches = _matches(log, EVENTS)
    if matches is None:
        return None
    return tuple(
        KernelEvent(kind, (match.groupdict().get("part") or "").lower(), at, match[0].strip()[:200])
        for kind, match, at in matches[-_MOST_XIDS:]
    )


def _matches(log: Path, patterns: Mapping[str, re.Pattern[str]]) -> list[tuple[str, re.Match[str], float]] | None:
    """Of each line that fits a pattern, by its kind, the match and when it was written."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    matches: list[tuple[str, re.Match[str], float]] = []
    try:
        while record := _record(descriptor):
            # 6,1234,987654321,-;text: level, number, microseconds since the start.
            head, _, text = record.partition(";")
            at = head.split(",")[2] if head.count(",") >= 2 else "0"
            for kind, pattern in patterns.items():
                if match := pattern.search(text):
                    matches.append((kind, match, int(at) / 1e6))
    finally:
        os.close(descriptor)
    return matches


def _record(descriptor: int) -> str:
    """The next line of the kernel's log; empty at its end. Those that were overwritten meanwhile are passed over."""
    while True:
        try:
            return os.read(descriptor, 8192).decode("utf-8", "replace").partition("\n")[0]
        except BrokenPipeError:
            continue
        except OSError:
            return ""
