"""Prints how to drain the nodes that a run found broken. It drains none: a person, or the site's own script, decides.

    python ci/drain.py output/latest-SYSTEM/verdict.json [--scheduler slurm|pbs|flux] [--waivers FILE] [--after EARLIER]

Of a run over many nodes (`fabricheck run --nodes`) those are named that are FAIL or DEGRADED there: with which MPI does
not start, or that are slow against all others, by themselves or at a port of theirs. Where more than half of the nodes
are, it is software or a setting, and none is named.

Of another run a node is named where a run on that node alone failed: a wrong byte, or less than the acceptance floor.
What several nodes took part in names none of them (`fabricheck pairwise locate` does), and neither does DEGRADED, nor a
run that did not measure what it should.

With `--after`, the verdict.json by which nodes were drained, it also prints how to undrain those of them that were
measured again and are good now. A node that is not in the new verdict, or is not good there, stays drained.

A waiver is a line `NODE OWNER LAST-DAY REASON...`, the day as 2026-12-31: until its end the node is only told of, with
the name of the owner.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# A reason is one word of a command; schedulers cut long ones.
_LONGEST = 200


def reasons_of(verdict: dict[str, Any]) -> dict[str, str]:
    """Why each node is to be drained, by the content of a verdict.json."""
    if "fleet" in verdict:
        fleet = verdict["fleet"]
        bad = {
            _node(each["node"]): f"{_text(each['evidence'][0]['part'])}: {_text(each['evidence'][0]['message'])}"
            for each in fleet["bad"]
            if each["verdict"] in ("FAIL", "DEGRADED")
        }
        if not isinstance(fleet["nodes"], int):  # such as NaN, which nothing is more than half of
            raise TypeError(f"nodes is {fleet['nodes']!r}")
        if 2 * len(bad) > fleet["nodes"]:
            text = f"{len(bad)} of {fleet['nodes']} nodes are bad: that is software or a setting: none is drained"
            print(text, file=sys.stderr)
            return {}
        return bad
    reasons: dict[str, str] = {}
    for run in verdict["runs"]:
        if run["verdict"] == "FAIL" and len(hosts := _hosts(run)) == 1:
            found = [*run["problems"], *({"message": f"{m['name']}: {m['reason']}", **m} for m in run["metrics"])]
            messages = [_text(each["message"]) for each in found if each["verdict"] == "FAIL"]
            reasons.setdefault(hosts[0], messages[0])
    return reasons


def good_in(verdict: dict[str, Any]) -> set[str]:
    """The nodes that were measured and have nothing said against them, by the content of a verdict.json."""
    if "fleet" in verdict:
        return {*map(_node, verdict["fleet"]["good"])}
    alone = {_hosts(run)[0] for run in verdict["runs"] if len(_hosts(run)) == 1}
    return alone - {host for run in verdict["runs"] if run["verdict"] != "PASS" for host in _hosts(run)}


def _hosts(run: dict[str, Any]) -> list[str]:
    if not isinstance(run["hosts"], list):
        raise TypeError(f"hosts is {run['hosts']!r}")
    return [*map(_node, run["hosts"])]


def _node(value: object) -> str:
    if not value:
        raise TypeError(f"{value!r} is no name of a node")
    return _text(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def undrain_command_for(scheduler: str, node: str) -> str:
    words = {
        "slurm": ["scontrol", "update", f"NodeName={node}", "State=UNDRAIN"],
        "pbs": ["pbsnodes", "-r", "-C", "", node],
        "flux": ["flux", "resource", "undrain", node],
    }
    return shlex.join(words[scheduler])


def command_for(scheduler: str, node: str, reason: str) -> str:
    text = f"fabricheck: {' '.join(reason.split())[:_LONGEST]}"
    words = {
        "slurm": ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={text}"],
        "pbs": ["pbsnodes", "-o", "-C", text, node],
        "flux": ["flux", "resource", "drain", node, text],
    }
    return shlex.join(words[scheduler])


def read_waivers(file: Path, today: datetime.date) -> Iterator[tuple[str, str]]:
    """The nodes whose waiver holds today, each with its owner and reason. ValueError for a line that is none."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split(maxsplit=3)
        if not words:
            continue
        try:
            node, owner, day, reason = words
            last = datetime.date.fromisoformat(day)
        except ValueError:
            raise ValueError(f"{file}:{number}: is not NODE OWNER LAST-DAY REASON, such as 2026-12-31") from None
        if today <= last:
            yield node, f"waived by {owner} until {last}: {reason}"
        else:
            print(
                f"{file}:{number}: the waiver of {node} ended on {last}: {owner} renews it or it goes", file=sys.stderr
            )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="drain.py", description="Print how to drain the nodes that a run found broken."
    )
    parser.add_argument("verdict", type=Path, metavar="VERDICT_JSON")
    parser.add_argument("--scheduler", choices=("slurm", "pbs", "flux"), default="slurm")
    parser.add_argument("--waivers", type=Path, metavar="FILE")
    parser.add_argument("--after", type=Path, metavar="VERDICT_JSON", help="by which nodes were drained before")
    given = parser.parse_args(arguments)
    file = given.verdict
    try:
        verdict = json.loads(file.read_text(encoding="utf-8"))
        reasons: Mapping[str, str] = reasons_of(verdict)
        good = good_in(verdict) if given.after else set()
        file = given.after or file
        drained = reasons_of(json.loads(file.read_text(encoding="utf-8"))) if given.after else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        print(f"{file}: is no verdict.json of a run: {error!r}", file=sys.stderr)
        return 2
    try:
        waived = dict(read_waivers(given.waivers, datetime.date.today())) if given.waivers else {}
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if verdict.get("rehearsal"):
        print(f"{given.verdict}: is of a REHEARSAL on emulated GPUs: no node is to be drained for it", file=sys.stderr)
        return 2
    for node, reason in reasons.items():
        if node in waived:
            print(f"{node}: {waived[node]}: not drained", file=sys.stderr)
        else:
            print(command_for(given.scheduler, node, reason))
    for node in drained:
        if node in good:
            print(undrain_command_for(given.scheduler, node))
        elif node not in reasons:
            print(f"{node}: was drained before and is not good in {given.verdict}: not undrained", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
