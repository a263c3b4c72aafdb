"""Suspects of a screen that are healthy with known-good partners: what was measured again clears them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fabricheck.diagnosis.network.localize import Localization, SlowGroup
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.judge.constants import FEWEST_FOR_MIDDLE, ONE_IN_100
from fabricheck.records.component import either
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import node_of


def find_cleared(
    ways: Ways,
    localization: Localization,
    again: Sequence[Sequence[tuple[tuple[str, str], float]]],
    *,
    duplex: bool,
    least_loss: float,
) -> Mapping[SlowGroup, Finding]:
    """The suspects in `found`, of a screen, that the rounds `again` clear: pairs and their goodput in Gb/s.

    Each component of such a suspect belongs to a node, has three pairs or more, and does not lose half of what it lost
    in the screen: that is 99% sure. Who lost less than `least_loss` there, which so few rounds cannot make sure of, is
    compared with the pairs beside it, as fewer pairs at a time may by themselves give some per cent more; it is cleared
    where the rounds are more probable without the loss than with it: below half of it, where the noise is normal.
    """
    made = design(ways, [[pair for pair, _ in one] for one in again], duplex=duplex)
    measured = np.array([goodput for one in again for _, goodput in one])
    shares = measured / made.expected_gbps / localization.scale
    parts = [ways.position[part.text] for suspect in localization.suspects for part in suspect.components]
    touched = made.reading[made.way[np.isin(made.component, parts)]]
    beside = np.delete(shares, [*touched, *np.flatnonzero(made.doubtful)])
    cleared: dict[SlowGroup, Finding] = {}
    for suspect in localization.suspects:
        small = suspect.low < least_loss
        if small and beside.size < FEWEST_FOR_MIDDLE:
            continue
        level = float(np.median(beside)) if small else 1.0
        # Halfway between none and that in the screen (the lower end of its interval).
        most = (suspect.loss if small else suspect.low) / 2
        over = [
            shares[~made.doubtful & np.array([_is_over(ways, pair, part.text) for pair in made.places])] / level
            for part in suspect.components
        ]
        if all(
            each.size >= FEWEST_FOR_MIDDLE and _most_lost(each, localization.noise, 0.0 if small else ONE_IN_100) < most
            for each in over
        ):
            worst = min(over, key=lambda losses: float(np.median(losses)))
            text = (
                f"{either(suspect.at_fault)} is healthy: it lost {suspect.loss:.0%} in the first test, but "
                f"{worst.size} pairs with good partners reached {np.median(worst):.0%} of the rate of healthy pairs"
            )
            cleared[suspect] = Finding("cleared", Verdict.PASS, text, suspect.at_fault)
    return cleared


def _is_over(ways: Ways, pair: tuple[str, str], component: str) -> bool:
    """Whether a pair of nodes or ports surely goes over a node, a port or a cable of a node; never for other parts."""
    own = component.partition("--")[0]
    return any(own in (place, node_of(place)) or ways.ports(place) == (own,) for place in pair)


def _most_lost(shares: np.ndarray[tuple[int], np.dtype[np.float64]], noise: float, sure: float) -> float:
    """The upper end of what is lost; one reading that is far out is not enough for it to be little."""
    worth = np.log(shares)
    spread = max(noise, float(worth.std(ddof=1)))
    return -math.expm1(float(worth.mean()) - sure * spread / math.sqrt(worth.size))
