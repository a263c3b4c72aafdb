"""The verdict of each node, from what its runs, the network and its launches say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.drain import VerdictFile
from fabricheck.fleet.node_verdicts import BadNode, FleetVerdict, as_json, verdict_of_fleet
from fabricheck.fleet.record import Fleet, did_not_start, not_run, read_findings, write_findings
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Expectation, Judgement
from fabricheck.records.run import Device, Run
from fabricheck.records.verdict import Verdict
from fabricheck.report.fleet import next_step, table
from fabricheck.report.part_names import NodeGpu, NodeParts
from fabricheck.topology.network import unfold
from tests.support.findings import bad_finding
from tests.support.made_runs import made_run, made_samples
from tests.support.states import node, run_with

NODES = unfold("nid[001-008]")
LOOK_AT_NIC = "on nid002: ethtool -S hsn0"


def fleet(folder: Path, unchecked: Mapping[str, str] | None = None) -> Fleet:
    return Fleet(folder, "site", "site:gpu", "all", "17", NODES, unchecked or {})


def run(*hosts: str, problems: tuple[Finding, ...] = ()) -> RunJudgement:
    made = made_run([*hosts], [made_samples("alltoall", range(len(hosts)), 1 << 20, 100.0)])
    worst = problems[0].verdict if problems else Verdict.PASS
    return RunJudgement(made, worst, problems, (), "Test @site:gpu+e") if problems else _passed(made)


def _passed(made: Run) -> RunJudgement:
    (sample,) = made.samples
    value, nothing = 100.0, Expectation(None, None, None, 0.0, "made")
    metric = Judgement(
        "pingpong", "Gb/s", "higher", value, (value, value), Verdict.PASS, "", False, nothing, None, sample
    )
    return RunJudgement(made, Verdict.PASS, (), (metric,), "Test @site:gpu+e")


def names(found: FleetVerdict) -> list[str]:
    return [each.node for each in found.bad]


def test_each_source_names_its_node_and_the_others_are_good(tmp_path: Path) -> None:
    one = fleet(tmp_path, {"nid009": "its state in Slurm is drained"})
    one.exclude([did_not_start("nid003", "it failed twice")])
    cable = bad_finding(Verdict.DEGRADED, "loses 50%", "nid002, nid002:hsn0 or nid002:hsn0--leaf0")
    trunk = bad_finding(Verdict.DEGRADED, "loses 60%", "leaf0--spine0")
    # Nothing to judge is INVALID by itself, so what is good here says something.
    wrong = run("nid005", problems=(bad_finding(Verdict.FAIL, "2 wrong bytes", "nid005:gpu1"),))
    everyone = run(*NODES[:7])
    found = verdict_of_fleet(one, [not_run("nid004", "once")], [wrong, everyone], [cable, trunk])
    assert names(found) == ["nid002", "nid003", "nid004", "nid005"]
    assert [each.verdict.value for each in found.bad] == ["DEGRADED", "FAIL", "INCOMPLETE", "FAIL"]
    assert found.good == ("nid001", "nid006", "nid007")
    assert list(found.unchecked) == ["nid009", "nid008"]
    assert found.elsewhere == (trunk,)
    assert found.message == "3 of 9 nodes good, 4 bad, 2 not checked"


def test_of_a_job_that_ended_early_no_node_is_good_and_the_worst_is_said_first(tmp_path: Path) -> None:
    ended = fleet(tmp_path)
    ended.end("the job was cancelled")
    slow, wrong = (
        run("nid001", problems=(bad_finding(verdict, "", "nid001"),)) for verdict in (Verdict.DEGRADED, Verdict.FAIL)
    )
    found = verdict_of_fleet(ended, (), [slow, wrong, run("nid002", "nid003")], ())
    assert (found.good, found.unchecked["nid002"]) == ((), "the job was cancelled")
    assert [each.verdict for each in found.bad[0].evidence] == [Verdict.FAIL, Verdict.DEGRADED]


def test_a_host_with_a_domain_is_its_node(tmp_path: Path) -> None:
    wrong = run("nid005.site.example", problems=(bad_finding(Verdict.FAIL, "2 wrong bytes"),))
    assert names(verdict_of_fleet(fleet(tmp_path), (), [wrong], ())) == ["nid005"]


A, B = st.sampled_from(NODES), st.sampled_from(NODES)
parts = st.one_of(
    st.builds(Component.of_node, A),
    st.builds(Component, st.sampled_from([Kind.GPU, Kind.NIC, Kind.NUMA]), st.just("one0"), A),
    st.builds(Component, st.sampled_from([Kind.PATH, Kind.LINK]), st.just("gpu0"), A, st.just("gpu0"), B),
    st.builds(lambda a, b: Component.between(Component.of_node(a), Component.of_node(b)), A, B),
    st.sampled_from([Component(Kind.SWITCH, "leaf0"), Component(Kind.LIBRARY, "NCCL"), Component(Kind.SYSTEM)]),
)
problems = st.builds(
    lambda verdict, found: Finding("slow-link", verdict, "slow", tuple(found)),
    st.sampled_from([Verdict.FAIL, Verdict.DEGRADED]),
    st.lists(parts, max_size=4),
)


@given(st.lists(problems, max_size=8))
def test_what_is_proven_of_no_one_node_drains_none(
    tmp_path_factory: pytest.TempPathFactory, found: list[Finding]
) -> None:
    """Each node that ci/drain.py would drain has a problem whose components, one and all, are of that node alone."""
    ends = [[(part.node, part.far_node or part.node) for part in each.components] for each in found]
    proven = [set().union(*pairs) for pairs in ends]
    verdict = verdict_of_fleet(fleet(tmp_path_factory.mktemp("fleet")), (), (), found)
    session = {"id": "1a2b3c4d", "ended": "2026-11-20T03:00:00+00:00"}
    content = {"system": "alps", "rehearsal": False, "session": session, "runs": [], "fleet": as_json(verdict)}
    drained = VerdictFile.model_validate_json(json.dumps(content)).proven_bad
    assert drained.keys() == {node for each in proven if len(each) == 1 for node in each if node}


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
reasons = st.sampled_from([did_not_start, not_run])
troubles = st.builds(lambda say, *of: say(*of), reasons, st.sampled_from(NODES), texts)


@given(st.lists(troubles, max_size=40))
def test_every_node_is_counted_once(tmp_path_factory: pytest.TempPathFactory, found: list[Finding]) -> None:
    folder = tmp_path_factory.mktemp("fleet")
    write_findings(folder / "all", found)
    assert read_findings(folder / "all") == tuple(dict.fromkeys(found))
    verdict = verdict_of_fleet(fleet(folder), found, (), ())
    assert len(verdict.good) + len(verdict.bad) + len(verdict.unchecked) == verdict.nodes == 8
    assert set(names(verdict)) == {each.node for each in found}
    lines = list(table(verdict, NodeParts()))
    assert all(line.isprintable() for line in lines) and lines[-1].startswith(verdict.message)


def test_the_table_of_many_bad_nodes_shows_some(tmp_path: Path) -> None:
    nodes = unfold("nid[001-500]")
    many = Fleet(tmp_path, "site", "site:gpu", "all", "17", nodes)
    found = verdict_of_fleet(many, [did_not_start(node, "it failed twice") for node in nodes], (), ())
    assert len(list(table(found, NodeParts()))) < 100


@pytest.mark.parametrize(
    ("part", "command"),
    [
        ("nid002:hsn0--leaf0", LOOK_AT_NIC),
        ("nid002, nid002:hsn0 or nid002:hsn0--leaf0", LOOK_AT_NIC),
        ("nid002:gcd3", "on nid002: amd-smi metric -x -g 0000:29:00.0"),
        ("nid002:gcd3 or nid002:hsn0", "on nid002: amd-smi metric -x -g 0000:29:00.0"),
        ("nid002", "On nid002 (ssh or srun -w) and on a good node: fabricheck doctor --system alps"),
    ],
)
def test_what_to_do_next_is_about_the_part(part: str, command: str) -> None:
    """Whatever the system calls its GPUs."""
    device = Device(3, "AMD Instinct MI250X", "0000:29:00.0", "GPU-3", 0, 64 << 30)
    parts = NodeParts({("nid002", "gcd3"): NodeGpu("gcd3", 3, device, "amd")}, frozenset({"hsn0"}))
    bad = BadNode("nid002", (bad_finding(Verdict.DEGRADED, "", part, code="slow-node"),))
    assert next_step(bad, parts, "alps", "run").split("; ")[0] == command
    head, *_, drain, _ = table(FleetVerdict("17", 1, (), (bad,), {}), parts, system="alps", folder="my run")
    assert head.startswith("DEGRADED    nid002") and "gcd" not in head
    assert drain.endswith("ci/drain.py 'my run'/verdict.json --system alps")


@pytest.mark.parametrize("busy", [0.0, 60.0])
def test_a_node_that_others_used_is_to_run_again_and_not_to_be_drained(tmp_path: Path, busy: float) -> None:
    """As `ci/drain.py` has it."""
    slow = bad_finding(Verdict.DEGRADED, "its copies are slow", "nid002", code="slow-node")
    states = [node("nid002", busy_cores=busy)], [node("nid002", "after")]
    measured = run("nid002", problems=(slow,))
    measured = replace(measured, run=replace(measured.run, states=run_with(*states).states))
    (bad,) = verdict_of_fleet(fleet(tmp_path), (), [measured], ()).bad
    verdict = verdict_of_fleet(fleet(tmp_path), (), [measured], ())
    told = "\n".join(table(verdict, NodeParts(), system="alps", folder="run"))
    assert (bad.node, bad.busy) == ("nid002", bool(busy))
    assert ("ci/drain.py" in told) is not bad.busy
