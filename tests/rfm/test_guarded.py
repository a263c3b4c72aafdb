"""Which runs are held to the networks of the site."""

from __future__ import annotations

from fabricheck.rfm.guarded import sends_between_nodes
from tests.support.made_runs import made_run, made_samples


def test_groups_of_a_node_use_no_network() -> None:
    hosts = ["a", "a", "b", "b"]
    inside = [made_samples("allgather", ranks, 524288, 1) for ranks in ((0, 1), (2, 3))]
    assert not sends_between_nodes(made_run(hosts, inside))
    rails = [made_samples("allgather", ranks, 524288, 1) for ranks in ((0, 2), (1, 3))]
    assert sends_between_nodes(made_run(hosts, rails))
