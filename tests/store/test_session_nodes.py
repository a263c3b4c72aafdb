"""Which nodes a session had, and what each came to there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import CheckJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.store.session import NodeRecord
from fabricheck.store.session_nodes import last_sessions, node_records
from tests.support.findings import bad_finding
from tests.support.made_runs import made_run, made_samples
from tests.support.sessions import add, case


def test_the_last_session_of_a_node_counts_whatever_its_verdict(root: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    add(root, store, 1, nodes={name: NodeRecord(verdict="PASS") for name in ("nid002", "nid003")})
    add(root, store, 2, nodes={"nid003.site": NodeRecord(verdict="INCOMPLETE")})
    add(root, store, 3, nodes=None)  # of before sessions had nodes
    last = last_sessions(store, "local")
    assert last["nid002"] < last["nid003"] == last["nid003.site"]
    (file, *_) = sorted(store.glob("local/*/session.json"))
    file.write_text(file.read_text().replace("nid003", "nid004"))
    with pytest.raises(UserError, match=r"session.json .* was changed"):
        last_sessions(store, "local")


def test_a_node_has_the_worst_verdict_of_its_runs() -> None:
    hosts = ["n0"] * 4 + ["n1"] * 4
    slow = (bad_finding(Verdict.DEGRADED, "slow"),)
    samples = [made_samples("unidirectional", ranks, 1 << 26, 100.0) for ranks in ((1, 4), (0, 1))]
    both = RunJudgement(made_run(hosts, samples, devices=True), Verdict.DEGRADED, slow, ())
    alone = RunJudgement(made_run(hosts[:4], samples[1:], devices=True), Verdict.FAIL, slow, ())
    records = node_records([case()] * 2, [both, alone])
    assert {name: record.verdict for name, record in records.items()} == {"n0": "FAIL", "n1": "DEGRADED"}
    failed = case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INVALID))
    assert {record.verdict for record in node_records([failed], [both]).values()} == {"INVALID"}
    # Where nodes have verdicts of their own, those count, also of a node that left no run.
    records = node_records([case()], [both], {"n1": Verdict.PASS, "n2": Verdict.FAIL})
    verdicts = {name: record.verdict for name, record in records.items()}
    assert verdicts == {"n0": "INCOMPLETE", "n1": "PASS", "n2": "FAIL"}
