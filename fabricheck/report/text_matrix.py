"""Pair matrices for a terminal, laid out as nvbandwidth prints them: GPUs of one node by GPUs, in GB/s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import Group, facts_of, groups_of, printable, short_name
from fabricheck.report.shares import indirectness
from fabricheck.units import format_size

_GBPS_OF_GB = 8.0
_WIDEST, _CELL = 9, 6  # columns of a cell: nvbandwidth's with two decimals, and the least, without


def matrices(runs: Sequence[RunJudgement], width: int, most: int) -> Iterator[list[str]]:
    """The `most` telling matrices, as far as they fit into `width` columns: not PASS first, then those of the links,
    which show best where no library sends."""
    matching = [(run, group) for run in runs for group in groups_of(run) if _is_matrix(group, run)]
    matching.sort(key=lambda pair: (-SEVERITY[pair[1].verdict], *indirectness(pair[0], pair[1].judgements[0].samples)))
    for run, group in matching[:most]:
        if lines := _matrix(run, group, width):
            yield lines


def _is_matrix(group: Group, run: RunJudgement) -> bool:
    """Whether a group is the goodput of pairs of one node, alone on their links as nvbandwidth's are."""
    one_node = len({each.host for each in run.run.ranks}) == 1
    plan = run.run.header.get("plan", {})
    of_gpus = "host" not in str(plan.get("buffers")) and not plan.get("shared_devices")
    return one_node and of_gpus and group.is_pairs and group.quantity == "goodput" and group.schedule == "uncontended"


def _matrix(run: RunJudgement, group: Group, width: int) -> list[str]:
    """The lines of a matrix; none where it does not fit."""
    measured = {each.samples.ranks: each for each in group.judgements}
    numbers = sorted({rank for pair in measured for rank in pair})
    cell = min(_WIDEST, (width - 4) // len(numbers))
    if cell < _CELL:
        return []
    gpus = {each.rank: each.device.index for each in run.run.ranks if each.device is not None}
    of_gpus = len({*gpus.values()}) == len(run.run.ranks)  # not where ranks share one
    labels = [str(gpus[each] if of_gpus else each) for each in numbers]
    kind = "GPU" if of_gpus else "rank"
    what = f"{group.operation} {format_size(group.bytes)} {kind}(row) -> {kind}(column) (GB/s)"
    title = f"{what}, {short_name(run) if run.test else facts_of(run).what}"
    lines = [
        printable(marked(title, rehearsal=is_rehearsal(run.run))),
        "    " + "".join(label.rjust(cell - 1) + " " for label in labels),
    ]
    for source, label in zip(numbers, labels, strict=True):
        texts = []
        for destination in numbers:
            judgement = measured.get((source, destination))
            text = "N/A" if judgement is None else f"{judgement.value / _GBPS_OF_GB:.{2 if cell == _WIDEST else 0}f}"
            mark = " " if judgement is None or judgement.verdict is Verdict.PASS else "*"
            texts.append(text.rjust(cell - 1) + mark)
        lines.append(f"{label:>3} {''.join(texts)}")
    if any(each.verdict is not Verdict.PASS for each in group.judgements):
        lines.append("    * is not PASS")
    return lines
