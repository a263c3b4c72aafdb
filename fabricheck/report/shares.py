"""How much of its yardstick a metric has, and the map of a session: nodes by checks, or GPUs by GPUs of one node.

A map compares one thing: of nodes the verdicts, of GPUs one operation with one baseline, which stands under it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.rehearsal import is_rehearsal, marked
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.report.content import MetricGroup, groups_of, number, percent, unit_shown
from fabricheck.units import format_size, plural

#: The colours of a map of GPUs go in so many steps from this share, or less, to all of it.
SHADES, DARKEST = 10, 0.7
#: What a share is of, by the kind of yardstick.
OF_KIND = {
    "reference": "the reference",
    "part": "the same part elsewhere",
    "published": "the published value",
    "siblings": "the peers",
    "achievable": "the achievable",
}


def share_of_yardstick(judged: Judgement) -> str:
    """The value over that of the yardstick that decided, such as `98.2 %`, or `102 x` the least that is allowed; empty
    where none did, and for a latency that only an upper limit judged."""
    yardstick = judged.yardstick
    if yardstick is None or not (math.isfinite(yardstick.value) and yardstick.value > 0):
        return ""
    share = judged.value / yardstick.value
    if yardstick.kind != "floor":
        return percent(share)
    return "" if judged.better == "lower" else percent(share) if share < 2 else f"{number(share)} x"


def _indirectness(run: RunJudgement, samples: Samples) -> tuple[bool, bool, bool, int]:
    """A key that sorts pairs by how well they show the link: nothing but the hardware copies, alone, one way, much."""
    library, contended = run.run.header.get("transport") != "copy", samples.schedule == "contended"
    return library, contended, samples.operation == "bidirectional", -samples.bytes


@dataclass(frozen=True)
class Cell:
    """A cell of a map; `verdict` is `None` where nothing was judged. `shade`: its colour, 0 to 9 from bad to good;
    `title`: its text when asked; `link`: the run behind it, by its id on the page; `gbps`: of a pair, its goodput."""

    text: str
    verdict: Verdict | None = None
    shade: int | None = None
    title: str = ""
    link: str = ""
    gbps: float = math.nan


# Wider, a map is no map.
_MOST_COLUMNS, _MOST_ROWS, _MOST_CELLS = 64, 512, 4096


@dataclass(frozen=True)
class Grid:
    """`cells` has the shape (rows, columns); `corner` names both. `legend`: what is in the cells."""

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    legend: str


def grid_of(runs: Sequence[RunJudgement], checks: Sequence[str], diagnosis: Diagnosis) -> Grid | None:
    """The map of runs in the order of the page; none where it would be of one thing.

    `checks`: the short name of each run's check. `diagnosis`: of these runs; its problems may name other nodes.
    """
    hosts = {rank.host for each in runs for rank in each.run.ranks}
    if len(hosts) < 2:
        return map_of_gpus(runs, checks)
    rows = {host: Verdict.PASS for host in hosts}
    for problem in diagnosis.problems:
        for component in problem.components:
            if component.kind is Kind.NODE and len(problem.components) == 1 and component.node not in hosts:
                rows[component.node] = problem.verdict
    cells: dict[tuple[str, str], Cell] = {}
    for place, (run, check) in enumerate(zip(runs, checks, strict=True), start=1):
        for host, verdict in _by_host(run, diagnosis.nodes_of_rows).items():
            rows[host] = worst((rows[host], verdict))
            before = cells.get((host, check))
            if before is None or before.verdict is None or SEVERITY[verdict] > SEVERITY[before.verdict]:
                cells[host, check] = _of_check(verdict, f"{host}, {check}", f"run{place}")
    # The worst nodes first: a map of a thousand rows is read from its top.
    names = sorted(set(checks))
    nodes = sorted(rows, key=lambda host: (-SEVERITY[rows[host]], host))
    columns = names[:_MOST_COLUMNS]
    shown = nodes[: min(_MOST_ROWS, _MOST_CELLS // max(len(columns), 1))]
    legend = "The worst verdict of each check on each node"
    if more := len(names) - len(columns):
        legend += f"; not shown: {plural(more, 'more check')}"
    if more := len(nodes) - len(shown):
        legend += f"; not shown, none worse: {plural(more, 'more node')}"
    cells_of_rows = tuple(tuple(cells.get((host, name), Cell("-")) for name in columns) for host in shown)
    return Grid("Nodes and checks", "node", tuple(columns), tuple(shown), cells_of_rows, legend)


def _of_check(verdict: Verdict, where: str, link: str) -> Cell:
    if verdict is Verdict.PASS:
        return Cell("ok", verdict)
    return Cell(verdict.value, verdict, title=where, link=link)


def _by_host(run: RunJudgement, at_fault: Mapping[int, frozenset[str]]) -> Mapping[str, Verdict]:
    """The verdict of each node of a run. A metric counts for the nodes that the diagnosis names for it (`at_fault`, by
    the id of the metric), else for every node that took part; so does a problem."""
    host_of = {rank.rank: rank.host for rank in run.run.ranks}
    verdicts = {host: Verdict.PASS for host in host_of.values()}

    def count(verdict: Verdict, hosts: set[str]) -> None:
        for host in hosts & verdicts.keys() or verdicts:
            verdicts[host] = worst((verdicts[host], verdict))

    for judgement in run.judgements:
        hosts = {host_of[rank] for rank in judgement.samples.ranks if rank in host_of}
        count(judgement.verdict, (hosts & at_fault.get(id(judgement), frozenset())) or hosts)
    for problem in run.all_problems:
        count(problem.verdict, {host for component in problem.components for host in component.nodes})
    if run.final_verdict not in verdicts.values():
        count(run.final_verdict, set())
    return verdicts


def map_of_gpus(runs: Sequence[RunJudgement], checks: Sequence[str], most: int = _MOST_COLUMNS) -> Grid | None:
    """The map of one group of pairs: of those with the worst verdict the one that shows most pairs most directly.

    None where no group is of a node and has three GPUs or more, and `most` at most.
    """
    best: _PairMap | None = None
    for position, (run, check) in enumerate(zip(runs, checks, strict=True), start=1):
        on_hosts = "host" in str(run.run.header.get("plan", {}).get("buffers"))
        if on_hosts or len({rank.host for rank in run.run.ranks}) > 1:
            continue
        for group in groups_of(run):
            if group.is_pairs and group.quantity == "goodput":
                pair_map = _PairMap.of(run, group, check, f"run{position}")
                if 3 <= len(pair_map.labels) <= most and (best is None or pair_map.rank < best.rank):
                    best = pair_map
    return best.grid() if best is not None else None


@dataclass(frozen=True)
class _PairMap:
    """A group of pairs, by the places of its two ends; `labels` of these places."""

    run: RunJudgement
    group: MetricGroup
    check: str
    link: str
    labels: Mapping[int, str]
    pairs: Mapping[tuple[int, int], Judgement]

    @classmethod
    def of(cls, run: RunJudgement, group: MetricGroup, check: str, link: str) -> _PairMap:
        """The worst of several ranks on one GPU stands for it; two ranks on one have no link between GPUs."""
        place = {each.rank: each.device.index if each.device is not None else each.rank for each in run.run.ranks}
        name = {
            place[each.rank]: f"GPU {each.device.index}" if each.device is not None else f"rank {each.rank}"
            for each in run.run.ranks
        }
        pairs: dict[tuple[int, int], Judgement] = {}
        for judgement in group.judgements:  # worst first
            a, b = (place.get(rank) for rank in judgement.samples.ranks)
            if a is not None and b is not None and a != b:
                pairs.setdefault((a, b), judgement)
        ends = {end for pair in pairs for end in pair}
        labels = {number: name[number] for number in sorted(ends)}
        return cls(run, group, check, link, labels, pairs)

    @property
    def rank(self) -> tuple[int, int, tuple[bool, bool, bool, int]]:
        """Sorts maps: the one to show first."""
        directness = _indirectness(self.run, self.group.judgements[0].samples)
        return -SEVERITY[self.group.verdict], -len(self.pairs), directness

    @property
    def baseline(self) -> tuple[float, str]:
        """The value that all cells are in % of, and its name: the yardstick where it is one for all pairs, else their
        median, without those that are not PASS where some are."""
        pairs = list(self.pairs.values())
        yardsticks = {(each.yardstick.kind, each.yardstick.value) for each in pairs if each.yardstick is not None}
        if len(yardsticks) == 1 and all(each.judged_by in OF_KIND for each in pairs):
            kind, value = yardsticks.pop()
            return value, OF_KIND[kind]
        passed = [each.value for each in pairs if each.verdict is Verdict.PASS]
        median = statistics.median(passed or [each.value for each in pairs])
        return median, "the median of those that are PASS" if 0 < len(passed) < len(pairs) else "their median"

    def grid(self) -> Grid:
        """The map, in % of one baseline."""
        of, name = self.baseline
        labels = tuple(self.labels.values())
        cells = tuple(tuple(self._cell((a, b), of) for b in self.labels) for a in self.labels)
        transport = self.run.run.header.get("transport", "?")
        what = f"{self.group.operation} {self.group.schedule} {format_size(self.group.bytes)} over {transport}"
        kind = "GPU to GPU" if all(label.startswith("GPU") for label in labels) else "Rank to rank"
        return Grid(
            marked(f"{kind}: {what}", rehearsal=is_rehearsal(self.run.run)),
            "from \\ to",
            labels,
            labels,
            cells,
            f"{what} in % of {number(of)} {unit_shown(self.group.unit)}, {name}",
        )

    def _cell(self, pair: tuple[int, int], of: float) -> Cell:
        judged = self.pairs.get(pair)
        if judged is None:
            return Cell("")
        title = f"{'→'.join(map(str, judged.samples.ranks))} {judged.name} in {self.check}: {judged.verdict.value}, "
        title += f"{number(judged.value)} {unit_shown(judged.unit)}"
        link = self.link if judged.verdict is not Verdict.PASS else ""
        share = judged.value / of if of > 0 else math.nan
        if not math.isfinite(share):
            return Cell(judged.verdict.value, judged.verdict, None, title, link, judged.value)
        shade = min(max(int(SHADES * (share - DARKEST) / (1 - DARKEST)), 0), SHADES - 1)
        return Cell(percent(share), judged.verdict, shade, title, link, judged.value)
