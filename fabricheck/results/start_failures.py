"""Which node kept a job from starting, by what scheduler, launcher, PMIx, MPI and *CCL print.

A node is named where it is accused by name of something that happened on it, where it alone ended by itself, or where
all connections that failed have it in common. That it was killed with others, or complains of another, names none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from fabricheck.records.component import Component, short_host
from fabricheck.records.finding import Finding
from fabricheck.records.run import list_ranks
from fabricheck.records.verdict import Verdict

# What srun (-l), Open MPI (--tag-output), Hydra (-prepend-rank) and logs put before each line.
_PREFIX = re.compile(r"^[ \t]*(?:(?:\[\d+(?:,\d+)?\](?:<\w+>:?)?|\d+:|<\w+>:|std(?:err|out):)\s*)+", re.MULTILINE)
_NAME = r"(?P<node>[\w.-]+(?:\[[\d,-]+\])?)"

#: What happened on a node that is named, the surest first. Slurm 17 to 25, ORTE, PRRTE, PMIx 3 to 5, Hydra, PALS, PBS.
_ACCUSED = tuple(
    re.compile(pattern.replace("NODE", _NAME))
    for pattern in (
        r"srun: error: Node failure on NODE",
        r"Task launch for \S+ failed on node NODE",
        r"(?:ReqNodeNotAvail, )?UnavailableNodes:NODE",
        r"fwd_tree_thread: can't find address for host NODE",
        r"mpi/pmix\S*: \w+: NODE \[\d+\]: [\w.]+:\d+: .*(?:rror|annot|failed|denied)",
        r"slurmstepd-NODE: error: (?!\*\*\*|Detected)",
        r"slurmstepd: error: NODE \[\d+\] \S+ \[\w+\] mpi/pmix: ERROR",
        r"\[NODE:\d+\].*(?:PMIX|OPAL|PRTE|ORTE)[_ ]ERROR(?!.*(?:UNREACH|LOST|TIMEOUT|Unreachable))",
        r"Remote daemon: .* on node NODE",
        r"ssh: connect to host NODE port",
        r"ssh: Could not resolve hostname NODE:",
        r"NODE: (?:Permission denied|Host key verification failed)",
        r"\[proxy:\S*@NODE\] .*(?:execvp error|unable to change wdir|chdir|launch_procs .*error)",
        r"(?:mpiexec|palsd?): .*(?:launch|exec)\S* failed on (?:node )?NODE",
        r"pbs_mom.*: node \d+ \(NODE\) requested job (?:terminate|die)",
        r"slurm_receive_msgs: \[\[NODE\]:\d+\] failed",
        r"NODE \(ranks? [\d, -]+\) did not report",
        r"\[NODE:\d+:\d+\] .*UCX +WARN +network device .* is not available",
        r"NODE:\d+:\d+ \[\d+\] .*NCCL WARN .*no socket interface found",
        # Blocks of Open MPI's help texts.
        r"(?s:(?:unable to create the|could not access|not find an|unable to launch|unable to start"
        r"|invalid value was given)"
        r"(?:(?!-{20}).){0,600}?\n\s*(?:Node|Local host|Host(?:name)?):\s+NODE)",
    )
)
#: What happened on a node that is not named here.
_UNNAMED = re.compile(r"slurmstepd: error: (?:execve\(\)|couldn't chdir|Unable to create|.*[Cc]annot).*")
_EXITED = re.compile(rf"srun: error: {_NAME}: tasks? \S+: Exited with exit code")
#: One end of a connection, and the other by name or address.
_CONNECTIONS = (
    re.compile(
        r"(?s:unable to complete a TCP connection(?:(?!-{20}).){0,200}?"
        r"Local host:\s+(?P<near>\S+)\s+Remote host:\s+(?P<far>\S+))"
    ),
    re.compile(
        r"(?s:failed to TCP connect(?:(?!-{20}).){0,300}?Local host:\s+(?P<near>\S+)"
        r"(?:(?!-{20}).){0,200}?connect\(\) to (?P<far>[\da-f.:]+):\d+ failed)"
    ),
    re.compile(
        r"(?s:IP address that is\s+unexpected(?:(?!-{20}).){0,400}?Local host:\s+(?P<near>\S+)"
        r"(?:(?!-{20}).){0,200}?Peer hostname:\s+(?P<far>\S+))"
    ),
    re.compile(r"\[(?P<near>[\w.-]+)\]\[.*connect\(\) to (?P<far>[\da-f.:]+?)(?::\d+)? failed"),
    re.compile(r"\S* from (?P<near>[\w.-]+) to: \S+ Unable to connect to the peer (?P<far>[\da-f.:]+) on port"),
    re.compile(
        r"(?s:to route a message to the (?:(?!-{20}).){0,200}?my node:\s+(?P<near>\S+)\s+target node:\s+(?P<far>\S+))"
    ),
    re.compile(
        r"(?s:unable to reach each other(?:(?!-{20}).){0,700}?on host: (?P<near>\S+)\s+Process 2[^\n]*: (?P<far>\S+))"
    ),
    re.compile(r"(?P<near>[\w.-]+):\d+:\d+ \[\d+\].*[Cc]onnect to (?P<far>[\w.-]+)<\d+> (?:failed|returned)"),
    re.compile(r'unable to connect from "(?P<near>[^"]+)" to "(?P<far>[^"]+)"'),
)
#: After these MPI waits for ever, or ends.
ENDLESS = re.compile(
    r"failed to TCP connect|IP address that is\s+unexpected|received unexpected process identifier"
    r"|unable to reach each other|[Cc]onnect.*: ?(?:Network is unreachable|No route to host)"
)
#: What one rank of each node prints where the others do not come, at the start or later.
_WAITED = re.compile(
    rf"fabricbench: (?:{_NAME}: (?:MPI did not start|the ranks did not meet)"
    r"|no progress for .*?: (?:all ranks of the node of )?ranks? (?P<rank>\d+))"
)
#: That some tasks were not launched, and the node of those that were, which end.
_NOT_LAUNCHED = re.compile(r"srun: error: task \d+ launch failed")
_LAUNCHED = re.compile(rf"srun: error: {_NAME}: tasks? \d")
#: The own address of a node, which *CCL prints.
_ADDRESS = re.compile(r"(?P<node>[\w.-]+):\d+:\d+ \[\d+\] NCCL INFO .*?Using .*?:(?P<address>\d+\.\d+\.\d+\.\d+)<")
#: Ranks that ended by a signal. Who ends the others sends SIGTERM, and after a failed launch SIGKILL.
_SIGNALS = (
    re.compile(rf"process rank (?P<rank>\d+) with PID .* on node {_NAME} exited on signal"),
    re.compile(rf"srun: error: {_NAME}: tasks? (?P<rank>\d+)\S*: (?!Exited|Terminated|Killed)"),
    re.compile(rf"srun: error: {_NAME}: tasks? (?P<rank>\d+)\S*: Killed"),
    re.compile(rf"srun: error: {_NAME}: tasks? (?P<rank>\d+)\S*: Terminated"),
)
_NONE_KNOWN: Mapping[str, Any] = {}
_OTHERS_ENDED = re.compile(r"Terminating StepId|\*\*\* STEP .* CANCELLED|Job step aborted|launch failed")


def start_failures(
    text: str,
    nodes: Collection[str] = (),
    job_nodes: int = 0,
    ranks: Mapping[str, str] = _NONE_KNOWN,
    nics: Mapping[str, Component] = _NONE_KNOWN,
) -> tuple[Finding, ...]:
    """What `text` tells of why a job did not start or come to its end, a finding for each node; none for other text.

    `nodes`: names of nodes, to which the `job_nodes` of the job belong (0: all); without any, every name is one.
    `ranks`: the node of each rank, where that is known: a launcher may know a node by its address alone. `nics`: by
    IPv4 address.
    """
    text = _PREFIX.sub("", text)
    known = {short_host(node) for node in nodes}
    addresses = {address: nic.node for address, nic in nics.items()}
    addresses |= {match["address"]: match["node"] for match in _ADDRESS.finditer(text)}

    def node_of(name: str) -> str:
        name = addresses.get(name, name)
        short = name if re.fullmatch(r"[\d.]+|.*:.*", name) else short_host(name)
        return short if short in known or (not known and re.match(r"[A-Za-z]", short)) else ""

    # Later lines may come from ranks that the launcher ended.
    before = _before_the_end(text)
    accused = _accused(before, node_of)
    silent = [*_silent(text, known if job_nodes in (0, len(known)) else (), node_of, ranks)]
    if not accused and not silent:
        accused = _accused(text, node_of)
    if accused and (len(accused) == 1 or len(accused) <= (job_nodes or len(known)) / 2):
        return tuple(_of_node(node, line) for node, line in accused.items())
    if accused:
        return (Finding("start-failed", Verdict.INCOMPLETE, next(iter(accused.values()))),)
    told = (*_unconnected(before, node_of, nics), *_ended(text, node_of, ranks))
    return (*told[:1], *silent)


def _accused(text: str, node_of: Callable[[str], str]) -> dict[str, str]:
    """The nodes on which something failed, each with the line that says so; those of the surest pattern alone."""
    for pattern in _ACCUSED:
        lines = {
            node: _line(match)
            for match in pattern.finditer(text)
            for node in map(node_of, _unfolded(match["node"]))
            if node
        }
        if lines:
            return lines
    exited = list(dict.fromkeys(node_of(match["node"]) for match in _EXITED.finditer(_before_the_end(text))))
    local = _UNNAMED.search(text)
    return {exited[0]: _line(local)} if local and len(exited) == 1 and exited[0] else {}


def _unfolded(names: str) -> list[str]:
    try:
        return list(NodeSet(names))
    except NodeSetParseError:
        return []


def _silent(
    text: str, known: Collection[str], node_of: Callable[[str], str], ranks: Mapping[str, str]
) -> Iterator[Finding]:
    """The nodes that did not report, where most of the `known` ones did: all their ranks hang, were killed or were not
    launched, or they are down. None where rank 0 went on, which waits for all: the launcher may have ended them before
    they could."""
    waited = {node_of(match["node"] or ranks.get(match["rank"], "")) for match in _WAITED.finditer(text)}
    if _NOT_LAUNCHED.search(text):
        waited.update(node_of(match["node"]) for match in _LAUNCHED.finditer(text))
    silent, first = sorted({*known} - waited), node_of(ranks.get("0", ""))
    is_over = first and first not in waited and silent != [first]
    for node in silent if len(silent) < len(waited - {""}) and not is_over else ():
        own = list_ranks(int(rank) for rank, host in ranks.items() if node_of(host) == node)
        who = f"{node} (rank {own})" if own else node
        text = f"{who} did not report, and the others did: hung, killed, down or not able to start ranks"
        yield Finding("node-did-not-report", Verdict.INCOMPLETE, text, (Component.of_node(node),))


def _unconnected(text: str, node_of: Callable[[str], str], nics: Mapping[str, Component]) -> Iterator[Finding]:
    """The node that all connections that failed have in common, else what lies between the ends of one."""
    failed = {}
    for pattern in _CONNECTIONS:
        for match in pattern.finditer(text):
            failed[node_of(match["near"]), node_of(match["far"]) or match["far"]] = match
    if not failed:
        return
    pairs = {frozenset(ends) for ends in failed}
    common = frozenset.intersection(*pairs)
    (near, far), match = next(iter(failed.items()))
    shared = node_of(next(iter(common))) if len(common) == 1 and len(pairs) > 1 else ""
    if shared:
        yield _of_node(shared, _line(match))
    elif len(pairs) == 1 and near != far and node_of(near) and node_of(far):
        nic = nics.get(match["far"])
        # Over which of its own ports the near end connects, nobody prints.
        first, second = sorted((Component.of_node(near), nic or Component.of_node(far)), key=lambda end: end.node)
        text = f"{near} has no route to {nic}: {_line(match)}" if nic else _line(match)
        yield Finding("no-connection", Verdict.INCOMPLETE, text, (Component.between(first, second),))
    else:
        yield Finding("no-connection", Verdict.INCOMPLETE, _line(match))


def _ended(text: str, node_of: Callable[[str], str], ranks: Mapping[str, str]) -> Iterator[Finding]:
    """The node of the rank that ended first; that one ended first does not prove that its node is at fault."""
    for pattern in _SIGNALS:
        is_last = pattern is _SIGNALS[-1]
        matches = list(pattern.finditer(_before_the_end(text) if is_last else text))
        names = list(dict.fromkeys(match["node"] for match in matches))
        if not names or (not is_last and len(names) > 1) or ("Killed" in pattern.pattern and "launch failed" in text):
            continue
        node = ranks.get(matches[0]["rank"]) or node_of(names[0])
        components = (Component.of_node(node),) if node else ()
        yield Finding("rank-crashed", Verdict.INCOMPLETE, _line(matches[0]), components)
        return


def _before_the_end(text: str) -> str:
    """What was printed before the launcher ended the other ranks."""
    match = _OTHERS_ENDED.search(text)
    return text[: match.start()] if match else text


def _of_node(node: str, line: str) -> Finding:
    return Finding("start-failed", Verdict.INCOMPLETE, f"{node}: {line}", (Component.of_node(node),))


def _line(match: re.Match[str]) -> str:
    """All that was matched, and the rest of its last line."""
    end = match.string.find("\n", match.end())
    return " ".join(match.string[match.start() : end if end >= 0 else None].split())
