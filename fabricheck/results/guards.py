"""Guards that need to know what was requested: was the right thing measured, in the right place, just now?

Pure functions from a run and what the caller knows to problems; a check adds them to those of the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from fabricheck.errors import UserError
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.operations import PAIRS
from fabricheck.records.run import Run, describe_places, list_ranks
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.results.proof_logs import facts_of_remarks, normal_path, reasons_of


@dataclass(frozen=True)
class Requested:
    """What a run was to be: `ranks` and `nodes` are how many, `devices` whether each rank must have driven one,
    `exit_code` the program's exit status, `operations` exactly those that were to be measured.

    `environment` must have been in effect on all ranks (`None`: must have been unset there). `mpi_library` is the name
    of the MPI library, where it is known. `plan`: what its fields of these names must say, such as `host_memory`.
    `paths_forbidden` and `paths_required` are regular expressions, searched for in the paths that the libraries
    reported (`NET/Socket`): any match of a forbidden one and a required one without a match are INVALID, and so is a
    library that reported nothing where something is required; `described`: the path that the site's files ask for, in
    their words. `interfaces`: the network interfaces over which the data of several nodes may go; where none are named,
    `nics` are those of the topology, and what other networks carried counts where it is a share of what the run itself
    moved. `verified`: the data must have been checked.
    """

    transport: str
    backend: str
    ranks: int
    nodes: int
    devices: bool
    exit_code: int
    operations: Collection[str]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    mpi_library: str | None = None
    plan: Mapping[str, str] = field(default_factory=dict)
    paths_forbidden: Collection[str] = ()
    paths_required: Collection[str] = ()
    described: str = ""
    interfaces: Collection[str] = ()
    nics: Collection[str] = ()
    verified: bool = True


def require(run: Run, asked: Requested) -> tuple[Finding, ...]:
    """What keeps `run` from being the run that was requested; an empty tuple where nothing does.

    Raises UserError for a regular expression that is not one.
    """
    forbidden, required = compile_patterns(asked.paths_forbidden), compile_patterns(asked.paths_required)
    problems: list[Finding] = []
    if asked.exit_code != 0:
        text = f"the benchmark ended with exit status {asked.exit_code}; see its error output"
        problems.append(Finding("benchmark-failed", Verdict.INCOMPLETE, f"{run.path}: {text}"))
    if _ended_early(run):
        return tuple(problems)
    if not run.header:
        text = "the header is not valid, so it is unknown what was measured"
        problems.append(Finding("result-damaged", Verdict.INVALID, f"{run.path}:1: {text}"))
        return tuple(problems)
    mistakes: list[tuple[str, Iterable[str]]] = [
        ("wrong-ranks", _place_mistakes(run, asked.ranks, asked.nodes, asked.devices)),
        ("wrong-plan", _plan_mistakes(run.header, asked.transport, asked.backend, asked.operations, asked.verified)),
        ("wrong-library", _library_mistakes(run.header, asked.mpi_library)),
        ("setting-not-in-effect", _environment_mistakes(run.header, asked.environment)),
        ("wrong-plan", _setting_mistakes(run.header["plan"], asked.plan)),
    ]
    problems += [_mistake(code, f"{run.path}:1: {message}") for code, found in mistakes for message in found]
    mistakes = []
    if run.footer is not None:
        proof = dict(run.footer["proof"])
        variables = run.header["environment"]
        if run.header["transport"] == "fabric":  # which MPI has no part in
            variables = {name: value for name, value in variables.items() if name.startswith("FI_")}
        proof["facts"] = {**variables, **facts_of_remarks(proof), **proof.get("facts", {})}
        code = "path-forbidden" if proof["evidence"] is not None else "path-unproven"
        mistakes = [(code, path_mistakes(proof, forbidden, required, asked.described, _where(run)))]
        sent = run.footer["proof"].get("interfaces", {})
        stray = (
            _interface_mistakes(sent, asked.interfaces)
            if asked.interfaces
            else _management_mistakes(run, sent, asked.nics)
        )
        mistakes.append(("wrong-network", stray))
    elif required:
        # The run did not reach its end, which is not another measurement.
        message = f"{run.path}: there is no footer, so the path of the data is not proven"
        problems.append(Finding("path-unproven", Verdict.INCOMPLETE, message))
    problems += [_mistake(code, f"{run.path}: {message}") for code, found in mistakes for message in found]
    return tuple(problems)


def _mistake(code: str, message: str) -> Finding:
    return Finding(code, Verdict.INVALID, " ".join(message.split()))


# What fabricbench says first on stdout: which run it is, with which MPI library.
_ITSELF = re.compile(r"fabricbench: run ([0-9a-f]{32}) with (.+)")
# A launcher and a file system take less; what is more is the clock.
_CLOCK = timedelta(minutes=1)


def require_fresh(run: Run, *, not_before: datetime, output: str = "") -> tuple[Finding, ...]:
    """A problem of a file that an earlier run left behind, that was changed, or whose rank 0 has a wrong clock.

    `output`: the job's stdout, where fabricbench tells its run and MPI library. Where it tells neither, the file is an
    earlier run's if it began before `not_before`, by the clock of its rank 0. `not_before` needs a time zone; the
    header counts whole seconds, so a start in the same second is fresh. Raises ValueError for a `not_before`
    without a time zone.
    """
    if not_before.tzinfo is None:
        raise ValueError("not_before needs a time zone")
    if _ended_early(run):
        return ()
    if not run.header:
        return (
            Finding(
                "result-damaged",
                Verdict.INVALID,
                f"{run.path}:1: the header is not valid, so the time of the run is unknown",
            ),
        )
    told = {run_id: library.strip() for run_id, library in _ITSELF.findall(output)}
    run_id, mpi = run.header["run_id"], run.header["libraries"]["mpi"]
    library = f"{mpi['name']} {mpi['version']}".strip()
    began = f"the run began at {run.header['started_utc']}"
    behind = not_before.astimezone(timezone.utc).replace(microsecond=0) - parse_utc(run.header["started_utc"])
    host = run.ranks[0].host if run.ranks else "rank 0"
    if told and run_id not in told:
        text = f"{began} is not that of this job ({', '.join(told)}): the file is of an earlier run"
    elif told and told[run_id] != library:
        text = f"the MPI library was {library}, and {told[run_id]} by the job's output: the file was changed"
    elif behind <= (_CLOCK if told else timedelta()):
        return ()
    elif told:
        text = (
            f"its clock is {behind.total_seconds():,.0f} s behind that of the check: chronyc tracking, or timedatectl"
        )
        return (Finding("clock-off", Verdict.DEGRADED, f"{host}: {text}", (Component.of_node(host),)),)
    else:
        text = f"{began}, before this check did: the file is of an earlier run, or the clock of {host} is behind"
    return (Finding("stale-result", Verdict.INVALID, f"{run.path}:1: {text}"),)


def _ended_early(run: Run) -> bool:
    """Whether its own error record is all that a run left, which says why it measured nothing."""
    return not run.header and bool(run.problems) and all(each.verdict is Verdict.INCOMPLETE for each in run.problems)


_BEHIND = re.compile(r"fabricbench: (?:no progress|nothing went on) for .*?: ranks? ([0-9,-]+) did not arrive")


def require_arrival(run: Run, errors: str) -> tuple[Finding, ...]:
    """A problem that names the ranks that did not arrive on other nodes than rank 0's; `errors`: the run's stderr.

    The result file knows those of rank 0's own node only: who is behind is seen in a node's shared memory.
    """
    hosts = {each.rank: each.host for each in run.ranks}
    behind: dict[str, list[int]] = {}
    for match in _BEHIND.finditer(errors):
        for rank in _listed(match[1]):
            if hosts.get(rank, hosts.get(0)) != hosts.get(0) and rank not in behind.setdefault(hosts[rank], []):
                behind[hosts[rank]].append(rank)
    places = {each.rank: each for each in run.ranks}
    findings = []
    for node, ranks in sorted(behind.items()):
        own = sorted(ranks)
        where = f"rank {list_ranks(own)} on {describe_places([places[rank] for rank in own])}"
        text = f"{run.path}: no progress, and not only on the first node: {where}"
        findings.append(Finding("rank-hangs", Verdict.INCOMPLETE, text, (Component.of_node(node),)))
    return tuple(findings)


def _listed(text: str) -> Iterable[int]:
    """Ranks of `0-3,7`."""
    for span in text.split(","):
        first, _, last = span.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), int(last or first) + 1)


def compile_patterns(patterns: Collection[str]) -> tuple[re.Pattern[str], ...]:
    """The regular expressions for paths; UserError for one that is not a regular expression."""
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise UserError(f"{pattern!r} is not a regular expression for a path: {error}") from None
    return tuple(compiled)


def _place_mistakes(run: Run, ranks: int, nodes: int, devices: bool) -> Iterable[str]:
    hosts = dict.fromkeys(each.host for each in run.ranks)
    if len(run.ranks) != ranks:
        yield f"{len(run.ranks)} ranks ran instead of {ranks}: check the launcher and the MPI library"
    if len(hosts) != nodes:
        yield f"the ranks were on {len(hosts)} nodes ({', '.join(hosts)}) instead of {nodes}"
    wrong = [each.rank for each in run.ranks if (each.device is not None) != devices]
    if wrong:
        what = "used no device" if devices else "used a device instead of none"
        yield f"ranks {list_ranks(wrong)} {what}"


def _plan_mistakes(
    header: Mapping[str, Any],
    transport: str,
    backend: str,
    operations: Collection[str],
    verified: bool,
) -> Iterable[str]:
    for name, wanted in (("transport", transport), ("backend", backend)):
        if header[name] != wanted:
            yield f"the {name} was {header[name]} instead of {wanted}, as this check requires"
    plan = header["plan"]
    if set(plan["operations"]) != set(operations):
        yield f"the operations were {', '.join(sorted(plan['operations']))} instead of {', '.join(sorted(operations))}"
    if verified and plan["verify"] in (False, "off"):
        yield "the data were not verified: leave out --verify off"


def _library_mistakes(header: Mapping[str, Any], wanted: str | None) -> Iterable[str]:
    name = header["libraries"]["mpi"]["name"]
    if wanted is not None and name != wanted:
        yield f"the MPI library was {name} instead of {wanted}: the loaded module is not that of the environment"


def _environment_mistakes(header: Mapping[str, Any], wanted: Mapping[str, str | None]) -> Iterable[str]:
    count = len(header["ranks"])
    for name, value in wanted.items():
        values = dict.fromkeys(range(count), header["environment"].get(name))
        values |= {each["rank"]: each["value"] for each in header["environment_differences"] if each["name"] == name}
        wrong = [rank for rank, actual in values.items() if actual != value]
        if wrong:
            actual = values[wrong[0]]
            where = "all ranks" if len(wrong) == count else f"ranks {list_ranks(wrong)}"
            have = f"{name} was {'unset' if actual is None else repr(actual)}"
            want = "unset" if value is None else repr(value)
            yield f"{have} instead of {want} on {where}: the requested tuning was not in effect"


def _setting_mistakes(plan: Mapping[str, Any], wanted: Mapping[str, str]) -> Iterable[str]:
    for name, value in wanted.items():
        if str(plan.get(name)) != value:
            yield f"{name} was {plan.get(name) or 'not given'} instead of {value}, as this check requires"


def _where(run: Run) -> Mapping[str, str]:
    """Of each path that not all nodes took, where it was taken."""
    ranks = {each.rank: each for each in run.ranks}
    only = run.footer["proof"].get("only", {}) if run.footer is not None else {}
    return {path: f" on {describe_places([ranks[one] for one in of if one in ranks])}" for path, of in only.items()}


def path_mistakes(
    proof: Mapping[str, Any],
    forbidden: Iterable[re.Pattern[str]],
    required: Iterable[re.Pattern[str]],
    described: str = "",
    where: Mapping[str, str] | None = None,
) -> Iterable[str]:
    """What is wrong with the `paths` of a proof: forbidden ones that were taken, and required ones that were not.

    Its `facts` (`TransportProof.facts`, variables in effect) say why, as far as the library tells.
    `where`: of paths that not all nodes took, which did.
    """
    paths = sorted(proof["paths"])
    instead = f"the site's path is {described}" if described else "a fall-back"
    names = {path: normal_path(path) for path in paths}
    wrong = [path for path in paths if any(pattern.search(names[path]) for pattern in forbidden)]
    missed = [each for each in required if not any(each.search(name) for name in names.values())]
    why = "".join(f"; {reason}" for reason in reasons_of(proof.get("facts", {}), described, paths))
    if wrong:
        told = ", ".join(f"{path}{(where or {}).get(path, '')}" for path in wrong)
        yield f"the data took {told}, which this check forbids: {instead}{why}"
        missed = [] if described else missed
    for pattern in missed:
        wanted = described or repr(pattern.pattern)
        if proof["evidence"] is None:
            yield f"no library reported the path of the data: {wanted} is not proven"
        else:
            site = f": the site's path is {described}" if described else ""
            yield f"the data took {', '.join(paths)} instead of {wanted}{site}{why}"


# What schedulers, file systems and MPI's start send beside the data.
_STRAY_SHARE = 0.1


def _interface_mistakes(sent: Mapping[str, Mapping[str, int]], allowed: Collection[str]) -> Iterable[str]:
    """`sent`: bytes by host and interface, as the kernel counted them."""
    if not allowed:
        return
    for host, interfaces in sent.items():
        total = sum(interfaces.values())
        stray = {name: count for name, count in interfaces.items() if name not in allowed}
        if total and sum(stray.values()) > _STRAY_SHARE * total:
            worst = max(stray, key=lambda name: stray[name])
            yield (
                f"{100 * stray[worst] / total:.0f}% of what {host} sent went over {worst} instead of "
                f"{' or '.join(allowed)}: the library used another network"
            )
            return


def least_sent(run: Run) -> dict[str, int]:
    """Bytes that each host has at least sent to others, by the samples of a run; what was not kept is not counted.

    Pairs are counted exactly. Of a collective each host is taken to send no more than the share of one rank.
    """
    hosts = {each.rank: each.host for each in run.ranks}
    sent: Counter[str] = Counter()
    for samples in run.samples:
        ends = [hosts[rank] for rank in samples.ranks if rank in hosts]
        total = samples.bytes * samples.count
        if len(set(ends)) < 2:
            continue
        if samples.operation in PAIRS:
            sent.update({host: total for host in (ends[:1] if samples.operation == "unidirectional" else ends)})
        else:
            sent.update(dict.fromkeys(ends, total // len(ends)))
    return dict(sent)


# Below this, what schedulers and MPI's start send may be more than the data.
_ENOUGH_BYTES = 64 << 20


def _management_mistakes(run: Run, sent: Mapping[str, Mapping[str, int]], nics: Collection[str]) -> Iterable[str]:
    """Data over an interface that is not a NIC of the topology. What RDMA moves no interface counts, and the ports of
    InfiniBand adapters (`mlx5_0:1`) have names of their own: only other interfaces that carried a share of what the run
    moved are wrong."""
    moved = least_sent(run)
    for host, interfaces in sent.items() if nics else ():
        least = moved.get(host, 0)
        stray = {name: count for name, count in interfaces.items() if name not in nics and ":" not in name}
        if least >= _ENOUGH_BYTES and sum(stray.values()) > _STRAY_SHARE * max(least, sum(interfaces.values())):
            worst = max(stray, key=lambda name: stray[name])
            yield (
                f"{host} sent {stray[worst] / 1e6:,.0f} MB over {worst}, of {least / 1e6:,.0f} MB of the run: its "
                f"NICs are {', '.join(nics)}: the library used another network"
            )
            return
