"""Which nodes keep a program from starting over all of them: by halves, and proved by adding each again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

#: Whether a program starts over these nodes.
Starts = Callable[[Sequence[str]], bool]


def find_guilty(nodes: Sequence[str], starts: Starts, suspects: Iterable[str] = ()) -> tuple[str, ...]:
    """The nodes with which it does not start, each of them twice, and without which it does; in their order.

    `suspects`: those that something has named already, which are tried last. A single node is never started: that has
    been done before. Fewer than half of the nodes are ever named: where more would be, it is not for the nodes, and
    none is. What does not start once and starts the second time is not named.

    Of n nodes with k guilty ones it takes about k log2(n / k) starts, those of the proof included.
    """
    named = set(suspects)
    ordered = [*(node for node in nodes if node not in named), *(node for node in nodes if node in named)]
    core, out = _split(ordered, starts)
    if len(core) <= len(out):
        # The first of all may be the guilty one, with which nobody starts.
        core, out = _split(ordered[::-1], starts)
    if len(core) <= len(out):
        return ()
    proved: set[str] = set()
    for node in out:
        if starts([*core, node]):
            core.append(node)
        else:
            proved.add(node)
    return tuple(node for node in nodes if node in proved)


def _split(nodes: Sequence[str], starts: Starts) -> tuple[list[str], list[str]]:
    """Nodes that start together, and those with which they do not."""
    core: list[str] = []
    out: list[str] = []
    left = [list(nodes)]
    while left:
        group = left.pop()
        if len(core) + len(group) < 2 or starts([*core, *group]):
            core += group
        elif len(group) == 1:
            out += group
        else:
            half = len(group) // 2
            left += [group[half:], group[:half]]
    return core, out
