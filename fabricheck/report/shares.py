"""How much of its yardstick a metric has, and the map of a session: nodes by checks, or GPUs by GPUs of one node.

There is one measure, and one scale of colours, for all maps of a page.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Kind
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.report.content import MetricGroup, groups_of, number, percent, unit_shown
from fabricheck.units import format_size, plural

#: The colours of all maps go in so many steps from this share, or less, to all of it.
SHADES, DARKEST = 10, 0.7
#: What a share is of, by the kind of yardstick.
OF_KIND = {
    "reference": "the reference",
    "part": "the same part elsewhere",
    "published": "the published value",
    "siblings": "the peers",
    "achievable": "the achievable",
    "floor": "the expected",
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


def share_of(judged: Judgement) -> float | None:
    """The value over that of the yardstick that judged it, of a latency the other way round: lower is worse.

    Below the least that is allowed it is of what is expected. None where nothing judged the metric, and where it is
    above the least and nothing else is known.
    """
    yardstick = judged.yardstick
    if yardstick is None or (yardstick.kind == "floor" and judged.verdict is Verdict.PASS):
        return None
    expected = judged.expectation.expected if yardstick.kind == "floor" else None
    return _share(judged, expected or yardstick.value)


def shares_of(judgements: Sequence[Judgement]) -> tuple[list[float | None], str]:
    """The shares of metrics that are compared with each other, and of what: of the yardsticks where all have one of
    the same kind, else of the median of those that are PASS, or of all."""
    shares = [share_of(each) for each in judgements]
    kinds = {each.judged_by for each in judgements}
    if len(kinds) == 1 and all(share is not None for share in shares):
        return shares, OF_KIND[kinds.pop()]
    passed = [each.value for each in judgements if each.verdict is Verdict.PASS]
    usual = statistics.median(passed or [each.value for each in judgements])
    of = "the median of those that are PASS" if 0 < len(passed) < len(judgements) else "their median"
    return [_share(each, usual) for each in judgements], of


def _share(judged: Judgement, of: float) -> float | None:
    value, other = (judged.value, of) if judged.better == "higher" else (of, judged.value)
    return value / other if other > 0 and math.isfinite(value) and math.isfinite(other) else None


def shade_of(share: float | None) -> int | None:
    """The step of the colours, 0 (bad) to 9, that a share has on every map of a page."""
    if share is None:
        return None
    return min(max(int(SHADES * (share - DARKEST) / (1 - DARKEST)), 0), SHADES - 1)


def indirectness(run: RunJudgement, samples: Samples) -> tuple[bool, bool, bool, int]:
    """A key that sorts pairs by how well they show the link: nothing but the hardware copies, alone, one way, much."""
    library, contended = run.run.header.get("transport") != "copy", samples.schedule == "contended"
    return library, contended, samples.operation == "bidirectional", -samples.bytes


@dataclass(frozen=True)
class Cell:
    """One cell of a map; `verdict` is `None` where nothing was judged. `shade`: its colour, 0 to 9 from bad to good;
    `title`: what it says when asked; `link`: the run behind it, by its id on the page."""

    text: str
    verdict: Verdict | None = None
    shade: int | None = None
    title: str = ""
    link: str = ""


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
        return _of_gpus(runs, checks)
    lost = {
        one.node: SEVERITY[each.verdict]
        for each in diagnosis.problems
        for one in each.components
        if one.kind is Kind.NODE and len(each.components) == 1 and one.node not in hosts
    }
    return _of_nodes(runs, checks, hosts, lost, diagnosis.nodes_of_rows)


def _of_nodes(
    runs: Sequence[RunJudgement],
    checks: Sequence[str],
    hosts: Collection[str],
    lost: Mapping[str, int],
    at_fault: Mapping[int, frozenset[str]],
) -> Grid:
    """The worst verdict of each check on each node; `lost`: how bad it is with nodes on which nothing was measured.
    `at_fault`: by metric the nodes that the diagnosis names."""
    in_order = sorted(zip(runs, checks, strict=True), key=lambda pair: pair[0].test or pair[0].run.path)
    names = list(dict.fromkeys(name for _, name in in_order))
    on_nodes: dict[tuple[str, str], list[_OnNode]] = {}
    for position, (run, check) in enumerate(zip(runs, checks, strict=True), start=1):
        for host, (verdict, bad) in _by_host(run, at_fault).items():
            on_node = _OnNode(verdict, bad, _on_node(run, host), f"run{position}")
            on_nodes.setdefault((host, check), []).append(on_node)
    # Nodes with anything that is not PASS first: a map of a thousand rows is read from its top.
    severity = dict(lost) | {
        host: max((SEVERITY[one.verdict] for name in names for one in on_nodes.get((host, name), ())), default=0)
        for host in hosts
    }
    rows = sorted([*hosts, *lost], key=lambda host: (-severity[host], host))
    columns = names[:_MOST_COLUMNS]
    most_rows = min(_MOST_ROWS, _MOST_CELLS // len(columns)) if columns else _MOST_ROWS
    shown = rows[:most_rows]
    cells = tuple(tuple(_of_check(on_nodes.get((host, name), ()), host, name) for name in columns) for host in shown)
    left = [
        plural(len(some) - most, what)
        for some, most, what in ((names, _MOST_COLUMNS, "more check"), (rows, most_rows, "more node"))
        if len(some) > most
    ]
    return Grid(
        "Nodes and checks",
        "node",
        tuple(columns),
        tuple(shown),
        cells,
        "of the baseline of each metric: the median of a cell, or the worst if one is not PASS. ok: above the minimum"
        + (f". Not shown (none worse): {', '.join(left)}" if left else ""),
    )


@dataclass(frozen=True)
class _OnNode:
    """What a run says of one node: `bad` of its metrics are not PASS because of it."""

    verdict: Verdict
    bad: int
    judgements: tuple[Judgement, ...]
    link: str


def _by_host(run: RunJudgement, at_fault: Mapping[int, frozenset[str]]) -> Mapping[str, tuple[Verdict, int]]:
    """Of each node of a run the verdict, and how many metrics are not PASS because of it.

    A metric counts for the nodes that the diagnosis names for it, else for every node that took part.
    """
    host_of = {rank.rank: rank.host for rank in run.run.ranks}
    by_host: dict[str, list[Verdict]] = {host: [] for host in host_of.values()}
    counts: Counter[str] = Counter()
    for judgement in run.judgements:
        if judgement.verdict is not Verdict.PASS:
            hosts = {host_of[rank] for rank in judgement.samples.ranks if rank in host_of}
            for host in (hosts & at_fault.get(id(judgement), frozenset())) or hosts:
                by_host[host].append(judgement.verdict)
                counts[host] += 1
    for problem in run.all_problems:
        named = {host for each in problem.components for host in each.nodes} & by_host.keys()
        for host in named or by_host:
            by_host[host].append(problem.verdict)
    if run.final_verdict not in ({one for verdicts in by_host.values() for one in verdicts} or {Verdict.PASS}):
        # Nothing says which node it is of.
        by_host = {host: [*verdicts, run.final_verdict] for host, verdicts in by_host.items()}
    return {host: (worst(verdicts) if verdicts else Verdict.PASS, counts[host]) for host, verdicts in by_host.items()}


def _of_check(on_nodes: Sequence[_OnNode], host: str, name: str) -> Cell:
    if not on_nodes:
        return Cell("-", title=f"{host}, {name}: not measured")
    worst = max(on_nodes, key=lambda on_node: SEVERITY[on_node.verdict])
    metrics = plural(len(worst.judgements), "metric")
    of = f"{worst.bad} of {metrics} not PASS" if worst.bad else metrics
    title = f"{host}, {name}: {worst.verdict.value}, {of}"
    if worst.verdict is Verdict.PASS:
        shares = [share for each in worst.judgements if (share := share_of(each)) is not None]
        return _cell(Verdict.PASS, statistics.median(shares) if shares else None, "")
    bad = [share for each in worst.judgements if each.verdict is worst.verdict if (share := share_of(each)) is not None]
    return _cell(worst.verdict, min(bad, default=None), title, worst.link)


def _on_node(run: RunJudgement, host: str) -> tuple[Judgement, ...]:
    own = {rank.rank for rank in run.run.ranks if rank.host == host}
    return tuple(each for each in run.judgements if own.intersection(each.samples.ranks))


def _cell(verdict: Verdict, share: float | None, title: str, link: str = "") -> Cell:
    if share is None:
        return Cell("ok" if verdict is Verdict.PASS else verdict.value, verdict, None, title, link)
    return Cell(percent(share), verdict, shade_of(share), title, link)


def _of_gpus(runs: Sequence[RunJudgement], checks: Sequence[str]) -> Grid | None:
    """The map of one group of pairs: of those with the worst verdict the one that shows most pairs most directly.

    None where no group has three GPUs or more, or more than a map has room for.
    """
    best: _PairMap | None = None
    for position, (run, check) in enumerate(zip(runs, checks, strict=True), start=1):
        if "host" in str(run.run.header.get("plan", {}).get("buffers")):
            continue
        for group in groups_of(run):
            if group.is_pairs and group.quantity == "goodput":
                pair_map = _PairMap.of(run, group, check, f"run{position}")
                if 3 <= len(pair_map.labels) <= _MOST_COLUMNS and (best is None or pair_map.rank < best.rank):
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
        labels = {number: name[number] for number in sorted({end for pair in pairs for end in pair})}
        return cls(run, group, check, link, labels, pairs)

    @property
    def rank(self) -> tuple[int, int, tuple[bool, bool, bool, int]]:
        """Sorts maps: the one to show first."""
        directness = indirectness(self.run, self.group.judgements[0].samples)
        return -SEVERITY[self.group.verdict], -len(self.pairs), directness

    def grid(self) -> Grid:
        """The map, in % of the yardstick that all its pairs have, else of their median."""
        known, of = shares_of(list(self.pairs.values()))
        shares = dict(zip(self.pairs, known, strict=True))
        labels = tuple(self.labels.values())
        cells = tuple(tuple(self._cell((a, b), shares.get((a, b))) for b in self.labels) for a in self.labels)
        transport = self.run.run.header.get("transport", "?")
        what = f"{self.group.operation} {self.group.schedule} {format_size(self.group.bytes)} over {transport}"
        kind = "GPU to GPU" if all(label.startswith("GPU") for label in labels) else "Rank to rank"
        return Grid(f"{kind}: {what}", "from \\ to", labels, labels, cells, f"of {of}")

    def _cell(self, pair: tuple[int, int], share: float | None) -> Cell:
        judged = self.pairs.get(pair)
        if judged is None:
            return Cell("", title="" if pair[0] == pair[1] else f"{pair[0]}→{pair[1]}: not measured")
        title = f"{'→'.join(map(str, judged.samples.ranks))} {judged.name} in {self.check}: {judged.verdict.value}, "
        title += f"{number(judged.value)} {unit_shown(judged.unit)}"
        return _cell(judged.verdict, share, title, self.link if judged.verdict is not Verdict.PASS else "")
