"""One link of a node that explains its slow pairs: where data pass several links, a pair's ends are not to blame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fabricheck.expectation.placement import gpu_of_ranks
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.verdict import Verdict
from fabricheck.topology.graph import node_graph

_SLOW = (Verdict.DEGRADED, Verdict.FAIL)
# One pair that is slow is its own name.
_FEWEST_PAIRS = 2

Pair = tuple[int, ...]


@dataclass(frozen=True)
class SlowLink:
    """A link of `host` between two devices of its topology, in the direction of `ends` or in both.

    `pairs`: the ranks of the pairs whose data cross it, all of them slow; `others`: pairs that are slow besides.
    """

    host: str
    ends: tuple[str, str]
    both: bool
    pairs: frozenset[Pair]
    others: int

    @property
    def component(self) -> Component:
        return Component(Kind.LINK, self.ends[0], self.host, self.ends[1], self.host, "" if self.both else "out")


def slow_link(judged: RunJudgement) -> SlowLink | None:
    """The link that all slow pairs of a node have in common that one can, and no fast pair; None where there is none.

    Only where pairs share links by their routes: where each has its own, or all meet at a switch, ends tell as much.
    A GPU all of whose pairs are slow explains more than one of its links.
    """
    topology, hosts = judged.topology, list(dict.fromkeys(each.host for each in judged.run.ranks))
    if topology is None or len(hosts) != 1 or judged.run.header.get("plan", {}).get("shared_devices"):
        return None
    graph = node_graph(topology)
    if graph.fully_connected or graph.star:
        return None
    verdicts = _of_largest(judged)
    slow = {pair for pair, verdict in verdicts.items() if verdict in _SLOW}
    if len(slow) < _FEWEST_PAIRS:
        return None
    gpus = {rank: topology.gpu(index) for rank, index in gpu_of_ranks(judged.run).items()}
    crossing: dict[tuple[str, str], set[Pair]] = {}
    of_gpu: dict[str, set[Pair]] = {}
    for pair in verdicts:
        for edge in graph.widest_path(gpus[pair[0]], gpus[pair[1]]).edges:
            crossing.setdefault(edge, set()).add(pair)
        for rank in pair:
            of_gpu.setdefault(gpus[rank].name, set()).add(pair)
    both = {edge: pairs | crossing.get(edge[::-1], set()) for edge, pairs in crossing.items() if edge[0] < edge[1]}
    found = [(pairs, edge, True) for edge, pairs in both.items() if pairs <= slow]
    found += [(pairs, edge, False) for edge, pairs in crossing.items() if pairs <= slow]
    most = _largest(pairs for pairs, *_ in found)
    if most < max(_FEWEST_PAIRS, _largest(pairs for pairs in of_gpu.values() if pairs <= slow) + 1):
        return None
    if 2 * most <= len(slow):  # many are slow for another reason, and a link is among them
        return None
    best = [each for each in found if len(each[0]) == most]
    if len(best) > 1:  # nobody can tell them apart
        return None
    pairs, edge, in_both = best[0]
    return SlowLink(hosts[0], edge, in_both, frozenset(pairs), len(slow - pairs))


def _of_largest(judged: RunJudgement) -> dict[Pair, Verdict]:
    """The verdict of each pair in one direction, by goodput at the largest size."""
    own = [each for each in judged.judgements if each.unit == "Gb/s" and each.samples.operation == "unidirectional"]
    own = [each for each in own if each.samples.schedule == "uncontended" and len(set(each.samples.ranks)) == 2]
    largest = max((each.samples.bytes for each in own), default=0)
    return {tuple(each.samples.ranks): each.verdict for each in own if each.samples.bytes == largest}


def _largest(sets: Iterable[set[Pair]]) -> int:
    return max(map(len, sets), default=0)
