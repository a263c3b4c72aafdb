"""A run of the real NCCL between two nodes, on one H200 (docs/results/h200-2026-11-22): what its proof says counts."""

from __future__ import annotations

import pytest

from fabricheck.records.operations import COLLECTIVES
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.guards import Requested, require
from fabricheck.topology.transport_paths import Paths, ccl_paths
from tests.support.nodes import system
from tests.support.result_files import DATA


def verdicts(paths: Paths) -> tuple[tuple[Verdict, str], ...]:
    asked = Requested(
        transport="ccl",
        backend="cuda",
        ranks=2,
        nodes=2,
        devices=True,
        exit_code=0,
        operations=COLLECTIVES,
        paths_forbidden=paths.forbidden,
        paths_required=paths.required,
        described=paths.described,
    )
    problems = require(read_run(DATA / "two_nodes_nccl_collectives.jsonl"), asked)
    return tuple((each.verdict, each.message) for each in problems)


@pytest.mark.parametrize("name, path", [("leonardo", "NET/IB/GDRDMA"), ("alps", "NET/OFI/GDRDMA")])
def test_sockets_are_not_the_path_that_a_fast_network_describes(name: str, path: str) -> None:
    found = verdicts(ccl_paths(system(name), 2))
    assert {verdict for verdict, _ in found} == {Verdict.INVALID}
    assert any("NET/Socket" in message and path in message for _, message in found)


def test_sockets_are_right_where_they_are_described() -> None:
    assert verdicts(Paths((), ("^NET/Socket",), "NET/Socket")) == ()
