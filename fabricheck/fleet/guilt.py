"""Which nodes keep a program from starting over all of them: by halves, and proved by adding each again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

#: Whether a program starts over these nodes.
Starts = Callable[[Sequence[str]], bool]

# Of so many nodes all pairs may be tried.
_MOST_FOR_PAIRS = 16


def find_guilty(nodes: Sequence[str], starts: Starts, suspects: Iterable[str] = ()) -> tuple[str, ...]:
    """The nodes with which it does not start, each of them twice, and without which it does; in their order.

    `suspects`: those that something has named already, without which it is tried first. A single node is never started:
    that has been done before. Fewer than half of the nodes are ever named: where more would be, it is not for the
    nodes, and none is. What does not start once and starts the second time is not named.

    Of n nodes with k guilty ones it takes about 2 k log2(n / k) starts, and k for the proof.
    """
    named = set(suspects)
    core = [node for node in nodes if node not in named]
    if not 1 < len(core) < len(nodes) or not starts(core):
        core = _startable_subset(nodes, starts)
    out: list[str] = []
    left = [[node for node in nodes if node not in core]] if core else []
    while left:
        group = left.pop()
        if not group or starts([*core, *group]):
            core += group
        elif len(group) == 1:
            out += group
        else:
            left += _halves(group)[::-1]
    if len(core) <= len(out):
        return ()
    proved: set[str] = set()
    for node in out:
        if starts([*core, node]):
            core.append(node)
        else:
            proved.add(node)
    return tuple(node for node in nodes if node in proved)


def _startable_subset(nodes: Sequence[str], starts: Starts) -> list[str]:
    """Nodes that start together: all, else a half, a quarter, and so on; none where no two do."""
    groups = [list(nodes)]
    while any(len(group) > 1 for group in groups):
        for group in groups:
            if len(group) > 1 and starts(group):
                return group
        groups = [half for group in groups for half in _halves(group) if half]
    # The good ones of a few may all have stood beside another.
    pairs = combinations(nodes, 2) if len(nodes) <= _MOST_FOR_PAIRS else ()
    return next((list(pair) for pair in pairs if starts(pair)), [])


def _halves(group: Sequence[str]) -> list[list[str]]:
    half = len(group) // 2
    return [list(group[:half]), list(group[half:])]
