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
are already down or drained, or booted since. PBS and Flux do not say when a node booted: `--same-boot` vouches that
none did since the run.

With `--after`, the verdict.json by which nodes were drained, it also prints the commands that undrain a node if every
test that failed then passes now, and if the scheduler's reason is still the one that this script printed.

A waiver is a line `NODES OWNER LAST-DAY REASON...`, the nodes as nid[001-004], the day as 2026-12-31: until the end of
that day the nodes are only reported, with the owner's name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictBool

from fabricheck.errors import UserError
from fabricheck.records.acting import Sight, Target, proofs, why_untimely
from fabricheck.records.component import Component, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from fabricheck.topology.network import unfold
from fabricheck.trust import require_trusted_by_root
from fabricheck.visible import escaped
from fabricheck.yardsticks.policy import load_policy

# A reason is one word of a command; schedulers cut long ones.
_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ASK_S = 60
#: Hours after which a verdict is old: a nightly run's is until the next.
_HOURS = 24.0
_SLOW = frozenset((Verdict.FAIL, Verdict.DEGRADED))


@dataclass(frozen=True)
class Node:
    """What a scheduler says of a node. `away`: no job starts there, for this `reason`. `booted`: when, if told."""

    name: str
    partitions: frozenset[str]
    away: bool = False
    reason: str = ""
    booted: datetime.datetime | None = None


#: Gives the nodes of a scheduler by its name. Raises UserError where it does not answer.
Ask = Callable[[str], Mapping[str, Node]]


class _Read(BaseModel):
    """A part of a verdict.json that a node is changed by: what else stands there is not read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


Text = Annotated[str, Field(min_length=1, strict=True)]


class _Session(_Read):
    id: Text
    ended: AwareDatetime
    started: AwareDatetime | None = None


class _Metric(_Read):
    name: Text
    verdict: Verdict
    reason: str
    code: str = "recorded"


class _Run(_Read):
    test: Text
    verdict: Verdict
    hosts: list[Text]
    busy: list[Text]
    problems: list[dict[str, Any]]
    metrics: list[_Metric]

    def is_of(self, host: str) -> bool:
        """Whether it ran on a host, with its domain or without."""
        return short_host(host) in map(short_host, self.hosts)

    @property
    def findings(self) -> list[Finding]:
        problems = [Finding.from_json(problem) for problem in self.problems]
        metrics = [Finding(each.code, each.verdict, f"{each.name}: {each.reason}") for each in self.metrics]
        return [*problems, *metrics]


class _BadNode(_Read):
    node: Text
    evidence: Annotated[list[dict[str, Any]], Field(min_length=1)]

    @property
    def findings(self) -> list[Finding]:
        """Its evidence; `part` names the component where an earlier version wrote no other."""
        findings = []
        for content in self.evidence:
            finding = Finding.from_json(content)
            part = str(content.get("part", ""))
            components = finding.components or ((Component.of_node(part),) if part else ())
            findings.append(replace(finding, components=components))
        return findings


class _Fleet(_Read):
    good: list[Text]
    bad: list[_BadNode]


class VerdictFile(_Read):
    """What a node may be changed by."""

    system: Text
    rehearsal: StrictBool
    session: _Session
    runs: list[_Run]
    fleet: _Fleet | None = None

    def sight_of(self, host: str) -> Sight:
        session = self.session
        return Sight(self.system, host, session.started or session.ended, session.ended)

    @property
    def proven_bad(self) -> dict[str, str]:
        """Why each host is to be drained."""
        reasons: dict[str, str] = {}
        if self.fleet is not None:
            good = {short_host(node) for node in self.fleet.good}
            for node in self.fleet.bad:
                if short_host(node.node) in good:
                    continue  # it contradicts itself
                findings = node.findings
                if findings[0].verdict in _SLOW and (proven := proofs(findings, node.node, _SLOW)):
                    reasons[node.node] = f"{proven[0].place or node.node}: {proven[0].message}"
            return reasons
        for run in self.runs:
            if run.verdict is Verdict.FAIL and len(set(run.hosts)) == 1:
                proven = proofs(run.findings, run.hosts[0], frozenset([Verdict.FAIL]))
                if proven:
                    reasons.setdefault(run.hosts[0], proven[0].message)
        return reasons

    @property
    def busy(self) -> frozenset[str]:
        """The nodes that others used while they were measured, by their short names."""
        return frozenset(short_host(host) for run in self.runs for host in run.busy)

    @property
    def mark(self) -> str:
        """What the reason begins with of each node that this verdict drains."""
        return f"fabricheck {self.session.id[:8]}: "


def passed_since(before: VerdictFile, now: VerdictFile, host: str) -> bool:
    """Whether all that spoke against a host passes now on it, and nothing else speaks against it."""
    failed = {run.test for run in before.runs if run.verdict is not Verdict.PASS and run.is_of(host)}
    # Where no run of its own failed, as where no MPI starts, all that was run then.
    wanted = failed or {run.test for run in before.runs}
    runs = [run for run in now.runs if run.is_of(host)]
    good = now.fleet is None or short_host(host) in map(short_host, now.fleet.good)
    passed = {run.test for run in runs if run.verdict is Verdict.PASS}
    return good and len(passed) > 0 and all(run.verdict is Verdict.PASS for run in runs) and wanted <= passed


def ask_scheduler(scheduler: str) -> dict[str, Node]:
    """All nodes that a scheduler has. Raises UserError where it does not answer."""
    return {"slurm": _slurm, "pbs": _pbs, "flux": _flux}[scheduler]()


def _slurm() -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    booted = _boots()
    for line in _said("sinfo", "--all", "--noheader", "--Node", "--format=%N|%R|%T|%E").splitlines():
        name, partition, state, reason = line.strip().split("|", 3)
        others = nodes[name].partitions if name in nodes else frozenset()
        away = state.startswith(("drain", "down", "fail"))
        nodes[name] = Node(name, others | {partition}, away, reason if reason != "none" else "", booted.get(name))
    return nodes


def _boots() -> dict[str, datetime.datetime]:
    """When each node of Slurm booted, in seconds since 1970 by `SLURM_TIME_FORMAT=%s`; none where that is not told."""
    try:
        lines = _said("scontrol", "show", "nodes", "--oneliner").splitlines()
    except UserError:
        return {}
    boots = {}
    for line in lines:
        name, seconds = re.match(r"NodeName=(\S+)", line), re.search(r" BootTime=(\d+)\b(?!-)", line)
        if name and seconds:
            boots[name[1]] = datetime.datetime.fromtimestamp(int(seconds[1]), datetime.timezone.utc)
    return boots


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
        variables = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=True, env=variables)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed here: run this where the scheduler's commands are") from None
    except subprocess.SubprocessError as error:
        raise UserError(f"the scheduler does not list its nodes: {error}") from None
    return done.stdout


def find(host: str, nodes: Mapping[str, Node]) -> Node | None:
    """The node of a host in `by_name`; None where there is none, it is of another domain, or the name is a list."""
    short = short_host(host)
    node = nodes.get(host, nodes.get(short)) if _NAME.fullmatch(host) else None
    return node if node is not None and (host == node.name or short in (host, node.name)) else None


def by_name(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """The scheduler's nodes by their names, and without a domain where that is the name of one alone."""
    counted = Counter(map(short_host, nodes))
    short = {short_host(name): node for name, node in nodes.items() if counted[short_host(name)] == 1}
    return {**short, **nodes}


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


def drain_reason(reason: str) -> str:
    """The reason as the scheduler is given it."""
    return " ".join(escaped(reason).split())[:_LONGEST].strip()


def command_for(scheduler: str, node: str, reason: str) -> str:
    text = drain_reason(reason)
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


def read_verdict(file: Path, system: str, clock: datetime.datetime, oldest: datetime.timedelta) -> VerdictFile:
    """The verdict of a run of this system that ended at most `oldest` ago. Raises Refused for any other file."""
    require_trusted_by_root("the verdict", file)
    try:
        verdict = VerdictFile.model_validate_json(file.read_bytes())
        _ = verdict.proven_bad  # its findings are read as strictly
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        text = " ".join(str(error).split())[:_LONGEST]
        raise Refused(f"{file}: is not a verdict.json of a run: {text}") from None
    if verdict.rehearsal:
        raise Refused(f"{file}: is of a REHEARSAL on emulated GPUs: it drains no node")
    if why := why_untimely(verdict.sight_of("all"), Target(system, "all"), clock, oldest):
        raise Refused(f"{file}: {why}")
    return verdict


@dataclass(frozen=True)
class Now:
    """The verdict of a system by which nodes are changed now, read from `file`."""

    file: Path
    verdict: VerdictFile
    system: str
    clock: datetime.datetime
    same_boot: bool = False

    def why_untimely(self, node: Node, *since: datetime.datetime) -> str:
        """Why nothing is done to a node that is as it is since these times, and since its boot."""
        if node.booted is None and not self.same_boot:
            return f"may be of an earlier boot of {node.name}, which the scheduler does not tell: see --same-boot"
        times = (*since, *([node.booted] if node.booted is not None else []))
        sight = self.verdict.sight_of(node.name)
        return why_untimely(sight, Target(self.system, node.name, times), self.clock, datetime.timedelta.max)


def to_drain(now: Now, nodes: Mapping[str, Node], waived: Mapping[str, str]) -> list[tuple[Node, str]]:
    """The nodes that are to be drained, each with the reason; tells of the others why not."""
    chosen = {}
    for host, reason in now.verdict.proven_bad.items():
        node = find(host, nodes)
        if node is None:
            _tell(f"{host!r}: unknown to the scheduler: not drained")
        elif node.name in waived:
            _tell(f"{node.name}: {waived[node.name]}: not drained")
        elif short_host(host) in now.verdict.busy:
            _tell(f"{node.name}: others used it during the measurement: measure again; not drained")
        elif node.away:
            _tell(f"{node.name}: already down or drained ({node.reason or 'without a reason'}): left as it is")
        elif why := now.why_untimely(node):
            _tell(f"{node.name}: {now.file} {why}; not drained")
        else:
            chosen[node.name] = node, now.verdict.mark + reason
    return [*chosen.values()]


def to_undrain(before: VerdictFile, now: Now, nodes: Mapping[str, Node]) -> Iterator[Node]:
    """The nodes that `before` drained and that are good now; tells of the others why not."""
    bad = {short_host(host) for host in now.verdict.proven_bad}
    for host, reason in before.proven_bad.items():
        node = find(host, nodes)
        if node is None or short_host(host) in bad:
            continue
        if why := now.why_untimely(node, before.session.ended):
            _tell(f"{host}: {now.file} {why}; not undrained")
        elif not passed_since(before, now.verdict, host):
            _tell(f"{host}: a test that failed before does not pass in {now.file}: not undrained")
        elif not node.away or node.reason != drain_reason(before.mark + reason):
            _tell(f"{host}: has another reason than this script gave ({node.reason or 'none'}): left as it is")
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
    parser.add_argument(
        "--same-boot", action="store_true", help="no node booted since the run, though the scheduler does not say so"
    )
    parser.add_argument("--hours", type=float, default=_HOURS, help="refuse an older verdict  [default: 24]")
    return parser


def main(arguments: Sequence[str], ask: Ask = ask_scheduler) -> int:
    given = options().parse_args(arguments)
    system = given.system.partition(":")[0]
    try:
        clock = datetime.datetime.now(datetime.timezone.utc)
        forever = datetime.timedelta.max
        oldest = forever if given.hours == float("inf") else datetime.timedelta(hours=given.hours)
        now = Now(given.verdict, read_verdict(given.verdict, system, clock, oldest), system, clock, given.same_boot)
        before = read_verdict(given.after, system, clock, forever) if given.after else None
        all_nodes = ask(given.scheduler)
        nodes = by_name(all_nodes)
        waived = dict(read_waivers(given.waivers, nodes, datetime.date.today())) if given.waivers else {}
        share = load_policy(suite_root() / "config" / "policy.yaml").most_drained
        chosen = to_drain(now, nodes, waived)
        good = [*to_undrain(before, now, nodes)] if before is not None else []
        if why := over_the_cap([node for node, _ in chosen], all_nodes, share, given.really):
            raise Refused(f"{given.verdict}: {why}")
    except (Refused, UserError, OSError, LookupError, TypeError, ValueError, OverflowError) as error:
        _tell(str(error))
        return 2
    if not now.verdict.proven_bad:
        _tell(f"{given.verdict}: no node is proven bad: none failed in a test on it alone, or in --nodes")
    for node, reason in chosen:
        print(command_for(given.scheduler, node.name, reason))
    for node in good:
        print(undrain_command_for(given.scheduler, node.name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
