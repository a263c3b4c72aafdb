"""Pair matrices: a map of the pairs of a group, as a table whose cells are coloured."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

from markupsafe import Markup

from fabricheck.errors import UserError
from fabricheck.judge.overall import SEVERITY
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.pair_rule import planned_groups
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import MetricGroup, describe_rank, number, percent, ranks_text, shown_kind, unit_shown
from fabricheck.report.figures.tables import Cell, End, Figure, Matrix, Rows
from fabricheck.report.shares import shade_of, shares_of
from fabricheck.topology.network import Network
from fabricheck.units import plural

# Above it, numbers in the cells could not be read.
_RANKS_WITH_TEXT = 32
# A matrix with few of its cells measured is shorter as a list.
_SPARSE = 8
_AT_ANOTHER_SWITCH = "rack"


def matrix_of(group: MetricGroup, judged: RunJudgement) -> Figure:
    """The matrix of a group of pairs: in % of their yardsticks where all have one, else of their median."""
    measured = {(each.samples.ranks[0], each.samples.ranks[1]): each for each in group.judgements}
    planned = _planned_pairs(group, judged)
    pairs = {*measured, *planned}
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    sources, destinations = tuple(sorted({a for a, _ in pairs})), tuple(sorted({b for _, b in pairs}))
    if len(ranks) <= _RANKS_WITH_TEXT:
        sources = destinations = ranks
    known, of = shares_of(list(measured.values()))
    shares = dict(zip(measured, known, strict=True))
    text = len(ranks) <= _RANKS_WITH_TEXT
    by_rank = {each.rank: each for each in judged.run.ranks}

    def cell(pair: tuple[int, int]) -> Cell:
        judgement = measured.get(pair)
        if judgement is not None:
            share = shares[pair]
            value = percent(share) if share is not None else number(judgement.value)
            shown = value if text or judgement.verdict is not Verdict.PASS else ""
            return Cell(shown, judgement.verdict, shade_of(share), _title(pair, judgement, by_rank))
        if pair in planned:
            return Cell("missing", Verdict.INCOMPLETE)
        return Cell("", None)

    cells = tuple(tuple(cell((a, b)) for b in destinations) for a in sources)
    network = judged.topology.network if judged.topology is not None else None
    ends = _ends(sources, by_rank, network), _ends(destinations, by_rank, network)
    legend, hosts = f"of {of}", _hosts(ends[1])
    if any(_AT_ANOTHER_SWITCH in end.edge for side in ends for end in side):
        legend += "; a double line separates nodes without a common switch"
    table: Matrix | Rows = Matrix(*ends, cells, hosts, legend)
    if len(sources) * len(destinations) > _SPARSE * len(pairs) + 100:
        table = Rows(("pair", "value"), tuple((Cell(f"{a}→{b}"), cell((a, b))) for a, b in sorted(pairs)))
    return Figure("matrix", f"{group.name}: pairs, in % of {of}", _summary(shares, measured, planned), Markup(), table)


def _summary(
    shares: dict[tuple[int, int], float | None],
    measured: dict[tuple[int, int], Judgement],
    planned: set[tuple[int, int]],
) -> str:
    ranked = sorted(measured, key=lambda pair: (-SEVERITY[measured[pair].verdict], shares[pair] or 0.0, pair))
    worst, best = measured[ranked[0]], measured[ranked[-1]]
    summary = plural(len(measured), "pair")
    if len(planned - measured.keys()):
        summary += f", {len(planned - measured.keys())} missing"
    if len(measured) > 1:
        return f"{summary}; worst {_pair_text(worst)}, best {_pair_text(best)}"
    return f"{summary}; {_pair_text(worst)}"


def _planned_pairs(group: MetricGroup, judged: RunJudgement) -> set[tuple[int, int]]:
    header = judged.run.header
    return {
        (each["ranks"][0], each["ranks"][1])
        for each in (planned_groups(header) if "series" in header.get("plan", {}) else ())
        if (each["operation"], each["implementation"], each["schedule"])
        == (group.operation, group.implementation, group.schedule)
        and group.bytes in each["bytes"]
    }


def _ends(ranks: tuple[int, ...], by_rank: dict[int, Rank], network: Network | None) -> tuple[End, ...]:
    """The ends with the lines between them; none where all are on one host."""
    ends = [_end(by_rank.get(each), each) for each in ranks]
    if len({each.host for each in ends}) < 2:
        return tuple(ends)
    edges = ["edge", *(_edge(one.host, other.host, network) for one, other in pairwise(ends))]
    return tuple(replace(each, edge=edge) for each, edge in zip(ends, edges, strict=True))


def _edge(host: str, next_: str, network: Network | None) -> str:
    if host == next_:
        return ""
    try:
        near = network is None or network.distance(*map(network.node_of_host, (host, next_))) == "same-switch"
    except UserError:  # a host that the network does not know; the judge says so
        near = True
    return "edge" if near else f"edge {_AT_ANOTHER_SWITCH}"


def _end(rank: Rank | None, number_: int) -> End:
    if rank is None:
        return End("", f"rank {number_}")
    return End(rank.host, f"GPU {rank.device.index}" if rank.device is not None else f"rank {number_}")


def _hosts(ends: tuple[End, ...]) -> tuple[tuple[str, int, str], ...]:
    hosts = [list(own) for _, own in groupby(ends, lambda end: end.host)]
    return tuple((own[0].host, len(own), own[0].edge) for own in hosts) if len(hosts) > 1 else ()


def _title(pair: tuple[int, int], judgement: Judgement, by_rank: dict[int, Rank]) -> str:
    names = [describe_rank(by_rank[each]) if each in by_rank else f"rank {each}" for each in pair]
    low, high = judgement.interval
    yardstick, unit = judgement.yardstick, unit_shown(judgement.unit)
    of = f"; {shown_kind(yardstick.kind)} {number(yardstick.value)} {unit}" if yardstick is not None else ""
    return (
        f"{names[0]} → {names[1]}: {number(judgement.value)} {unit} (95%: {number(low)} to {number(high)})"
        f"{of}; {judgement.verdict.value}"
    )


def _pair_text(judged: Judgement) -> str:
    return f"{ranks_text(judged.samples, 0)} {number(judged.value)} {unit_shown(judged.unit)}, {judged.verdict.value}"
