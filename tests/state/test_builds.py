"""Another build of a program or library on one node is found, and named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.judge.node_state import with_problems_of_nodes
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.verdict import Verdict
from fabricheck.state.builds import build_of, builds_of
from tests.support.states import node, run_with


def test_a_program_has_one_build_wherever_it_lies_and_another_has_another(tmp_path: Path) -> None:
    program, other = (Path(found) for name in ("sh", "env") if (found := shutil.which(name)))
    copy = Path(shutil.copy(program, tmp_path / "copy"))
    assert build_of(copy) == build_of(program) != build_of(other)
    assert builds_of(copy) == {"copy": build_of(program)}


@pytest.mark.parametrize("changed", ["fabricbench", "libmpi.so.40", "libnccl.so.2"])
def test_another_build_on_one_node_is_found_there(changed: str) -> None:
    usual = {"fabricbench": "1a", "libmpi.so.40": "2b", "libnccl.so.2": "3c"}
    hosts = ("nid001", "nid002", "nid003")
    builds = {host: {**usual, changed: "ff"} if host == "nid002" else usual for host in hosts}
    before, after = ([replace(node(host, when), builds=builds[host]) for host in hosts] for when in ("before", "after"))
    run = run_with(before, after)
    judged = with_problems_of_nodes(RunJudgement(run, Verdict.PASS, (), ()), None)
    assert [(each.code, each.components) for each in judged.problems] == [
        ("nodes-differ", (Component.of_node("nid002"),))
    ]
