"""What benchmarks/side_by_side.py reads of its peers, and what it asks them for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.side_by_side import Table, Values, in_turn, nvbandwidth, ze_peer
from fabricheck.errors import UserError
from fabricheck.records.run import Groups
from fabricheck.topology.transfers import steps_of

# nvbandwidth 0.8 on four H200, 2026-11-21; of two GPUs.
READ = """
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    394.09
 1    393.93       N/A

SUM device_to_device_memcpy_read_ce 788.02
"""


# As the sources of level-zero-tests print them (print_results_header, print_results; commit 4e77806).
LINE = 80 * "-" + "\n"
WRITE = "".join(
    f"{LINE}Bandwidth Write : Device( {a} )->Device( {b} )\nBW [GBPS]:  256 MB: {rate:8.2f}\n\n{LINE}"
    for a, b, rate in ((0, 1, 158.52), (1, 0, 157.1), (0, 11, 18.88))
)


def rates(
    tmp_path: Path, text: str, read: Callable[[Table, argparse.Namespace, str, int], Values] = nvbandwidth
) -> dict[tuple[object, ...], float]:
    """What is read where the peer, here a stub, prints `text`."""
    (tmp_path / "output").write_text(text)
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nprint(open({str(tmp_path / 'output')!r}).read())\n")
    program.chmod(0o755)
    return read(Table(), argparse.Namespace(ranks=1, **{read.__name__: str(program)}), "a_test", 512 << 20)


def test_the_arrow_says_who_sends(tmp_path: Path) -> None:
    assert rates(tmp_path, READ) == {(0, 1): 394.09, (1, 0): 393.93}
    assert rates(tmp_path, READ.replace("->", "<-")) == {(1, 0): 394.09, (0, 1): 393.93}


def test_a_test_that_was_waived_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="printed no table for a_test"):
        rates(tmp_path, "Running a_test.\nWaived.\n")


def test_ze_peer_writes_to_and_reads_from_the_other(tmp_path: Path) -> None:
    assert rates(tmp_path, WRITE, ze_peer) == {(0, 1): 158.52, (1, 0): 157.1, (0, 11): 18.88}
    read = WRITE.replace("Write", "Read").replace("->", "<-")
    assert rates(tmp_path, read, ze_peer) == {(1, 0): 158.52, (0, 1): 157.1, (11, 0): 18.88}
    with pytest.raises(UserError, match="ze_peer printed no rate for a_test"):
        rates(tmp_path, "ERROR: More than 1 device needed\n", ze_peer)


def test_messages_of_a_group_begin_with_different_receivers() -> None:
    groups = Groups(2, 2, 2)
    (step,) = steps_of("symmetric_bidirectional", ranks=4, bytes=1024, groups=groups)
    found = [(each.source, each.destination) for each in in_turn(step, groups)]
    assert found == [(0, 2), (0, 3), (1, 3), (1, 2), (2, 0), (2, 1), (3, 1), (3, 0)]
