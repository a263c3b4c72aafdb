"""Failures of devices in kernel logs: at random, and a log that is long or may not be read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.state.events import event_rows, kernel_events
from tests.support.effort import effort
from tests.support.kernel_logs import draw_log


@pytest.mark.parametrize("seed", range(effort(100)))
def test_what_a_log_says_of_devices_is_read(seed: int, tmp_path: Path) -> None:
    log = draw_log(random.Random(seed))
    events = kernel_events(log.write(tmp_path / "kmsg")) or ()
    of_machine = {
        (event.code, event.part, event.severity, event.recovered) for event in events if event.severity != "program"
    }
    assert of_machine == log.planted, f"seed {seed}"


def test_a_long_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read gives one record; those that were overwritten meanwhile are a broken pipe."""
    records: list[bytes | OSError] = [b"6,1,10,-;usb 1-1: new device\n", BrokenPipeError()]
    records += [
        f"4,{each},{each}000000,-;NVRM: Xid (PCI:0000:18:00): 63, row\n SUBSYSTEM=pci\n".encode() for each in range(250)
    ]
    records.append(BlockingIOError())

    def read(_: int, __: int) -> bytes:
        record = records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    monkeypatch.setattr("os.lseek", lambda *_: 0)
    monkeypatch.setattr("os.read", read)
    events = kernel_events(Path("/dev/null")) or ()
    assert records == []
    assert (events[-1].number, events[-1].part, events[-1].at_s) == ("63", "0000:18:00.0", 249.0)
    assert len(events) == 200


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("cxi_core 0000:c3:00.0: cxi3[hsn3] CXI_EVENT_LINK_DOWN", "nic-flaps", "cxi3"),
        ("cxi_ss1 0000:c3:00.0: cxi3[hsn3]: CXI_EVENT_LINK_DOWN", "nic-flaps", "cxi3"),
        ("hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)", "nic-flaps", "hfi1_0"),
        ("hfi1 0000:05:00.0: hfi1_0: logical state changed to PORT_INIT (0x2)", None, ""),
        ("Memory cgroup out of memory: Killed process 4242 (fabricbench) total-vm:1kB", "out-of-memory", ""),
        ("Out of memory: Killed process 4242 (python3) total-vm:1kB", "out-of-memory", ""),
        ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!. Source:  3", "gpu-reset", "0000:c1:00.0"),
        ("amdgpu 0000:c1:00.0: GPU reset(3) failed", "gpu-reset", "0000:c1:00.0"),
    ],
)
def test_other_events(line: str, code: str | None, part: str, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"4,812,73112345,-;{line}\n")
    events = [(event.code, event.part, event.at_s) for event in kernel_events(log) or ()]
    assert events == ([(code, part, 73.112345)] if code else [])
    assert kernel_events(tmp_path / "none") is None


def test_every_row_has_an_entry_of_the_catalogue_with_steps() -> None:
    for row in event_rows():
        assert CATALOGUE[row.code].steps and row.recovery
