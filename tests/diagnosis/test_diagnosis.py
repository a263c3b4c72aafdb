"""Who is blamed: planted faults, and the components and codes that have to come of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.diagnosis.causes import Diagnosis, diagnose
from fabricheck.diagnosis.of_session import find_all
from fabricheck.fleet.node_verdicts import FleetVerdict, verdict_of_fleet
from fabricheck.fleet.record import Fleet
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding, split
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.topology.model import Topology, load_topology
from fabricheck.yardsticks.policy import Policy
from tests.support.effort import effort
from tests.support.equal_runs import judge_of, pairs
from tests.support.equal_runs import run_of as run_on_gpus
from tests.support.findings import bad_finding
from tests.support.made_runs import GIB, made_run, made_samples
from tests.support.nodes import ROOT, system
from tests.support.synthetic import judged, judgement, pair_run, rank, samples

HEALTHY = Path(__file__).resolve().parents[1] / "data" / "emulated" / "healthy.jsonl"

RAILS = (ROOT / "tests/data/topologies/rails.yaml").read_text(encoding="utf-8")
NODES = tuple(f"nid00{each}" for each in range(1, 9))


@pytest.fixture
def rails(tmp_path: Path) -> Topology:
    file = tmp_path / "topology.yaml"
    file.write_text(RAILS, encoding="utf-8")
    return load_topology(file)


def rail_ways() -> list[tuple[int, int]]:
    """All pairs of GPUs on one rail, in the order in which they are measured; a rank is node * 2 + rail."""
    ways = [(a * 2 + rail, b * 2 + rail) for rail in range(2) for a, b in permutations(range(len(NODES)), 2)]
    return [ways[place] for place in np.random.default_rng(2).permutation(len(ways)).tolist()]


def rail_run(slow: dict[tuple[int, int], float], *, transport: str = "ccl", domain: str = "") -> Run:
    """The pairs of `rail_ways`; `slow`: the share that these lose; `domain`: what hosts add to the names of nodes."""
    rng, ways = np.random.default_rng(1), rail_ways()
    samples = [
        made_samples("unidirectional", way, GIB, list(380 * (1 - slow.get(way, 0.0)) * rng.normal(1, 0.002, 40)))
        for way in ways
    ]
    hosts = [f"{node}{domain}" for node in NODES for _ in range(2)]
    series = [
        {"operation": "unidirectional", "schedule": "uncontended", "ranks": list(way), "bytes": [GIB], "round": -1}
        for way in ways
    ]
    plan = {"series": series, "access": "write"}
    ranks = [{"rank": number} for number in range(len(hosts))]
    return made_run(hosts, samples, transport=transport, devices=True, plan=plan, ranks=ranks)


def session(runs: Sequence[Run], judge: SystemJudge, test: str = "") -> tuple[tuple[RunJudgement, ...], Diagnosis]:
    """The runs of a session with what explains them, as `fabricheck run` comes to it: of one `test`, or of many."""
    tests = [test or f"Test{number} @s:gpu+e" for number in range(len(runs))]
    alone = [replace(judge.judge_alone(run), test=name) for run, name in zip(runs, tests, strict=True)]
    compared = judge.compare(alone)
    cases = [CaseRun(each, "Test", "e", "s:gpu") for each in runs]
    problems, findings = split([*compared.problems, *compared.findings, *find_all(cases, judge)])
    return compared.runs, diagnose(compared.runs, problems, findings)


def blamed(diagnosis: Diagnosis) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.finding.code, tuple(one.text for one in each.finding.components)) for each in diagnosis.causes]


def fleet_of(tmp_path: Path, judged: Sequence[RunJudgement], problems: Sequence[Finding]) -> FleetVerdict:
    return verdict_of_fleet(Fleet(tmp_path, "s", "s:gpu", "all", "17", NODES), (), judged, problems)


def healthy_with(tmp_path: Path, slow: Sequence[Sequence[int]]) -> Run:
    """The recorded healthy cluster, with the times of pairs x 1.6."""
    lines = [json.loads(each) for each in HEALTHY.read_text(encoding="utf-8").splitlines()]
    for each in lines:
        if "times_ns" in each and tuple(each["ranks"]) in slow:
            each["times_ns"] = [round(time * 1.6) for time in each["times_ns"]]
    file = tmp_path / "result.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    run = read_run(file)
    return replace(run, problems=())


def test_a_fleet_with_one_slow_pair_drains_nothing(tmp_path: Path) -> None:
    """For each pair of the recorded cluster, in either direction and in both."""
    judge = SystemJudge.of("emulated")
    clean = healthy_with(tmp_path, ())
    ways = sorted({each.ranks for each in clean.samples})
    assert len(ways) > 10
    for number, way in enumerate(ways):
        slow = (way, way[::-1]) if number % 2 else (way,)
        judged, found = session([healthy_with(tmp_path, slow)], judge)
        verdict = fleet_of(tmp_path, judged, found.problems)
        assert verdict.bad == (), way
        assert any(not each.nodes.isdisjoint(NODES) for one in found.causes for each in one.finding.components), way


def test_a_rail_switch_at_half_is_named_first_and_alone(rails: Topology, tmp_path: Path) -> None:
    slow = {(a * 2 + 1, b * 2 + 1): 0.5 for a, b in permutations(range(len(NODES)), 2)}
    judged, found = session([rail_run(slow)], SystemJudge(rails, None, Policy()))
    components = [one for each in found.causes for one in each.finding.components]
    assert any(each.name == "leaf1" or each.far == "leaf1" for each in found.causes[0].finding.components)
    assert not any(each.nodes for each in components), blamed(found)
    assert fleet_of(tmp_path, judged, found.problems).bad == ()


def test_a_node_whose_ports_lost_20_percent_is_named_and_no_setting_is(rails: Topology, tmp_path: Path) -> None:
    slow = {
        (a * 2 + rail, b * 2 + rail): 0.2
        for rail in range(2)
        for a, b in permutations(range(len(NODES)), 2)
        if 2 in (a, b)
    }
    judged, found = session([rail_run(slow)], SystemJudge(rails, None, Policy()))
    assert {each.node for each in fleet_of(tmp_path, judged, found.problems).bad} == {"nid003"}
    assert all(one.nodes == {"nid003"} for each in found.causes for one in each.finding.components), blamed(found)
    assert not {"all-slow", "slow-library"} & {code for code, _ in blamed(found)}


def test_a_common_receiver_of_wrong_bytes_is_pooled() -> None:
    run = run_on_gpus(["vm"] * 4, pairs(4))
    samples = tuple(replace(each, wrong_bytes=7 if each.ranks[1] == 3 else 0) for each in run.samples)
    _, found = session([replace(run, samples=samples)], judge_of())
    (cause,) = found.causes
    assert cause.finding.code == "wrong-bytes"
    assert Component(Kind.GPU, "gpu3", "vm", direction="receiving") in cause.finding.components
    assert not any(each.name == "gpu0" for each in cause.finding.components)


def test_measurements_of_other_devices_accuse_nobody() -> None:
    run = run_on_gpus(["vm"] * 4, pairs(4), slower={(2, 3): 0.4})
    judged, _ = session([run], judge_of())
    names = Finding("cannot-be-judged", Verdict.INVALID, "two hosts have exchanged their names")
    slow = bad_finding(Verdict.DEGRADED, "vm:gpu2 is slow", "vm:gpu2")
    assert diagnose(judged, [names, slow]).causes == ()


@pytest.mark.parametrize("seed", range(effort(6, share=2)))
def test_slow_gpus_of_a_node_are_named_and_the_node_is_not(seed: int, tmp_path: Path) -> None:
    """One or two of four, whose pairs are up to five of six, on a node that is slow by its peers for that."""
    rng = np.random.default_rng(seed)
    nodes, loss = int(rng.integers(1, 7)), float(rng.uniform(0.03, 0.4))
    bad = int(rng.integers(nodes))
    gpus = set(rng.choice(4, int(rng.integers(1, 3)), replace=False).tolist())
    slower = {way: loss for way in pairs(4) if gpus & {*way}}
    runs = [
        replace(run_on_gpus([host] * 4, pairs(4), slower=slower if number == bad else {}, seed=number), path=host)
        for number, host in enumerate(NODES[:nodes])
    ]
    judged, found = session(runs, judge_of(), "Test @s:gpu+e")
    named = {f"{NODES[bad]}:gpu{gpu}" for gpu in gpus}
    assert {(code, components[0]) for code, components in blamed(found)} == {("slow-gpu", each) for each in named}
    evidence = [each for node in fleet_of(tmp_path, judged, found.problems).bad for each in node.evidence]
    assert sorted(each.components[0].text for each in evidence) == sorted(named)


def test_what_only_one_library_loses_is_the_library() -> None:
    """Contrast clears the innocent: the same links are fast by copies."""
    by_copy = run_on_gpus(["vm"] * 4, pairs(4))
    library = {"ccl": {"name": "NCCL", "version": "2.29.1"}}
    by_ccl = run_on_gpus(["vm"] * 4, pairs(4), transport="ccl", level=900.0)
    by_ccl = replace(by_ccl, header={**by_ccl.header, "libraries": library})
    by_ccl = replace(by_ccl, path="ccl.jsonl")
    judged, found = session([by_copy, by_ccl], judge_of())
    assert blamed(found)[0] == ("slow-library", ("NCCL 2.29.1",)), blamed(found)
    # That all of its metrics are slow together says nothing of another part.
    together = Finding("slower-than-reference", Verdict.DEGRADED, "", files=(by_ccl.path,))
    assert blamed(diagnose(judged, [together])) == [("slow-library", ("NCCL 2.29.1",))]


@pytest.mark.parametrize("seed", range(effort(6, share=2)))
def test_what_one_node_alone_loses_is_that_node_and_no_library(seed: int) -> None:
    """Of two to eight nodes with the same library; by one collective of its GPUs, or more."""
    rng = np.random.default_rng(seed)
    nodes, loss = NODES[: rng.integers(2, 9)], float(rng.uniform(0.3, 0.9))
    levels = {"alltoall": 4000.0, "allreduce": 2400.0, "unidirectional": 2900.0}
    bad, runs = str(rng.choice(nodes)), []
    for operation in map(str, rng.choice([*levels], rng.integers(1, 4), replace=False)):
        ways = pairs(4) if operation == "unidirectional" else [tuple(range(4))]
        for number, host in enumerate(nodes):
            level = levels[operation] * (1 - loss * (host == bad))
            run = run_on_gpus([host] * 4, ways, transport="ccl", level=level, operation=operation, seed=number)
            header = {**run.header, "libraries": {"ccl": {"name": "NCCL", "version": "2.29.1"}}}
            runs.append(replace(run, header=header, path=f"{operation}/{host}"))
    _, found = session(runs, judge_of())
    assert found.causes and all(cause.finding.node == bad for cause in found.causes)


@pytest.mark.parametrize("told_of", ["node-busy", "host-memory-slow"])
@pytest.mark.parametrize(("busy", "code"), [(("nid001",), ""), (("nid002",), "all-slow"), ((), "all-slow")])
def test_where_all_is_slow_on_a_busy_node_that_is_named_and_no_setting(
    busy: tuple[str, ...], code: str, told_of: str
) -> None:
    """Nothing is known of the node before it is idle."""
    slow = pair_run(bad={way: Verdict.FAIL for way in permutations(range(4), 2)})
    told = [Finding(told_of, Verdict.PASS, "3.9 of 4 cores", (Component.of_node(host),)) for host in busy]
    ((found, components),) = blamed(diagnose([slow], slow.problems, told))
    assert (found, components) == (code or told_of, () if code else busy)


@pytest.mark.parametrize(("ranks", "codes"), [(2, []), (3, ["all-slow"])])
def test_the_only_pair_clears_no_device_where_it_is_slow(ranks: int, codes: list[str]) -> None:
    slow = pair_run(ranks=ranks, bad={way: Verdict.FAIL for way in permutations(range(ranks), 2)})
    assert [code for code, _ in blamed(diagnose([slow], slow.problems))] == codes


def test_the_only_pair_of_two_nodes_is_named_and_no_setting() -> None:
    """As on two nodes with a port each: a port at half rate is all that a session shows."""
    slow = pair_run(ranks=2, bad={way: Verdict.FAIL for way in permutations(range(2), 2)})
    first, second = slow.run.ranks
    slow = replace(slow, run=replace(slow.run, ranks=(first, replace(second, host="nid002"))))
    ((code, components),) = blamed(diagnose([slow], slow.problems))
    assert (code, components) == ("slow-pair", ("nid001:gpu0 ↔ nid002:gpu1",))
    # A quota or a stopped process is seen by itself, and tells which of the two it is.
    pausing = Finding("pausing-node", Verdict.DEGRADED, "stopped for 8 s", (Component.of_node("nid002"),))
    (_, named), *_ = blamed(diagnose([replace(slow, problems=(pausing,))], slow.problems))
    assert named == ("nid002",)
    told = Finding("gpu-shared", Verdict.PASS, "MPS is on", (Component(Kind.DEVICE, "gpu0", node="nid001"),))
    ((_, unmoved), *_) = blamed(diagnose([replace(slow, problems=(told,))], slow.problems))
    assert unmoved == components


def test_a_collective_of_two_ranks_names_their_pair() -> None:
    """As the allreduce of a smoke test between two nodes does."""
    ends = [rank(0), rank(0, "nid002")]
    ends[1] = replace(ends[1], rank=1)
    line = samples((0, 1), GIB, operation="allreduce", gbps=1034.0)
    slow = judged([judgement(line, verdict=Verdict.DEGRADED, expected=1100.0, world=2)], ranks=ends)
    ((code, components),) = blamed(diagnose([slow], slow.problems))
    assert (code, components) == ("slow-pair", ("nid001:gpu0 ↔ nid002:gpu0",))


LEVELS = np.random.default_rng(1).normal(1, 0.002, 40)


def loopbacks(slow: Mapping[tuple[str, int], float]) -> list[Run]:
    """A run for each NIC of a node, in which each GPU sends to itself by it; `slow` by NIC and GPU."""
    runs = []
    for nic in ("hsn0", "hsn1", "hsn2", "hsn3"):
        samples = [
            made_samples("local_copy", (gpu,), GIB // 4, list(187 * (1 - slow.get((nic, gpu), 0.0)) * LEVELS))
            for gpu in range(4)
        ]
        series = [
            {"operation": "local_copy", "schedule": "uncontended", "ranks": [gpu], "bytes": [GIB // 4], "round": -1}
            for gpu in range(4)
        ]
        plan = {"nic": nic, "access": "write", "series": series}
        ranks = [{"rank": gpu} for gpu in range(4)]
        runs.append(made_run(["nid001"] * 4, samples, transport="fabric", devices=True, plan=plan, ranks=ranks))
    return runs


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        ({}, []),
        ({("hsn2", gpu): 0.6 for gpu in range(4)}, [("slow-nic", ("nid001:hsn2",))]),
        ({("hsn2", 1): 0.6}, [("slow-pair", ("nid001:gpu1 ↔ nid001:hsn2",))]),
    ],
)
def test_a_nic_is_told_from_its_gpus(
    slow: Mapping[tuple[str, int], float], named: Sequence[tuple[str, tuple[str, ...]]]
) -> None:
    with_nics = replace(system("hgx-h200"), nics=system("alps").nics)
    _, found = session(loopbacks(slow), SystemJudge(with_nics, None, Policy()))
    assert blamed(found) == list(named)


@pytest.mark.parametrize(
    ("losses", "named"),
    [
        ({"ccl": 0.6}, [("all-slow", ())]),
        ({"ccl": 0.6, "mpi": 0.0, "fabric": 0.0}, [("slow-library", ("NCCL 2.28.9",))]),
        ({"ccl": 0.0, "mpi": 0.6, "fabric": 0.0}, [("slow-library", ("Open MPI 5.0.8",))]),
        (
            {"ccl": 0.6, "mpi": 0.6, "fabric": 0.0},
            [("slow-library", ("NCCL 2.28.9",)), ("slow-library", ("Open MPI 5.0.8",))],
        ),
        ({"ccl": 0.6, "mpi": 0.6, "fabric": 0.6}, [("all-slow", ())]),
    ],
)
def test_the_layer_below_tells_whether_it_is_the_library(
    rails: Topology, losses: Mapping[str, float], named: Sequence[tuple[str, tuple[str, ...]]]
) -> None:
    """So much less than the links carry between all nodes, by the layers that were measured on the same pairs."""
    libraries = {
        "ccl": {"name": "NCCL", "version": "2.28.9"},
        "mpi": {"name": "Open MPI", "version": "5.0.8"},
        "fabric": {"name": "libfabric", "version": "2.1"},
    }

    def everywhere(transport: str, loss: float) -> Run:
        slow = {(a * 2 + rail, b * 2 + rail): loss for rail in range(2) for a, b in permutations(range(len(NODES)), 2)}
        run = rail_run(slow, transport=transport)
        return replace(run, header={**run.header, "libraries": libraries})

    runs = [everywhere(transport, loss) for transport, loss in losses.items()]
    _, found = session(runs, SystemJudge(rails, None, Policy()))
    assert blamed(found) == list(named)


# The only pair between nodes, and the ports that its data may cross.
PAIR = ("nid001 ↔ nid002", "nid001:hsn0", "nid001:hsn1", "nid002:hsn0", "nid002:hsn1")


@pytest.mark.parametrize(
    ("mpi", "fabric", "named"),
    [
        ((0.0936, 0.0935), (0.0938, 0.0937), []),
        # Above the minimum, which is half of what the links carry, and still far from that.
        ((0.0535, 0.0523), (0.0938, 0.0937), [("slow-library", ("Open MPI 4.1.4",))]),
        # One direction stalls.
        ((0.0523, 0.0067), (0.0940, 0.0937), [("slow-library", ("Open MPI 4.1.4",))]),
        ((0.0068, 0.0067), (0.0940, 0.0790), [("slow-library", ("Open MPI 4.1.4",))]),
        ((0.0480, 0.0481), (0.0477, 0.0476), [("slow-pair", PAIR)]),
        # A little slower than the layer below, and at the minimum: the link.
        ((0.0490, 0.0491), (0.0515, 0.0514), [("slow-pair", PAIR)]),
    ],
)
def test_a_pair_of_hosts_by_layers(
    mpi: tuple[float, float], fabric: tuple[float, float], named: Sequence[tuple[str, tuple[str, ...]]]
) -> None:
    """As the miniature of 0.1 Gb/s gave it, with a link at half and with Open MPI's buffers at 2 kB."""
    rng = np.random.default_rng(3)
    ways, hosts = ((0, 1), (1, 0)), ["nid001", "nid002"]
    libraries = {"mpi": {"name": "Open MPI", "version": "4.1.4"}, "fabric": {"name": "libfabric", "version": "1.17"}}
    series = [
        {"operation": "unidirectional", "schedule": "uncontended", "ranks": list(way), "bytes": [8 << 20], "round": -1}
        for way in ways
    ]
    runs = []
    for transport, goodputs in (("mpi", mpi), ("fabric", fabric)):
        samples = [
            made_samples("unidirectional", way, 8 << 20, list(goodput * rng.normal(1, 0.01, 20)))
            for way, goodput in zip(ways, goodputs, strict=True)
        ]
        ranks = [{"rank": 0}, {"rank": 1}]
        run = made_run(hosts, samples, transport=transport, plan={"series": series}, ranks=ranks)
        footer = {**(run.footer or {}), "proof": {}}
        header = {**run.header, "libraries": libraries}
        runs.append(replace(run, path=f"{transport}.jsonl", header=header, footer=footer))
    _, diagnosis = session(runs, SystemJudge.of("emulated"))
    assert blamed(diagnosis) == list(named)


def test_a_pair_that_is_slow_over_several_ports_names_the_pair_and_then_each_of_these_ports() -> None:
    ways, ports = ((0, 1), (1, 0)), ("hsn0", "hsn1")
    one_way = {"operation": "unidirectional", "schedule": "uncontended", "bytes": [8 << 20], "round": -1}
    plan = {"series": [{**one_way, "ranks": list(way)} for way in ways]}
    samples = [made_samples("unidirectional", way, 8 << 20, [0.04] * 20) for way in ways]
    ranks = [{"rank": rank} for rank in range(2)]
    run = made_run(["nid001", "nid002"], samples, transport="fabric", plan=plan, ranks=ranks)
    by_both = tuple(replace(rank, nics=ports) for rank in run.ranks)
    _, diagnosis = session([replace(run, ranks=by_both, footer={"proof": {}})], SystemJudge.of("emulated"))
    (cause,) = diagnosis.causes
    pair, *others = cause.finding.components
    assert (cause.finding.code, pair.kind, sorted(pair.nodes)) == ("slow-pair", Kind.PATH, ["nid001", "nid002"])
    assert {(each.node, each.name) for each in others[:4]} == {(each, nic) for each in pair.nodes for nic in ports}


def drawn_layers(seed: int) -> tuple[str, list[dict[tuple[int, int], float]]]:
    """A port, and by layer what its pairs lose, in both directions or one: it heals, or gets slow, while one of one to
    three layers is measured, three of whose pairs lose at least."""
    rng = np.random.default_rng(seed)
    node, port, loss = int(rng.integers(len(NODES))), int(rng.integers(2)), float(rng.uniform(0.1, 0.7))
    ends = (0, 1) if seed % 3 else (seed % 2,)
    ways = [way for way in rail_ways() if node * 2 + port in [way[end] for end in ends]]
    heals, slow = bool(rng.random() < 0.5), int(rng.integers(3, len(ways)))
    part = ways[:slow] if heals else ways[-slow:]
    layers = [dict.fromkeys(ways, loss), dict.fromkeys(part, loss), {}]
    layers = layers[int(rng.integers(2)) : int(rng.integers(2, 4))]
    return f"{NODES[node]}:ib{port}", layers if heals else layers[::-1]


@pytest.mark.parametrize("seed", range(effort(12, share=2)))
def test_a_port_that_heals_is_one_suspect(rails: Topology, seed: int) -> None:
    port, layers = drawn_layers(seed)
    transports, domain = ("ccl", "mpi", "fabric"), seed % 2 * ".site.org"
    runs = [rail_run(slow, transport=each, domain=domain) for each, slow in zip(transports, layers, strict=False)]
    _, found = session(runs, SystemJudge(rails, None, Policy()))
    (cause,) = found.causes
    assert port in {f"{each.node}:{each.name}" for each in cause.finding.components}
    assert {node for each in cause.finding.components for node in each.nodes} == {port.partition(":")[0]}


@pytest.mark.parametrize("seed", range(4))
def test_data_that_took_another_network_blame_nobody(rails: Topology, seed: int) -> None:
    """As with a wrong route on one node: what its pairs lose says nothing of the network that was meant."""
    _, layers = drawn_layers(seed)
    runs = [
        replace(rail_run(slow, transport=each), path=each)
        for each, slow in zip(("ccl", "mpi", "fabric"), layers, strict=False)
    ]
    wrong = [Finding("wrong-network", Verdict.INVALID, "over eth0", files=(run.path,)) for run in runs]
    of_runs = [replace(run, problems=(each,)) for run, each in zip(runs, wrong, strict=True)]
    judged, found = session(of_runs if seed % 2 else runs, SystemJudge(rails, None, Policy()))
    if seed % 2 == 0:  # known by the session
        assert blamed(found) != []
        found = diagnose(judged, [*wrong, *found.problems])
    assert not any(each.finding.components for each in found.causes), blamed(found)
