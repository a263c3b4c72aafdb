"""Runs a command on each good node of a fleet, all at the same time; the job of a test that measures one node calls it.

    python -m fabricheck.fleet.sweep FLEET LAUNCHER RANKS LIMIT PATIENCE [ITS OPTION]... -- COMMAND...

Each node has a step of its own, and a folder NODES/NODE below the current one. A result file that COMMAND names
(`--output=FILE`) is written to the node's own disk, and copied into that folder once it is whole. What fails is tried a
second time; what fails twice where most nodes succeed is excluded from the fleet, unless the job itself has ended. What
an earlier run has whole is taken over (fabricheck.fleet.resume). The exit status is 0 unless no node could do it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fabricheck.fleet.allocation import is_over
from fabricheck.fleet.record import TROUBLES, Fleet, did_not_start, not_run, write_findings
from fabricheck.fleet.resume import DONE, STATUS, take_nodes
from fabricheck.fleet.steps import Ended, run_steps, time_for, words_of_step
from fabricheck.records.case import NODES
from fabricheck.records.finding import Finding

_OUTPUT = "--output="
# The result is renamed in place, so that it is whole where it is there. A signal ends the program, and not this.
_ON_NODE = """\
trap : TERM
disk=$(mktemp -d "${TMPDIR:-/tmp}/fabricheck.XXXXXX") || exit 1
file=$1; shift
"$@" "--output=$disk/$file"; status=$?
if [ -s "$disk/$file" ]; then cp "$disk/$file" "$file.part" && mv "$file.part" "$file"; fi
rm -rf "$disk"; exit $status
"""


def sweep(
    fleet: Fleet, ranks: int, limits: tuple[float, float], launcher: Sequence[str], command: Sequence[str]
) -> bool:
    """Runs `command` on each node below the current folder; whether any node could do it.

    `limits`: seconds that a node has, and that it has more than its peers. `launcher`: its name and options.
    """
    output = next((word.removeprefix(_OUTPUT) for word in command if word.startswith(_OUTPUT)), None)
    if output is not None:
        rest = [word for word in command if not word.startswith(_OUTPUT)]
        command = ["sh", "-c", _ON_NODE, "fabricheck", output, *rest]

    name, *options = launcher

    def run(nodes: Sequence[str], limit: float) -> dict[str, Ended]:
        commands = {node: [*words_of_step(name, fleet.job, [node], ranks, options), *command] for node in nodes}
        folders = {node: Path(NODES) / node for node in nodes}
        for folder in folders.values():
            (folder / "node-state").mkdir(parents=True, exist_ok=True)
        words = {node: folders[node] / "said.txt" for node in nodes}

        def keep(node: str, ended: Ended) -> None:
            if output is not None:
                (folders[node] / STATUS).write_text(f"{ended.status}\n", encoding="utf-8")

        return run_steps(commands, folders, words, limit, limits[1], tell=keep)

    taken = take_nodes(fleet)
    left = [] if fleet.ended else [node for node in fleet.good if node not in taken]
    first = run(left, limits[0])
    if output is None:
        return True  # it only asks nodes, and what has no answer has no file
    done = [each.seconds for each in first.values() if each.status in DONE]
    failed = {node: each for node, each in first.items() if each.status not in DONE}
    second = run(tuple(failed), time_for(done, *limits)) if failed and not is_over(fleet) else {}
    if failed and not is_over(fleet):  # else none of them is to blame
        findings = findings_of(failed, second, len(first) + len(taken))
        write_findings(Path(TROUBLES), findings)
        fleet.exclude(findings)
    return bool(done or taken)


def findings_of(first: Mapping[str, Ended], second: Mapping[str, Ended], nodes: int) -> list[Finding]:
    """What is said of the nodes that failed, and how the second try ended; where most failed, none is to blame."""
    findings = []
    for node, ended in first.items():
        other = second[node]
        if other.status in DONE:
            findings.append(not_run(node, f"it failed once and then worked: {ended.reason}"))
        else:
            say = not_run if len(first) > nodes / 2 else did_not_start
            findings.append(say(node, f"it failed twice in a single-node test: {other.reason}"))
    return findings


def main(arguments: Sequence[str]) -> int:
    """Runs one step of the single-node tests in the job of a fleet. Returns 0 if a node has a result, else 1."""
    at = list(arguments).index("--")
    folder, launcher, ranks, limit, patience, *options = arguments[:at]
    limits = float(limit), float(patience)
    return 0 if sweep(Fleet.read(Path(folder)), int(ranks), limits, (launcher, *options), arguments[at + 1 :]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
