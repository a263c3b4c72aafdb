"""Rehearses systems: brings each up in miniature, runs a tag's checks there, and keeps a row of what came of it.

    python -m fabricheck_lab.rehearse                                  # as root: every system, smoke and acceptance
    python -m fabricheck_lab.rehearse --systems alps,lumi --tags smoke
    python -m fabricheck_lab.rehearse --again --systems alps           # what has a row already, too

A row is kept in --rows as soon as it is measured, and --output written again, so that a run that was ended goes on
where it stopped. Its columns are explained at the head of the table. An acceptance makes the row of nightly, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case
from fabricheck.records.operations import PAIRS, VICTIMS
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict, worst
from fabricheck.session.outcome import read_result
from fabricheck.session.reframe_report import past_seconds, read_session
from fabricheck.session.run_folders import VERDICT
from fabricheck.suite import MINIATURE, Suite, suite_root
from fabricheck.topology.hardware import payload
from fabricheck.topology.model import Link, Topology
from fabricheck.yardsticks.policy import scope_of
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.description import EFFICIENCY, MEMORY_EFFICIENCY
from fabricheck_lab.rehearsal import suite_of, up_in_miniature, variables_of

ROOT = suite_root()
#: Systems of the literature and their nodes in miniature; those without NICs in their topology have one.
SYSTEMS: Mapping[str, int] = {
    "alps": 2,
    "leonardo": 2,
    "lumi": 2,
    "frontier": 2,
    "dardel": 1,
    "delta": 2,
    "perlmutter": 2,
    "summit": 2,
    "sierra": 2,
    "dgx-a100": 2,
    "aurora": 2,
    "hgx-h200": 1,
    "hgx-h200:gpu8": 1,
}
TAGS = ("smoke", "nightly", "acceptance", "large", "four-nodes")
#: No tags of the suite, but these tests: those that the model is compared with, with sizes that are `_LARGER` times as
#: large in the node, and those between nodes, on `_MORE_NODES`.
_TESTS: Mapping[str, str] = {
    "large": "^((Collectives|SparseMessages|GroupPatterns|Striping) %transport=(copy|ccl)|NetworkCollectives) ",
    "four-nodes": "^(NetworkCollectives|NetworkVictims|NodePairs|NodeGroups) ",
}
_LARGER = 16
_MORE_NODES = 4
#: A tag whose tests are all tests of another one, with the same parameters: its row is a part of the other's run.
_PART_OF = {"nightly": "acceptance"}
NAME = "rehearsal"
#: Seconds that a row of a tag takes, as a first guess of the time that is left.
_GUESS = {"smoke": 40.0, "nightly": 150.0, "acceptance": 500.0, "large": 100.0, "four-nodes": 200.0}
_PATIENCE_S = 1800
#: What takes less is timed by the machine's scheduler (lab/README.md).
SHORTEST_S = 2e-3
#: Of these, by operation and schedule, the model says what they reach at least: steps of pipelined striping overlap,
#: ping-pongs that share a link need not use it in the same direction at the same time, and of a link that several pairs
#: share equally one gets more where another is held up elsewhere.
_AT_LEAST = {
    ("striping_pipelined", "uncontended"),
    ("striping_pipelined", "contended"),
    *((pair, "contended") for pair in PAIRS),
}
#: What moves data of these; of other transports copies.
_MOVERS = ("kernel", "ccl")

_HEAD = """# Rehearsals

Every described system in miniature ([emulated nodes](../lab/README.md)), healthy, with the checks of a tag. No number
here is a measurement of a real system: what is shown is that the checks that apply can be run and are green.

`{command}`

- *checks*: test cases that were measured and passed, of those selected. *not applicable*: left out, for a reason that
  the system's own description gives; below the table.
- *wall*: seconds of `fabricheck run`; *up*: of `fabricheck emulate up`, with programs that were built before. *load*:
  the machine's load average meanwhile: what runs beside it takes its part of the cores, and makes it slower.
- Where *up* is "in acceptance", no nightly was run by itself: its checks are all in the acceptance, with the same
  parameters, so the row is that of those checks there, and *wall* the sum of their times.
- *in the node*, *between nodes*: the goodput at the largest size that is farthest from what the model expects of
  links that carry payload as those of the emulation do. Left out is what takes the machine's own time: `staging` and,
  in a node, `mpi`, which copy by the processor, what is expected to take less than 2 ms, and victims beside an
  aggressor. Of pipelined striping, whose steps overlap, and of pairs that share links, one of which gets more where
  another is held up elsewhere, the model says a lower bound: they count where they are below it. Where a system's
  description does not say which NIC a GPU uses (Sierra), the model lets it use all, and the miniature's MPI takes one.
  Where several ways between two GPUs are equally wide and long (Aurora's tiles), the model spreads what they send over
  all, and the miniature takes one.
- *large*: not a tag, but collectives, sparse messages and patterns of groups by copies and *CCL with sizes 16 times as
  large in the node.
  In the sizes of an acceptance a message of a collective of eight GPUs takes less than a millisecond, and starting it
  is a part of its time.
- *four-nodes*: not a tag, but the tests between nodes on four of them.
- The MPI of a miniature takes no device memory in its own collectives: where a real system's does
  (`device-collectives` in its settings), `SparseAlltoallv` by MPI is not rehearsed, and the other collectives are
  lists of messages.
"""


@dataclass(frozen=True)
class Deviation:
    """A metric's value over what is expected of it, less one."""

    of: float
    metric: str


@dataclass(frozen=True)
class Row:
    """What came of one tag on one system. `not_applicable`: names of tests and the reason that they share.

    `problems`: what kept it from being green. `within`, `between`: the largest deviation in a node and between nodes.
    `load`: the machine's load average of the last five minutes of it. `part_of`: the tag in whose run it was measured,
    with `wall_s` the sum of the times of its checks; empty where it had a run of its own.
    """

    system: str
    tag: str
    nodes: int
    verdict: str
    when: str
    commit: str
    up_s: float = 0.0
    wall_s: float = 0.0
    selected: int = 0
    passed: int = 0
    not_applicable: Sequence[str] = ()
    problems: Sequence[str] = ()
    within: Deviation | None = None
    between: Deviation | None = None
    load: float = 0.0
    part_of: str = ""


def rehearse(system: str, tag: str, nodes: int) -> tuple[Row, ...]:
    """Bring a system up, run a tag on it, and take it down again: its row, and those of tags that are a part of it."""
    row = Row(system, tag, nodes, "not run", f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}", commit())
    Cluster.down(NAME)
    began = time.monotonic()
    try:
        cluster = up_in_miniature(system, nodes, None, ROOT, NAME)
    except UserError as error:
        return (replace(row, problems=(str(error),)),)
    try:
        row = replace(row, up_s=time.monotonic() - began)
        if row.tag == "large":
            _enlarge(system)
        return _run(cluster, row)
    finally:
        cluster.down_now()


def _enlarge(system: str) -> None:
    suite = suite_of(NAME)
    assert suite is not None
    file = suite / "site_configs" / system.partition(":")[0] / MINIATURE
    content = json.loads(file.read_text(encoding="utf-8"))
    content["effort"]["most_bytes"] *= _LARGER
    file.write_text(json.dumps(content), encoding="utf-8")


def _run(cluster: Cluster, row: Row) -> tuple[Row, ...]:
    output = ROOT / "output" / "rehearsals" / f"{row.system.replace(':', '-')}-{row.tag}-{time.time_ns()}"
    chosen = f"--name={_TESTS[row.tag]}" if row.tag in _TESTS else f"--tag={row.tag}"
    command = [sys.executable, "-m", "fabricheck", "run", f"--system={row.system}", "--launches=1", chosen]
    began = time.monotonic()
    try:
        done = cluster.run([*command, f"--output={output}"], timeout_s=_PATIENCE_S, environment=variables_of(NAME))
    except subprocess.TimeoutExpired:
        return (replace(row, verdict="INCOMPLETE", problems=(f"it did not end in {_PATIENCE_S} s",)),)
    row = replace(row, wall_s=time.monotonic() - began, load=os.getloadavg()[1])
    if len([*(output / "runs").glob(f"*/{VERDICT}")]) != 1:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        return (replace(row, verdict="INCOMPLETE", problems=tuple(map(without_paths, said[-1:]))),)
    return rows_of(row, output)


def rows_of(row: Row, output: Path) -> tuple[Row, ...]:
    """The row of a run that left its files below `output`, and those of the tags that are a part of its tag."""
    session = next((output / "runs").glob(f"*/{VERDICT}")).parent
    told = json.loads((session / VERDICT).read_text(encoding="utf-8"))
    cases = [case for case in read_session(session).cases if not case.is_build]
    rows = [_with_cases(row, cases, told)]
    seconds = past_seconds(output / "runs", row.system.partition(":")[0])
    for part in (tag for tag, whole in _PART_OF.items() if whole == row.tag):
        own = [case for case in cases if part in case.tags]
        wall = sum(seconds[case.name] for case in own if not case.does_not_apply)
        rows.append(_with_cases(replace(row, tag=part, part_of=row.tag, up_s=0.0, wall_s=wall), own, told))
    return tuple(rows)


def _with_cases(row: Row, cases: Sequence[Case], told: Mapping[str, Any]) -> Row:
    """The row with what came of its test cases; `told`: what verdict.json says of the run that they are of."""
    deviations = sorted(_deviations(cases, row.system), key=lambda each: abs(each[1].of), reverse=True)
    verdict = worst([case.verdict for case in cases if not case.does_not_apply] or [Verdict.INCOMPLETE]).value
    own = {str(case) for case in cases}
    runs = [each for each in told["runs"] if each["test"] in own]
    return replace(
        row,
        verdict=verdict if row.part_of and not told["problems"] else told["verdict"],
        selected=len(cases),
        passed=sum(case.result == "pass" for case in cases),
        not_applicable=tuple(_reasons(cases)),
        problems=tuple(without_paths(each["message"]) for each in (*told["problems"], *_problems_of_runs(runs))),
        within=next((one for scope, one in deviations if scope == "node"), None),
        between=next((one for scope, one in deviations if scope == "network"), None),
    )


def without_paths(message: str) -> str:
    """A message without the folders of this machine."""
    return re.sub(r"(?<!\S)/\S*/", "", message)


def _problems_of_runs(runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for run in runs:
        yield from run["problems"]
        for metric in run["metrics"]:
            if metric["verdict"] != "PASS":
                yield {"message": f"{run['test']}: {metric['name']}: {metric['reason']}"}


def _reasons(cases: Sequence[Case]) -> Iterator[str]:
    """A line for each reason for which tests do not apply, with their names."""
    systems_by_reason: dict[str, Counter[str]] = {}
    for case in cases:
        if case.does_not_apply:
            systems_by_reason.setdefault(case.reason or "", Counter())[case.test] += 1
    for reason, names in systems_by_reason.items():
        tests = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in names.items())
        yield f"{tests}: {reason}"


def _deviations(cases: Sequence[Case], system: str) -> Iterator[tuple[str, Deviation]]:
    """Of each goodput that there is a model for: `node` or `network`, and by how much it differs."""
    folder = suite_of(NAME)
    assert folder is not None
    suite = Suite(folder)
    judge = SystemJudge.of(system, folder)
    for case in cases:
        for file in case.result_files():
            run = read_result(file, suite, system.partition(":")[0])
            topology = judge.topology_of(case.partition)
            if topology is not None and run.header:
                yield from _deviations_of(run, str(case), replace(judge, topology=topology, partitions={}))


def _deviations_of(run: Run, test: str, judge: SystemJudge) -> Iterator[tuple[str, Deviation]]:
    transport = str(run.header["transport"])
    assert judge.topology is not None
    judge = replace(judge, topology=with_payload(judge.topology, transport if transport in _MOVERS else "copy"))
    for judgement in judge.judge_or_invalid(run).judgements:
        scope, expected = scope_of(run, judgement.samples), judgement.expectation.expected
        timed = expected and judgement.unit == "Gb/s" and 8e-9 * judgement.samples.bytes / expected >= SHORTEST_S
        modelled = scope == "network" or transport in ("copy", "kernel", "ccl")
        disturbed = judgement.samples.operation in VICTIMS and judgement.samples.schedule == "contended"
        if not (timed and expected and modelled) or disturbed:
            continue
        deviation = Deviation(judgement.value / expected - 1, f"{test.partition(' @')[0]}: {judgement.name}")
        if deviation.of < 0 or (judgement.samples.operation, judgement.samples.schedule) not in _AT_LEAST:
            yield scope, deviation


def with_payload(topology: Topology, mover: str) -> Topology:
    """The topology with what its links carry of data that `mover` sends, as the emulation has it."""

    def less(link: Link) -> Link:
        share = next(shares for prefix, shares in EFFICIENCY.items() if link.technology.startswith(prefix))
        factor = dict(zip(("copy", "kernel", "ccl"), share, strict=True))[mover]
        back = None if link.back_gbps is None else link.back_gbps * factor
        return replace(link, rate_gbps=link.rate_gbps * factor, back_gbps=back)

    payload_rule = payload("shaped veth", "nic")
    frames = payload_rule.share if payload_rule is not None else 1.0
    network = topology.network
    if network is not None:
        cables = tuple(replace(link, rate_gbps=link.rate_gbps * frames) for link in network.links)
        network = replace(network, links=cables)
    return replace(
        topology,
        links=tuple(map(less, topology.links)),
        nics=tuple(replace(nic, rate_gbps=nic.rate_gbps * frames) for nic in topology.nics),
        gpu_memory_gbps=None if topology.gpu_memory_gbps is None else topology.gpu_memory_gbps * MEMORY_EFFICIENCY[0],
        network=network,
    )


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


# The table ------------------------------------------------------------------------------------------------------------


def read_rows(file: Path) -> dict[tuple[str, str], Row]:
    """The rows by system and tag; of several, the last."""
    rows = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        content = json.loads(line)
        for name in ("within", "between"):
            content[name] = Deviation(**content[name]) if content[name] else None
        row = Row(**content)
        rows[row.system, row.tag] = row
    return rows


def write_table(rows: Mapping[tuple[str, str], Row], file: Path, command: str) -> None:
    ordered = [rows[system, tag] for tag in TAGS for system in SYSTEMS if (system, tag) in rows]
    head = ["system", "tag", "nodes", "verdict", "checks", "not applicable", "up", "wall", "load", "in the node"]
    lines = [*_HEAD.format(command=command).splitlines(), "", f"| {' | '.join([*head, 'between nodes'])} |"]
    lines.append("|" + "---|" * (len(head) + 1))
    for row in ordered:
        left_out = sum(_count(each) for each in row.not_applicable)
        cells = (row.system, row.tag, row.nodes, row.verdict, f"{row.passed} of {row.selected}", left_out)
        up = f"in {row.part_of}" if row.part_of else f"{row.up_s:.1f} s"
        times = (up, f"{row.wall_s:.0f} s", f"{row.load:.1f}" if row.load else "not kept")
        lines.append(f"| {' | '.join(map(str, (*cells, *times, _percent(row.within), _percent(row.between))))} |")
    lines += _section("Not applicable", ((row, row.not_applicable) for row in ordered))
    lines += _section("Not green", ((row, row.problems) for row in ordered))
    lines += ["", "## Where and when", ""]
    stamps: dict[tuple[str, str], list[str]] = {}
    for row in ordered:
        stamps.setdefault((row.when.split()[0], row.commit), []).append(f"{row.system} {row.tag}")
    lines += [f"- {when}, commit {commit}, 2 cores: {', '.join(of)}." for (when, commit), of in sorted(stamps.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(title: str, said: Iterable[tuple[Row, Sequence[str]]]) -> list[str]:
    """Each line once, with the rows that it is of."""
    by_text: dict[str, list[str]] = {}
    for row, lines in said:
        for line in lines:
            by_text.setdefault(line, []).append(f"{row.system} {row.tag}")
    return ["", f"## {title}", "", *(f"- {', '.join(rows)}: {each}" for each, rows in by_text.items())] + [
        "Nothing."
    ] * (not by_text)


def _count(reason: str) -> int:
    """How many tests a line of `_reasons` names."""
    names = reason.partition(": ")[0].split(", ")
    return sum(int(each.partition("(")[2].rstrip(")") or 1) for each in names)


def _percent(deviation: Deviation | None) -> str:
    return f"{deviation.of:+.1%} {deviation.metric}" if deviation is not None else "-"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fabricheck_lab.rehearse", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="of %(default)s")
    parser.add_argument("--tags", default=",".join(TAGS))
    parser.add_argument("--again", action="store_true", help="measure what has a row already, too")
    parser.add_argument("--rows", type=Path, default=ROOT / "output" / "rehearsals.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "output" / "rehearsals.md")
    given = parser.parse_args(arguments)
    systems, tags = given.systems.split(","), given.tags.split(",")
    unknown = [each for each in systems if each not in SYSTEMS] + [each for each in tags if each not in TAGS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; systems are {', '.join(SYSTEMS)}, tags {', '.join(TAGS)}")
    rows = read_rows(given.rows)
    wanted = [tag for tag in tags if _PART_OF.get(tag) not in tags]
    todo = [(one, tag) for one in systems for tag in wanted if given.again or (one, tag) not in rows]
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    for number, (system, tag) in enumerate(todo):
        left = sum(_guess(rows, *each) for each in todo[number:]) / 60
        print(f"[{number + 1}/{len(todo)}] {system} {tag}, about {left:.0f} min left", file=sys.stderr, flush=True)
        row, *parts = rehearse(system, tag, _MORE_NODES if tag == "four-nodes" else SYSTEMS[system])
        with given.rows.open("a", encoding="utf-8") as out:
            for part in (row, *parts):
                rows[part.system, part.tag] = part
                out.write(json.dumps(asdict(part)) + "\n")
        write_table(rows, given.output, "python -m fabricheck_lab.rehearse")
        print(f"    {row.verdict}, {row.passed} of {row.selected} in {row.wall_s:.0f} s", file=sys.stderr, flush=True)
        for problem in row.problems:
            print(f"    {problem}", file=sys.stderr, flush=True)
    return 0 if all(rows[each].verdict == "PASS" for each in todo) else 1


def _guess(rows: Mapping[tuple[str, str], Row], system: str, tag: str) -> float:
    """Seconds: as before, else as others of this tag took."""
    if (system, tag) in rows:
        return rows[system, tag].wall_s
    known = [row.wall_s for row in rows.values() if row.tag == tag and row.wall_s]
    return sum(known) / len(known) if known else _GUESS[tag]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
