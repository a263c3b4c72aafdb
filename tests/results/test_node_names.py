"""A node that goes by another's name: what is measured on it would be said of the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.result_files import lines_of, write

TWO_NODES = Path(__file__).parents[1] / "data" / "fabricbench" / "two_nodes_nccl_collectives.jsonl"


def problems(tmp_path: Path, names: list[str | None], hosts: list[str]) -> list[str]:
    """Of a run whose ranks are on `hosts`, and on the nodes `names` by the scheduler's word."""
    lines = lines_of(TWO_NODES)
    header = lines[0]
    count = len(header["ranks"])
    per_node = count // len(hosts)
    for rank in header["ranks"]:
        rank["host"] = hosts[rank["rank"] // per_node]
    told = [names[rank // per_node] for rank in range(count)]
    if told[0] is not None:
        header["environment"]["SLURMD_NODENAME"] = told[0]
    header["environment_differences"] = [
        {"rank": rank, "name": "SLURMD_NODENAME", "value": name} for rank, name in enumerate(told) if name != told[0]
    ]
    found = read_run(write(tmp_path / "run.jsonl", lines)).problems
    assert {each.verdict for each in found} <= {Verdict.INVALID}
    return [each.message.split(": ", 1)[1] for each in found if "scheduler" in each.message]


def test_exchanged_names_are_found_on_both_nodes(tmp_path: Path) -> None:
    assert problems(tmp_path, ["nid002", "nid001"], ["nid001", "nid002"]) == [
        "the node that the scheduler calls nid002 has the host name nid001: are their names exchanged?",
        "the node that the scheduler calls nid001 has the host name nid002: are their names exchanged?",
    ]


def test_nodes_of_one_name_are_found(tmp_path: Path) -> None:
    (message,) = problems(tmp_path, ["nid001", "nid002"], ["nid001", "nid001"])
    assert message == "nodes nid001, nid002 of the scheduler all have the host name nid001: give each its own"


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        (["nid001", "nid002"], ["nid001", "nid002"]),
        (["nid001", "nid002"], ["nid001.cluster.local", "nid002.cluster.local"]),
        ([None, None], ["nid001", "nid002"]),
        # A launcher that hands the first node's variables on, and a site whose nodes have other names than hosts.
        (["nid001", "nid001"], ["nid001", "nid002"]),
        (["batch", "batch"], ["nid001", "nid002"]),
        (["node1", "node2"], ["ip-10-0-0-1", "ip-10-0-0-2"]),
        (["nid001", None], ["nid001", "nid002"]),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(tmp_path: Path, names: list[str | None], hosts: list[str]) -> None:
    assert problems(tmp_path, names, hosts) == []
