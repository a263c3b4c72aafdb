"""Which parts the data of a measurement pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabricheck.records.component import Kind
from fabricheck.topology.components import components_of
from tests.support.nodes import system, two_sockets
from tests.support.synthetic import judged, rank, samples


@pytest.mark.parametrize(
    ("told", "plan", "nics"),
    [
        (("hsn2",), "near", {"hsn2"}),
        (("cxi2",), "hsn2", {"hsn2"}),  # libfabric's own name for it
        (("cxi2",), "near", set()),
        (("hsn0", "hsn1"), "all", {"hsn0", "hsn1"}),
    ],
)
def test_nics_of_a_node_are_those_that_the_run_names(told: tuple[str, ...], plan: str, nics: set[str]) -> None:
    record = samples((0,), 1 << 28, operation="local_copy")
    ranks = [replace(rank(0), nics=told)]
    run = judged([], [record], ranks=ranks, transport="fabric", plan={"nic": plan}).run
    parts = components_of(run, record, system("alps"))
    assert {part.name for part in parts if part.kind is Kind.NIC} == nics
    # Between the NIC and its memory lies the GPU's link to the rest of the node.
    assert any(part.kind is Kind.LINK and "gpu0" in (part.name, part.far) for part in parts)


def test_what_a_gpu_sends_by_a_nic_of_another_socket_passes_the_link_between_them() -> None:
    record = samples((0,), 1 << 28, operation="local_copy")
    for nic, between in (("mlx0", False), ("mlx1", True)):
        ranks = [replace(rank(0), nics=(nic,))]
        run = judged([], [record], ranks=ranks, transport="fabric", plan={"nic": nic}).run
        links = {(part.name, part.far) for part in components_of(run, record, two_sockets(150.0)) if part.far}
        assert (("cpu0", "cpu1") in links) == between
        assert ("cpu1" if between else "cpu0", nic) in links
