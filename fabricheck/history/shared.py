"""What metrics that got worse have in common: the part of the system that their paths share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

# Log likelihood by which the true one of two hypotheses falls behind in 1 of 100 cases at most (docs/pairwise.md).
_DOUBT = 2.7


@dataclass(frozen=True)
class Group:
    """Metrics, by index, that got worse and share what is in `components`; that may be nothing."""

    members: tuple[int, ...]
    components: frozenset[str]


def count_crossing(paths: Iterable[Iterable[str]]) -> dict[str, int]:
    """How many of the paths, each the components of a metric, cross each component."""
    found: dict[str, int] = {}
    for path in paths:
        for name in set(path):
            found[name] = found.get(name, 0) + 1
    return found


def groups(worse: Mapping[int, Iterable[str]], crossing: Mapping[str, int]) -> list[Group]:
    """The metrics that got worse, by index with their paths, in groups of one cause: most first.

    A group is what shares the component that most of the rest cross, of equal ones that of which the largest share got
    worse.
    """
    rest = {index: frozenset(path) for index, path in worse.items()}
    found = []
    while rest:
        affected = count_crossing(rest.values())
        best = min(affected, key=lambda name: (-affected[name], crossing[name], name), default=None)
        members = tuple(index for index, path in rest.items() if best in path) if best is not None else (min(rest),)
        found.append(Group(members, frozenset.intersection(*(rest.pop(index) for index in members))))
    return found


def blamed(
    components: Collection[str], crossing: Mapping[str, int], evidence: Mapping[str, float] | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """The component of a group to name, None where it shares none, and those that would explain it as well.

    `evidence`: by component, the log likelihood that all metrics that cross it got worse, over that only those of the
    group did. Where that does not tell, what few other metrics cross explains best that only these got worse; of
    equals a part, `node:nic0`, not its node.
    """
    known = evidence or {}

    def certainty(name: str) -> float:
        return known.get(name, 0.0)

    ranked = sorted(components, key=lambda name: (-certainty(name), crossing[name], -name.count(":"), name))
    if not ranked:
        return None, ()
    best = ranked[0]
    alike = [name for name in ranked[1:] if certainty(best) - certainty(name) < _DOUBT]
    # Without evidence for or against any of them, that fewer others cross it is what decides.
    undecided = all(certainty(name) == certainty(best) for name in alike)
    return best, tuple(name for name in alike if not undecided or crossing[name] == crossing[best])


def say(component: str, others: Iterable[str]) -> str:
    also = ", ".join(others)
    return f"{component} (or {also})" if also else component
