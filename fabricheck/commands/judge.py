"""`fabricheck judge`: the verdict on result files."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabricheck.commands.options import FILE, JSON, POLICY, REFERENCES
from fabricheck.errors import UserError, refused
from fabricheck.records.verdict import EXIT_CODES, Verdict, worst

if TYPE_CHECKING:
    from fabricheck.judge.system import SystemJudge
    from fabricheck.judge.verdicts import RunJudgement
    from fabricheck.records.finding import Finding
    from fabricheck.results.vendor_output import VendorOutput

_LARGEST_TEXT = 64 << 20
_MOST_NAMED = 3


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--system", help="A system below site_configs/, or system:partition: its topology, and its references.")
@click.option("--topology", type=FILE, help="A topology file.  [default: the system's]")
@REFERENCES
@click.option(
    "--test", help="The test whose references are used: its class, or its printed name.  [default: that of the file]"
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="Which references to use, such as '$partition=daint:gpu'.  [default: that of the file]",
)
@POLICY
@click.option(
    "--ranks",
    type=click.IntRange(min=2),
    help="For a vendor tool's output: the number of ranks, if the output does not state it.",
)
@click.option(
    "--tool", help="For an nccl-tests output: the program, such as alltoall_perf, if the output does not state it."
)
@click.option("--part", help="Compare with the same GPU or NIC model elsewhere, such as H200. No site is needed.")
@click.option(
    "--gpus",
    type=click.IntRange(min=1, max=1024),
    help="With --part: the number of GPUs in a node, if the output does not state it.",
)
@click.option("--nodes", type=click.IntRange(min=1, max=10_000), default=1, help="With --part: the number of nodes.")
@click.option("--nics", help="With --part: number and rate of the NICs in a node, such as '8 x 400 Gb/s'.")
@JSON
@click.pass_context
def judge(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str | None,
    topology: Path | None,
    references: Path | None,
    test: str | None,
    keys: tuple[str, ...],
    policy: Path | None,
    ranks: int | None,
    tool: str | None,
    part: str | None,
    gpus: int | None,
    nodes: int,
    nics: str | None,
    as_json: bool,
) -> None:
    """Judge result files of fabricbench, and outputs of vendor tools.

    When: to judge a result again by other rules, or to check whether a measured number is normal (--part).

    A result file names its system and its test. Without a baseline (the system's files, --topology or --references) a
    metric is INCOMPLETE.

    A FILE may also contain one or more outputs of OMB, nccl-tests, rccl-tests, IMB, nvbandwidth,
    p2pBandwidthLatencyTest, TransferBench or perftest, or a log of NCCL. An output does not prove where it ran, so its
    best verdict is INCOMPLETE: the answer is the column `share`. With --part, an output is compared with the links of
    that GPU or NIC, and with values that others measured or require.

    The exit status is that of the worst verdict: 0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID; 2 is a mistake
    in the input.

    \b
    fabricheck judge result.jsonl
    fabricheck judge mail.txt --ranks 256 --tool alltoall_perf
    fabricheck judge output.txt --part H200 --gpus 8
    """
    from fabricheck.diagnosis.of_session import with_session_findings
    from fabricheck.judge.as_json import run_as_json
    from fabricheck.judge.system import ByHand, Judged, without_references
    from fabricheck.records.case import parse_attribute

    if part is not None or gpus is not None or nics is not None:
        asked_beside = system or topology or references or test or keys
        if asked_beside or as_json:
            raise UserError(
                "--part needs no site: leave out --system, --topology, --references, --test, --key and --json"
            )
        context.exit(EXIT_CODES[worst(_normal(file, part, gpus, nodes, nics) for file in files)])
    judges = cache(partial(_judge, topology=topology, references=references, policy=policy, asked=system))
    by_hand = ByHand(judges, system or "", test or "", dict(map(parse_attribute, keys)))
    judged: list[RunJudgement | VendorJudgement] = []
    results: list[Judged] = []
    for file in files:
        of_vendor = judge_vendor_file(file, ranks, tool)
        judged += of_vendor
        if not of_vendor:
            results.append(by_hand.read(file))
            judged.append(with_session_findings(results[-1].run, results[-1].judge, results[-1].partition))
    if note := without_references(results):
        if references is not None:
            raise UserError(note)
        click.echo(f"fabricheck: {note}", err=True)
    if as_json:
        content = [_vendor_as_json(one) if isinstance(one, VendorJudgement) else run_as_json(one) for one in judged]
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        for run in judged:
            for line in vendor_table(run) if isinstance(run, VendorJudgement) else _table(run):
                click.echo(line)
    context.exit(EXIT_CODES[worst(each.verdict for each in judged)])


def _normal(file: Path, part: str | None, gpus: int | None, nodes: int, nics: str | None) -> Verdict:
    """Says whether the numbers in a file are normal."""
    from fabricheck.judge.compare_part import NodeDescription, is_normal
    from fabricheck.suite import suite_root

    with refused(repr(str(file)), "read"):
        text = file.read_bytes()[:_LARGEST_TEXT].decode("utf-8", "replace")
    answer = is_normal(text, str(file), NodeDescription(part, gpus, nodes, nics), suite_root())
    for line in answer.lines:
        click.echo(line)
    return answer.verdict


def _judge(
    name: str, *, topology: Path | None, references: Path | None, policy: Path | None, asked: str | None
) -> SystemJudge:
    """The judge of a system that a file names (`asked`: the user; "": no one), with the files that replace its own."""
    from fabricheck.judge.part_values import load_parts
    from fabricheck.judge.policy import load_policy
    from fabricheck.judge.references import load_references, require_references_of
    from fabricheck.judge.system import SystemJudge
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import described, suite_root
    from fabricheck.topology.model import load_topology

    root = suite_root()
    if asked:
        require_partition(root, asked)
    if asked and references is not None:
        require_references_of(references, name, root)
    judge = SystemJudge.of(asked or name) if asked or described(name) else SystemJudge.of_any(name)
    if topology is not None:
        judge = replace(judge, topology=load_topology(topology), partitions={})
    if references is not None:
        judge = replace(judge, references=load_references(references))
    if policy is not None:
        judge = replace(judge, policy=load_policy(policy))
    return replace(judge, parts=judge.parts or load_parts(root / "reference_values" / "parts"))


def _table(judged: RunJudgement) -> Iterable[str]:
    from fabricheck.records.rehearsal import is_rehearsal, marked
    from fabricheck.report.content import reason_without_source

    path = f"{judged.run.path}: {judged.test}" if judged.test else judged.run.path
    what = marked(path, rehearsal=is_rehearsal(judged.run))
    count = len(judged.judgements)
    failed = sum(metric.verdict is Verdict.FAIL for metric in judged.judgements)
    also = f", and {failed} of {count} metrics FAIL" if failed and judged.verdict is not Verdict.FAIL else ""
    yield f"{judged.verdict.value}{also}  {what}"
    for problem in judged.problems:
        yield from _wrapped(problem.verdict, _without_path(problem.message, judged.run.path))
    unjudged = sum(metric.unjudged for metric in judged.judgements)
    if unjudged > 1:
        step = (
            "give --system or --topology" if judged.topology is None else "run fabricheck calibrate after healthy runs"
        )
        yield f"  INCOMPLETE  {unjudged} of {count} metrics have no baseline: {step}"
    for metric in judged.judgements:
        if not (metric.unjudged and unjudged > 1):
            # --json has the sources, too.
            yield from _wrapped(metric.verdict, f"{metric.name}: {reason_without_source(metric)}")


def _wrapped(verdict: Verdict, text: str) -> Iterator[str]:
    """A line of a judged file, continued below itself where it is longer than a terminal's."""
    from fabricheck.report.lines import LONGEST

    indent = " " * 14
    yield from textwrap.wrap(
        text, LONGEST, initial_indent=f"  {verdict.value:10}  ", subsequent_indent=indent, break_on_hyphens=False
    )


@dataclass(frozen=True)
class VendorJudgement:
    """An output with the problems that its parser found, and that it proves nothing of where it ran."""

    output: VendorOutput
    problems: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its problems; it always has one, since an output does not prove where it ran."""
        return worst(each.verdict for each in self.problems)


def judge_vendor_file(file: Path, ranks: int | None, tool: str | None) -> tuple[VendorJudgement, ...]:
    """The outputs of vendor tools in a file; none where it is another file, such as a result of fabricbench."""
    from fabricheck.results.vendor import not_judged, read_vendor_outputs
    from fabricheck.wholefile import open_file

    try:
        with open_file(file, sys.maxsize) as stream:
            begin = stream.read(4096)
    except OSError:
        return ()  # whoever reads the result file says why it cannot be read
    if begin.startswith(b"{") and b'"record"' in begin:
        return ()
    outputs = read_vendor_outputs(file, ranks=ranks, tool=tool)
    # What is not read needs no second reason, and wrong data are wrong wherever it ran.
    return tuple(
        VendorJudgement(each, each.problems if _has_reason(each) else (*each.problems, not_judged(each)))
        for each in outputs
    )


def _has_reason(output: VendorOutput) -> bool:
    return any(each.code == "other-tool" or each.verdict is Verdict.FAIL for each in output.problems)


def _without_path(message: str, path: str) -> str:
    """A message under a line that names the file: the place in the file alone, such as `line 47: …`."""
    rest = message.removeprefix(f"{path}:")
    return message if rest == message else f"line {rest}" if rest[:1].isdigit() else rest.lstrip()


def _vendor_as_json(judged: VendorJudgement) -> dict[str, Any]:
    output = judged.output
    return {
        "file": output.path,
        "tool": output.tool,
        "version": output.version,
        "ranks": output.ranks,
        "facts": dict(output.facts),
        "verdict": judged.verdict.value,
        "problems": [{"verdict": one.verdict.value, "message": one.message} for one in judged.problems],
        "samples": [
            {
                "operation": each.operation,
                "schedule": each.schedule,
                "placement": each.placement,
                "bytes": each.bytes,
                "statistic": each.statistic,
                "times_ns": each.times_ns.tolist(),
                "wrong_bytes": each.wrong_bytes,
            }
            for each in output.samples
        ],
    }


def vendor_table(judged: VendorJudgement) -> Iterator[str]:
    """Yields the lines of a judged output for a terminal: verdict, program and ranks, then problems and values."""
    output = judged.output
    ranks = f", {output.ranks} ranks" if output.ranks is not None else ""
    version = f" {output.version}" if output.version else ""
    tool, _, benchmarks = output.tool.partition(" ")
    several = benchmarks.count(",") >= _MOST_NAMED
    title = (
        f"{tool}{version}{ranks}, {benchmarks.count(',') + 1} benchmarks"
        if several
        else f"{output.tool}{version}{ranks}"
    )
    yield f"{judged.verdict.value}  {output.path}: {title}"
    for problem in judged.problems:
        yield from _wrapped(problem.verdict, _without_path(problem.message, output.path))
    for samples in output.samples:
        time = float(samples.one_way_ns.mean()) / 1e3
        words = " ".join(word for word in (samples.operation, samples.placement) if word)
        yield f"  {words:30} {samples.bytes:>14,} B {time:>14,.2f} us {8e-3 * samples.bytes / time:>12,.2f} Gb/s"
