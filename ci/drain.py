"""Prints how to drain the nodes that a run found broken. It drains none: a person, or the site's own script, decides.

    python ci/drain.py output/latest-SYSTEM/verdict.json

A node is named where a run on that node alone failed: a wrong byte, or less than the acceptance floor. What several
nodes took part in names none of them (`fabricheck pairwise locate` does), and neither does DEGRADED, nor a run that did
not measure what it should.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def drain_commands(verdict: dict[str, Any]) -> Iterable[str]:
    """`scontrol` commands for the content of a verdict.json, one for each node."""
    reasons: dict[str, str] = {}
    for run in verdict["runs"]:
        if run["verdict"] == "FAIL" and len(run["hosts"]) == 1:
            found = [*run["problems"], *({"message": f"{m['name']}: {m['reason']}", **m} for m in run["metrics"])]
            reason = next(each["message"] for each in found if each["verdict"] == "FAIL")
            reasons.setdefault(run["hosts"][0], reason)
    for node, reason in reasons.items():
        words = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason=fabricheck: {reason[:200]}"]
        yield shlex.join(words)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python ci/drain.py VERDICT_JSON", file=sys.stderr)
        return 2
    try:
        verdict = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        commands = list(drain_commands(verdict))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{arguments[0]}: is no verdict.json of a run: {error!r}", file=sys.stderr)
        return 2
    if verdict.get("rehearsal"):
        print(f"{arguments[0]}: is of a REHEARSAL on emulated GPUs: no node is to be drained for it", file=sys.stderr)
        return 2
    for command in commands:
        print(command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
