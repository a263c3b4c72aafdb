"""What a session says that it saw, held against what its measurements crossed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest

from fabricheck.diagnosis.coverage import coverage_of
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.judgement import Expectation, Judgement, Yardstick
from fabricheck.records.verdict import Verdict
from fabricheck.topology.model import Cpu, Gpu, Link, Nic, Topology
from fabricheck.topology.network import Network, NetworkLink, NetworkSwitch
from tests.support.effort import effort
from tests.support.findings import bad_finding
from tests.support.made_runs import MIB, made_run, made_samples

RATE, BOUND = 100.0, 80.0


@dataclass
class System:
    """`nodes` of `gpus`, joined each with each and with a CPU; a NIC for each GPU or one; two leaves and a trunk."""

    nodes: int
    gpus: int
    nics: int

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(self.nodes)]

    def leaf(self, node: str) -> str:
        return f"leaf{int(node[1:]) % 2}"

    def topology(self) -> Topology:
        gpus = tuple(Gpu(f"gpu{number}", number, "H200") for number in range(self.gpus))
        nics = tuple(Nic(f"hsn{number}", "made", RATE, "made") for number in range(self.nics))
        pairs = [*combinations([each.name for each in gpus], 2), *((each.name, "cpu0") for each in gpus)]
        links = tuple(Link(pair, "NVLink4" if "cpu0" not in pair else "PCIe5", 1, 400.0, "made") for pair in pairs)
        ports = tuple(f"{node}:{nic.name}" for node in self.names for nic in nics)
        cables = [NetworkLink((port, self.leaf(port.partition(":")[0])), "Ethernet", 1, RATE, "made") for port in ports]
        trunk = NetworkLink(("leaf0", "leaf1"), "Ethernet", 1, 2 * RATE, "made")
        switches = (NetworkSwitch("leaf0"), NetworkSwitch("leaf1"))
        network = Network(tuple(self.names), ports, switches, (*cables, trunk))
        scheme = "packed" if gpus else None
        return Topology("made", "", gpus, (Cpu("cpu0"),), (), nics, links, scheme, network=network)


@dataclass
class Truth:
    """What measurements crossed, worked out without the product: names of parts."""

    system: System
    inside: set[str] = field(default_factory=set)
    between: set[str] = field(default_factory=set)
    pairs: set[frozenset[str]] = field(default_factory=set)

    def cross(self, operation: str, members: list[tuple[str, int]]) -> None:
        nodes = sorted({node for node, _ in members})
        gpus = [f"{node}:gpu{index}" for node, index in members if self.system.gpus]
        if len(nodes) == 1:
            self.inside |= {nodes[0], *gpus}
            if operation == "host_to_device":
                self.inside |= {f"{node}:cpu0-{index}" for node, index in (each.split(":") for each in gpus)}
            self.inside |= set(links_between(operation, gpus))
            return
        self.between |= {*nodes, *gpus, *links_between(operation, gpus)}
        for node, index in members:
            nic = f"{node}:hsn{index * self.system.nics // max(self.system.gpus, 1)}"
            self.between |= {nic, f"{nic}--{self.system.leaf(node)}", self.system.leaf(node)}
        if len({self.system.leaf(each) for each in nodes}) == 2 and operation != "allreduce":
            self.between.add("leaf0--leaf1")
        if operation == "unidirectional":
            self.pairs.add(frozenset(nodes))


def links_between(operation: str, gpus: list[str]) -> Iterator[str]:
    """Those that surely are in use: of the rings of an allreduce over several links, none."""
    for node in {each.partition(":")[0] for each in gpus}:
        own = sorted(each for each in gpus if each.startswith(f"{node}:"))
        if operation != "allreduce" or len(own) == 2:
            yield from (f"{a}-{b.partition(':')[2]}" for a, b in combinations(own, 2))


def judged(system: System, members: list[tuple[str, int]], operation: str, verdict: Verdict) -> RunJudgement:
    samples = made_samples(operation, range(len(members)), MIB, RATE)
    nothing = Expectation(None, None, None, 0.0, "made")
    yardstick = Yardstick("floor", BOUND, BOUND, "made")
    metric = Judgement(
        operation, "Gb/s", "higher", RATE, (RATE, RATE), verdict, "", False, nothing, None, samples, yardstick
    )
    run = made_run([node for node, _ in members], [samples], devices=bool(system.gpus), transport="copy")
    ranks = tuple(
        replace(rank, device=replace(rank.device, index=index) if rank.device else None)
        for rank, (_, index) in zip(run.ranks, members, strict=True)
    )
    topology = system.topology()
    return RunJudgement(
        replace(run, ranks=ranks, footer={"proof": {}}),
        verdict,
        (),
        (metric,),
        topology=topology,
        nodes=system.nodes,
    )


def measurements(rng: np.random.Generator, system: System) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Random operations on random parts."""
    per_node = max(system.gpus, 1)
    for _ in range(rng.integers(0, 8)):
        nodes = list(rng.permutation(system.names)[: rng.integers(1, system.nodes + 1)])
        kind = rng.choice(["host_to_device", "unidirectional", "alltoall", "allreduce"])
        if kind == "host_to_device" and system.gpus:
            yield str(kind), [(str(nodes[0]), int(rng.integers(per_node)))]
        elif kind == "unidirectional" and len(nodes) > 1:
            yield str(kind), [(str(node), int(rng.integers(per_node))) for node in nodes[:2]]
        elif kind == "unidirectional" and per_node > 1:
            first, second = rng.permutation(per_node)[:2]
            yield str(kind), [(str(nodes[0]), int(first)), (str(nodes[0]), int(second))]
        elif kind in ("alltoall", "allreduce") and len(nodes) * per_node > 1:
            count = int(rng.integers(1 if len(nodes) > 1 else 2, per_node + 1))
            yield str(kind), [(str(node), index) for node in nodes for index in range(count)]


@pytest.mark.parametrize("seed", range(effort(200)))
def test_a_session_claims_what_its_measurements_crossed_and_no_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = int(rng.choice([0, 2, 4]))
    system = System(int(rng.integers(1, 6)), gpus, int(rng.choice([1, max(gpus, 1)])))
    truth, runs = Truth(system), []
    for operation, members in measurements(rng, system):
        verdict = Verdict(rng.choice(["PASS", "PASS", "DEGRADED", "FAIL", "INVALID", "INCOMPLETE"]))
        runs.append(judged(system, members, operation, verdict))
        if verdict not in (Verdict.INVALID, Verdict.INCOMPLETE):
            truth.cross(operation, members)
    coverage = coverage_of(runs)
    for seen in coverage.seen:
        if seen.component.kind is not Kind.DEVICE:
            name = seen.component.key
            assert (seen.inside, seen.between) == (name in truth.inside, name in truth.between), name
    assert coverage.pairs == len(truth.pairs)
    parts = [f"gpu{a}-gpu{b}" for a, b in combinations(range(gpus), 2)]
    parts += [f"{kind}{a}" for kind in ("cpu0-gpu", "gpu") for a in range(gpus)]
    nodes = truth.inside & set(system.names)
    whole = {node for node in nodes if {f"{node}:{part}" for part in parts} <= truth.inside}
    assert set(coverage.inside) == whole
    assert set(coverage.between) == truth.between & set(system.names)


def test_a_trunk_with_room_has_to_lose_more_than_the_pair() -> None:
    system = System(2, 2, 2)
    coverage = coverage_of([judged(system, [("n0", 0), ("n1", 0)], "unidirectional", Verdict.PASS)])
    losses = {each.component.text: each.smallest_loss for each in coverage.seen}
    assert losses["n0:hsn0--leaf0"] == pytest.approx(1 - BOUND / RATE)
    assert losses["leaf0--leaf1"] == pytest.approx(1 - BOUND / (2 * RATE))
    assert losses["n0:hsn1--leaf0"] is None


def test_what_its_check_does_not_trust_and_what_was_something_else_sees_nothing() -> None:
    run = judged(System(2, 2, 1), [("n0", 0), ("n1", 0)], "unidirectional", Verdict.PASS)
    for lost in (replace(run, trusted=False), run.with_problems([bad_finding(Verdict.INVALID, "made")])):
        assert not any(each.inside or each.between for each in coverage_of([lost]).seen)
    assert coverage_of([run]).of_kind(Kind.NODE)[0].component == Component.of_node("n0")
