"""What a session says beside its metrics, and the command that says it of files and of stored sessions."""

from __future__ import annotations

import itertools

from fabricheck.diagnosis.of_session import find_all, with_session_findings
from fabricheck.judge.policy import Policy, load_policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.finding import split
from fabricheck.records.verdict import Verdict
from tests.support.made_runs import MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import ROOT, system

EMULATED = SystemJudge(system("emulated"), None, Policy())
NODES = [f"nid{number:03d}" for number in range(1, 9)]


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
