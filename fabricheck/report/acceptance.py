"""The acceptance document: what was tested and how, and a row for each node and part, as HTML for paper and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from markupsafe import Markup

from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.errors import UserError, refused
from fabricheck.judge.overall import badness, rehearsed
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import REHEARSAL
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import facts_of, name_of_group, number, short_name, unit_shown
from fabricheck.report.html import own_file, require_page, template
from fabricheck.report.run_view import yardstick_text
from fabricheck.report.summary import machine, summarise_counts
from fabricheck.topology.network import fold
from fabricheck.wholefile import csv_text, whole_file


@dataclass(frozen=True)
class AcceptanceRow:
    """The worst of the `metrics` of a part of a node, and its `test`; a value that is not known is empty."""

    node: str
    part: str
    test: str
    metrics: int
    measured: str
    nominal: str
    expected: str
    judged_against: str
    unit: str
    verdict: str


HEAD = tuple(field.name.replace("_", " ") for field in fields(AcceptanceRow))


def acceptance_rows(runs: Sequence[RunJudgement], *, by_test: bool) -> list[AcceptanceRow]:
    """The rows by node and part, each test of it or the worst of all: a pair of GPUs of a node counts for both."""
    metrics: dict[tuple[str, str, str], list[tuple[Judgement, str]]] = {}
    for run in runs:
        ranks = {rank.rank: rank for rank in run.run.ranks}
        name = short_name(run)
        for metric in run.judgements:
            own = [ranks[rank] for rank in metric.samples.ranks if rank in ranks]
            hosts = dict.fromkeys(rank.host for rank in own)
            test = f"{name}: {name_of_group(metric)}"
            for node, part in dict.fromkeys((rank.host, _part(rank, len(own), len(hosts))) for rank in own):
                metrics.setdefault((node, part, test if by_test else ""), []).append((metric, test))
    return [_row(*key[:2], metrics[key]) for key in sorted(metrics, key=lambda key: (key[0], len(key[1]), key[1]))]


def _part(rank: Rank, ranks: int, nodes: int) -> str:
    """The part of a rank's node that a metric between so many `ranks` on so many `nodes` is about."""
    if nodes > 1:
        return "network"
    if ranks > 2:
        return "all together"
    return f"GPU {rank.device.index}" if rank.device is not None else f"rank {rank.rank}"


def _row(node: str, part: str, metrics: Sequence[tuple[Judgement, str]]) -> AcceptanceRow:
    worst, test = min(metrics, key=lambda row: badness(row[0]))
    values = (worst.value, worst.expectation.nominal, worst.expectation.expected)
    measured, nominal, expected = ("" if value is None else number(value) for value in values)
    unit, against = unit_shown(worst.unit), yardstick_text(worst)
    verdict = worst.verdict.value
    return AcceptanceRow(node, part, test, len(metrics), measured, nominal, expected, against, unit, verdict)


def write_acceptance(
    runs: Sequence[RunJudgement],
    path: Path,
    *,
    title: str,
    system: str,
    verdict: Verdict,
    exclusions: Sequence[str],
) -> Path:
    """Write the document to `path` and its rows beside it, and return where these are.

    `exclusions`: what was not tested or is not right, a line each. Raises UserError where a file cannot be written.
    """
    require_page(path)
    table = path.with_suffix(".csv")
    if table == path:
        raise UserError(f"{path}: name the document, such as acceptance.html; its rows are beside it as CSV")
    rows = [*map(astuple, acceptance_rows(runs, by_test=True))]
    facts = [facts_of(run) for run in runs]
    text = template("acceptance.html.j2").render(
        title=title,
        system=system,
        verdict=verdict,
        rehearsal=REHEARSAL if rehearsed(runs) else "",
        counted=summarise_counts(runs),
        coverage=coverage_of(runs).message,
        machine=machine(runs),
        nodes={rank.host for run in runs for rank in run.run.ranks},
        days=sorted({fact.started for fact in facts}),
        programs=list(dict.fromkeys(fact.program.partition(", clock ")[0] for fact in facts)),
        libraries=list(dict.fromkeys(library for fact in facts for library in fact.libraries)),
        exclusions=exclusions,
        head=HEAD,
        rows=[*map(astuple, acceptance_rows(runs, by_test=False))],
        table=table.name,
        fold=fold,
        style=Markup(own_file("acceptance.css")),
    )
    with refused(f"the document {path}", "written"), whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    with refused(f"the table {table}", "written"), whole_file(table) as unfinished:
        unfinished.write_text(csv_text([HEAD, *rows]), encoding="utf-8")
    return table
