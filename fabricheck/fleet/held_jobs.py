"""Jobs that keep their nodes for a while when their tests have ended: what was slow is launched again in them.

In the folder of such a job lie TESTS, as soon as it is submitted, IDLE while it waits, MORE when it is given lines of
shell to run, and CLOSED when it takes no more.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Variable of ReFrame's environment: the folder of a session whose jobs wait for relaunches.
SESSION = "FABRICHECK_SESSION"
#: Seconds that a job waits: ReFrame ends, the judge reads, and ReFrame starts again in less than a minute; twice that.
WAIT_S = 120

TESTS, BEGAN, IDLE, MORE, CLOSED = "tests.json", "job-began", "idle", "more.sh", "closed"
# How often either side looks.
_LOOK_S = 1.0

#: What the job of TESTS does at last, in its folder.
WAIT_FOR_MORE = f"""
waited=0
while [ ! -e {CLOSED} ] && [ $waited -lt {WAIT_S} ]; do
  touch {IDLE}
  sleep {_LOOK_S:.0f}
  waited=$((waited + 1))
  [ -e {MORE} ] || continue
  rm -f {IDLE}
  mv {MORE} taken.sh
  . ./taken.sh
  waited=0
done
touch {CLOSED}
"""


def keep(job: Path, tests: Iterable[str], limit_s: float) -> None:
    """Says in the folder of a `job`, which may last `limit_s`, that it waits for relaunches of its `tests`."""
    (job / TESTS).write_text(json.dumps([limit_s, *tests]))


def is_idle(job: Path) -> bool:
    """Whether a job waits now, and has nothing left to do."""
    return (job / IDLE).exists() and not (job / MORE).exists()


def hand_over(session: Path, tests: Sequence[str], lines: Sequence[str], seconds: float) -> Path | None:
    """Gives `lines`, which take so many seconds, to a job of a `session` that waits and ran all these `tests`: its
    folder; None where none takes them."""
    for job in sorted(file.parent for file in session.rglob(TESTS)):
        with contextlib.suppress(OSError, ValueError):
            limit_s, *own = json.loads((job / TESTS).read_text())
            left_s = limit_s - (time.time() - (job / BEGAN).stat().st_mtime)
            if {*tests} <= {*own} and seconds < left_s and is_idle(job) and _takes(job, lines):
                return job
    return None


def _takes(job: Path, lines: Sequence[str]) -> bool:
    unfinished = job / "unfinished.sh"
    unfinished.write_text("".join(f"{line}\n" for line in lines))
    unfinished.rename(job / MORE)
    for _ in range(int(WAIT_S / _LOOK_S)):
        if not (job / MORE).exists():
            return True
        if (job / CLOSED).exists():
            break
        time.sleep(_LOOK_S)
    try:
        (job / MORE).unlink()
    except FileNotFoundError:
        return True
    return False


def let_go(session: Path) -> None:
    """Ends the jobs of a session that wait."""
    for file in session.rglob(TESTS):
        with contextlib.suppress(OSError):
            (file.parent / CLOSED).touch()
