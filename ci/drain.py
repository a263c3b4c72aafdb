"""Prints the commands that drain the nodes that a run proves bad. You, or your script, run them.

    python ci/drain.py VERDICT_JSON --system SYSTEM [--scheduler slurm|pbs|flux] [--waivers FILE] [--after EARLIER]

After a run over many nodes (`fabricheck run --nodes`) it names the nodes that are FAIL or DEGRADED there: MPI does not
start with the node, or the node or one of its ports is slower than all others. After any other run it names a node if a
run on that node alone failed: a wrong byte, or a value below the acceptance floor. A run of several nodes names none of
them, and neither does an INVALID or INCOMPLETE run.

It prints nothing if that would drain more than a share of a partition (`most_drained` of config/policy.yaml, at least
one node), counting the nodes that an earlier verdict drained: so many bad nodes point to software or a setting.
`--really N` raises the limit to N nodes. It refuses a verdict of another system, an old one (`--hours`), and nodes that
others used during the run. It asks the scheduler, and leaves out names that the scheduler does not know and nodes that
are already down or drained.

With `--after`, the verdict.json by which nodes were drained, it also prints the commands that undrain a node if every
test that failed then passes now, and if the scheduler's reason is still the one that this script printed.

A waiver is a line `NODES OWNER LAST-DAY REASON...`, the nodes as nid[001-004], the day as 2026-12-31: until the end of
that day the nodes are only reported, with the owner's name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.judge.policy import load_policy
from fabricheck.suite import suite_root
from fabricheck.topology.network import unfold
from fabricheck.visible import escaped

# A reason is one word of a command; schedulers cut long ones.
_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ASK_S = 60
#: Hours after which a verdict is old: a nightly run's is until the next.
_HOURS = 24.0
_SLOW = ("FAIL", "DEGRADED")
_PASSING = "intermittent"


@dataclass(frozen=True)
class Node:
    """What a scheduler says of a node. `away`: no job starts there, for this `reason`."""

    name: str
    partitions: frozenset[str]
    away: bool = False
    reason: str = ""


#: Gives the nodes of a scheduler by its name. Raises UserError where it does not answer.
Ask = Callable[[str], Mapping[str, Node]]


def proven_bad(verdict: Mapping[str, Any]) -> dict[str, str]:
    """Why each host is to be drained, by the content of a verdict.json."""
    reasons: dict[str, str] = {}
    if "fleet" in verdict:
        # What came and went is to be watched; it is no proof that the node is bad now.
        for node in verdict["fleet"]["bad"]:
            worst = node["evidence"][0]
            proofs = [one for one in node["evidence"] if one["verdict"] in _SLOW and one.get("code") != _PASSING]
            if worst["verdict"] in _SLOW and proofs:
                reasons[_text(node["node"])] = f"{_text(proofs[0]['part'])}: {_text(proofs[0]['message'])}"
        return reasons
    for run in verdict["runs"]:
        if run["verdict"] == "FAIL" and len(hosts := _hosts(run)) == 1:
            problems = [*run["problems"], *({"message": f"{m['name']}: {m['reason']}", **m} for m in run["metrics"])]
            messages = [_text(each["message"]) for each in problems if each["verdict"] == "FAIL"]
            reasons.setdefault(hosts[0], messages[0])
    return reasons


def passed_since(before: Mapping[str, Any], now: Mapping[str, Any], host: str) -> bool:
    """Whether all that spoke against a host passes now on it, and nothing else speaks against it."""
    failed = {_text(run["test"]) for run in before["runs"] if run["verdict"] != "PASS" and host in _hosts(run)}
    # Where no run of its own failed, as where no MPI starts, all that was run then.
    wanted = failed or {_text(run["test"]) for run in before["runs"]}
    runs = [run for run in now["runs"] if host in _hosts(run)]
    good = "fleet" not in now or host in now["fleet"]["good"]
    passed = {_text(run["test"]) for run in runs if run["verdict"] == "PASS"}
    return good and all(run["verdict"] == "PASS" for run in runs) and bool(wanted) and wanted <= passed


def busy_in(verdict: Mapping[str, Any]) -> set[str]:
    """The nodes that others used while they were measured, by their short names."""
    return {_text(host).partition(".")[0] for run in verdict["runs"] for host in _list(run.get("busy", []))}


def mark_of(verdict: Mapping[str, Any]) -> str:
    """What the reason begins with of each node that this verdict drains."""
    return f"fabricheck {_text(verdict['session']['id'])[:8]}: "


def why_refused(verdict: Mapping[str, Any], system: str, hours: float, now: datetime.datetime) -> str:
    """Why nothing may be done by a verdict; empty where it may."""
    if verdict.get("rehearsal"):
        return "is of a REHEARSAL on emulated GPUs: it drains no node"
    if verdict["system"] != system:
        return f"is of {verdict['system']} instead of {system}: give the verdict of this system"
    ended = datetime.datetime.fromisoformat(_text(verdict["session"]["ended"]))
    age = (now - ended) / datetime.timedelta(hours=1)
    if not -1 <= age <= hours:
        return f"was measured {age:,.1f} hours ago: measure again, or raise the limit of {hours:g} hours with --hours"
    return ""


def _hosts(run: Mapping[str, Any]) -> list[str]:
    return [*map(_text, _list(run["hosts"]))]


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is not text")
    return value


def ask_scheduler(scheduler: str) -> dict[str, Node]:
    """All nodes that a scheduler has. Raises UserError where it does not answer."""
    return {"slurm": _slurm, "pbs": _pbs, "flux": _flux}[scheduler]()


def _slurm() -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for line in _said("sinfo", "--all", "--noheader", "--Node", "--format=%N|%R|%T|%E").splitlines():
        name, partition, state, reason = line.strip().split("|", 3)
        others = nodes[name].partitions if name in nodes else frozenset()
        away = state.startswith(("drain", "down", "fail"))
        nodes[name] = Node(name, others | {partition}, away, reason if reason != "none" else "")
    return nodes


def _pbs() -> dict[str, Node]:
    nodes = json.loads(_said("pbsnodes", "-a", "-F", "json"))["nodes"]
    return {
        name: Node(
            name,
            frozenset([str(each.get("queue", ""))]),
            bool({"offline", "down"} & set(str(each.get("state", "")).split(","))),
            str(each.get("comment", "")),
        )
        for name, each in nodes.items()
    }


def _flux() -> dict[str, Node]:
    fleet_nodes = {}
    for line in _said("flux", "resource", "status", "--states=all", "-n", "-o", "{state}|{nodelist}|{reason}").split(
        "\n"
    ):
        state, nodes, reason = (*line.strip().split("|", 2), "", "")[:3]
        for name in unfold(nodes) if nodes else ():
            fleet_nodes[name] = Node(name, frozenset([""]), not state.startswith("avail"), reason)
    return fleet_nodes


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=True)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed here: run this where the scheduler's commands are") from None
    except subprocess.SubprocessError as error:
        raise UserError(f"the scheduler does not list its nodes: {error}") from None
    return done.stdout


def find(host: str, nodes: Mapping[str, Node]) -> Node | None:
    """The scheduler's node of a host, whose name may have a domain; None where it has none, or the name is a list."""
    names = (host, host.partition(".")[0]) if _NAME.fullmatch(host) else ()
    return next((nodes[name] for name in names if name in nodes), None)


def over_the_cap(chosen: Sequence[Node], nodes: Mapping[str, Node], share: float, really: int) -> str:
    """Why so many nodes are not drained; empty where they may be. Those count that a verdict drained before."""
    names = {each.name for each in chosen}
    for partition in sorted({one for each in chosen for one in each.partitions}):
        members = [each for each in nodes.values() if partition in each.partitions]
        ours = sum(each.name in names or (each.away and each.reason.startswith("fabricheck")) for each in members)
        most = max(1, int(share * len(members)), really)
        if ours > most:
            return (
                f"{ours:,} of the {len(members):,} nodes of {partition or 'the system'} would be drained, and {most:,} "
                f"are allowed: suspect software or a setting; no commands are printed (--really {ours} prints them)"
            )
    return ""


def undrain_command_for(scheduler: str, node: str) -> str:
    words = {
        "slurm": ["scontrol", "update", f"NodeName={node}", "State=UNDRAIN"],
        "pbs": ["pbsnodes", "-r", "-C", "", node],
        "flux": ["flux", "resource", "undrain", node],
    }
    return shlex.join(words[scheduler])


def command_for(scheduler: str, node: str, reason: str) -> str:
    text = " ".join(escaped(reason).split())[:_LONGEST]
    words = {
        "slurm": ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={text}"],
        "pbs": ["pbsnodes", "-o", "-C", text, node],
        "flux": ["flux", "resource", "drain", node, text],
    }
    return shlex.join(words[scheduler])


def read_waivers(file: Path, nodes: Mapping[str, Node], today: datetime.date) -> Iterator[tuple[str, str]]:
    """The nodes whose waiver holds today, each with its owner and reason. ValueError for a line that is none."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split(maxsplit=3)
        if not words:
            continue
        where = f"{file}:{number}"
        try:
            hosts, owner, day, reason = words
            names = unfold(hosts)
            last = datetime.date.fromisoformat(day)
        except (ValueError, UserError):
            raise ValueError(f"{where}: is not NODES OWNER LAST-DAY REASON, such as 2026-12-31") from None
        if today > last:
            _tell(f"{where}: the waiver of {hosts} ended on {last}: renew it ({owner}) or remove it")
            continue
        for name in names:
            node = find(name, nodes)
            if node is None:
                _tell(f"{where}: the scheduler has no node {name}: this waiver has no effect")
                continue
            yield node.name, f"waived by {owner} until {last}: {reason}"


def _tell(text: str) -> None:
    print(escaped(text), file=sys.stderr)


class Refused(Exception):
    """Why nothing is done, in one line."""


@dataclass(frozen=True)
class Said:
    """What a verdict.json says of this system. Raises Refused for another file, and for one that nothing is done by."""

    file: Path
    verdict: Mapping[str, Any]
    bad: Mapping[str, str]
    busy: frozenset[str]
    mark: str

    @classmethod
    def read(cls, file: Path, system: str, hours: float) -> Said:
        try:
            verdict = json.loads(file.read_text(encoding="utf-8"))
            refused = why_refused(verdict, system, hours, datetime.datetime.now(datetime.timezone.utc))
            said = cls(file, verdict, proven_bad(verdict), frozenset(busy_in(verdict)), mark_of(verdict))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(f"{file}: is not a verdict.json of a run: {error!r}") from None
        if refused:
            raise Refused(f"{file}: {refused}")
        return said


def to_drain(said: Said, nodes: Mapping[str, Node], waived: Mapping[str, str]) -> list[tuple[Node, str]]:
    """The nodes that are to be drained, each with the reason; tells of the others why not."""
    chosen = {}
    for host, reason in said.bad.items():
        node = find(host, nodes)
        if node is None:
            _tell(f"{host!r}: unknown to the scheduler: not drained")
        elif node.name in waived:
            _tell(f"{node.name}: {waived[node.name]}: not drained")
        elif host.partition(".")[0] in said.busy:
            _tell(f"{node.name}: others used it during the measurement: measure again; not drained")
        elif node.away:
            _tell(f"{node.name}: already down or drained ({node.reason or 'without a reason'}): left as it is")
        else:
            chosen[node.name] = node, said.mark + reason
    return [*chosen.values()]


def to_undrain(before: Said, now: Said, nodes: Mapping[str, Node]) -> Iterator[Node]:
    """The nodes that `before` drained and that are good now; tells of the others why not."""
    for host in before.bad:
        node = find(host, nodes)
        if node is None or host in now.bad:
            continue
        if not passed_since(before.verdict, now.verdict, host):
            _tell(f"{host}: a test that failed before does not pass in {now.file}: not undrained")
        elif not (node.away and node.reason.startswith(before.mark)):
            _tell(f"{host}: is not drained by {before.file} ({node.reason or 'no reason'}): left as it is")
        else:
            yield node


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drain.py",
        description="Print the commands that drain the bad nodes of a run.",
        epilog="When: after a run with a bad node, and with --after once it was repaired. Example: "
        "python ci/drain.py output/runs/alps-20261122T020000Z/verdict.json --system alps",
    )
    parser.add_argument("verdict", type=Path, metavar="VERDICT_JSON")
    parser.add_argument("--system", required=True, help="the system of the verdict, as `fabricheck run --system`")
    parser.add_argument("--scheduler", choices=("slurm", "pbs", "flux"), default="slurm", help="[default: slurm]")
    parser.add_argument("--waivers", type=Path, metavar="FILE", help="nodes that are not drained, by whom, until when")
    parser.add_argument(
        "--after",
        type=Path,
        metavar="VERDICT_JSON",
        help="an earlier verdict: undrain its nodes that pass now",
    )
    parser.add_argument(
        "--really", type=int, default=0, metavar="N", help="print commands for N nodes of a partition at most"
    )
    parser.add_argument("--hours", type=float, default=_HOURS, help="refuse an older verdict  [default: 24]")
    return parser


def main(arguments: Sequence[str], ask: Ask = ask_scheduler) -> int:
    given = options().parse_args(arguments)
    system = given.system.partition(":")[0]
    try:
        said = Said.read(given.verdict, system, given.hours)
        before = Said.read(given.after, system, float("inf")) if given.after else None
        nodes = ask(given.scheduler)
        waived = dict(read_waivers(given.waivers, nodes, datetime.date.today())) if given.waivers else {}
        share = load_policy(suite_root() / "config" / "policy.yaml").most_drained
        chosen = to_drain(said, nodes, waived)
        good = [*to_undrain(before, said, nodes)] if before is not None else []
        if why := over_the_cap([node for node, _ in chosen], nodes, share, given.really):
            raise Refused(f"{given.verdict}: {why}")
    except (Refused, UserError, OSError, LookupError, TypeError, ValueError) as error:
        _tell(str(error))
        return 2
    if not said.bad:
        _tell(f"{given.verdict}: no node is proven bad: none failed in a test on it alone, or in --nodes")
    for node, reason in chosen:
        print(command_for(given.scheduler, node.name, reason))
    for node in good:
        print(undrain_command_for(given.scheduler, node.name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
