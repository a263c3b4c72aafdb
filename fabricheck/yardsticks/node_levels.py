"""What holds for a metric on the nodes that it was measured on, where references know what these differ by."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fabricheck.records.judgement import Reference

_OF_NODE = "; of "


def is_of(reference: Reference, source: str) -> bool:
    """Whether it is of the source that has this provenance, be it as the level of some nodes."""
    return reference.provenance == source or reference.provenance.startswith(f"{source}{_OF_NODE}")


def of_nodes(provenance: str, nodes: Iterable[str]) -> str:
    """The provenance of levels of nodes."""
    return f"{provenance}{_OF_NODE}{', '.join(nodes)}"


def pair(nodes: Iterable[str]) -> str:
    """The name of some nodes whose metrics have a level together."""
    return "+".join(sorted(nodes))


def level_on(reference: Reference, hosts: frozenset[str]) -> Reference:
    """The reference of a metric between `hosts`, by their short names.

    Of nodes that have a level together it is that one; else what single nodes differ by adds up, in logarithms. Where
    some have no level, the bounds lie between those of nodes that have one and the general ones, as variances do: each
    node that is not known adds as much.
    """
    together = reference.nodes.get(pair(hosts))
    if together is not None:
        return together
    known = {host: reference.nodes[host] for host in sorted(hosts) if host in reference.nodes}
    if not known:
        return reference
    value = reference.value * math.prod(each.value / reference.value for each in known.values())
    unknown = 1 - len(known) / len(hosts)
    level = next(iter(known.values()))
    return Reference(
        value=value,
        lower=_between(level.lower, reference.lower, unknown),
        upper=_between(level.upper, reference.upper, unknown),
        unit=reference.unit,
        provenance=of_nodes(reference.provenance, known),
        once=reference.once,
    )


def _between(known: float | None, general: float | None, unknown: float) -> float | None:
    """A bound, as a share, where so large a share of the nodes is not known."""
    if known is None or general is None:
        return None
    squares = [math.log1p(each) ** 2 for each in (known, general)]
    return math.expm1(math.copysign(math.sqrt(squares[0] + unknown * (squares[1] - squares[0])), known or general))
