"""Random clusters with faults of random components: the true one comes first or tied, and a tie drains nobody."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.diagnosis.explain import explain
from fabricheck.records.component import Component, only_node
from tests.support.drawn_faults import Drawn, draw
from tests.support.effort import effort

# Of the last three a judge's bound lies between rows that lose as much: software, and not the nodes that are beyond it.
SEEDS = (*range(effort(20)), 1049, 1067, 1118)


@dataclass(frozen=True)
class Answer:
    """What came of a table: whether each fault is first or tied, and the healthy nodes that would be drained."""

    right: bool
    drained: frozenset[str]


def answer(drawn: Drawn) -> Answer:
    causes = explain(drawn.rows, drawn.prior)
    named = [frozenset(each.components) for each in causes]
    faults = frozenset(drawn.faults)
    first_are_true = all(not faults.isdisjoint(each) for each in named[: len(faults)])
    all_are_named = faults <= frozenset[Component]().union(*named)
    nodes = frozenset(node for fault in faults for node in fault.nodes)
    drained = frozenset(only_node(each.components) for each in causes) - {""}
    return Answer(first_are_true and all_are_named, drained - nodes)


def test_faults_of_random_components_are_named_and_no_healthy_node_is_drained() -> None:
    """Three faults may look like one that all of them share, which is the simpler cause: a few in a hundred."""
    drawn = {seed: draw(seed) for seed in SEEDS}
    answers = {seed: answer(each) for seed, each in drawn.items()}
    assert not {seed: each.drained for seed, each in answers.items() if each.drained}
    single = [seed for seed in SEEDS if len(drawn[seed].faults) == 1]
    assert len(single) > len(SEEDS) / 3
    assert [seed for seed in single if not answers[seed].right] == []
    assert sum(each.right for each in answers.values()) >= 0.9 * len(SEEDS)


def test_where_nothing_is_slow_nothing_is_explained() -> None:
    rows = [row for row in draw(1).rows if not row.slow]
    assert explain(rows) == ()
