"""What a session says beside its metrics, and the command that says it of files and of stored sessions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabricheck.commands.judge import observations
from fabricheck.diagnosis.observations import TAG
from fabricheck.diagnosis.of_session import find_all, find_unmeasured_nodes, find_unused_gpus, with_session_findings
from fabricheck.errors import UserError
from fabricheck.judge.policy import Policy, load_policy
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import CheckJudgement
from fabricheck.records.finding import Finding, split
from fabricheck.records.run import Groups
from fabricheck.records.verdict import Verdict
from tests.support.made_runs import GIB, MIB, made_case, made_run, made_samples, noisy
from tests.support.nodes import ROOT, system
from tests.support.result_files import CUDA, HOST
from tests.support.sessions import add, case, make_suite

EMULATED = SystemJudge(system("emulated"), None, Policy())
NODES = [f"nid{number:03d}" for number in range(1, 9)]


def test_every_kind_of_finding_is_there_each_run_first() -> None:
    pairs = [made_samples("unidirectional", (0, 1), MIB, 0.09, schedule="contended")]
    rail = [made_samples("rail_unidirectional", range(8), MIB, 0.09, groups=Groups(2, 4, 1))]
    victim = [
        made_samples("victim_alltoall_incast", (0, 2), MIB, gbps, schedule=schedule)
        for schedule, gbps in (("uncontended", 0.09), ("contended", 0.05))
    ]
    runs = [
        made_case(made_run(NODES[:2], pairs)),
        made_case(made_run([NODES[0]] * 4 + [NODES[1]] * 4, rail)),
        made_case(made_run(NODES[:4], victim), tags=(TAG,)),
        *(
            made_case(made_run(NODES[:nodes], [made_samples("alltoall", range(nodes), 2 * MIB, 0.1)]), test="Grows")
            for nodes in (2, 4)
        ),
        *(
            made_case(
                made_run(["nid001"] * 2, [made_samples("pingpong", (0, 1), GIB, 100)], transport=way, devices=True)
            )
            for way in ("ccl", "mpi")
        ),
    ]
    found = list(find_all(runs, SystemJudge(EMULATED.topology, None, Policy())))
    assert {type(each) for each in found} == {Finding}
    begins = (
        "unidirectional contended mpi 1MiB goodput, same-switch",
        "rail_unidirectional: association to NICs",
        "victim_alltoall_incast (mpi, openmpi): ",
        "alltoall 2MiB (mpi, openmpi) by nodes: ",
        "pingpong, 1 pair on 1 node, goodput of *CCL",
        "observation 2 ",
        "observation 3 ",
        "observation 8 ",
        "observations that cannot be tested here: 1, 4, 5, 6, 7; ",
    )
    assert [begin for each in found for begin in begins if each.message.startswith(begin)] == list(begins)


def test_without_a_topology_what_needs_none_is_said() -> None:
    runs = [
        made_case(made_run(["x"] * 2, [made_samples("pingpong", (0, 1), GIB, 100)], transport=way, devices=True))
        for way in ("ccl", "mpi")
    ]
    (found,) = find_all(runs, SystemJudge(None, None, Policy()))
    assert "neither is certainly faster" in found.message


@pytest.mark.parametrize(("ranks", "said"), [(2, True), (4, False)])
def test_gpus_that_no_run_drove_are_counted(ranks: int, said: bool) -> None:
    judge = SystemJudge(system("hgx-h200"), None, Policy())
    both = [["x"] * each + ["y"] * each for each in (1, ranks)]
    runs = [made_case(made_run(hosts, [made_samples("alltoall", (0, 1), MIB, 100)], devices=True)) for hosts in both]
    text = "made:gpu: the runs used at most 2 of the 4 GPUs of a node"
    assert [each.message for each in find_unused_gpus(runs, judge)] == ([text] if said else [])
    assert not list(find_unused_gpus([made_case(made_run(["x"], []))], judge))


def test_the_command_names_all_eight_of_files() -> None:
    result = CliRunner().invoke(observations, [str(CUDA), str(HOST), "--system", "hgx-h200"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line[0].isdigit()] == [str(number) for number in range(1, 9)]
    assert "not measured: ping-pong between GPUs of one node by MPI" in " ".join(result.stdout.split())
    as_json = CliRunner().invoke(observations, [str(CUDA), "--json"], catch_exceptions=False)
    assert [each["number"] for each in json.loads(as_json.stdout)] == list(range(1, 9))


def test_files_that_count_for_nothing_are_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_text(CUDA.read_text()[:2000])
    with pytest.raises(UserError, match=f"^no file is a complete run of fabricbench: {cut}:1: "):
        CliRunner().invoke(observations, [str(cut)], catch_exceptions=False)
    result = CliRunner().invoke(observations, [str(cut), str(CUDA)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"fabricheck: left out (not a complete run of fabricbench): {cut}:1: ")


def test_the_command_reads_a_stored_session(tmp_path: Path) -> None:
    root = make_suite(tmp_path / "suite")
    store = tmp_path / "store"
    entry, _ = add(root, store, 1, runs=2)
    options = ["--session", entry.session, "--store", str(store)]
    result = CliRunner().invoke(observations, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "8: cannot be tested here" in result.stdout
    failed = [case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INVALID))]
    bad, _ = add(root, store, 2, runs=1, cases=failed)
    assert CliRunner().invoke(observations, ["--session", bad.session, "--store", str(store)]).exit_code == 0


@pytest.mark.parametrize("arguments", [[], [str(HOST), "--session", "0"]])
def test_files_or_a_session(arguments: list[str]) -> None:
    with pytest.raises(UserError, match="either result files or --session"):
        CliRunner().invoke(observations, arguments, catch_exceptions=False)


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
