"""Whether a history fits into the memory of this machine. Who tries is ended by the kernel, without a word."""

from __future__ import annotations

import re
from pathlib import Path

from fabricheck.errors import UserError

#: What compare, calibrate and watch take for each value of a history, in bytes, at most: of ten sessions and of
#: calibrate 940 to 1,080 (`python -m benchmarks.scale --history`, docs/results/simulated/cost.md); and for any history.
OF_A_VALUE, OF_A_PROCESS = 1200, 300_000_000

_FACTS = Path("/proc/meminfo")


def check_memory(values: int, system: str, facts: Path = _FACTS) -> None:
    """Raises UserError where a history of so many values would not fit into what memory is free by `facts`."""
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", facts.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return
    needed = OF_A_PROCESS + values * OF_A_VALUE
    if free is not None and needed > int(free[1]) * 1024:
        room = int(free[1]) * 1024
        raise UserError(
            f"the history of {system} has {values:,} values, which need about {needed / 1e9:.1f} GB of memory, and "
            f"{room / 1e9:.1f} GB are free: use a machine with more memory, or a store with fewer sessions (--store)"
        )
