"""What the kernel says of this node beside its ports: versions, settings, load, memory, and failures in its log.

Settings are what of firmware, kernel and limits decides how GPUs, NICs and memory reach each other, each cheap to read.
Every value is text, and not there where it is not known: `fabricheck.judge.evidence` judges it, and equal nodes are
compared. Failures of devices are read by the rows of config/kernel_events.yaml.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from fabricheck.records.node_state import KernelEvent
from fabricheck.state.capture import read
from fabricheck.suite import config_rows

# Generation by GT/s of a lane (PCI Express base specification).
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def generation(gigatransfers: float | None) -> int | None:
    """Of a lane's rate in GT/s the generation, 5 of 32; None for any other rate."""
    return _GENERATIONS.get(gigatransfers) if gigatransfers is not None else None


def generation_of_text(text: str) -> int | None:
    """Of the kernel's `32.0 GT/s PCIe`; None for another form."""
    try:
        return generation(float(text.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
        return None


_MOST_NAMED = 3


def versions(proc: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> dict[str, str]:
    """The kernel, and drivers that say theirs."""
    by_name = {"kernel": platform.release()}
    for name in ("amdgpu", "mlx5_core", "i915", "xe", "cxi_ss1"):
        if text := read(sysfs / "module" / name / "version"):
            by_name[name] = text
    model = re.search(r"^model name\s*:\s*(.*)$", read(proc / "cpuinfo"), re.MULTILINE)
    return {**by_name, "processor": model[1] if model else platform.machine()}


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


#: Kernel modules by which a NIC reaches device memory without DMA-BUF, of NVIDIA and AMD.
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem", "ib_peer_mem", "amdp2p")
# PCI classes (the first four digits): bridges; GPUs and accelerators; network and InfiniBand controllers.
_BRIDGE, _ENDS = ("0x0604",), ("0x0302", "0x0300", "0x0380", "0x1200", "0x0200", "0x0207", "0x0280")
_VENDORS_OF_GPUS = ("0x10de", "0x1002", "0x8086")
# PCI Express base specification: capabilities and their registers.
_CAPABILITIES, _EXPRESS, _ACS = 0x34, 0x10, 0x000D
_REDIRECTS = 0x04 | 0x08  # ACS control: P2P request redirect, P2P completion redirect
_RELAXED, _DEVICE_CONTROL = 0x10, 0x08


def without_empty(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that are known."""
    return {name: value for name, value in settings.items() if value}


def settings(root: Path = Path("/")) -> dict[str, str]:
    """By name; see docs/state.md."""
    sysfs, proc = root / "sys", root / "proc"
    huge_pages = re.search(r"\[(\w+)\]", read(sysfs / "kernel/mm/transparent_hugepage/enabled"))
    by_name = {
        "governor": "/".join(sorted(_governors(sysfs))),
        "transparent huge pages": huge_pages[1] if huge_pages else "",
        "ACS redirect": _acs(sysfs),
        "IOMMU": _iommu(sysfs, read(proc / "cmdline")),
        "relaxed ordering": _relaxed_ordering(sysfs),
        "peer memory": _peer_memory(sysfs),
        "NVIDIA kernel module": _nvidia_module(read(proc / "driver/nvidia/version")),
        "NUMA balancing": {"0": "off", "": ""}.get(read(proc / "sys/kernel/numa_balancing"), "on"),
        "locked memory": _limit(resource.RLIMIT_MEMLOCK),
        "/dev/shm": _size(root / "dev/shm"),
        "IMEX channels": _imex(root),
        "virtual machine": "yes" if re.search(r"^flags\s*:.*\bhypervisor\b", read(proc / "cpuinfo"), re.M) else "",
    }
    return without_empty(by_name)


def _governors(sysfs: Path) -> set[str]:
    return {read(file) for file in sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {""}


def _devices(sysfs: Path) -> Iterator[tuple[Path, bytes]]:
    """PCI devices on the way to GPUs and NICs, and these themselves, with their configuration space."""
    wanted: dict[Path, None] = {}
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        kind = read(device / "class")[:6]
        if kind in _ENDS and (kind in ("0x0200", "0x0207") or read(device / "vendor") in _VENDORS_OF_GPUS):
            real = Path(os.path.realpath(device))
            wanted[real] = None
            wanted |= dict.fromkeys(each for each in real.parents if each.name.count(":") == 2)
    for device in sorted(wanted):
        try:
            yield device, (device / "config").read_bytes()
        except OSError:
            continue


def _acs(sysfs: Path) -> str:
    """The bridges above GPUs and NICs that send what one asks of another up to the root complex; `off` where none does.

    Empty where the configuration space may not be read beyond its head, which takes root.
    """
    redirecting, readable = [], False
    for device, config in _devices(sysfs):
        if read(device / "class")[:6] not in _BRIDGE or len(config) <= 0x100:
            continue
        readable = True
        at = _extended(config, _ACS)
        if at and int.from_bytes(config[at + 6 : at + 8], "little") & _REDIRECTS:
            redirecting.append(device.name)
    if not redirecting:
        return "off" if readable else ""
    more = f" and {len(redirecting) - 4} more" if len(redirecting) > 4 else ""
    return f"on: {', '.join(redirecting[:4])}{more}"


def _relaxed_ordering(sysfs: Path) -> str:
    """GPUs and NICs whose writes have to stay in order; `on` where none has to."""
    strict, known = [], False
    for device, config in _devices(sysfs):
        if read(device / "class")[:6] in _BRIDGE or len(config) <= 0x40:
            continue
        if (at := _capability(config, _EXPRESS)) and at + 10 <= len(config):
            known = True
            if not int.from_bytes(config[at + _DEVICE_CONTROL : at + _DEVICE_CONTROL + 2], "little") & _RELAXED:
                strict.append(device.name)
    return f"off: {', '.join(strict[:4])}" if strict else "on" if known else ""


def _capability(config: bytes, wanted: int) -> int:
    """Where a capability stands in the first 256 bytes; 0 where it does not."""
    at, seen = config[_CAPABILITIES] & 0xFC, 0
    while at and at + 2 <= len(config) and seen < 48:
        if config[at] == wanted:
            return at
        at, seen = config[at + 1] & 0xFC, seen + 1
    return 0


def _extended(config: bytes, wanted: int) -> int:
    at, seen = 0x100, 0
    while at and at + 8 <= len(config) and seen < 96:
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == wanted:
            return at
        at, seen = head >> 20 & 0xFFC, seen + 1
    return 0


def _iommu(sysfs: Path, command_line: str) -> str:
    """Whether devices' addresses are translated: `off`, `passthrough` or `translating`, by the groups, which know."""
    types = {read(group / "type") for group in sysfs.glob("kernel/iommu_groups/*")} - {""}
    if any(each.startswith("DMA") for each in types):
        return "translating"
    if types or any(sysfs.glob("class/iommu/*")):
        return "translating" if not types and not re.search(r"iommu=pt\b", command_line) else "passthrough"
    return "off" if (sysfs / "bus/pci/devices").is_dir() else ""


def _peer_memory(sysfs: Path) -> str:
    if not (sysfs / "module").is_dir():
        return ""
    return next((name for name in PEER_MODULES if (sysfs / "module" / name).is_dir()), "none")


def _nvidia_module(version: str) -> str:
    """The open one offers DMA-BUF, the proprietary one needs nvidia_peermem."""
    return "" if not version else "open" if "Open Kernel Module" in version else "proprietary"


def _limit(which: int) -> str:
    soft, _ = resource.getrlimit(which)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"


def _size(folder: Path) -> str:
    try:
        statistics = os.statvfs(folder)
    except OSError:
        return ""
    size = statistics.f_blocks * statistics.f_frsize
    # Half of a node's memory is not the same on all nodes, and more than enough.
    return "1 GiB or more" if size >= 1 << 30 else f"{size >> 20} MiB"


def _imex(root: Path) -> str:
    """How many channels of IMEX there are, without which memory of other nodes of an NVLink domain is not reached."""
    if not (root / "proc/driver/nvidia").is_dir():
        return ""
    return str(len(list((root / "dev/nvidia-caps-imex-channels").glob("channel*"))))


Severity = Literal["fatal", "error", "corrected", "program", "ended"]
# Drivers' own words. `Fatal` of AER stands in brackets: `Uncorrected (Fatal)`.
_WORDS: tuple[tuple[str, Severity], ...] = (
    ("nonfatal|non-fatal|deferred|poison", "error"),
    ("fatal|uncorrect", "fatal"),
    ("correct", "corrected"),
)
_LOG = Path("/dev/kmsg")
_Events = tuple[KernelEvent, ...] | None
_MOST_EVENTS = 200
_LONGEST_TEXT = 200
# Lines that a driver writes at once, such as the three of a GPU that is lost, are one message.
_AT_ONCE_S = 0.01


@dataclass(frozen=True)
class EventRow:
    """A row of config/kernel_events.yaml, which explains its fields."""

    __pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    kind: str
    code: str
    severity: Severity
    recovery: str
    pattern: re.Pattern[str]
    recovered: re.Pattern[str] | None = None
    numbers: frozenset[int] = frozenset()
    network: bool = False


def event_rows() -> tuple[EventRow, ...]:
    """The rows of config/kernel_events.yaml. Raises UserError for a mistake in the file."""
    return config_rows("kernel_events.yaml", EventRow)


def xids(log: Path = _LOG) -> _Events:
    """Failures of GPUs and NVSwitches that NVIDIA's driver numbers (Xid, SXid); as `failures`."""
    return failures(log)[0]


def events(log: Path = _LOG) -> _Events:
    """Other failures of devices; as `failures`."""
    return failures(log)[1]


def failures(log: Path = _LOG) -> tuple[_Events, _Events]:
    """`xids` and `events` since the node started, or since `dmesg --clear`, as far back as the kernel's log reaches;
    the latest of very many. None where it may not be read."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None, None
    try:
        os.lseek(descriptor, 0, os.SEEK_DATA)  # what was cleared is passed over
        read_events = _events_of(list(_lines(descriptor)))
    except OSError:
        return None, None
    finally:
        os.close(descriptor)
    numbered = tuple(event for event in read_events if event.number)
    others = tuple(event for event in read_events if not event.number)
    return numbered[-_MOST_EVENTS:], others[-_MOST_EVENTS:]


def _events_of(records: Sequence[tuple[float, str]]) -> list[KernelEvent]:
    """The events in records (seconds since the start, text) of the kernel's log."""
    seen: list[tuple[int, KernelEvent]] = []
    recoveries: list[tuple[int, str, str]] = []
    place = 0  # in the whole log, by which an event is before its recovery
    for at_s, text in _messages(records):
        seen += [(place + begin, event) for begin, event in _events_in(at_s, text)]
        recoveries += [(place + begin, kind, part) for begin, kind, part in _recoveries(text)]
        place += len(text)
    ordered = []
    for begin, event in sorted(seen, key=lambda pair: pair[0]):
        recovered = any(
            later > begin and kind == event.kind and part in ("", event.part) for later, kind, part in recoveries
        )
        ordered.append(replace(event, recovered=recovered))
    return ordered


def _record(descriptor: int) -> str:
    """The next record of the log, empty at its end."""
    while True:
        try:
            return os.read(descriptor, 8192).decode("utf-8", "replace")
        except BrokenPipeError:  # overwritten meanwhile
            continue
        except OSError:
            return ""


def _lines(descriptor: int) -> Iterator[tuple[float, str]]:
    while record := _record(descriptor):
        # 6,1234,987654321,-;text: level, number, microseconds since the start. Lines below it that begin with a blank
        # name the device.
        for line in record.splitlines():
            head, mark, text = line.partition(";")
            fields = head.split(",")
            if mark and len(fields) > 2 and fields[2].isdecimal():
                yield int(fields[2]) / 1e6, text.replace("\\x0a", "\n")


def _messages(records: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Records of one driver at one moment as one text."""
    begin = 0
    for at in range(1, len(records) + 1):
        if at < len(records):
            (before_s, before), (at_s, text) = records[at - 1], records[at]
            if at_s - before_s <= _AT_ONCE_S and text.split(" ")[0] == before.split(" ")[0]:
                continue
        yield records[begin][0], "\n".join(text for _, text in records[begin:at])
        begin = at


def _events_in(at_s: float, text: str) -> Iterator[tuple[int, KernelEvent]]:
    """Of each place in the text the first row that fits, and the place."""
    taken: list[tuple[int, int]] = []
    for row in event_rows():
        for match in row.pattern.finditer(text):
            groups = {name: value or "" for name, value in match.groupdict().items()}
            number = groups.get("number", "")
            if row.numbers and int(number) not in row.numbers:
                continue
            if any(match.start() < end and begin < match.end() for begin, end in taken):
                continue
            taken.append(match.span())
            event = KernelEvent(
                kind=row.kind,
                part=_part(match),
                at_s=at_s,
                text=" ".join(match[0].split())[:_LONGEST_TEXT],
                code=row.code,
                number=number,
                severity=_severity(groups.get("word", ""), row.severity),
                recovery=row.recovery,
                network=row.network,
            )
            yield match.start(), event


def _part(match: re.Match[str]) -> str:
    """The PCI address, with the function that Xids leave out, or the name of a port; empty where none is named."""
    part = (match.groupdict().get("part") or "").lower()
    return f"{part[-10:]}.0" if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}", part) else part


def _severity(word: str, otherwise: Severity) -> Severity:
    for pattern, severity in _WORDS:
        if re.search(pattern, word.lower()):
            return severity
    return otherwise


def _recoveries(text: str) -> Iterator[tuple[int, str, str]]:
    """Where, the kind of what works again, and of which part: of all where it is empty."""
    patterns = {(row.kind, row.recovered): row.recovered for row in event_rows() if row.recovered is not None}
    for (kind, _), pattern in patterns.items():
        for match in pattern.finditer(text):
            yield match.start(), kind, _part(match)
