"""The fault matrix: what was broken, how, and what has to come of it; README.md beside it shows the last recorded one.

`python -m tests.faults.matrix RECORDS` writes that document from what the tests left in the folder RECORDS, when they
ran with FABRICHECK_FAULT_RECORDS=RECORDS. Rows of faults that were not planted in that run stay.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fabricheck.records.verdict import EXIT_CODES, Verdict
from fabricheck.suite import suite_root

DOCUMENT = suite_root() / "tests" / "faults" / "README.md"

#: What the document says of a fault that plain ReFrame passed, noticed, or that has no counterpart there.
PASSES, NOTICES, NO_COUNTERPART = "passes", "fails", "-"


@dataclass(frozen=True)
class Outcome:
    """What came of a fault. `verdict`: None where nothing was run, because of a mistake in what was given.

    `line`: what the user reads first. `reframe`: what plain ReFrame made of the same.
    """

    fault: str
    planted: str
    verdict: str | None
    exit_status: int
    line: str
    reframe: str = NO_COUNTERPART

    @property
    def row(self) -> str:
        verdict = self.verdict or "refused"
        return f"| {self.fault} | {self.planted} | {verdict} | {self.exit_status} | {self.reframe} |"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.fault, self.verdict or "refused", str(self.exit_status)


def documented() -> set[tuple[str, str, str]]:
    """Fault, verdict and exit status of each row of the document."""
    rows = [line.split(" | ") for line in _rows()]
    return {(row[0].removeprefix("| "), row[2], row[3]) for row in rows}


def _rows() -> list[str]:
    lines = DOCUMENT.read_text(encoding="utf-8").partition("|---|")[2].splitlines()
    return [line for line in lines if line.startswith("| ")]


def settle(outcome: Outcome, verdict: Verdict | None, said: str) -> None:
    """Assert that a fault came out as it has to: red, with this verdict, its exit status and these words.

    And that the document says so.
    """
    assert outcome.exit_status != 0, outcome
    assert outcome.verdict == (verdict.value if verdict else None), outcome
    assert outcome.exit_status == (EXIT_CODES[verdict] if verdict else 2), outcome
    assert said in outcome.line, outcome
    if records := os.environ.get("FABRICHECK_FAULT_RECORDS"):
        name = re.sub(r"\W+", "-", outcome.fault)
        (Path(records) / f"{name}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    else:
        assert outcome.key in documented(), f"{DOCUMENT} does not have {outcome.row}"


INTRODUCTION = """\
# Planted faults

Each row was planted and found, on systems of this repository: `local`, a suite of one check, and the emulated cluster
(Slurm nodes in network namespaces with shaped links). What breaks in nodes with GPUs (a GPU, its links, its NIC, its
driver) was planted on three systems in miniature, and has [a table of its own](../../lab/faults.md). The tests are in
tests/faults; continuous integration runs them and compares fault, verdict and exit status with this table, which
`python -m tests.faults.matrix` writes. *Plain ReFrame* is a test that a careful person would have written without this
suite: the same program and fault, the last row of its table has to be there, and its goodput is read and, on the
cluster, compared with a reference of ±10%.

Seen on idle cores only, with `NodePairs` of 2 MiB (2026-11-24): a node that loses 0.1% of the packets to it (`fault
loss nid002:hsn0 10`). By `node-state/`, 3.1% to 7.9% of its segments came after a gap in 20 runs; in the ten of them
before which less than half of the cores were busy, at most 0.2% of another node's did, and this is what is judged. On
busy cores healthy nodes have up to 13%, since the shaper drops what came too late. Not seen: 0.01% of the packets, of
which 0.3% to 1.8% of the segments came after a gap in four runs. Nor is a port at 20% of its rate for 0.15 s of each
3 s, in series of the usual 8 iterations, of which that slows one or none; with 28 (`NodePairs.budget=5`) it was in
one of three runs. More delay on a cable is planted where ranks that wait sleep: those that spin, on fewer idle cores
than ranks, wait for each other longer than for the cable.

| what is broken | how it was planted | verdict | exit status | plain ReFrame |
|---|---|---|---|---|
"""


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    outcomes = [Outcome(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob("*.json"))]
    rows = {row.partition(" | ")[0]: row for row in [*_rows(), *(each.row for each in outcomes)]}
    order = ["refused", *(each.value for each in Verdict)]
    ordered = sorted(rows.items(), key=lambda each: (-order.index(each[1].split(" | ")[2]), each[0]))
    DOCUMENT.write_text(INTRODUCTION + "".join(f"{row}\n" for _, row in ordered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
