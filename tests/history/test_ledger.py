"""When each node was last verified, by sessions of every kind, and whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.history.ledger import Checked, Ledger, LedgerNode, read_ledger
from fabricheck.history.session import NodeRecord, VerdictName
from fabricheck.history.session_nodes import node_records
from fabricheck.history.text import ledger_lines
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import CheckJudgement
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import find_topology
from tests.support.findings import bad_finding
from tests.support.made_runs import made_run, made_samples
from tests.support.sessions import ROOT, add, case

NODES = ("nid001", "nid002", "nid003", "nid004")


def record(verdict: VerdictName, *links: str) -> NodeRecord:
    return NodeRecord(verdict=verdict, links=list(links))


@pytest.fixture
def store(root: Path, tmp_path: Path) -> Path:
    """Three nights: all of it; one node slow and one unjudged; and smoke of one, before which a link was lost."""
    store = tmp_path / "store"
    add(root, store, 1, level="nightly", nodes=dict.fromkeys(NODES[:3], record("PASS", "hsn0", "hsn1")))
    second = {"nid002": record("DEGRADED", "hsn0", "hsn1"), "nid003": record("INCOMPLETE", "hsn0", "hsn1")}
    add(root, store, 2, level="nightly", nodes=second)
    add(root, store, 3, level="smoke", nodes={"nid001.site": record("PASS", "hsn1")})
    return store


def test_the_longest_ago_is_first_and_no_verdict_is_no_verification(store: Path) -> None:
    found = read_ledger(store, "local", NODES, ("hsn0", "hsn1"))
    assert list(ledger_lines(found)) == [
        "node    verified (UTC)    checks   verdict   links to other nodes",
        "nid004  never             -        -         never",
        "nid003  2026-09-02 02:00  nightly  PASS      2026-09-02 02:00"
        "                              then INCOMPLETE 2026-09-03 02:00",
        "nid002  2026-09-03 02:00  nightly  DEGRADED  2026-09-03 02:00",
        "nid001  2026-09-04 02:00  smoke    PASS      hsn0 2026-09-02 02:00, hsn1 2026-09-04 02:00",
    ]
    # nid003 had its turn on the second night as well, though it was no use.
    assert found.oldest(NODES) == ["nid004", "nid002", "nid003", "nid001"]
    assert found.oldest(["nid009", "nid001", "nid008"]) == ["nid009", "nid008", "nid001"]


def test_nodes_that_the_partition_does_not_have_are_apart(store: Path) -> None:
    assert read_ledger(store, "local", NODES[1:]).others == ("nid001",)
    assert [each.node for each in read_ledger(store, "local").nodes] == ["nid003", "nid002", "nid001"]


@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(["", "2026-09-01", "2026-09-02"])), max_size=9))
def test_nobody_has_a_turn_before_who_waited_longer(waiting: Sequence[tuple[str, str]]) -> None:
    last = dict(waiting)
    lines = [
        LedgerNode(node, Checked(when, "s", None, "PASS") if when else None, None, ()) for node, when in last.items()
    ]
    turns = Ledger("site", tuple(lines), (), False).oldest(NODES)
    assert sorted(turns) == sorted(NODES)
    assert [last.get(node, "") for node in turns] == sorted(last.get(node, "") for node in NODES)


def test_of_a_session_of_before_the_runs_tell_its_nodes(root: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    failed = case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INCOMPLETE))
    add(root, store, 1, nodes=None)
    add(root, store, 2, nodes=None, cases=[failed])
    (node,) = read_ledger(store, "local").nodes
    assert (node.node, node.links) == ("nid001", ())
    assert node.verified is not None and node.later is not None
    assert (node.verified.started, node.verified.level, node.verified.verdict) == ("2026-09-02T02:00:00Z", None, "PASS")
    assert (node.later.started, node.later.verdict) == ("2026-09-03T02:00:00Z", "INCOMPLETE")


def test_a_damaged_session_is_named(store: Path) -> None:
    (file, *_) = sorted(store.glob("local/*/session.json"))
    file.write_text(file.read_text().replace("nid003", "nid004"))
    with pytest.raises(UserError, match=r"session.json .* was changed"):
        read_ledger(store, "local")


def test_links_are_the_nics_of_pairs_with_other_nodes() -> None:
    """What a collective or a pair of one node uses is not verified by it."""
    topology = find_topology("leonardo", ROOT / "site_configs")
    nics = [each.name for each in topology.nics]
    samples = [made_samples("unidirectional", ranks, 1 << 26, 100.0) for ranks in ((1, 4), (0, 1))]
    samples.append(made_samples("allreduce", range(8), 1 << 26, 100.0))
    hosts = ["n0"] * 4 + ["n1.site"] * 4
    slow = (bad_finding(Verdict.DEGRADED, "slow"),)
    both = RunJudgement(made_run(hosts, samples, devices=True), Verdict.DEGRADED, slow, (), topology=topology)
    alone = RunJudgement(made_run(hosts[:4], samples[1:2], devices=True), Verdict.FAIL, slow, (), topology=topology)
    found = node_records([case()] * 2, [both, alone])
    assert {name: (each.verdict, each.links) for name, each in found.items()} == {
        "n0": ("FAIL", [nics[1]]),
        "n1.site": ("DEGRADED", [nics[0]]),
    }
    failed = case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INVALID))
    assert {each.verdict for each in node_records([failed], [both]).values()} == {"INVALID"}
    assert {each.verdict for each in node_records([case()], [both], {}).values()} == {"INCOMPLETE"}
    # Where nodes have verdicts of their own, those count, also of a node that left no run.
    found = node_records([case()], [both], {"n1": Verdict.PASS, "n2": Verdict.FAIL})
    assert {name: (each.verdict, each.links) for name, each in found.items()} == {
        "n0": ("INCOMPLETE", [nics[1]]),
        "n1": ("PASS", [nics[0]]),
        "n2": ("FAIL", []),
    }
