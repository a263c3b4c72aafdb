"""A link of a real cluster loses 5% of its rate: compare and watch find it and name it. Needs root.

It loses more where other work on this machine makes sessions so noisy that `compare` cannot say whether 5% are lost.

Each session is a run of the suite, with Slurm and MPI, on network namespaces whose links are shaped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck.history.folders import scan
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.matrix, pytest.mark.timeout(900)]

LINK = "nid002:hsn0"
PERCENT, PERCENT_IN_NOISE = 5, 25
# All that crosses the node crosses this one of its ports.
NAMED = f"{LINK} or nid002"
# Six of the twelve pairs of four nodes have the node of the link at one end.
PAIRS, CROSSING = 12, 6
# What watch needs before it can raise an alert: its shortest warm-up, and the lag.
WARM_UP, LAG = 8, 5
HEALTHY_SESSIONS, FEWEST_SLOW, MOST_SLOW = 5, 3, 8
CANNOT_SAY = 4


# Exit status and output.
Answer = tuple[int, str]


@dataclass(frozen=True)
class Nightly:
    site: Site
    store: Path

    def measure(self, firmware: int) -> None:
        """A session. The verdict may be red, for a run is judged by itself too; that it was stored is what counts."""
        before = self.sessions
        done = self.site.run("one-leaf", "--", f"--session-extras=firmware={firmware}")
        assert self.sessions == before + 1, done.output

    def measure_until(self, firmware: int, is_found: Callable[[], bool]) -> None:
        """Sessions until what is slow is found, or as many as it may take: a busy machine is noisy and needs more."""
        for session in range(1, MOST_SLOW + 1):
            self.measure(firmware)
            if session >= FEWEST_SLOW and is_found():
                break

    @property
    def sessions(self) -> int:
        return len(scan(self.store / "emulated").entries) if self.store.exists() else 0

    def ask(self, *words: str) -> Answer:
        command = [sys.executable, "-m", "fabricheck", *words, f"--store={self.store}"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "FABRICHECK_SUITE": str(self.site.root)},
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    def compare(self, base: int, candidate: int) -> Answer:
        return self.ask("compare", f"software:firmware={base}", f"software:firmware={candidate}", "--system=emulated")

    def watch(self) -> Answer:
        return self.ask("watch", "--system", "emulated", f"--warm-up={WARM_UP}")


@pytest.fixture
def nightly(cluster: Cluster, programs: Path, tmp_path: Path) -> Iterator[Nightly]:
    (tmp_path / "suite").mkdir()
    store = tmp_path / "store"
    yield Nightly(Site(cluster, tmp_path / "suite", programs, store, size="512KiB", asks_nodes=False), store)
    faults.clear(cluster)


def test_a_link_that_becomes_slower_is_found_and_named_and_a_healthy_one_is_not(nightly: Nightly) -> None:
    for _ in range(WARM_UP + LAG + 1 - HEALTHY_SESSIONS):
        nightly.measure(1)
    # The same commands to the shaper as of a fault, and 0% of the rate is lost.
    faults.slow(nightly.site.cluster, LINK, PERCENT)
    faults.clear(nightly.site.cluster)
    for _ in range(HEALTHY_SESSIONS):
        nightly.measure(2)
    compared, said = nightly.compare(1, 2)
    assert compared in (0, CANNOT_SAY), said
    assert f"{PAIRS} metrics: 0 regressed, " in said
    status, said = nightly.watch()
    assert status == 0, said
    assert f"{PAIRS} metrics: {PAIRS} watched" in said

    faults.slow(nightly.site.cluster, LINK, PERCENT if compared == 0 else PERCENT_IN_NOISE)
    # The first session of an alert may have the metric of one pair only, which either of its nodes explains.
    all_crossing = f"suspect: {NAMED}: {CROSSING} of {CROSSING} metrics"
    nightly.measure_until(3, lambda: f": {NAMED}: " in nightly.watch()[1] and all_crossing in nightly.compare(2, 3)[1])
    status, said = nightly.watch()
    assert status == 1, said
    (incident,) = [line for line in said.splitlines() if line.startswith(("NEW: ", "OPEN: "))]
    assert f": {NAMED}: " in incident
    assert "changed then: firmware: 2 -> 3" in said
    status, said = nightly.compare(2, 3)
    assert status == 1, said
    (suspect,) = [line for line in said.splitlines() if "suspect: " in line]
    assert all_crossing in suspect
    assert "changed: firmware: 2 -> 3" in said
