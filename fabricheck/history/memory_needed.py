"""Whether a history fits into the memory of this machine. Who tries is ended by the kernel, without a word."""

from __future__ import annotations

import re
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.constants import YEAR

#: What compare, calibrate and watch took for each value of a history, in bytes, at most (`python -m benchmarks.scale
#: --history`, docs/results/simulated); for eight sessions of few values; and for each two sessions of a year: more than
#: the 0.37 GB of 100 metrics in `compare`. Calibrate had 76 matrices of them, in four copies, and has none now.
OF_A_VALUE, OF_A_PROCESS, OF_TWO_SESSIONS = 1900, 220_000_000, 76 * 8 * 4

_FACTS = Path("/proc/meminfo")


def check_memory(sessions: int, values: int, system: str, facts: Path = _FACTS) -> None:
    """Raises UserError where a history of so many sessions and values would not fit into what memory is free by
    `facts`."""
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", facts.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return
    needed = OF_A_PROCESS + min(sessions, YEAR) ** 2 * OF_TWO_SESSIONS + values * OF_A_VALUE
    if free is not None and needed > int(free[1]) * 1024:
        room = int(free[1]) * 1024
        raise UserError(
            f"the history of {system} has {values:,} values, which need about {needed / 1e9:.1f} GB of memory, and "
            f"{room / 1e9:.1f} GB are free: use a machine with more memory, or a store with fewer sessions (--store)"
        )
