"""Pair matrices: a map of the pairs of a group, as a table whose cells are coloured."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby, pairwise

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.pair_rule import planned_groups
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import Group, describe_rank, number, percent, plural, who
from fabricheck.report.figures.tables import Cell, End, Figure, Listing, Matrix
from fabricheck.topology.network import Network

# Above it, numbers in the cells could not be read.
_RANKS_WITH_TEXT = 32
# A matrix with few of its cells measured is shorter as a list.
_SPARSE = 8
_SHADES = 10
_AT_ANOTHER_SWITCH = "rack"
# The colours span at least this share of the best value: noise is not to look like a fault.
_LEAST_SPAN = 0.05


def matrix_of(group: Group, judged: RunJudgement) -> Figure:
    """The matrix of a group of pairs: in % of what is expected where that is known of all of them."""
    measured = {(each.samples.ranks[0], each.samples.ranks[1]): each for each in group.judgements}
    planned = _planned_pairs(group, judged)
    pairs = {*measured, *planned}
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    sources, destinations = tuple(sorted({a for a, _ in pairs})), tuple(sorted({b for _, b in pairs}))
    if len(ranks) <= _RANKS_WITH_TEXT:
        sources = destinations = ranks
    relative = all(each.share_of_expected is not None for each in measured.values())
    unit = "% of expected" if relative else group.unit
    known = {pair: _value(each, relative) for pair, each in measured.items()}
    low, high = span_of(list(known.values()))
    text = len(ranks) <= _RANKS_WITH_TEXT
    by_rank = {each.rank: each for each in judged.run.ranks}

    def cell(pair: tuple[int, int]) -> Cell:
        judgement = measured.get(pair)
        if judgement is not None:
            shade = _shade(known[pair], low, high, higher=group.quantity == "goodput")
            shown = (percent(known[pair] / 100) if relative else number(known[pair])) if text else ""
            shown = shown or ("" if judgement.verdict is Verdict.PASS else number(known[pair]))
            return Cell(shown, judgement.verdict, shade, _title(pair, judgement, by_rank))
        if pair in planned:
            return Cell("missing", Verdict.INCOMPLETE)
        return Cell("", None)

    cells = tuple(tuple(cell((a, b)) for b in destinations) for a in sources)
    network = judged.topology.network if judged.topology is not None else None
    ends = _ends(sources, by_rank, network), _ends(destinations, by_rank, network)
    legend, hosts = _legend(group, low, high, unit), _hosts(ends[1])
    if any(_AT_ANOTHER_SWITCH in end.edge for side in ends for end in side):
        legend += "; a double line separates nodes without a common switch"
    table: Matrix | Listing = Matrix(*ends, cells, hosts, legend)
    if len(sources) * len(destinations) > _SPARSE * len(pairs) + 100:
        table = Listing(tuple((f"{a}→{b}", cell((a, b))) for a, b in sorted(pairs)))
    summary = _summary(group, measured, planned, relative)
    return Figure("matrix", f"{group.name}: pairs, in {unit}", summary, "", table)


def _summary(
    group: Group, measured: dict[tuple[int, int], Judgement], planned: set[tuple[int, int]], relative: bool
) -> str:
    worst, best = group.judgements[0], group.judgements[-1]
    summary = plural(len(measured), "pair")
    if len(planned - measured.keys()):
        summary += f", {len(planned - measured.keys())} missing"
    if len(measured) > 1:
        summary += f"; worst {_pair_text(worst)}, best {_pair_text(best)}"
    else:
        summary += f"; {_pair_text(worst)}"
    if not relative:
        summary += (
            f". The model has no {group.quantity} for these pairs: absolute values in {group.unit}"
            if all(each.expectation.expected is None for each in measured.values())
            else f". The model has no value for some pairs: absolute values in {group.unit}"
        )
    return summary


def _planned_pairs(group: Group, judged: RunJudgement) -> set[tuple[int, int]]:
    header = judged.run.header
    return {
        (each["ranks"][0], each["ranks"][1])
        for each in (planned_groups(header) if "series" in header.get("plan", {}) else ())
        if (each["operation"], each["implementation"], each["schedule"])
        == (group.operation, group.implementation, group.schedule)
        and group.bytes in each["bytes"]
    }


def _value(judged: Judgement, relative: bool) -> float:
    share = judged.share_of_expected
    return 100 * share if relative and share is not None else judged.value


def span_of(known: list[float]) -> tuple[float, float]:
    """The values at both ends of the colours: the data's own, not narrower than noise is wide."""
    finite = [each for each in known if math.isfinite(each)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high - low > _LEAST_SPAN * high else (high - (_LEAST_SPAN * high or 1.0), high)


def _shade(value: float, low: float, high: float, *, higher: bool) -> int | None:
    if not math.isfinite(value):
        return None
    shade = min(int((value - low) / (high - low) * _SHADES), _SHADES - 1)
    return shade if higher else _SHADES - 1 - shade


def _legend(group: Group, low: float, high: float, unit: str) -> str:
    ends = (low, high) if group.quantity == "goodput" else (high, low)
    text = f"Dark is {number(ends[0])}, light {number(ends[1])} {unit}"
    floors = {each.expectation.floor_fraction for each in group.judgements}
    if unit == "% of expected" and group.quantity == "goodput" and len(floors) == 1 and (floor := floors.pop()):
        text += f"; the floor is {number(100 * floor)}"
    return text


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
    expected = judgement.expectation.expected
    of = f"; {percent(judgement.share_of_expected)} of expected {number(expected)} {judgement.unit}" if expected else ""
    return (
        f"{names[0]} → {names[1]}: {number(judgement.value)} {judgement.unit} (95%: {number(low)} to {number(high)})"
        f"{of}; {judgement.verdict.value}"
    )


def _pair_text(judged: Judgement) -> str:
    share = judged.share_of_expected
    of_expected = f" ({percent(share)} of expected)" if share is not None else ""
    return f"{who(judged.samples, 0)} {number(judged.value)} {judged.unit}{of_expected}, {judged.verdict.value}"
