"""Versions, load and the kernel's log: this machine's own, and a log as the kernel writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.records.node_state import Xid
from fabricheck.state import kernel


def test_this_machine() -> None:
    total, free = kernel.memory()
    assert 0 < free <= total
    assert kernel.versions()["kernel"]
    assert set(kernel.settings()) <= {"governor", "transparent huge pages"}


def test_the_load_of_others_is_seen_and_named() -> None:
    """A process beside this one has a core for itself, or its share of one."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        busy, names = kernel.load(1.0)
    finally:
        spin.kill()
        spin.wait()
    assert busy > 0.05
    assert any(each.startswith("python") for each in names)


def test_errors_of_gpus_in_the_kernels_log(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    said = "NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log.write_text(f"4,812,73112345,-;{said}\n")
    (found,) = kernel.xids(log) or ()
    assert (found.number, found.bus_id, found.at_s) == (79, "0000:18:00", 73.112345)
    assert found.text.endswith("GPU has fallen off the bus.")
    assert kernel.xids(tmp_path / "none") is None


def test_a_long_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read gives one record; those that were overwritten meanwhile are a broken pipe."""
    records: list[bytes | OSError] = [b"6,1,10,-;usb 1-1: new device\n", BrokenPipeError()]
    records += [f"4,{each},{each},-;NVRM: Xid (PCI:0000:18:00): 63, row\n".encode() for each in range(150)]
    records.append(BlockingIOError())

    def read(_: int, __: int) -> bytes:
        record = records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    monkeypatch.setattr("os.read", read)
    found = kernel.xids(Path("/dev/null")) or ()
    assert records == []
    assert found[-1] == Xid(63, "0000:18:00", 149 / 1e6, "row")
    assert len(found) == 100
