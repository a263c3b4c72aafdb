"""Suspects of a screen that are healthy with known-good partners: what was measured again clears them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fabricheck.diagnosis.blame import Group
from fabricheck.diagnosis.network.localize import Localization
from fabricheck.diagnosis.network.routes import Ways, design
from fabricheck.records.component import either
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.topology.network import node_of

_FEWEST_PAIRS = 3
# The one-sided 99% quantile of the normal distribution.
_SURE = 2.33
# Of the loss in the screen (the lower end of its interval); a fault that comes and goes shows more again.
_LEFT = 0.5


def find_cleared(
    ways: Ways,
    found: Localization,
    again: Sequence[Sequence[tuple[tuple[str, str], float]]],
    *,
    duplex: bool,
    least_loss: float,
) -> Mapping[Group, Finding]:
    """The suspects in `found`, of a screen, that the rounds `again` clear: pairs and their goodput in Gb/s.

    Each component of such a suspect belongs to a node, has three pairs or more, and does not lose half of what it lost
    in the screen: that is 99% sure. Fewer pairs go at a time than in the screen, which by itself may give some per cent
    more: who lost less than `least_loss` there is not cleared.
    """
    made = design(ways, [[pair for pair, _ in one] for one in again], duplex=duplex)
    measured = np.array([goodput for one in again for _, goodput in one])
    shares = measured / made.expected_gbps / found.scale
    cleared: dict[Group, Finding] = {}
    for suspect in found.suspects:
        if suspect.low < least_loss:
            continue
        over = [
            shares[~made.doubtful & np.array([_is_over(ways, pair, part.text) for pair in made.places])]
            for part in suspect.components
        ]
        if all(each.size >= _FEWEST_PAIRS and _most_lost(each, found.noise) < _LEFT * suspect.low for each in over):
            worst = min(over, key=lambda each: float(np.median(each)))
            text = (
                f"{either(suspect.at_fault)} looked slow in the screen ({suspect.loss:.0%} lost) and is healthy: "
                f"{worst.size} pairs with known-good partners reached {np.median(worst):.0%} of healthy pairs"
            )
            cleared[suspect] = Finding("cleared", Verdict.PASS, text, suspect.at_fault)
    return cleared


def _is_over(ways: Ways, pair: tuple[str, str], component: str) -> bool:
    """Whether a pair of nodes or ports surely goes over a node, a port or a cable of a node; never for other parts."""
    own = component.partition("--")[0]
    return any(own in (place, node_of(place)) or ways.ports(place) == (own,) for place in pair)


def _most_lost(shares: np.ndarray[tuple[int], np.dtype[np.float64]], noise: float) -> float:
    """The upper end of what is lost; one reading that is far out is not enough for it to be little."""
    worth = np.log(shares)
    spread = max(noise, float(worth.std(ddof=1)))
    return -math.expm1(float(worth.mean()) - _SURE * spread / math.sqrt(worth.size))
