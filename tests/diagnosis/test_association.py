from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.diagnosis.association import MeasuredAssociation, find_associations, infer_association
from fabricheck.errors import UserError
from fabricheck.records.run import Groups, Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology import nic
from tests.support.made_runs import MIB, made_run, made_samples
from tests.support.nodes import system

NIC = 200.0


def measured(scheme: str, gpus: int, nics: int, efficiency: float) -> dict[int, float]:
    """What a node would show if it were so."""

    def node(k: int) -> float:
        if scheme == "packed":
            return nic.packed(NIC, k, gpus // nics)
        return nic.round_robin(NIC, k, nics)

    return {k: efficiency * node(k) for k in range(1, gpus + 1)}


def infer(points: dict[int, float], gpus: int, **others: float) -> MeasuredAssociation:
    return infer_association(points, nic_gbps=NIC, gpus=gpus, **others)


# The systems of the paper (table 1, figure 2).
@pytest.mark.parametrize(
    ("name", "scheme", "nics"),
    [
        ("delta", "packed", 1),
        ("summit", "packed", 2),
        ("frontier", "packed", 4),
        ("perlmutter", "one-to-one", 4),
        ("aurora", "round-robin", 8),
    ],
)
@pytest.mark.parametrize("efficiency", [0.5, 0.9, 1.0])
def test_the_systems_of_the_paper_are_told_apart(name: str, scheme: str, nics: int, efficiency: float) -> None:
    topology = system(name)
    gpus = len(topology.gpus)
    points = {k: efficiency * nic.node_gbps(topology, k) for k in range(1, gpus + 1)}
    found = infer_association(points, nic_gbps=topology.nics[0].rate_gbps, gpus=gpus)
    assert (found.scheme, found.nics) == (scheme, nics)
    assert found.efficiency == pytest.approx(efficiency)


SCHEMES = [
    (scheme, gpus, nics)
    for gpus in (2, 4, 6, 8, 12)
    for nics in range(1, gpus + 1)
    for scheme in ("packed", "round-robin")
    if (scheme == "packed" and gpus % nics == 0) or (scheme == "round-robin" and nics > 1)
]


@given(
    case=st.sampled_from(SCHEMES),
    efficiency=st.floats(0.5, 1.0),
    seed=st.integers(0, 1 << 32),
)
def test_noise_never_makes_another_scheme_of_it(case: tuple[str, int, int], efficiency: float, seed: int) -> None:
    scheme, gpus, nics = case
    noise = np.random.default_rng(seed).uniform(-0.02, 0.02, gpus)
    clean = measured(scheme, gpus, nics, efficiency)
    points = {k: value * (1 + noise[k - 1]) for k, value in clean.items()}
    found = infer_association(points, nic_gbps=NIC, gpus=gpus)
    right = "one-to-one" if nics == gpus else scheme
    assert (found.scheme, found.nics) == (right, nics)


@given(points=st.lists(st.floats(1.0, 1000.0), min_size=8, max_size=8))
def test_what_fits_nothing_is_not_explained(points: list[float]) -> None:
    found = infer(dict(enumerate(points, start=1)), 8)
    if found.scheme not in (None, "dynamic"):
        assert found.deviation is not None
        assert found.deviation <= 0.05
    if found.scheme is None:
        assert found.nics is None


def test_a_few_numbers_of_gpus_do_not_tell() -> None:
    clean = measured("round-robin", 8, 4, 0.9)
    assert infer({1: clean[1]}, 8).scheme is None
    found = infer({k: clean[k] for k in (1, 2, 3, 4)}, 8)  # one-to-one until now
    assert found.scheme is None
    assert "several associations fit" in found.reason
    assert infer({k: clean[k] for k in (1, 2, 4, 5)}, 8).scheme == "round-robin"


def test_a_slow_nic_is_no_association() -> None:
    clean = measured("packed", 8, 4, 0.9)
    found = infer({**clean, 4: clean[4] * 0.8}, 8)
    assert found.scheme is None
    assert "no association fits" in found.reason


def test_a_broken_network_is_no_association() -> None:
    assert infer(measured("packed", 8, 4, 0.1), 8).scheme is None


def test_noise_that_is_known_widens_what_fits() -> None:
    clean = measured("packed", 8, 2, 0.9)
    points = {**clean, 6: clean[6] * 1.11}
    assert infer(points, 8).scheme is None
    assert infer(points, 8, noise=0.02).scheme == "packed"


def test_one_gpu_that_uses_all_nics_is_not_bound() -> None:
    assert infer(dict.fromkeys(range(1, 9), 8 * 0.9 * NIC), 8).scheme == "dynamic"


@pytest.mark.parametrize(
    ("points", "nic_gbps"), [({}, NIC), ({0: 1.0}, NIC), ({9: 1.0}, NIC), ({1: math.nan}, NIC), ({1: 1.0}, 0.0)]
)
def test_nonsense_is_a_mistake(points: dict[int, float], nic_gbps: float) -> None:
    with pytest.raises(UserError):
        infer_association(points, nic_gbps=nic_gbps, gpus=8)


def run_of(goodputs: dict[int, float]) -> Run:
    """Four ranks on each of two nodes, and the rail pattern with k of them active."""
    samples = [
        made_samples("rail_unidirectional", range(8), MIB, gbps, groups=Groups(2, 4, active))
        for active, gbps in goodputs.items()
    ]
    return made_run(["nid1"] * 4 + ["nid2"] * 4, samples)


def test_a_run_says_how_nics_are_used_and_whether_the_topology_does() -> None:
    emulated = system("emulated")
    run = run_of({1: 0.095, 2: 0.095, 3: 0.1425, 4: 0.19})
    (found,) = find_associations(run, emulated)
    assert not found.is_problem
    assert found.message.startswith("rail_unidirectional: association to NICs: packed over 2 NICs at 95%")
    (found,) = find_associations(run, replace(emulated, nic_scheme="round-robin"))
    assert found.verdict is Verdict.DEGRADED
    assert found.message.endswith("in the topology: round-robin")
    (found,) = find_associations(run, replace(emulated, nic_scheme="packed"))
    assert not found.is_problem
    assert not list(find_associations(replace(run, ranks=run.ranks[:4]), emulated))
    assert not list(find_associations(replace(run, samples=()), emulated))


@pytest.mark.parametrize(
    ("goodputs", "nics", "declared"),
    [
        ({1: 0.095, 2: 0.19, 3: 0.285, 4: 0.38}, 4, ("packed", "round-robin", "one-to-one")),
        ({1: 0.095, 2: 0.095, 3: 0.095, 4: 0.095}, 1, ("packed", "round-robin")),
    ],
)
def test_schemes_that_are_the_same_here_are_no_contradiction(
    goodputs: dict[int, float], nics: int, declared: tuple[str, ...]
) -> None:
    """A NIC for each GPU, or one for all: then they are packed as well as dealt out in turn."""
    emulated = system("emulated")
    own = replace(emulated, nics=tuple(replace(emulated.nics[0], name=f"hsn{n}") for n in range(nics)))
    for scheme in ("packed", "round-robin", "one-to-one"):
        (found,) = find_associations(run_of(goodputs), replace(own, nic_scheme=scheme))
        assert found.is_problem == (scheme not in declared)
