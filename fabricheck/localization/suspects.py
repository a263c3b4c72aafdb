"""What a search for faults found: suspects with their evidence, and what could not be told."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.records.component import Component


@dataclass(frozen=True)
class PairShare:
    """One pair over a suspect: its goodput as a share of what all healthy pairs give."""

    source: str
    destination: str
    round: int
    share: float


@dataclass(frozen=True)
class Suspect:
    """A fault: one of `components` (the data cannot tell which), all of `kind` or of `several`.

    `at_fault`: the same as components.
    `loss`, `low`, `high`: share that is lost, and its 95% interval. `evidence`: the pairs over it; where routes are
    unknown, those that may be. `p_value`: probability of such data
    in a healthy network, corrected for the `hypotheses`, all faults that the data can tell apart (Bonferroni).
    """

    components: tuple[str, ...]
    kind: str
    loss: float
    low: float
    high: float
    p_value: float
    hypotheses: int
    evidence: tuple[PairShare, ...]
    at_fault: tuple[Component, ...] = ()

    @property
    def place(self) -> str:
        """The components in words."""
        if len(self.components) > 1:
            return f"{', '.join(self.components[:-1])} or {self.components[-1]}"
        return self.components[0]

    @property
    def message(self) -> str:
        """One line for the administrator."""
        pairs = len(self.evidence)
        return (
            f"{self.place} loses {self.loss:.0%} ({self.low:.0%} to {self.high:.0%}): "
            f"{pairs} {'pair' if pairs == 1 else 'pairs'} over it, {_said(self.p_value)}, corrected for "
            f"{self.hypotheses} possible faults; look at link state, error counters and cables there"
        )


def _said(p_value: float) -> str:
    """A double has no number between 0 and 5e-324."""
    return f"p = {p_value:.1g}" if p_value > 0 else "p < 1e-300"


@dataclass(frozen=True)
class Localization:
    """What was found. `noise`: relative standard deviation of a reading; `scale`: what healthy pairs give of expected.

    `readings`: how many were used; `doubtful`: how many were not, since what to expect of them is not known.
    `closest`: components that explain best what is left, proven or not, then the suspects: what to measure again.
    `unseen`: components that no reading went over. `detectable`: by component, the least loss that is found in nine of
    ten cases.
    """

    suspects: tuple[Suspect, ...]
    noise: float
    scale: float
    readings: int
    doubtful: int
    closest: tuple[str, ...]
    unseen: tuple[str, ...]
    detectable: dict[str, float]
