"""What a session says beside its metrics, and the command that says it of files and of stored sessions."""

from __future__ import annotations

import itertools

import pytest

from fabricheck.diagnosis.of_session import find_all, find_unmeasured_nodes, find_unused_gpus, with_session_findings
from fabricheck.judge.policy import Policy, load_policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import split
from fabricheck.records.verdict import Verdict
from tests.support.made_runs import MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import ROOT, system

EMULATED = SystemJudge(system("emulated"), None, Policy())
NODES = [f"nid{number:03d}" for number in range(1, 9)]


@pytest.mark.parametrize(("ranks", "said"), [(2, True), (4, False)])
def test_gpus_that_no_run_drove_are_counted(ranks: int, said: bool) -> None:
    judge = SystemJudge(system("hgx-h200"), None, Policy())
    both = [["x"] * each + ["y"] * each for each in (1, ranks)]
    runs = [made_case(made_run(hosts, [made_samples("alltoall", (0, 1), MIB, 100)], devices=True)) for hosts in both]
    text = "made:gpu: the runs used at most 2 of the 4 GPUs of a node"
    assert [each.message for each in find_unused_gpus(runs, judge)] == ([text] if said else [])
    assert not list(find_unused_gpus([made_case(made_run(["x"], []))], judge))


def test_a_run_by_itself_is_told_what_its_session_tells() -> None:
    """One node of eight loses 8%: its pairs are slow, and the node is named, by hand as in a session."""
    pairs = [
        made_samples("unidirectional", pair, 2 * MIB, noisy(0.088 if 2 in pair else 0.0957, 20, seed=seed))
        for seed, pair in enumerate(itertools.permutations(range(8), 2))
    ]
    run = made_run(NODES, pairs, ranks=[{"rank": rank} for rank in range(8)], plan={"series": []})
    judge = SystemJudge(EMULATED.topology, None, load_policy(ROOT / "config" / "policy.yaml"))
    problems, _ = split(find_all([made_case(run)], judge))
    by_hand = with_session_findings(judge.judge_alone(run), judge)
    assert [each.place for each in problems] == ["nid003"]
    assert set(problems) <= set(by_hand.problems)
    assert by_hand.verdict is not Verdict.PASS


def test_nodes_of_the_description_that_no_run_was_on_are_told() -> None:
    def told(*hosts: str) -> list[str]:
        run = made_run(hosts, [made_samples("pingpong", (0, 1), MIB, 0.09)])
        return [each.message for each in find_unmeasured_nodes([made_case(run)], EMULATED)]

    assert told(*NODES) == told(NODES[0]) == []  # what stays on a node says nothing of the network
    said = "no run used 5 of the 8 nodes in topology.yaml: nid[004-008]"
    assert told("nid001.cluster.local", "nid002", "nid003") == [said]


def test_nodes_that_slurm_has_and_nobody_described_are_told() -> None:
    """A partition that grew to ten nodes: the eight of the description are measured, and pass."""
    run = made_run(NODES, [made_samples("pingpong", (0, 1), MIB, 0.09)])

    def told(slurm_nodes: str) -> list[str]:
        return [each.message for each in find_unmeasured_nodes([made_case(run, slurm_nodes=slurm_nodes)], EMULATED)]

    assert told("") == told("nid[001-008]") == []
    (said,) = told("nid[001-010]")
    assert said.startswith("made:gpu: Slurm has 10 nodes, more than topology.yaml: no run used nid[009-010]; set")
