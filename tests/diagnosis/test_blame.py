from __future__ import annotations

import numpy as np
import pytest

from fabricheck.diagnosis.blame import blame_best, count_crossing, group_slow, loss_evidence
from fabricheck.records.component import Component, Kind

NODE = Component.of_node("n0")
GPU, LINK = Component(Kind.GPU, "gpu0", "n0"), Component(Kind.LINK, "gpu0", "n0", "sw", "n0")
NCCL, DRIVER = Component(Kind.LIBRARY, "NCCL"), Component(Kind.DRIVER, "CUDA driver")
ALL = (NODE, GPU, LINK, NCCL, DRIVER)
CROSSING = {NODE: 20, GPU: 10, LINK: 8, NCCL: 8, DRIVER: 40}


def test_without_evidence_what_the_fewest_cross_is_blamed_and_the_part_before_its_node() -> None:
    assert blame_best((NODE, GPU), {NODE: 6, GPU: 6}) == (GPU, NODE)
    assert blame_best((NODE, GPU), {NODE: 9, GPU: 6}) == (GPU,)


def test_software_that_changed_goes_before_hardware() -> None:
    assert blame_best(ALL, CROSSING, changed={NCCL}) == (NCCL,)
    assert blame_best(ALL, CROSSING, changed={DRIVER}) == (LINK, DRIVER)


def test_what_fast_ones_of_the_same_test_cross_is_not_blamed_although_it_changed() -> None:
    same_test = {NCCL: -24.0, NODE: -24.0, DRIVER: -24.0}
    assert blame_best(ALL, CROSSING, [same_test], {NCCL, DRIVER}) == (LINK,)


def test_fast_ones_by_other_means_clear_all_but_software_that_changed() -> None:
    others = {NODE: -40.0, GPU: -30.0, LINK: -20.0, DRIVER: -40.0}
    assert blame_best(ALL, CROSSING, [{}, others]) == (NCCL,)
    assert blame_best(ALL, CROSSING, [{}, others], {NCCL, DRIVER}) == (NCCL,)  # which explains it better
    assert blame_best(ALL, CROSSING, [{}, others], {DRIVER}) == (NCCL, DRIVER)


def test_a_group_is_what_shares_what_explains_it_and_not_what_all_cross() -> None:
    other = Component(Kind.GPU, "gpu7", "n7")
    slow = {0: (GPU, DRIVER), 1: (GPU, DRIVER), 2: (other, DRIVER)}
    crossing = count_crossing([*slow.values(), *[(DRIVER,)] * 5])
    fast = {DRIVER: -20.0}
    assert [each.members for each in group_slow(slow, crossing, fast)] == [(0, 1), (2,)]
    assert [each.members for each in group_slow(slow, crossing)] == [(0, 1, 2)]


def test_what_a_measurement_says_of_a_loss() -> None:
    shift, error = np.array([0.0, 0.05, 0.025, np.nan, 0.0, 0.0]), np.array([0.01, 0.01, 0.01, 0.01, 1.0, 0.0])
    links = [Component(Kind.LINK, f"gpu{number}", "n1", far="gpu7") for number in range(6)]
    evidence = loss_evidence(shift, error, 0.05, [(link, DRIVER) for link in links])
    assert [evidence[link] for link in links] == pytest.approx([-4.0, 4.0, 0.0, 0.0, 0.0, -4.0], abs=0.01)
    assert evidence[DRIVER] == pytest.approx(-4.0, abs=0.01)
