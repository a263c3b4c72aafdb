"""`fabricheck judge`: the verdict on result files."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabricheck.commands.options import FILE, JSON, POLICY, REFERENCES, given_as
from fabricheck.errors import UserError
from fabricheck.records.verdict import EXIT_CODES, Verdict, worst

if TYPE_CHECKING:
    from fabricheck.judge.system import Judged, SystemJudge
    from fabricheck.judge.verdicts import RunJudgement
    from fabricheck.records.vendor_output import VendorOutput


@dataclass(frozen=True)
class JudgeOptions:
    """The options of `judge`."""

    files: tuple[Path, ...]
    system: str | None
    topology: Path | None
    references: Path | None
    test: str | None
    keys: tuple[str, ...]
    policy: Path | None
    ranks: int | None
    tool: str | None
    part: str | None
    gpus: int | None
    nodes: int | None
    nics: str | None
    html: Path | None
    as_json: bool


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
@click.option("--tool", help="The program, such as alltoall_perf or fi_rma_bw, if the output does not state it.")
@click.option("--part", help="Compare with the same GPU or NIC model elsewhere, such as H200. No site is needed.")
@click.option(
    "--gpus",
    type=click.IntRange(min=1, max=1024),
    help="For a vendor tool's output: the number of GPUs in a node, if the output does not state it.",
)
@click.option(
    "--nodes", type=click.IntRange(min=1, max=10_000), help="The number of nodes, if the output does not state it."
)
@click.option("--nics", help="Number, rate and link layer of the NICs in a node, such as '8 x 400 Gb/s InfiniBand'.")
@click.option("--html", type=FILE, help="Write a page of the result files, too.")
@JSON
@given_as(JudgeOptions)
def judge(given: JudgeOptions) -> None:
    """Judge result files of fabricbench, and outputs of vendor tools.

    When: to judge a result again by other rules, or to check whether a measured number is normal (--part).

    A result file names its system and its test. Without a baseline (the system's files, --topology or --references) a
    metric is INCOMPLETE.

    A FILE may also be a paste: outputs of OMB, nccl-tests, rccl-tests, IMB, oneCCL's benchmark, nvbandwidth,
    p2pBandwidthLatencyTest, nvloom, TransferBench, perftest, ucx_perftest, fabtests, libcxi or nixlbench, and logs of
    NCCL, as any launcher prints them. They are compared with the links of the GPU that they name (or --part), and with
    values that others measured or require.

    The exit status is that of the worst verdict: 0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID; 2 is a mistake
    in the input.

    \b
    fabricheck judge result.jsonl
    fabricheck judge mail.txt --ranks 256 --tool alltoall_perf
    fabricheck judge output.txt --part H200 --gpus 8
    fabricheck judge *.jsonl --html report.html
    """
    context = click.get_current_context()
    from fabricheck.diagnosis.of_session import with_session_findings
    from fabricheck.judge.as_json import run_as_json
    from fabricheck.judge.compare_part import NodeDescription
    from fabricheck.judge.system import ByHand, without_references
    from fabricheck.records.case import parse_attribute
    from fabricheck.report.normal import is_normal
    from fabricheck.suite import suite_root

    if given.part is not None and (given.system or given.topology or given.references or given.test or given.keys):
        raise UserError("--part needs no site: leave out --system, --topology, --references, --test and --key")
    described = NodeDescription(given.part, given.gpus, given.nodes, given.nics)
    count = given.ranks or (given.gpus * (given.nodes or 1) if given.gpus is not None else None)
    judges = cache(
        partial(_judge, topology=given.topology, references=given.references, policy=given.policy, asked=given.system)
    )
    by_hand = ByHand(judges, given.system or "", given.test or "", dict(map(parse_attribute, given.keys)))
    words = [f"--ranks {given.ranks}"] if given.ranks else []
    words += [f"--tool {shlex.quote(given.tool)}"] if given.tool else []
    judged: list[RunJudgement] = []
    results: list[Judged] = []
    pastes: list[tuple[VendorOutput, ...]] = []
    verdicts: list[Verdict] = []
    for file in given.files:
        text, outputs = _pasted(file, count, given.tool)
        if text is None or not (outputs or given.part is not None):
            results.append(by_hand.read(file))
            judged.append(with_session_findings(results[-1].run, results[-1].judge, results[-1].partition))
            continue
        answer = is_normal(outputs, text, str(file), described, suite_root(), given=" ".join(words))
        pastes.append(outputs)
        verdicts.append(answer.verdict)
        _say(() if given.as_json else answer.lines)
    if note := without_references(results):
        if given.references is not None:
            raise UserError(note)
        click.echo(f"fabricheck: {note}", err=True)
    if given.html is not None:
        _write_page(given.html, results, judged, given.system)
    if given.as_json:
        content = [_vendor_as_json(output) for outputs in pastes for output in outputs]
        click.echo(json.dumps([*content, *map(run_as_json, judged)], indent=2, allow_nan=False))
    else:
        _say(line for run in judged for line in _table(run))
    context.exit(EXIT_CODES[worst([*verdicts, *(each.verdict for each in judged)])])


def _write_page(page: Path, results: Sequence[Judged], judged: Sequence[RunJudgement], system: str | None) -> None:
    """Write the page of judged result files. Raises UserError for those of several systems, or of none."""
    from fabricheck.diagnosis.causes import diagnose
    from fabricheck.report.html import write_html

    systems = {result.system: result.run.run.path for result in results}
    if not results or (system is None and len(systems) > 1):
        named = "; ".join(f"{path} {name or 'none'}" for name, path in systems.items()) or "no result file was given"
        raise UserError(f"--html shows result files of one system: {named}: choose one with --system")
    name = system or results[0].system
    write_html(judged, page, title=name or "result files", system=name, diagnosis=diagnose(judged, (), ()))
    click.echo(f"the report is in {page}", err=True)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _judge(
    name: str, *, topology: Path | None, references: Path | None, policy: Path | None, asked: str | None
) -> SystemJudge:
    """The judge of a system that a file names (`asked`: the user; "": no one), with the files that replace its own."""
    from fabricheck.judge.system import SystemJudge
    from fabricheck.site.validation import require_partition
    from fabricheck.suite import described, suite_root
    from fabricheck.topology.model import load_topology
    from fabricheck.yardsticks.part_values import load_parts
    from fabricheck.yardsticks.policy import load_policy
    from fabricheck.yardsticks.references import load_references, require_references_of

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
        step = "give --system or --topology" if judged.topology is None else "calibrate after healthy runs"
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


def _pasted(file: Path, ranks: int | None, tool: str | None) -> tuple[str | None, tuple[VendorOutput, ...]]:
    """The text of a paste, and its outputs."""
    from fabricheck.vendor.block import Asked
    from fabricheck.vendor.paste import read_paste

    text = _text_of(file)
    return text, read_paste(text, str(file), Asked(ranks, tool)) if text is not None else ()


def _text_of(file: Path) -> str | None:
    """The text of a paste; None of a result of fabricbench. Raises UserError for one that is too large."""
    from fabricheck.vendor.paste import LARGEST
    from fabricheck.wholefile import open_file

    try:
        with open_file(file, sys.maxsize) as stream:
            content = stream.read(LARGEST + 1)
    except OSError:
        return None  # whoever reads the result file says why it cannot be read
    if content.startswith(b"{") and b'"record"' in content[:4096]:
        return None
    if len(content) > LARGEST:
        limit = f"{LARGEST >> 20} MiB at most"
        raise UserError(f"{file}: too large for a paste: give the results alone, {limit}")
    return content.decode("utf-8", "replace")


def _without_path(message: str, path: str) -> str:
    """A message under a line that names the file: the place in the file alone, such as `line 47: …`."""
    rest = message.removeprefix(f"{path}:")
    return message if rest == message else f"line {rest}" if rest[:1].isdigit() else rest.lstrip()


_AS_THEY_ARE = ("tool", "version", "transport", "ranks", "hosts", "devices", "facts", "variables")


def _vendor_as_json(output: VendorOutput) -> dict[str, Any]:
    return {
        "file": output.path,
        "source": "vendor",
        **{name: getattr(output, name) for name in _AS_THEY_ARE},
        "remarks": [asdict(remark) for remark in output.remarks],
        "problems": [{"verdict": one.verdict.value, "message": one.message} for one in output.problems],
        "samples": [
            {
                "operation": each.operation,
                "schedule": each.schedule,
                "placement": each.placement,
                "ranks": list(each.ranks),
                "bytes": each.bytes,
                "statistic": each.statistic,
                "times_ns": each.times_ns.tolist(),
                "wrong_bytes": each.wrong_bytes,
            }
            for each in output.samples
        ],
    }
