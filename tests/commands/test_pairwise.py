"""`fabricheck pairwise` from the plan to the suspect, over files as fabricbench writes them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fabricheck.diagnosis.network.pair_findings import judge_pairs
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.judge.policy import load_policy
from fabricheck.records.finding import split
from fabricheck.results.fabricbench import read_run
from fabricheck.suite import suite_root
from fabricheck.topology.model import load_topology
from fabricheck.topology.network import Network
from tests.support.commands import run
from tests.support.nodes import ROOT
from tests.support.result_files import HOST, Line, lines_of, settle, write

TOPOLOGY = (ROOT / "tests/data/topologies/sixteen_nodes.yaml").read_text(encoding="utf-8")
POLICY = suite_root() / "config" / "policy.yaml"
NODES = [f"nid{number:03d}" for number in range(1, 17)]
BYTES = 1 << 24


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    return file


def network_of(topology: Path) -> Network:
    network = load_topology(topology).network
    assert network is not None
    return network


def result_file(path: Path, network: Network, rounds: Path, slow: Callable[[str, str], float]) -> Path:
    """A result of fabricbench --rounds on sixteen nodes, made from a synthetic file of two ranks; no pair twice."""
    lines = copy.deepcopy(lines_of(HOST))
    header, sample, footer = lines[0], lines[1], lines[-1]
    header["ranks"] = [
        {**header["ranks"][0], "rank": rank, "host": host, "local_rank": 0} for rank, host in enumerate(NODES)
    ]
    pairs, met = list[list[tuple[int, int]]](), set[tuple[int, int]]()
    for line in rounds.read_text().splitlines():
        found = [(int(a), int(b)) for a, b in (pair.split("-") for pair in line.split())]
        pairs.append([pair for pair in found if pair not in met])
        met.update(found)
    expected = design(Ways(network), [[(NODES[a], NODES[b]) for a, b in each] for each in pairs]).expected_gbps
    random, samples = np.random.default_rng(4), list[Line]()
    for number, each in enumerate(pairs):
        for ranks in each:
            share = slow(NODES[ranks[0]], NODES[ranks[1]]) * 0.96 * np.exp(0.02 * random.standard_normal())
            time = round(8 * BYTES / (expected[len(samples)] * share))
            count = header["plan"]["iterations"]["minimum"]
            what = {"operation": "bidirectional", "schedule": "contended", "round": number, "ranks": list(ranks)}
            samples.append({**sample, **what, "index": len(samples), "bytes": BYTES, "times_ns": [time] * count})
    keys = ("operation", "implementation", "schedule", "round", "ranks")
    header["plan"].update(
        operations=["bidirectional"],
        schedules=["contended"],
        sizes=[BYTES],
        series=[{**{key: one[key] for key in keys}, "bytes": [BYTES]} for one in samples],
    )
    header["expected_records"] = len(samples)
    lines = [header, *samples, footer]
    settle(lines)
    return write(path, lines)


def test_from_the_plan_to_the_suspect(tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = tmp_path / "rounds.txt"
    assert (
        run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--rounds", "10", "--output", rounds)
        == 0
    )
    assert "10 rounds, 80 pairs of 16 ranks" in capsys.readouterr().out
    assert run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--output", rounds) == 2
    assert "exists already" in capsys.readouterr().err
    network = network_of(topology)
    slow = result_file(tmp_path / "slow.jsonl", network, rounds, lambda a, b: 0.85 if "nid007" in (a, b) else 1.0)
    well = result_file(tmp_path / "well.jsonl", network, rounds, lambda a, b: 1.0)
    assert run("pairwise", "locate", slow, "--system", topology) == 1
    out = capsys.readouterr().out
    assert out.startswith("DEGRADED  nid007, nid007:hsn0 or nid007:hsn0--leaf1 loses 1")
    assert re.search(r"\) in ([89]|10) pairs", out)
    assert "re-measure these: fabricheck pairwise plan --suspects " in out
    assert run("pairwise", "locate", well, "--system", topology) == 0
    assert "no slow part" in capsys.readouterr().out


def test_what_all_far_pairs_lose_may_be_their_distance(
    tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, network = tmp_path / "rounds.txt", network_of(topology)
    run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--rounds", "10", "--output", rounds)

    def loss_of(one: str, other: str) -> float:
        return 1.0 if network.distance(one, other) == "same-switch" else 0.88

    far = result_file(tmp_path / "far.jsonl", network, rounds, loss_of)
    node = result_file(tmp_path / "slow.jsonl", network, rounds, lambda a, b: 0.85 if "nid007" in (a, b) else 1.0)
    capsys.readouterr()
    assert run("pairwise", "locate", far, "--system", topology) == 1
    assert "only the pairs that cross more than one switch are slow" in capsys.readouterr().out
    assert run("pairwise", "locate", node, "--system", topology) == 1
    assert "distance" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("slow", "share", "named"),
    [("nid007", 0.99, None), ("nid007", 0.9, "nid007"), ("far", 0.95, None)],
)
def test_a_session_names_what_counts(
    tmp_path: Path, topology: Path, slow: str, share: float, named: str | None
) -> None:
    """Longer ways may be a little slower; a node may not."""
    rounds, network = tmp_path / "rounds.txt", network_of(topology)
    run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--rounds", "10", "--output", rounds)

    def share_of(one: str, other: str) -> float:
        far = network.distance(one, other) != "same-switch"
        return share if slow in (one, other) or (slow == "far" and far) else 1.0

    file = result_file(tmp_path / "pairs.jsonl", network, rounds, share_of)
    policy = load_policy(suite_root() / "config" / "policy.yaml")
    problems, findings = split(judge_pairs(read_run(file), load_topology(topology), policy))
    assert (bool(problems), findings) == (bool(named), ()), problems
    assert named is None or named in problems[0].message
    assert named is None or (named in problems[0].place and problems[0].message.startswith(problems[0].place))


def test_judging_the_same_file_by_hand_says_the_same(
    tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds, network = tmp_path / "rounds.txt", network_of(topology)
    run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--rounds", "10", "--output", rounds)
    slow = {"nid007": 1.0}
    for share, named in ((1.0, False), (0.9, True)):
        slow["nid007"] = share
        file = result_file(
            tmp_path / f"{share}.jsonl", network, rounds, lambda a, b: min(slow.get(a, 1.0), slow.get(b, 1.0))
        )
        (problems, _) = split(judge_pairs(read_run(file), load_topology(topology), load_policy(POLICY)))
        capsys.readouterr()
        run("judge", file, "--topology", topology)
        out = " ".join(capsys.readouterr().out.split())
        assert [each.message in out for each in problems] == ([True] if named else [])


def test_a_run_that_was_cut_off_is_looked_at_and_stays_incomplete(
    tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = tmp_path / "rounds.txt"
    run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--rounds", "10", "--output", rounds)
    file = result_file(
        tmp_path / "slow.jsonl", network_of(topology), rounds, lambda a, b: 0.8 if "nid007" in (a, b) else 1
    )
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-9]))
    assert run("pairwise", "locate", file, "--system", topology) == 4
    out = capsys.readouterr().out
    assert "INCOMPLETE" in out
    assert "DEGRADED  nid007, " in out


def test_suspects_are_planned_again(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--nodes", "nid[001-016]", "--suspects", "nid007:hsn0", "--rounds", "3")
    assert run("pairwise", "plan", "--system", topology, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        pairs = [set(map(int, words.split("-"))) for words in line.split()]
        (pair,) = (pair for pair in pairs if 6 in pair)
        assert not pair & {4, 5, 7}
        assert len(pairs) > 1


def test_known_routes_tell_trunks_apart(tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def spine(one: str, other: str) -> str:
        return f"spine{(int(one[3:]) + int(other[3:])) % 2}"

    network, routes, rounds = network_of(topology), tmp_path / "routes.txt", tmp_path / "rounds.txt"
    far = [(a, b) for a in NODES for b in NODES if a < b and len(network.routes(a, b)) > 1]
    routes.write_text("# from the subnet manager\n" + "".join(f"{a} {b} {spine(a, b)}\n" for a, b in far))
    known = ("--routes", routes)
    assert (
        run(
            "pairwise",
            "plan",
            "--system",
            topology,
            "--nodes",
            "nid[001-016]",
            "--rounds",
            "12",
            "--output",
            rounds,
            *known,
        )
        == 0
    )

    def slow(a: str, b: str) -> float:
        leaves = {network.leaf_of(f"{one}:hsn0") for one in (a, b)}
        return 0.8 if len(leaves) == 2 and "leaf2" in leaves and spine(a, b) == "spine1" else 1.0

    file = result_file(tmp_path / "slow.jsonl", network, rounds, slow)
    capsys.readouterr()
    assert run("pairwise", "locate", file, "--system", topology, *known) == 1
    assert capsys.readouterr().out.startswith("DEGRADED  leaf2--spine1 loses ")
    assert run("pairwise", "locate", file, "--system", topology, "--adaptive") == 1
    assert capsys.readouterr().out.startswith("DEGRADED  leaf2--spine0 or leaf2--spine1 loses ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nid001 nid005\n", "routes.txt:1: give SOURCE DESTINATION"),
        ("nid001 nid005 spine9\n", "routes.txt:1: 0 shortest routes"),
        ("\nnid001 nid005 leaf0\n", "routes.txt:2: 2 shortest routes"),
        ("nid001 nid99 spine0\n", "no node 'nid99'"),
    ],
)
def test_mistakes_in_routes(
    tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    routes = tmp_path / "routes.txt"
    routes.write_text(text)
    options = ("--nodes", "nid[001-016]", "--rounds", "2", "--routes", routes)
    assert run("pairwise", "plan", "--system", topology, *options) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_other_mistakes(tmp_path: Path, topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-099]", "--rounds", "2") == 2
    assert "no node 'nid017'" in capsys.readouterr().err
    assert run("pairwise", "plan", "--system", topology, "--nodes", "nid[001-016]", "--suspects", "spine7") == 2
    assert "'spine7' is not a part of the network" in capsys.readouterr().err
    assert run("pairwise", "locate", HOST, "--system", topology) == 2
    assert "has no bidirectional pairs of two nodes: run fabricbench" in capsys.readouterr().err
    bare = tmp_path / "bare.yaml"
    bare.write_text(TOPOLOGY[: TOPOLOGY.index("network:")])
    assert run("pairwise", "plan", "--system", bare, "--nodes", "nid[001-016]") == 2
    assert "has no network" in capsys.readouterr().err
    assert run("pairwise", "plan", "--system", "emulated:nope", "--nodes", "nid[001-008]") == 2
    assert "emulated has no partition 'nope'" in capsys.readouterr().err
